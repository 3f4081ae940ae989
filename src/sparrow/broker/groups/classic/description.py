"""Descriptions of classic groups, as Kafka has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from sparrow.broker.groups.description import GroupState


class ClassicMemberDescription(Struct, frozen=True):
    """A member with its metadata and assignment, which only members understand; both are empty
    unless the group is stable.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class ClassicDescription(Struct, frozen=True):
    """A classic group as Kafka describes it. `protocol` is "" unless the group is stable."""

    group: str
    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[ClassicMemberDescription, ...]
