"""Share groups in the meta store: facts of kind "share-group" and "share-group-member", as `stored` says.

Which partitions a group reads, and how far, is the matter of its queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.broker.groups.share.member import ShareMember
from sparrow.broker.groups.stored import (
    StoredPartitions,
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
    from sparrow.broker.groups.consumer.member import Assignment
    from sparrow.broker.groups.share.group import ShareGroup
    from sparrow.meta.store import MetaStore, Write

GROUP_KIND: Final = "share-group"
MEMBER_KIND: Final = "share-group-member"
_VERSION: Final = 1


class _GroupFact(msgspec.Struct, array_like=True):
    version: int
    epoch: int
    assignment_epoch: int
    digest: bytes


class _MemberFact(msgspec.Struct, array_like=True):
    version: int
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    epoch: int
    previous_epoch: int
    assigned: StoredPartitions
    target: StoredPartitions


_encode = msgspec.msgpack.Encoder().encode
_decode_group = msgspec.msgpack.Decoder(_GroupFact).decode
_decode_member = msgspec.msgpack.Decoder(_MemberFact).decode


def writes(group: ShareGroup, changes: Changes) -> list[Write]:
    """What makes the store know a group as it is now."""
    result: list[Write] = []
    if changes.group:
        fact = _GroupFact(_VERSION, group.epoch, group.assignment_epoch, group.digest)
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


async def load(meta: MetaStore, make: Callable[[str], ShareGroup]) -> list[ShareGroup]:
    """All groups of the store; `make` gives an empty one.

    Raises:
        DirectoryUnreadable, NewerFormat: a fact cannot be read.
    """
    groups: dict[str, ShareGroup] = {}
    for fact in await meta.scan(GROUP_KIND):
        stored = read(fact, _decode_group, _VERSION)
        group = groups[fact.key] = make(fact.key)
        group.epoch = stored.epoch
        group.assignment_epoch = stored.assignment_epoch
        group.digest = stored.digest
    for fact in await meta.scan(MEMBER_KIND):
        name, member_id = names_of(fact)
        owner = groups.get(name)
        if owner is not None:
            owner.restore(*_member(member_id, read(fact, _decode_member, _VERSION)))
    return list(groups.values())


def _member_fact(member: ShareMember, target: Assignment) -> _MemberFact:
    return _MemberFact(
        _VERSION,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topics,
        member.epoch,
        member.previous_epoch,
        pack(member.assigned),
        pack(target),
    )


def _member(member_id: str, stored: _MemberFact) -> tuple[ShareMember, Assignment]:
    member = ShareMember(
        member_id,
        rack_id=stored.rack_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        topics=stored.topics,
        epoch=stored.epoch,
        previous_epoch=stored.previous_epoch,
        assigned=unpack(stored.assigned),
    )
    return member, unpack(stored.target)
