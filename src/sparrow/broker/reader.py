"""Reading many partitions as one stream: positions, fairness, waking up.

A `Reader` holds a cursor per partition. Cursors that may have something stand in a queue; one that reached the end leaves the
queue and waits at its partition, so a thousand idle partitions cost nothing per read. Each turn takes one chunk from the cursor
at the head and puts it at the tail.

What `read` returns is of partitions that the reader holds at that very moment: no await lies between the last check and
the return. Whoever must not deliver revoked partitions sends before it awaits anything else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrow.base.errors import SparrowError
from sparrow.broker.transactions.committed import stable, without_aborted
from sparrow.records.batch import parse_header
from sparrow.storage.store import Chunk

if TYPE_CHECKING:
    from sparrow.broker.partition import Partition

Key = tuple[str, int]

_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class Delivery:
    """Whole batches of one partition. Records before `offset` are not wanted; the next delivery begins at `next_offset`."""

    topic: str
    partition: int
    offset: int
    next_offset: int
    high_watermark: int
    data: bytes | memoryview
    records: int


@dataclass(frozen=True, slots=True)
class Problem:
    """A partition that could not be read; its cursor has been dropped."""

    topic: str
    partition: int
    offset: int
    error: SparrowError


class Cursor:
    """A position in one partition."""

    __slots__ = ("_reader", "key", "offset", "partition", "queued")

    def __init__(self, reader: Reader, partition: Partition, offset: int) -> None:
        self._reader = reader
        self.partition = partition
        self.key = (partition.id.topic, partition.id.partition)
        self.offset = offset
        self.queued = False

    def wake(self) -> None:
        self._reader.enqueue(self)


class Reader:
    """Positions in many partitions. Loop thread only; one `read` or `wait` at a time.

    Args:
        committed: leave out records of transactions that are open or were aborted.
    """

    def __init__(self, *, committed: bool = False) -> None:
        self._committed = committed
        self._cursors: dict[Key, Cursor] = {}
        self._queue: deque[Cursor] = deque()
        self._sleeper: asyncio.Future[None] | None = None
        self._is_closed = False

    def __contains__(self, key: Key) -> bool:
        return key in self._cursors

    def __len__(self) -> int:
        return len(self._cursors)

    def keys(self) -> list[Key]:
        """What it reads."""
        return list(self._cursors)

    def add(self, partition: Partition, offset: int) -> None:
        """Read `partition` from `offset` on; a partition it reads already starts there again."""
        self.drop((partition.id.topic, partition.id.partition))
        cursor = Cursor(self, partition, offset)
        self._cursors[cursor.key] = cursor
        self.enqueue(cursor)

    def drop(self, key: Key) -> bool:
        """Read a partition no more; whether it was read."""
        cursor = self._cursors.pop(key, None)
        if cursor is None:
            return False
        cursor.partition.stop_waiting(cursor)
        if cursor.queued:
            self._queue.remove(cursor)
        return True

    def close(self) -> None:
        """Drop everything; a waiting `read` ends with []."""
        self._is_closed = True
        self.interrupt()
        for key in self.keys():
            self.drop(key)

    def enqueue(self, cursor: Cursor) -> None:
        """There may be something at this cursor."""
        if not cursor.queued and self._cursors.get(cursor.key) is cursor:
            cursor.queued = True
            self._queue.append(cursor)
            self.interrupt()

    def interrupt(self) -> None:
        """Let a waiting `read` look again."""
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def wait(self) -> None:
        """Until there may be something to read, or nothing ever will."""
        loop = asyncio.get_running_loop()
        while not self._queue and not self._is_closed:
            await self._sleep(loop, None)

    async def read(
        self, max_bytes: int, *, max_records: int = 0, max_wait_ms: int | None = None
    ) -> list[Delivery | Problem]:
        """What there is, at most about `max_bytes` and `max_records` (0: no limit) but at least a batch; [] when nothing came
        within `max_wait_ms` (None: wait for ever)."""
        loop = asyncio.get_running_loop()
        deadline = None if max_wait_ms is None else loop.time() + max_wait_ms / 1000
        while not self._is_closed:
            found = self._collect(max_bytes, max_records)
            if found:
                return found
            if self._queue:
                cold = await self._read_cold(self._queue[0], max_bytes, max_records)
                if cold is not None:
                    return [cold]
            elif not await self._sleep(loop, deadline):
                break
        return []

    def _collect(self, max_bytes: int, max_records: int) -> list[Delivery | Problem]:
        """Everything that is at hand without waiting; stops before a cursor whose data is on the disk only."""
        found: list[Delivery | Problem] = []
        room, wanted = max_bytes, max_records or _NO_LIMIT
        while self._queue and room > 0 and wanted > 0:
            cursor = self._queue[0]
            try:
                # A partition whose topic was deleted raises when it is touched.
                chunk = cursor.partition.log.read_nowait(cursor.offset, room)
            except SparrowError as error:
                found.append(self._fail(cursor, error))
                continue
            if chunk is None:
                break
            room -= len(chunk.data)
            delivery = self._advance(cursor, self._readable(cursor, chunk, wanted))
            if delivery is not None:
                found.append(delivery)
                wanted -= delivery.records
        return found

    def _readable(self, cursor: Cursor, chunk: Chunk, wanted: int) -> Chunk:
        """What the reader is to have of a chunk that was read at the cursor."""
        if not self._committed:
            return _first_records(chunk, cursor.offset, wanted)
        partition, offset = cursor.partition, cursor.offset
        chunk = _first_records(stable(partition, chunk, offset), offset, wanted)
        return without_aborted(partition, chunk, offset)

    async def _read_cold(self, cursor: Cursor, max_bytes: int, max_records: int) -> Delivery | Problem | None:
        offset = cursor.offset
        if self._committed:
            await asyncio.sleep(0)  # what is in memory may all be aborted: others get their turn
        try:
            chunk = await cursor.partition.log.read(offset, max_bytes)
        except SparrowError as error:
            return self._fail(cursor, error) if self._is_head(cursor) else None
        # While the disk was busy the cursor may have been dropped or moved.
        if not self._is_head(cursor) or cursor.offset != offset:
            return None
        return self._advance(cursor, self._readable(cursor, chunk, max_records or _NO_LIMIT))

    def _is_head(self, cursor: Cursor) -> bool:
        return bool(self._queue) and self._queue[0] is cursor

    def _advance(self, cursor: Cursor, chunk: Chunk) -> Delivery | None:
        """Move the head cursor behind `chunk` and to the tail, or out of the queue when it is at the end."""
        self._queue.popleft()
        if chunk.next_offset <= cursor.offset:
            cursor.queued = False
            cursor.partition.wait(cursor)
            return None
        offset, cursor.offset = cursor.offset, chunk.next_offset
        self._queue.append(cursor)
        if not chunk.data:  # all of it was aborted
            return None
        cursor.partition.count_read(chunk.next_offset - offset, len(chunk.data))
        topic, partition = cursor.key
        return Delivery(
            topic,
            partition,
            offset,
            chunk.next_offset,
            cursor.partition.visible_end,
            chunk.data,
            chunk.next_offset - offset,
        )

    def _fail(self, cursor: Cursor, error: SparrowError) -> Problem:
        self.drop(cursor.key)
        return Problem(*cursor.key, cursor.offset, error)

    async def _sleep(self, loop: asyncio.AbstractEventLoop, deadline: float | None) -> bool:
        """Wait until something is queued; False when the deadline passed."""
        remaining = None if deadline is None else deadline - loop.time()
        if remaining is not None and remaining <= 0:
            return False
        self._sleeper = loop.create_future()
        timer = loop.call_later(remaining, self.interrupt) if remaining is not None else None
        try:
            await self._sleeper
        finally:
            self._sleeper = None
            if timer is not None:
                timer.cancel()
        return bool(self._queue) or deadline is None or loop.time() < deadline


def _first_records(chunk: Chunk, offset: int, wanted: int) -> Chunk:
    """The batches of `chunk` up to the one that holds the last of `wanted` records from `offset` on."""
    if chunk.next_offset - offset <= wanted:
        return chunk
    position, next_offset = 0, offset
    while next_offset - offset < wanted:
        header = parse_header(chunk.data, position)
        position += header.size_bytes
        next_offset = header.next_offset
    return Chunk(chunk.data[:position], chunk.base_offset, next_offset, next_offset - chunk.base_offset)
