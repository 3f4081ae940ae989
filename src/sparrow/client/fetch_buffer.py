"""The fetch buffer of a subscription: received records, the positions of the user, and the credit
to return.

Each partition has four offsets, each the *next* one to come, that only grow while the partition is
assigned:

    committed ≤ processed ≤ handed ≤ fetched ≤ what waits in the queue

- *fetched*: taken from the queue and decoded. Reading continues here after a lost connection: what
  waited in the queue is fetched again.
- *handed*: given to the user. `commit()` commits this offset.
- *processed*: given to the user before the last step, so certainly processed when the next step is
  asked for. Automatic commits commit this offset.

A DELIVER frame waits encoded, so queued records cost only their bytes. Each record is handed out
once, through one list iterator (`rest`) that every way of reading shares: message by message, in
batches, by number.

A batch that cannot be read is skipped and remembered (`skips_corrupt`), or it stops the reading:
the batches before it are handed out, then `refill` raises each time, and the delivery stays in the
queue.

Pure: no loop, no socket, no clock.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, NamedTuple

from sparrow.base.errors import CorruptBatch
from sparrow.records.batch import parse_header
from sparrow.records.readable import decode_readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparrow.records.batch import BatchHeader
    from sparrow.records.record import Record
    from sparrow.records.topic_partition import TopicPartition


_MAX_SKIPPED = 100
_COPY_BELOW = 4
"""A view that is less than a fourth of the memory that it keeps alive is copied."""


class PartitionCursor:
    """The offsets of one partition."""

    __slots__ = ("committed", "fetched", "handed", "is_assigned", "partition", "processed", "topic")

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self.topic = topic
        self.partition = partition
        self.fetched = self.handed = self.processed = self.committed = offset
        self.is_assigned = True
        """False once the partition is being revoked: nothing more of it is handed out."""


class _Delivery(NamedTuple):
    cursor: PartitionCursor
    offset: int
    next_offset: int
    data: bytes | memoryview


class FetchBuffer:
    """The fetch buffer of one subscription. Loop thread only, except that another thread may
    iterate over `rest` and set `last`.
    """

    def __init__(self, *, skips_corrupt: bool = False) -> None:
        self._skips_corrupt = skips_corrupt
        self.skipped: deque[CorruptBatch] = deque(maxlen=_MAX_SKIPPED)
        """Skipped batches, the latest last; they are removed when they are reported."""
        self.skipped_batches = 0
        """Number of batches that were skipped since the beginning."""
        self.cursors: dict[TopicPartition, PartitionCursor] = {}
        """Partitions that are assigned or being revoked."""
        self.rest: Iterator[Record] = iter(())
        """Decoded and not handed out; always the same object until the next `refill`."""
        self.last: Record | None = None
        """The record of `rest` that was handed out last. Set by the code that iterates over
        `rest`.
        """
        self.unreturned_bytes = 0
        """Bytes taken from the queue (or dropped) and not returned as credit."""
        self._queue: deque[_Delivery] = deque()
        self._current: PartitionCursor | None = None
        self._current_end = 0
        self._touched: dict[PartitionCursor, None] = {}

    # ── partitions ────────────────────────────────────────────────────────────────────────────────

    def assign(self, topic: str, partition: int, offset: int) -> None:
        """Add a partition that is read from `offset` on."""
        self.cursors[topic, partition] = PartitionCursor(topic, partition, offset)

    def stop(self, keys: Iterable[TopicPartition]) -> None:
        """Hand out nothing more of these partitions; their offsets stay known until `forget`."""
        for key in keys:
            cursor = self.cursors.get(key)
            if cursor is not None:
                cursor.is_assigned = False
                if cursor is self._current:
                    self._cut()
        self._drop_stopped()

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Remove revoked partitions."""
        for key in keys:
            self.cursors.pop(key, None)

    def interrupt(self) -> dict[TopicPartition, int]:
        """Discard queued records after a disconnect. Return the next offset of each partition."""
        self._queue.clear()
        self.unreturned_bytes = 0
        return {key: cursor.fetched for key, cursor in self.cursors.items() if cursor.is_assigned}

    def resume(self, topic: str, partition: int, offset: int) -> None:
        """Continue with a partition on a new connection; records that were handed out are not
        handed out again.
        """
        cursor = self.cursors[topic, partition]
        cursor.is_assigned = True
        if offset > cursor.fetched:  # other members read on meanwhile
            if cursor is self._current:
                self._cut()
            cursor.fetched = cursor.handed = cursor.processed = cursor.committed = offset

    def empty(self) -> None:
        """Hand out nothing more, also to a running iteration over `rest`."""
        deque(self.rest, maxlen=0)
        self._queue.clear()

    def holds(self, keys: Iterable[TopicPartition]) -> bool:
        """Return True if the user has records of these partitions in hand, handed out in the last
        step.
        """
        self._note()
        cursors = (self.cursors.get(key) for key in keys)
        return any(cursor is not None and cursor.processed < cursor.handed for cursor in cursors)

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────

    def deliver(self, key: TopicPartition, offset: int, next_offset: int, batches: memoryview) -> None:
        """Queue the records of a partition; drop them if the partition is not assigned."""
        cursor = self.cursors.get(key)
        if cursor is None or not cursor.is_assigned:
            self.unreturned_bytes += len(batches)
            return
        data: bytes | memoryview = batches
        if len(batches) * _COPY_BELOW < memoryview(batches.obj).nbytes:
            data = bytes(batches)
        self._queue.append(_Delivery(cursor, offset, next_offset, data))

    @property
    def has_more(self) -> bool:
        """True if a record may be handed out without waiting."""
        return bool(self._queue) or length_hint(self.rest) > 0

    @property
    def queued_bytes(self) -> int:
        """Size of the batches that wait, encoded."""
        return sum(len(delivery.data) for delivery in self._queue)

    # ── handing out ───────────────────────────────────────────────────────────────────────────────

    def step(self) -> None:
        """Mark everything handed out before as processed: the user asks for more."""
        self._note()
        for cursor in self._touched:
            cursor.processed = cursor.handed
        self._touched.clear()

    def refill(self) -> bool:
        """If `rest` is used up, decode the next queued delivery that has records into it; return
        False if there is none.

        Raises:
            CorruptBatch: the next batch cannot be read; it stays in the queue. The error names its
                position.
        """
        return length_hint(self.rest) > 0 or self._refill() is not None

    def take_batch(self) -> list[Record]:
        """Return the rest of the current delivery, or all of the next; [] if there is none."""
        records = list(self.rest) or self._refill() or []
        self.rest = iter(())
        if records:
            self._taken(records)
        return records

    def take(self, max_records: int) -> list[Record]:
        """Return at most `max_records` of the buffered records."""
        taken: list[Record] = []
        while len(taken) < max_records:
            more = list(islice(self.rest, max_records - len(taken)))
            if more:
                taken += more
                self._taken(more)
            elif not self._refill_behind(taken):
                break
        return taken

    def _refill_behind(self, taken: list[Record]) -> bool:
        """Refill, but hand out records that were taken already before raising an error."""
        try:
            return self.refill()
        except CorruptBatch:
            if not taken:
                raise
            return False

    def _refill(self) -> list[Record] | None:
        self._finish_current()
        while self._queue:
            delivery = self._queue[0]
            cursor = delivery.cursor
            records = self._decoded(delivery)
            delivery = self._queue.popleft()
            self.unreturned_bytes += len(delivery.data)
            if cursor.is_assigned and delivery.next_offset > cursor.fetched:
                cursor.fetched = delivery.next_offset
                self._current, self._current_end, self.last = cursor, delivery.next_offset, None
                if records:
                    self.rest = iter(records)
                    return records
                self._finish_current()
        return None

    def _decoded(self, delivery: _Delivery) -> list[Record]:
        """Return the records of the delivery at the head of the queue, from its offset on. It may
        be several batches, back to back.

        If one cannot be read, the delivery is cut: the batches before it stay at the head, the
        others follow as a second delivery.
        """
        cursor = delivery.cursor
        if not cursor.is_assigned:
            return []
        min_offset = max(delivery.offset, cursor.fetched)
        records: list[Record] = []
        view, position = memoryview(delivery.data), 0
        while position < len(view):
            header = parse_header(view, position)
            end = position + header.size_bytes
            batch = delivery.data if len(view) == end - position else view[position:end]
            try:
                records += decode_readable(
                    batch, cursor.topic, cursor.partition, min_offset=min_offset, header=header
                )
            except CorruptBatch as error:
                if header.next_offset > min_offset:
                    self._corrupt(delivery, position, header, error)
                    if not self._skips_corrupt:
                        break
            position = end
        return records

    def _corrupt(self, delivery: _Delivery, position: int, header: BatchHeader, error: CorruptBatch) -> None:
        if self._skips_corrupt:
            self.skipped.append(error)
            self.skipped_batches += 1
        elif not position:
            raise error
        else:
            view = memoryview(delivery.data)
            self._queue[0] = delivery._replace(next_offset=header.base_offset, data=view[:position])
            self._queue.insert(1, delivery._replace(offset=header.base_offset, data=view[position:]))

    def _finish_current(self) -> None:
        """Count everything of the current delivery as handed out."""
        self._note()
        if self._current is not None and self._current.is_assigned:
            self._current.handed = self._current_end
        self._current = self.last = None

    def _note(self) -> None:
        """Record the progress of the iteration over `rest`."""
        cursor = self._current
        if cursor is None:
            return
        if self.last is not None:
            self._iterated(cursor, self.last.offset)
        if not length_hint(self.rest):
            cursor.handed = self._current_end
            self._touched[cursor] = None

    def _iterated(self, cursor: PartitionCursor, offset: int) -> None:
        """Record that the user has the record at `offset` in hand, and has processed those before
        it.
        """
        cursor.processed = max(cursor.processed, offset)
        cursor.handed = max(cursor.handed, offset + 1)
        self._touched[cursor] = None

    def _taken(self, records: list[Record]) -> None:
        """Record that the user got these records of the current delivery in one step."""
        assert self._current is not None  # they are of it
        self._current.handed = max(self._current.handed, records[-1].offset + 1)
        self._touched[self._current] = None
        self.last = None

    def _cut(self) -> None:
        """Hand out nothing more of the current delivery, also to a running iteration."""
        cursor = self._current
        if cursor is None:
            return
        if self.last is not None:
            self._iterated(cursor, self.last.offset)
        deque(self.rest, maxlen=0)
        self._current = self.last = None

    def _drop_stopped(self) -> None:
        dropped = [delivery for delivery in self._queue if not delivery.cursor.is_assigned]
        if dropped:
            self.unreturned_bytes += sum(len(delivery.data) for delivery in dropped)
            self._queue = deque(delivery for delivery in self._queue if delivery.cursor.is_assigned)

    # ── offsets ───────────────────────────────────────────────────────────────────────────────────

    def to_commit(self, *, only_processed: bool) -> dict[TopicPartition, int]:
        """Return what a commit would add: the next offset of each partition where it grew since the
        last commit.
        """
        self._note()
        return {
            key: offset
            for key, cursor in self.cursors.items()
            if (offset := cursor.processed if only_processed else cursor.handed) > cursor.committed
        }

    def committed(self, offsets: dict[TopicPartition, int]) -> None:
        """Record a durable commit."""
        for key, offset in offsets.items():
            cursor = self.cursors.get(key)
            if cursor is not None:
                cursor.committed = offset
