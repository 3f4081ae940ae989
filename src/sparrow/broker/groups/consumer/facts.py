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
    StoredPartitions,
    check_storable,
    member_key,
    names_of,
    pack,
    read,
    unpack,
)
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparrow.broker.groups.changes import Changes
    from sparrow.broker.groups.consumer.group import ConsumerGroup
    from sparrow.meta.store import MetaStore, Write

__all__ = ["GROUP_KIND", "MEMBER_KIND", "check_storable", "deletes", "load", "writes"]

GROUP_KIND: Final = "consumer-group"
MEMBER_KIND: Final = "consumer-group-member"
_VERSION: Final = 1


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


_encode = msgspec.msgpack.Encoder().encode
_decode_group = msgspec.msgpack.Decoder(_GroupFact).decode
_decode_member = msgspec.msgpack.Decoder(_MemberFact).decode


def writes(group: ConsumerGroup, changes: Changes) -> list[Write]:
    """What makes the store know a group as it is now."""
    result: list[Write] = []
    if changes.group:
        names = {regex: sorted(topics) for regex, topics in group.regexes.items()}
        fact = _GroupFact(_VERSION, group.epoch, group.assignment_epoch, group.digest, names)
        result.append(Put(GROUP_KIND, group.name, _encode(fact)))
    for member_id in sorted(changes.members):
        key = member_key(group.name, member_id)
        member = group.members.get(member_id)
        if member is None:
            result.append(Delete(MEMBER_KIND, key))
        else:
            target = group.targets.get(member_id, frozenset())
            result.append(Put(MEMBER_KIND, key, _encode(_member_fact(member, target))))
    return result


def deletes(name: str, member_ids: Iterable[str]) -> list[Write]:
    """What makes the store forget a group."""
    return [
        Delete(GROUP_KIND, name),
        *(Delete(MEMBER_KIND, member_key(name, each)) for each in sorted(member_ids)),
    ]


async def load(meta: MetaStore, make: Callable[[str], ConsumerGroup]) -> list[ConsumerGroup]:
    """All groups of the store; `make` gives an empty one.

    Raises:
        DirectoryUnreadable, NewerFormat: a fact cannot be read.
    """
    groups: dict[str, ConsumerGroup] = {}
    for fact in await meta.scan(GROUP_KIND):
        stored = read(fact, _decode_group, _VERSION)
        group = groups[fact.key] = make(fact.key)
        group.epoch, group.assignment_epoch, group.digest = (
            stored.epoch,
            stored.assignment_epoch,
            stored.digest,
        )
        group.regexes = {regex: frozenset(names) for regex, names in stored.regexes.items()}
    for fact in await meta.scan(MEMBER_KIND):
        name, member_id = names_of(fact)
        owner = groups.get(name)
        if owner is not None:
            owner.restore([_member(member_id, read(fact, _decode_member, _VERSION))])
    for group in groups.values():
        group.take_changes()
    return list(groups.values())


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
