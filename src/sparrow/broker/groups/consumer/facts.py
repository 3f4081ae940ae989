"""Consumer groups in the meta store.

A group is a fact of kind "consumer-group" (key: its name) and one of kind "consumer-group-member" for each member (key: the JSON array
[group, member id]), so that a change of one member of many writes little. Values are msgpack arrays that begin with a format
version; new fields are appended, with a default. Topic ids are 16 bytes.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from sparrow.base.errors import DirectoryUnreadable, InvalidArgument, NewerFormat
from sparrow.broker.groups.consumer.member import (
    Assignment,
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    by_topic,
)
from sparrow.meta.checks import MAX_NAME_BYTES
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparrow.broker.groups.consumer.group import Changes, ConsumerGroup
    from sparrow.meta.store import Fact, MetaStore, Write

GROUP_KIND: Final = "consumer-group"
MEMBER_KIND: Final = "consumer-group-member"
MAX_SAID_BYTES: Final = 1 << 20
_VERSION: Final = 1
_Partitions = dict[bytes, list[int]]


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
    assigned: _Partitions
    pending_revocation: _Partitions
    target: _Partitions


F = TypeVar("F", _GroupFact, _MemberFact)
_encode = msgspec.msgpack.Encoder().encode
_decode_group = msgspec.msgpack.Decoder(_GroupFact).decode
_decode_member = msgspec.msgpack.Decoder(_MemberFact).decode
_decode_key = msgspec.json.Decoder(tuple[str, str]).decode


def writes(group: ConsumerGroup, changes: Changes) -> list[Write]:
    """What makes the store know a group as it is now."""
    result: list[Write] = []
    if changes.group:
        names = {regex: sorted(topics) for regex, topics in group.regexes.items()}
        fact = _GroupFact(_VERSION, group.epoch, group.assignment_epoch, group.digest, names)
        result.append(Put(GROUP_KIND, group.name, _encode(fact)))
    for member_id in sorted(changes.members):
        key = _member_key(group.name, member_id)
        member = group.members.get(member_id)
        if member is None:
            result.append(Delete(MEMBER_KIND, key))
        else:
            target = group.targets.get(member_id, frozenset())
            result.append(Put(MEMBER_KIND, key, _encode(_member_fact(member, target))))
    return result


def check_storable(group: str, member_id: str, *said: str | bytes) -> None:
    """Whether the store can keep a member. One that it cannot keep would stand in the way of all that the group writes.

    Args:
        said: what the member says of itself that has no limit of its own.

    Raises:
        InvalidArgument: the names, or what it says, are too long.
    """
    if len(_member_key(group, member_id).encode()) > MAX_NAME_BYTES:
        raise InvalidArgument(
            f"The names of group {group[:40]!r} and of its member {member_id[:40]!r} are too long together: they have"
            f" {len(group) + len(member_id)} characters."
        )
    size = sum(len(each) for each in said)
    if size > MAX_SAID_BYTES:
        raise InvalidArgument(
            f"The subscription of member {member_id!r} has {size} bytes; at most {MAX_SAID_BYTES} are possible."
        )


def deletes(name: str, member_ids: Iterable[str]) -> list[Write]:
    """What makes the store forget a group."""
    return [
        Delete(GROUP_KIND, name),
        *(Delete(MEMBER_KIND, _member_key(name, each)) for each in sorted(member_ids)),
    ]


async def load(meta: MetaStore, make: Callable[[str], ConsumerGroup]) -> list[ConsumerGroup]:
    """All groups of the store; `make` gives an empty one.

    Raises:
        DirectoryUnreadable, NewerFormat: a fact cannot be read.
    """
    groups: dict[str, ConsumerGroup] = {}
    for fact in await meta.scan(GROUP_KIND):
        stored = _read(fact, _decode_group)
        group = groups[fact.key] = make(fact.key)
        group.epoch, group.assignment_epoch, group.digest = (
            stored.epoch,
            stored.assignment_epoch,
            stored.digest,
        )
        group.regexes = {regex: frozenset(names) for regex, names in stored.regexes.items()}
    for fact in await meta.scan(MEMBER_KIND):
        name, member_id = _key_of(fact)
        owner = groups.get(name)
        if owner is not None:
            owner.restore([_member(member_id, _read(fact, _decode_member))])
    for group in groups.values():
        group.take_changes()
    return list(groups.values())


def _member_key(group: str, member_id: str) -> str:
    return msgspec.json.encode((group, member_id)).decode()


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
        _pack(member.assigned),
        _pack(member.pending_revocation),
        _pack(target),
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
        assigned=_unpack(stored.assigned),
        pending_revocation=_unpack(stored.pending_revocation),
    )
    return member, _unpack(stored.target)


def _pack(partitions: Assignment) -> _Partitions:
    return {topic_id.bytes: numbers for topic_id, numbers in by_topic(partitions).items()}


def _unpack(stored: _Partitions) -> Assignment:
    return frozenset(
        (uuid.UUID(bytes=topic_id), number) for topic_id, numbers in stored.items() for number in numbers
    )


def _key_of(fact: Fact) -> tuple[str, str]:
    try:
        return _decode_key(fact.key)
    except msgspec.DecodeError as error:
        raise _unreadable(fact, error) from error


def _read(fact: Fact, decode: Callable[[bytes], F]) -> F:
    try:
        stored = decode(fact.value)
    except msgspec.DecodeError as error:
        raise _unreadable(fact, error) from error
    if stored.version > _VERSION:
        raise NewerFormat(
            f"{fact.kind} {fact.key!r} was stored by a newer Sparrow (format {stored.version}, known is {_VERSION}); use that"
            " version."
        )
    return stored


def _unreadable(fact: Fact, error: Exception) -> DirectoryUnreadable:
    return DirectoryUnreadable(
        f"The meta store holds a {fact.kind} that cannot be read, {fact.key!r}: {error}. Put back a backup of the data directory,"
        " or delete this fact."
    )
