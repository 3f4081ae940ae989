"""Consumer groups in the meta store: entries of kind "consumer-group" and "consumer-group-member",
in the form that `groups.persistence` describes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.broker.groups.consumer.member import (
    Assignment,
    ClassicMetadata,
    ConsumerMember,
    MemberState,
)
from sparrow.broker.groups.persistence import (
    EntryKinds,
    StoredPartitions,
    check_storable,
    pack,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.groups.changes import GroupChanges
    from sparrow.broker.groups.consumer.group import ConsumerGroup
    from sparrow.meta.store import MetaStore, Write

__all__ = ["GROUP_KIND", "MEMBER_KIND", "check_storable", "deletes", "load", "writes"]

GROUP_KIND: Final = "consumer-group"
MEMBER_KIND: Final = "consumer-group-member"
_KINDS: Final = EntryKinds(GROUP_KIND, MEMBER_KIND)
_VERSION: Final = 1

deletes = _KINDS.deletes


class _GroupEntry(msgspec.Struct, array_like=True):
    version: int
    epoch: int
    assignment_epoch: int
    digest: bytes
    regexes: dict[str, list[str]]


class _MemberEntry(msgspec.Struct, array_like=True):
    version: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    server_assignor: str | None
    topics: tuple[str, ...]
    regex: str | None
    classic: tuple[int, tuple[tuple[str, bytes], ...]] | None
    epoch: int
    previous_epoch: int
    state: int
    assigned: StoredPartitions
    pending_revocation: StoredPartitions
    target: StoredPartitions


_decode_group = msgspec.msgpack.Decoder(_GroupEntry).decode
_decode_member = msgspec.msgpack.Decoder(_MemberEntry).decode


def writes(group: ConsumerGroup, changes: GroupChanges) -> list[Write]:
    """Return the writes that store the changes of a group."""
    return _KINDS.writes(group, changes, lambda: _group_entry(group), _member_entry)


async def load(meta: MetaStore, make: Callable[[str], ConsumerGroup]) -> list[ConsumerGroup]:
    """Return all groups of the store; `make` creates an empty one.

    Raises:
        DirectoryUnreadable, NewerFormat: an entry cannot be read.
    """
    groups: list[ConsumerGroup] = []
    for name, (stored, members) in (await _KINDS.load(meta, _decode_group, _decode_member, _VERSION)).items():
        group = make(name)
        group.epoch = stored.epoch
        group.assignment_epoch = stored.assignment_epoch
        group.digest = stored.digest
        group.regexes = {regex: frozenset(names) for regex, names in stored.regexes.items()}
        group.restore(_member(member_id, member) for member_id, member in members.items())
        group.take_changes()
        groups.append(group)
    return groups


def _group_entry(group: ConsumerGroup) -> _GroupEntry:
    names = {regex: sorted(topics) for regex, topics in group.regexes.items()}
    return _GroupEntry(_VERSION, group.epoch, group.assignment_epoch, group.digest, names)


def _member_entry(member: ConsumerMember, target: Assignment) -> _MemberEntry:
    classic = member.classic
    return _MemberEntry(
        _VERSION,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.server_assignor,
        member.topics,
        member.regex,
        None if classic is None else (classic.session_timeout_ms, classic.protocols),
        member.epoch,
        member.previous_epoch,
        member.state.value,
        pack(member.assigned),
        pack(member.pending_revocation),
        pack(target),
    )


def _member(member_id: str, stored: _MemberEntry) -> tuple[ConsumerMember, Assignment]:
    member = ConsumerMember(
        member_id,
        instance_id=stored.instance_id,
        rack_id=stored.rack_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        server_assignor=stored.server_assignor,
        topics=stored.topics,
        regex=stored.regex,
        classic=None if stored.classic is None else ClassicMetadata(*stored.classic),
        epoch=stored.epoch,
        previous_epoch=stored.previous_epoch,
        state=MemberState(stored.state),
        assigned=unpack(stored.assigned),
        pending_revocation=unpack(stored.pending_revocation),
    )
    return member, unpack(stored.target)
