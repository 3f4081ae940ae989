"""Consumer groups in the meta store: facts of kind "consumer-group" and "consumer-group-member", as `stored` says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.broker.groups.consumer.member import (
    Assignment,
    ClassicMetadata,
    ConsumerMember,
    MemberState,
)
from sparrow.broker.groups.stored import (
    FactKinds,
    StoredPartitions,
    check_storable,
    pack,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.groups.changes import Changes
    from sparrow.broker.groups.consumer.group import ConsumerGroup
    from sparrow.meta.store import MetaStore, Write

__all__ = ["GROUP_KIND", "MEMBER_KIND", "check_storable", "deletes", "load", "writes"]

GROUP_KIND: Final = "consumer-group"
MEMBER_KIND: Final = "consumer-group-member"
_KINDS: Final = FactKinds(GROUP_KIND, MEMBER_KIND)
_VERSION: Final = 1

deletes = _KINDS.deletes


class _GroupFact(msgspec.Struct, array_like=True):
    version: int
    epoch: int
    assignment_epoch: int
    digest: bytes
    regexes: dict[str, list[str]]


class _MemberFact(msgspec.Struct, array_like=True):
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


_decode_group = msgspec.msgpack.Decoder(_GroupFact).decode
_decode_member = msgspec.msgpack.Decoder(_MemberFact).decode


def writes(group: ConsumerGroup, changes: Changes) -> list[Write]:
    """What makes the store know a group as it is now."""
    return _KINDS.writes(group, changes, lambda: _group_fact(group), _member_fact)


async def load(meta: MetaStore, make: Callable[[str], ConsumerGroup]) -> list[ConsumerGroup]:
    """All groups of the store; `make` gives an empty one.

    Raises:
        DirectoryUnreadable, NewerFormat: a fact cannot be read.
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


def _group_fact(group: ConsumerGroup) -> _GroupFact:
    names = {regex: sorted(topics) for regex, topics in group.regexes.items()}
    return _GroupFact(_VERSION, group.epoch, group.assignment_epoch, group.digest, names)


def _member_fact(member: ConsumerMember, target: Assignment) -> _MemberFact:
    classic = member.classic
    return _MemberFact(
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


def _member(member_id: str, stored: _MemberFact) -> tuple[ConsumerMember, Assignment]:
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
