"""A classic group in the meta store, so that a restart of the broker does not disturb a stable group.

A fact of kind "classic-group" has as key the group's name and as value the msgpack array [generation, protocol type, protocol, leader,
members], each member an array as `_Member` has it. New fields are appended, with a default. It is written when the leader's
assignment comes, when a static member replaces itself, and when the last member is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import DirectoryUnreadable
from sparrow.broker.groups.classic.group import ClassicGroup, ClassicLimits
from sparrow.broker.groups.classic.member import ClassicMember
from sparrow.meta.store import Put

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.meta.store import Fact

KIND: Final = "classic-group"


class _Member(msgspec.Struct, array_like=True, frozen=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class _Group(msgspec.Struct, array_like=True, frozen=True):
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[_Member, ...]


def fact_of(group: ClassicGroup, assignments: Mapping[str, bytes] | None = None) -> Put:
    """The group as a fact; with assignments that are not in force yet, if given."""
    members = tuple(_member(m, assignments) for m in group.members.values())
    value = _Group(group.generation, group.protocol_type, group.protocol, group.leader, members)
    return Put(KIND, group.name, msgspec.msgpack.encode(value))


def _member(member: ClassicMember, assignments: Mapping[str, bytes] | None) -> _Member:
    return _Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.protocols,
        member.assignment if assignments is None else assignments.get(member.member_id, b""),
    )


def group_of(fact: Fact, limits: ClassicLimits, now: float) -> ClassicGroup:
    """The group that a fact tells of; its members' sessions begin now.

    Raises:
        DirectoryUnreadable
    """
    try:
        value = msgspec.msgpack.decode(fact.value, type=_Group)
    except msgspec.DecodeError as exc:
        raise DirectoryUnreadable(
            f"The meta store holds a classic group that cannot be read, {fact.key!r}: {exc}. Put back a backup of the data "
            "directory, or delete this fact."
        ) from exc
    members = [
        ClassicMember(
            m.member_id,
            m.instance_id,
            m.client_id,
            m.client_host,
            m.session_timeout_ms,
            m.rebalance_timeout_ms,
            m.protocols,
            m.assignment,
        )
        for m in value.members
    ]
    return ClassicGroup.restored(
        fact.key,
        members,
        now,
        generation=value.generation,
        protocol_type=value.protocol_type,
        protocol=value.protocol,
        leader=value.leader,
        limits=limits,
    )
