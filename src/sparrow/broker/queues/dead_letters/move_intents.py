"""Moves of records to another topic that are about to happen, persisted before they are done. Pure.

    queue-move    <queue id>/<producer id>
                  [version, subscriber, source topic id, source partition, ranges,
                   target topic id, target partition, target offset]

The batch that is appended to the target carries the producer id, which no other batch ever has. So
after a crash one look at the headers of the target's batches from the offset on shows if the move
took place; records are not read for that, and need not carry anything.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import DirectoryUnreadable, NewerFormat
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    from sparrow.meta.store import Entry

KIND: Final = "queue-move"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class MoveIntent:
    """One batch that is about to be appended."""

    queue_id: uuid.UUID
    producer_id: int
    subscriber: str
    source_topic_id: uuid.UUID
    source_partition: int
    ranges: tuple[tuple[int, int], ...]
    """Offsets [first, end) of the records."""
    target_topic_id: uuid.UUID
    target_partition: int
    target_offset: int
    """End of the target before the move: the batch is there or later."""

    @property
    def key(self) -> str:
        return f"{self.queue_id.hex}/{self.producer_id}"

    def put(self) -> Put:
        """Return the write that persists it."""
        stored = _Stored(
            VERSION,
            self.subscriber,
            self.source_topic_id.bytes,
            self.source_partition,
            list(self.ranges),
            self.target_topic_id.bytes,
            self.target_partition,
            self.target_offset,
        )
        return Put(KIND, self.key, msgspec.msgpack.encode(stored))

    def delete(self) -> Delete:
        """Return the write that deletes it."""
        return Delete(KIND, self.key)


class _Stored(msgspec.Struct, array_like=True):
    version: int
    subscriber: str
    source_topic_id: bytes
    source_partition: int
    ranges: list[tuple[int, int]]
    target_topic_id: bytes
    target_partition: int
    target_offset: int


def decode(entry: Entry) -> MoveIntent:
    """Return the intent that an entry holds.

    Raises:
        DirectoryUnreadable, NewerFormat
    """
    try:
        queue_id, _, producer_id = entry.key.partition("/")
        stored = msgspec.msgpack.decode(entry.value, type=_Stored)
        if stored.version > VERSION:
            raise NewerFormat(f"the {KIND} {entry.key!r} was written by a later Sparrow; start that one")
        return MoveIntent(
            uuid.UUID(queue_id),
            int(producer_id),
            stored.subscriber,
            uuid.UUID(bytes=stored.source_topic_id),
            stored.source_partition,
            tuple(stored.ranges),
            uuid.UUID(bytes=stored.target_topic_id),
            stored.target_partition,
            stored.target_offset,
        )
    except (msgspec.DecodeError, ValueError) as error:
        raise DirectoryUnreadable(
            f"the {KIND} {entry.key!r} of the meta store cannot be read ({error}); restore meta.db "
            "from a backup"
        ) from None
