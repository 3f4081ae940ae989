"""Metadata and assignments of consumers in a classic group (protocol type "consumer").

    subscription  version int16, topics [string], user data bytes,
                  from version 1: owned partitions as in an assignment,
                  from version 2: generation int32, from version 3: rack string
    assignment    version int16, [topic string, partitions [int32]], user data bytes

Both begin the same in all versions, so the version does not matter here. Strings have an int16
length, arrays and bytes an int32 one. Bytes in another format are no error: members may use their
own protocol.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparrow.records.topic_partition import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NULL: Final = -1


class _Malformed(ValueError):
    pass


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a subscription, or None if it is none."""
    try:
        reader = _Reader(metadata)
        return frozenset(reader.string() for _ in range(reader.count(2)))
    except (_Malformed, struct.error, UnicodeDecodeError):
        return None


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of an assignment, sorted; none if it is no such assignment."""
    try:
        reader = _Reader(assignment)
        return tuple(sorted((topic, p) for topic, ps in reader.topics() for p in ps))
    except (_Malformed, struct.error, UnicodeDecodeError):
        return ()


class ConsumerSubscription(Struct, frozen=True):
    """The topics that a consumer wants and, if it releases partitions one by one (KIP-429), the
    partitions that it has.
    """

    version: int
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    rack_id: str | None = None


def read_subscription(metadata: bytes) -> ConsumerSubscription | None:
    """Return all fields of a subscription, or None if it is none."""
    try:
        reader = _Reader(metadata)
        topics = tuple(reader.string() for _ in range(reader.count(2)))
        reader.data()
        owned = reader.topics() if reader.version >= 1 else []
        rack_id = reader.rack() if reader.version >= 3 else None
    except (_Malformed, struct.error, UnicodeDecodeError):
        return None
    return ConsumerSubscription(reader.version, topics, tuple((t, n) for t, ns in owned for n in ns), rack_id)


def read_assignment(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """Return the partitions of an assignment; None if it is none, or holds more than partitions."""
    if not assignment:
        return ()
    try:
        reader = _Reader(assignment)
        partitions = tuple((topic, number) for topic, numbers in reader.topics() for number in numbers)
        return None if reader.data() else partitions
    except (_Malformed, struct.error, UnicodeDecodeError):
        return None


def write_assignment(version: int, topics: Iterable[tuple[str, Sequence[int]]]) -> bytes:
    """Encode partition numbers by topic as an assignment without user data."""
    listed = list(topics)
    parts = [_INT16.pack(version), _INT32.pack(len(listed))]
    for topic, numbers in listed:
        name = topic.encode()
        parts += [_INT16.pack(len(name)), name, struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join([*parts, _INT32.pack(_NULL)])


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = _INT16.size
        self.version: int = _INT16.unpack_from(data)[0]
        if self.version < 0:
            raise _Malformed

    def data(self) -> bytes:
        """Read user data; empty where it is null."""
        size = self._int32()
        if size == _NULL:
            return b""
        start, self._at = self._at, self._at + size
        if size < 0 or self._at > len(self._data):
            raise _Malformed
        return self._data[start : self._at]

    def rack(self) -> str | None:
        """Read the rack, which follows the generation."""
        self._int32()
        (size,) = _INT16.unpack_from(self._data, self._at)
        return None if size == _NULL else self.string()

    def string(self) -> str:
        (size,) = _INT16.unpack_from(self._data, self._at)
        start = self._at + _INT16.size
        self._at = start + size
        if size < 0 or self._at > len(self._data):
            raise _Malformed
        return self._data[start : self._at].decode()

    def count(self, smallest: int) -> int:
        """Read the number of elements that follow, each of `smallest` bytes at least."""
        count = self._int32()
        if not 0 <= count * smallest <= len(self._data) - self._at:
            raise _Malformed
        return count

    def topics(self) -> list[tuple[str, list[int]]]:
        return [(self.string(), [self._int32() for _ in range(self.count(4))]) for _ in range(self.count(6))]

    def _int32(self) -> int:
        (value,) = _INT32.unpack_from(self._data, self._at)
        self._at += _INT32.size
        return int(value)
