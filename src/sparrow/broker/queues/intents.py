"""What a queue is about to move to another topic, kept before it is done. Pure.

    queue-move    <queue id>/<producer id>    [version, subscriber, source topic id, source partition, ranges,
                                               target topic id, target partition, target offset]

The batch that is appended to the target carries the producer id, which no other batch ever has. So after a crash one look at the
headers of the target's batches from the offset on tells whether the move took place; records are not read for that, and need not
carry anything.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import DirectoryUnreadable, NewerFormat
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    from sparrow.meta.store import Fact

KIND: Final = "queue-move"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Intent:
    """One batch that is to be appended."""

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
    """Where the target ended before: the batch lies there or later."""

    @property
    def key(self) -> str:
        return f"{self.queue_id.hex}/{self.producer_id}"

    def put(self) -> Put:
        """What keeps it."""
        kept = _Kept(
            VERSION,
            self.subscriber,
            self.source_topic_id.bytes,
            self.source_partition,
            list(self.ranges),
            self.target_topic_id.bytes,
            self.target_partition,
            self.target_offset,
        )
        return Put(KIND, self.key, msgspec.msgpack.encode(kept))

    def delete(self) -> Delete:
        """What forgets it."""
        return Delete(KIND, self.key)


class _Kept(msgspec.Struct, array_like=True):
    version: int
    subscriber: str
    source_topic_id: bytes
    source_partition: int
    ranges: list[tuple[int, int]]
    target_topic_id: bytes
    target_partition: int
    target_offset: int


def decode(fact: Fact) -> Intent:
    """The intent that a fact holds.

    Raises:
        DirectoryUnreadable, NewerFormat
    """
    try:
        queue_id, _, producer_id = fact.key.partition("/")
        kept = msgspec.msgpack.decode(fact.value, type=_Kept)
        if kept.version > VERSION:
            raise NewerFormat(f"the {KIND} {fact.key!r} was written by a later Sparrow; start that one")
        return Intent(
            uuid.UUID(queue_id),
            int(producer_id),
            kept.subscriber,
            uuid.UUID(bytes=kept.source_topic_id),
            kept.source_partition,
            tuple(kept.ranges),
            uuid.UUID(bytes=kept.target_topic_id),
            kept.target_partition,
            kept.target_offset,
        )
    except (msgspec.DecodeError, ValueError) as error:
        raise DirectoryUnreadable(
            f"the {KIND} {fact.key!r} of the meta store cannot be read ({error}); restore meta.db from a backup"
        ) from None
