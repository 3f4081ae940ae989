"""What came for a subscription, and what of it was handed out: queue, positions, credit.

Per partition four offsets, each the *next* one to come, that only ever grow while the partition is ours:

    committed ≤ processed ≤ handed ≤ fetched ≤ what waits in the queue

- *fetched*: taken from the queue and decoded. Where reading goes on after a lost link: what waited in the queue is fetched again.
- *handed*: given to the user. What `commit()` commits.
- *processed*: given to the user before the last step, so surely done with when the next step is asked for. What automatic commits commit.

A DELIVER frame waits undecoded, so what is queued costs its bytes and no more. Each record is handed out once, through one list
iterator (`rest`) that every way of reading shares: message by message, in batches, by number.

Pure: no loop, no socket, no clock.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, NamedTuple

from sparrow.records.batch import parse_header
from sparrow.records.record import Record, decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Key = tuple[str, int]

_COPY_BELOW = 4
"""A view that is less than a fourth of what it keeps alive is copied."""


class Cursor:
    """One partition that is ours."""

    __slots__ = ("committed", "fetched", "handed", "is_ours", "partition", "processed", "topic")

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self.topic = topic
        self.partition = partition
        self.fetched = self.handed = self.processed = self.committed = offset
        self.is_ours = True
        """False: nothing more of it is handed out."""


class _Delivery(NamedTuple):
    cursor: Cursor
    offset: int
    next_offset: int
    data: bytes | memoryview


class Intake:
    """One subscription's. Loop thread only, but that another thread may iterate over `rest` and set `last`."""

    def __init__(self) -> None:
        self.cursors: dict[Key, Cursor] = {}
        """Assigned, and those that are being given back."""
        self.rest: Iterator[Record] = iter(())
        """Decoded and not handed out; always the same object until the next `refill`."""
        self.last: Record | None = None
        """The record of `rest` that was handed out last. Who iterates over `rest` sets it."""
        self.unreturned_bytes = 0
        """Taken from the queue (or dropped) and not given back as credit."""
        self._queue: deque[_Delivery] = deque()
        self._current: Cursor | None = None
        self._current_end = 0
        self._touched: dict[Cursor, None] = {}

    # ── partitions ────────────────────────────────────────────────────────────────────────────────

    def assign(self, topic: str, partition: int, offset: int) -> None:
        """The partition is ours, from `offset` on."""
        self.cursors[topic, partition] = Cursor(topic, partition, offset)

    def stop(self, keys: Iterable[Key]) -> None:
        """Hand out nothing more of these partitions; their offsets stay known until `forget`."""
        for key in keys:
            cursor = self.cursors.get(key)
            if cursor is not None:
                cursor.is_ours = False
                if cursor is self._current:
                    self._cut()
        self._drop_stopped()

    def forget(self, keys: Iterable[Key]) -> None:
        """These partitions are not ours any more."""
        for key in keys:
            self.cursors.pop(key, None)

    def interrupt(self) -> dict[Key, int]:
        """The link is lost: drop what waits in the queue. Returns where each partition goes on."""
        self._queue.clear()
        self.unreturned_bytes = 0
        return {key: cursor.fetched for key, cursor in self.cursors.items() if cursor.is_ours}

    def resume(self, topic: str, partition: int, offset: int) -> None:
        """The partition is still ours on the new link; what was handed out is not handed out again."""
        cursor = self.cursors[topic, partition]
        cursor.is_ours = True
        if offset > cursor.fetched:  # others read on meanwhile
            if cursor is self._current:
                self._cut()
            cursor.fetched = cursor.handed = cursor.processed = cursor.committed = offset

    def holds(self, keys: Iterable[Key]) -> bool:
        """Whether the user has records of these partitions in hand: handed out in the last step."""
        self._note()
        cursors = (self.cursors.get(key) for key in keys)
        return any(cursor is not None and cursor.processed < cursor.handed for cursor in cursors)

    # ── coming in ─────────────────────────────────────────────────────────────────────────────────

    def deliver(self, key: Key, offset: int, next_offset: int, batches: memoryview) -> None:
        """Queue what came for a partition; dropped if the partition is not ours."""
        cursor = self.cursors.get(key)
        if cursor is None or not cursor.is_ours:
            self.unreturned_bytes += len(batches)
            return
        data: bytes | memoryview = batches
        if len(batches) * _COPY_BELOW < memoryview(batches.obj).nbytes:
            data = bytes(batches)
        self._queue.append(_Delivery(cursor, offset, next_offset, data))

    @property
    def has_more(self) -> bool:
        """Whether a record may be handed out without waiting."""
        return bool(self._queue) or length_hint(self.rest) > 0

    @property
    def queued_bytes(self) -> int:
        """Batches that wait, undecoded."""
        return sum(len(delivery.data) for delivery in self._queue)

    # ── handing out ───────────────────────────────────────────────────────────────────────────────

    def step(self) -> None:
        """The user asks for more: what was handed out before is processed."""
        self._note()
        for cursor in self._touched:
            cursor.processed = cursor.handed
        self._touched.clear()

    def refill(self) -> bool:
        """When `rest` is used up, decode the next queued delivery that has records into it; False if there is none.

        Raises:
            CorruptBatch, UnsupportedCompression, RecordTooLarge: the delivery cannot be decoded; it stays where it is.
        """
        return length_hint(self.rest) > 0 or self._refill() is not None

    def take_batch(self) -> list[Record]:
        """All that is left of the current delivery, else all of the next; [] if nothing is there."""
        records = list(self.rest) or self._refill() or []
        self.rest = iter(())
        if records:
            self._taken(records)
        return records

    def take(self, max_records: int) -> list[Record]:
        """At most so many of what is there."""
        taken: list[Record] = []
        while len(taken) < max_records:
            more = list(islice(self.rest, max_records - len(taken)))
            if more:
                taken += more
                self._taken(more)
            elif not self.refill():
                break
        return taken

    def _refill(self) -> list[Record] | None:
        self._finish_current()
        while self._queue:
            delivery = self._queue[0]
            cursor = delivery.cursor
            records = _records(delivery)
            self._queue.popleft()
            self.unreturned_bytes += len(delivery.data)
            if cursor.is_ours and delivery.next_offset > cursor.fetched:
                cursor.fetched = delivery.next_offset
                self._current, self._current_end, self.last = cursor, delivery.next_offset, None
                if records:
                    self.rest = iter(records)
                    return records
                self._finish_current()
        return None

    def _finish_current(self) -> None:
        """Everything of the current delivery was handed out."""
        self._note()
        if self._current is not None and self._current.is_ours:
            self._current.handed = self._current_end
        self._current = self.last = None

    def _note(self) -> None:
        """Take over how far the iteration over `rest` has come."""
        cursor = self._current
        if cursor is None:
            return
        if self.last is not None:
            self._iterated(cursor, self.last.offset)
        if not length_hint(self.rest):
            cursor.handed = self._current_end
            self._touched[cursor] = None

    def _iterated(self, cursor: Cursor, offset: int) -> None:
        """The user has the record at `offset` in hand, and asked for it after those before it."""
        cursor.processed = max(cursor.processed, offset)
        cursor.handed = max(cursor.handed, offset + 1)
        self._touched[cursor] = None

    def _taken(self, records: list[Record]) -> None:
        """The user got these of the current delivery in one step."""
        assert self._current is not None  # they are of it
        self._current.handed = max(self._current.handed, records[-1].offset + 1)
        self._touched[self._current] = None
        self.last = None

    def _cut(self) -> None:
        """Hand out nothing more of the current delivery, whoever iterates over it."""
        cursor = self._current
        if cursor is None:
            return
        if self.last is not None:
            self._iterated(cursor, self.last.offset)
        deque(self.rest, maxlen=0)
        self._current = self.last = None

    def _drop_stopped(self) -> None:
        dropped = [delivery for delivery in self._queue if not delivery.cursor.is_ours]
        if dropped:
            self.unreturned_bytes += sum(len(delivery.data) for delivery in dropped)
            self._queue = deque(delivery for delivery in self._queue if delivery.cursor.is_ours)

    # ── offsets ───────────────────────────────────────────────────────────────────────────────────

    def to_commit(self, *, only_processed: bool) -> dict[Key, int]:
        """What a commit would add: the next offset of each partition where it grew since the last."""
        self._note()
        return {
            key: offset
            for key, cursor in self.cursors.items()
            if (offset := cursor.processed if only_processed else cursor.handed) > cursor.committed
        }

    def committed(self, offsets: dict[Key, int]) -> None:
        """A commit is durable."""
        for key, offset in offsets.items():
            cursor = self.cursors.get(key)
            if cursor is not None:
                cursor.committed = offset


def _records(delivery: _Delivery) -> list[Record]:
    """The records of a delivery from its offset on; it may be several batches, back to back."""
    cursor, data = delivery.cursor, delivery.data
    if not cursor.is_ours:
        return []
    min_offset = max(delivery.offset, cursor.fetched)
    size_bytes = parse_header(data).size_bytes
    if size_bytes == len(data):
        return decode(data, cursor.topic, cursor.partition, min_offset=min_offset)
    records: list[Record] = []
    view, position = memoryview(data), 0
    while position < len(view):
        end = position + parse_header(view, position).size_bytes
        records += decode(view[position:end], cursor.topic, cursor.partition, min_offset=min_offset)
        position = end
    return records
