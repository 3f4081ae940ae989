"""How groups whose members heartbeat (consumer, share) are kept in the meta store: what both kinds have in common.

A group is a fact (key: its name), and each member is one (key: the JSON array [group, member id]), so that a change of one member of many
writes little. Values are msgpack arrays that begin with a format version; new fields are appended, with a default. Topic ids
are 16 bytes.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from sparrow.base.errors import DirectoryUnreadable, InvalidArgument, NewerFormat
from sparrow.broker.groups.consumer.member import NOTHING, Assignment, by_topic
from sparrow.meta.checks import MAX_NAME_BYTES
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparrow.broker.groups.changes import Changes
    from sparrow.broker.groups.members import MemberGroup
    from sparrow.meta.store import Fact, MetaStore, Write

MAX_SAID_BYTES: Final = 1 << 20
StoredPartitions = dict[bytes, list[int]]


class Versioned(Protocol):
    """The first field of every value."""

    version: int


V = TypeVar("V", bound=Versioned)
W = TypeVar("W", bound=Versioned)
M = TypeVar("M")
_encode = msgspec.msgpack.Encoder().encode
_decode_key = msgspec.json.Decoder(tuple[str, str]).decode


@dataclass(frozen=True, slots=True)
class FactKinds:
    """The kinds of the two facts of a kind of groups."""

    group: str
    member: str

    def writes(
        self,
        group: MemberGroup[M],
        changes: Changes,
        group_fact: Callable[[], Versioned],
        member_fact: Callable[[M, Assignment], Versioned],
    ) -> list[Write]:
        """What makes the store know a group as it is now.

        Args:
            member_fact: the value for a member and its target.
        """
        result: list[Write] = []
        if changes.group:
            result.append(Put(self.group, group.name, _encode(group_fact())))
        for member_id in sorted(changes.members):
            key = member_key(group.name, member_id)
            member = group.members.get(member_id)
            if member is None:
                result.append(Delete(self.member, key))
            else:
                target = group.targets.get(member_id, NOTHING)
                result.append(Put(self.member, key, _encode(member_fact(member, target))))
        return result

    def deletes(self, name: str, member_ids: Iterable[str]) -> list[Write]:
        """What makes the store forget a group."""
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
        """The values of all groups of the store by name, each with those of its members by id.

        Raises:
            DirectoryUnreadable, NewerFormat: a fact cannot be read.
        """
        groups: dict[str, tuple[V, dict[str, W]]] = {}
        for fact in await meta.scan(self.group):
            groups[fact.key] = (read(fact, decode_group, newest), {})
        for fact in await meta.scan(self.member):
            name, member_id = names_of(fact)
            if name in groups:
                groups[name][1][member_id] = read(fact, decode_member, newest)
        return groups


def member_key(group: str, member_id: str) -> str:
    """The key of a member's fact."""
    return msgspec.json.encode((group, member_id)).decode()


def names_of(fact: Fact) -> tuple[str, str]:
    """The group and the member id of a member's fact.

    Raises:
        DirectoryUnreadable
    """
    try:
        return _decode_key(fact.key)
    except msgspec.DecodeError as error:
        raise _unreadable(fact, error) from error


def check_storable(group: str, member_id: str, *said: str | bytes) -> None:
    """Whether the store can keep a member. One that it cannot keep would stand in the way of all that the group writes.

    Args:
        said: what the member says of itself that has no limit of its own.

    Raises:
        InvalidArgument: the names, or what it says, are too long.
    """
    if len(member_key(group, member_id).encode()) > MAX_NAME_BYTES:
        raise InvalidArgument(
            f"The names of group {group[:40]!r} and of its member {member_id[:40]!r} are too long together: they have"
            f" {len(group) + len(member_id)} characters."
        )
    size = sum(len(each) for each in said)
    if size > MAX_SAID_BYTES:
        raise InvalidArgument(
            f"The subscription of member {member_id!r} has {size} bytes; at most {MAX_SAID_BYTES} are possible."
        )


def read(fact: Fact, decode: Callable[[bytes], V], newest: int) -> V:
    """The value of a fact.

    Args:
        newest: the latest format version that this Sparrow knows.

    Raises:
        DirectoryUnreadable, NewerFormat
    """
    try:
        stored = decode(fact.value)
    except msgspec.DecodeError as error:
        raise _unreadable(fact, error) from error
    if stored.version > newest:
        raise NewerFormat(
            f"{fact.kind} {fact.key!r} was stored by a newer Sparrow (format {stored.version}, known is {newest}); use that"
            " version."
        )
    return stored


def pack(partitions: Assignment) -> StoredPartitions:
    """Partitions as they are stored."""
    return {topic_id.bytes: numbers for topic_id, numbers in by_topic(partitions).items()}


def unpack(stored: StoredPartitions) -> Assignment:
    """The opposite of `pack`."""
    return frozenset(
        (uuid.UUID(bytes=topic_id), number) for topic_id, numbers in stored.items() for number in numbers
    )


def _unreadable(fact: Fact, error: Exception) -> DirectoryUnreadable:
    return DirectoryUnreadable(
        f"The meta store holds a {fact.kind} that cannot be read, {fact.key!r}: {error}. Put back a backup of the data directory,"
        " or delete this fact."
    )
