"""Entries of groups whose members heartbeat (consumer, share): the part that both kinds share.

A group is an entry (key: its name), and each member is an entry (key: the JSON array [group, member
id]), so that a change of one member of many writes little. Values are msgpack arrays that begin
with a format version; new fields are appended, with a default. Topic ids are 16 bytes.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from sparrow.base.errors import InvalidArgument
from sparrow.broker import entries
from sparrow.broker.entries import Versioned
from sparrow.broker.groups.consumer.member import NOTHING, Assignment, by_topic
from sparrow.meta.checks import MAX_NAME_BYTES
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparrow.broker.groups.changes import GroupChanges
    from sparrow.broker.groups.member_group import MemberGroup
    from sparrow.meta.store import Entry, MetaStore, Write

MAX_SAID_BYTES: Final = 1 << 20
StoredPartitions = dict[bytes, list[int]]


V = TypeVar("V", bound=Versioned)
W = TypeVar("W", bound=Versioned)
M = TypeVar("M")
_encode = msgspec.msgpack.Encoder().encode
_decode_key = msgspec.json.Decoder(tuple[str, str]).decode


class EntryKinds(msgspec.Struct, frozen=True):
    """The entry kinds of one kind of groups: one for groups, one for members."""

    group: str
    member: str

    def writes(
        self,
        group: MemberGroup[M],
        changes: GroupChanges,
        group_entry: Callable[[], Versioned],
        member_entry: Callable[[M, Assignment], Versioned],
    ) -> list[Write]:
        """Return the writes that store the changes of a group.

        Args:
            member_entry: returns the value for a member and its target.
        """
        result: list[Write] = []
        if changes.group:
            result.append(Put(self.group, group.name, _encode(group_entry())))
        for member_id in sorted(changes.members):
            key = member_key(group.name, member_id)
            member = group.members.get(member_id)
            if member is None:
                result.append(Delete(self.member, key))
            else:
                target = group.targets.get(member_id, NOTHING)
                result.append(Put(self.member, key, _encode(member_entry(member, target))))
        return result

    def deletes(self, name: str, member_ids: Iterable[str]) -> list[Write]:
        """Return the writes that delete a group."""
        return [
            Delete(self.group, name),
            *(Delete(self.member, member_key(name, each)) for each in sorted(member_ids)),
        ]

    async def load(
        self,
        meta: MetaStore,
        decode_group: Callable[[bytes], V],
        decode_member: Callable[[bytes], W],
        newest: int,
    ) -> dict[str, tuple[V, dict[str, W]]]:
        """Return the values of all groups in the store, by name, each with those of its members by
        id.

        Raises:
            DirectoryUnreadable, NewerFormat: an entry cannot be read.
        """
        groups: dict[str, tuple[V, dict[str, W]]] = {}
        for entry in await meta.scan(self.group):
            groups[entry.key] = (entries.read(entry, decode_group, newest), {})
        for entry in await meta.scan(self.member):
            name, member_id = names_of(entry)
            if name in groups:
                groups[name][1][member_id] = entries.read(entry, decode_member, newest)
        return groups


def member_key(group: str, member_id: str) -> str:
    """Return the key of a member's entry."""
    return msgspec.json.encode((group, member_id)).decode()


def names_of(entry: Entry) -> tuple[str, str]:
    """Return the group and the member id of a member's entry.

    Raises:
        DirectoryUnreadable
    """
    with entries.readable(entry):
        return _decode_key(entry.key)


def check_storable(group: str, member_id: str, *said: str | bytes) -> None:
    """Raise an error if the store cannot keep a member: its entry would make every later write of
    the group fail.

    Args:
        said: values that the member sends and that have no other limit.

    Raises:
        InvalidArgument: the names, or the values, are too long.
    """
    if len(member_key(group, member_id).encode()) > MAX_NAME_BYTES:
        raise InvalidArgument(
            f"The names of group {group[:40]!r} and of its member {member_id[:40]!r} are too long "
            "together: they have"
            f" {len(group) + len(member_id)} characters."
        )
    size = sum(len(each) for each in said)
    if size > MAX_SAID_BYTES:
        raise InvalidArgument(
            f"The subscription of member {member_id!r} has {size} bytes; at most {MAX_SAID_BYTES} "
            "are possible."
        )


def pack(partitions: Assignment) -> StoredPartitions:
    """Return partitions in their stored form."""
    return {topic_id.bytes: numbers for topic_id, numbers in by_topic(partitions).items()}


def unpack(stored: StoredPartitions) -> Assignment:
    """Return partitions from their stored form."""
    return frozenset(
        (uuid.UUID(bytes=topic_id), number) for topic_id, numbers in stored.items() for number in numbers
    )
