"""Share groups in the meta store: entries of kind "share-group" and "share-group-member", in the
form that `groups.persistence` describes.

The queue of a group stores which partitions it reads, and its progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.broker.groups.persistence import (
    EntryKinds,
    StoredPartitions,
    pack,
    unpack,
)
from sparrow.broker.groups.share.member import ShareMember

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.groups.changes import GroupChanges
    from sparrow.broker.groups.consumer.member import Assignment
    from sparrow.broker.groups.share.group import ShareGroup
    from sparrow.meta.store import MetaStore, Write

GROUP_KIND: Final = "share-group"
MEMBER_KIND: Final = "share-group-member"
_KINDS: Final = EntryKinds(GROUP_KIND, MEMBER_KIND)
_VERSION: Final = 1

deletes = _KINDS.deletes


class _GroupEntry(msgspec.Struct, array_like=True):
    version: int
    epoch: int
    assignment_epoch: int
    digest: bytes


class _MemberEntry(msgspec.Struct, array_like=True):
    version: int
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    epoch: int
    previous_epoch: int
    assigned: StoredPartitions
    target: StoredPartitions


_decode_group = msgspec.msgpack.Decoder(_GroupEntry).decode
_decode_member = msgspec.msgpack.Decoder(_MemberEntry).decode


def writes(group: ShareGroup, changes: GroupChanges) -> list[Write]:
    """Return the writes that store the changes of a group."""
    return _KINDS.writes(group, changes, lambda: _group_entry(group), _member_entry)


async def load(meta: MetaStore, make: Callable[[str], ShareGroup]) -> list[ShareGroup]:
    """Return all groups of the store; `make` creates an empty one.

    Raises:
        DirectoryUnreadable, NewerFormat: an entry cannot be read.
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


def _group_entry(group: ShareGroup) -> _GroupEntry:
    return _GroupEntry(_VERSION, group.epoch, group.assignment_epoch, group.digest)


def _member_entry(member: ShareMember, target: Assignment) -> _MemberEntry:
    return _MemberEntry(
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


def _member(member_id: str, stored: _MemberEntry) -> tuple[ShareMember, Assignment]:
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
