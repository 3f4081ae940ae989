"""Requests and responses of classic groups (Kafka: JoinGroup, SyncGroup, LeaveGroup), independent
of the versions on the wire.

Times are in milliseconds. Metadata and assignments are bytes that only members understand (and
`consumer.protocol`, for members that read topics).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Mapping


class JoinRequest(Struct, frozen=True):
    """A request to become a member, or to join again. `member_id` "": a new member."""

    group: str
    member_id: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata) in the member's order of preference."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    """A static member's name (KIP-345)."""
    client_id: str = ""
    client_host: str = ""
    requires_member_id: bool = False
    """True if a new dynamic member has to join again with an id from the broker (JoinGroup 4,
    KIP-394).
    """
    can_skip_assignment: bool = False
    """True if a leader that comes back can be asked to keep the assignment (JoinGroup 9,
    KIP-814).
    """


class JoinedMember(Struct, frozen=True):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResponse(Struct, frozen=True):
    """The complete generation. `members` is empty for all but the leader."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncRequest(Struct, frozen=True):
    """A request for the member's assignment; the leader's has the assignments of all members.
    Protocol type and name are None before SyncGroup 5.
    """

    group: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


class SyncResponse(Struct, frozen=True):
    """A member's assignment."""

    protocol_type: str
    protocol: str
    assignment: bytes


class Leaver(Struct, frozen=True):
    """A member that leaves. `member_id` "" with an instance id: an administrator removes it."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""
