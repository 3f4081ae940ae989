"""Classic groups in the meta store, so that a restart of the broker does not disturb a stable
group.

The key of an entry of kind "classic-group" is the group's name, its value the msgpack array
[generation, protocol type, protocol, leader, members]; each member is an array of the fields of
`_Member`. New fields are appended, with a default. The entry is written when the leader's
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

    from sparrow.meta.store import Entry

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


def entry_of(group: ClassicGroup, assignments: Mapping[str, bytes] | None = None) -> Put:
    """Return the entry of a group, with assignments that are not in force yet, if given."""
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


def group_of(entry: Entry, limits: ClassicLimits, now: float) -> ClassicGroup:
    """Return the group of an entry; its members' sessions begin now.

    Raises:
        DirectoryUnreadable
    """
    try:
        value = msgspec.msgpack.decode(entry.value, type=_Group)
    except msgspec.DecodeError as exc:
        raise DirectoryUnreadable(
            f"The meta store holds a classic group that cannot be read, {entry.key!r}: {exc}. Put "
            "back a backup of the data "
            "directory, or delete this entry."
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
        entry.key,
        members,
        now,
        generation=value.generation,
        protocol_type=value.protocol_type,
        protocol=value.protocol,
        leader=value.leader,
        limits=limits,
    )
