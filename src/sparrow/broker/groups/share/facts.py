"""Share groups in the meta store: facts of kind "share-group" and "share-group-member", as `stored` says.

Which partitions a group reads, and how far, is the matter of its queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.broker.groups.share.member import ShareMember
from sparrow.broker.groups.stored import (
    FactKinds,
    StoredPartitions,
    pack,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.groups.changes import Changes
    from sparrow.broker.groups.consumer.member import Assignment
    from sparrow.broker.groups.share.group import ShareGroup
    from sparrow.meta.store import MetaStore, Write

GROUP_KIND: Final = "share-group"
MEMBER_KIND: Final = "share-group-member"
_KINDS: Final = FactKinds(GROUP_KIND, MEMBER_KIND)
_VERSION: Final = 1

deletes = _KINDS.deletes


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


_decode_group = msgspec.msgpack.Decoder(_GroupFact).decode
_decode_member = msgspec.msgpack.Decoder(_MemberFact).decode


def writes(group: ShareGroup, changes: Changes) -> list[Write]:
    """What makes the store know a group as it is now."""
    return _KINDS.writes(group, changes, lambda: _group_fact(group), _member_fact)


async def load(meta: MetaStore, make: Callable[[str], ShareGroup]) -> list[ShareGroup]:
    """All groups of the store; `make` gives an empty one.

    Raises:
        DirectoryUnreadable, NewerFormat: a fact cannot be read.
    """
    groups: list[ShareGroup] = []
    for name, (stored, members) in (await _KINDS.load(meta, _decode_group, _decode_member, _VERSION)).items():
        group = make(name)
        group.epoch = stored.epoch
        group.assignment_epoch = stored.assignment_epoch
        group.digest = stored.digest
        for member_id, member in members.items():
            group.restore(*_member(member_id, member))
        groups.append(group)
    return groups


def _group_fact(group: ShareGroup) -> _GroupFact:
    return _GroupFact(_VERSION, group.epoch, group.assignment_epoch, group.digest)


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
