"""Reading many partitions as one stream: positions, fairness, waking up.

A `Reader` holds a cursor per partition. Cursors that may have records wait in a queue; one that
reached the end leaves the queue and waits at its partition, so a thousand idle partitions cost
nothing per read. Each step takes one chunk from the cursor at the head and puts the cursor at the
tail.

A cursor that has to wait for the store leaves the queue, too: a few tasks read for such cursors,
and each returns with its chunk. So one slow partition delays no other. Together these chunks are no
larger than the size that one `read` asked for, except for a batch of each.

The result of `read` is of partitions that the reader holds at that very moment: no await lies
between the last check and the return. A caller that must not deliver revoked partitions sends
before it awaits anything else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from sparrow.base.errors import SparrowError
from sparrow.broker.reading.committed_chunks import stable, without_aborted
from sparrow.records.batch import parse_header
from sparrow.storage.store import Chunk

if TYPE_CHECKING:
    from sparrow.broker.partition import Partition
    from sparrow.records.topic_partition import TopicPartition


_NO_LIMIT = 1 << 62
READS_AT_ONCE: Final = 8
"""The number of partitions of one reader that wait for the store at the same time."""


class ReadDelivery(Struct, frozen=True):
    """Whole batches of one partition. Records before `offset` are not wanted; the next delivery
    begins at `next_offset`.
    """

    topic: str
    partition: int
    offset: int
    next_offset: int
    high_watermark: int
    data: bytes | memoryview
    records: int


class Problem(Struct, frozen=True):
    """An error of a partition that could not be read; its cursor has been dropped."""

    topic: str
    partition: int
    offset: int
    error: SparrowError


class ReadCursor:
    """A position in one partition."""

    __slots__ = ("_reader", "cold", "key", "offset", "partition", "queued")

    def __init__(self, reader: Reader, partition: Partition, offset: int) -> None:
        self._reader = reader
        self.partition = partition
        self.key = (partition.id.topic, partition.id.partition)
        self.offset = offset
        self.queued = False
        self.cold: ColdRead | None = None
        """The read that waits for the store, until its result is delivered."""

    def wake(self) -> None:
        self._reader.enqueue(self)


class ColdRead:
    """A read that waits for the store."""

    __slots__ = ("chunk", "failure", "limit", "task")

    def __init__(self) -> None:
        self.limit = 0
        """The bytes that are reserved for it; 0 before it begins."""
        self.task: asyncio.Task[None] | None = None
        self.chunk: Chunk | None = None
        self.failure: Exception | None = None


class Reader:
    """Positions in many partitions. Loop thread only; one `read` or `wait` at a time.

    Args:
        committed: leave out records of open and aborted transactions.
    """

    def __init__(self, *, committed: bool = False) -> None:
        self._committed = committed
        self._cursors: dict[TopicPartition, ReadCursor] = {}
        self._queue: deque[ReadCursor] = deque()
        self._cold: deque[ReadCursor] = deque()
        """Cursors that may not wait for the store yet."""
        self._reading = 0
        """Cursors that wait for the store."""
        self._reserved_bytes = 0
        self._cold_bytes = 0
        """The limit of bytes of all cold reads together: the size that was asked for last."""
        self._sleeper: asyncio.Future[None] | None = None
        self._is_closed = False

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._cursors

    def __len__(self) -> int:
        return len(self._cursors)

    def keys(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        return list(self._cursors)

    def add(self, partition: Partition, offset: int) -> None:
        """Read `partition` from `offset` on; a partition that is read already restarts there."""
        self.drop((partition.id.topic, partition.id.partition))
        cursor = ReadCursor(self, partition, offset)
        self._cursors[cursor.key] = cursor
        self.enqueue(cursor)

    def drop(self, key: TopicPartition) -> bool:
        """Stop reading a partition; return True if it was read."""
        cursor = self._cursors.pop(key, None)
        if cursor is None:
            return False
        cursor.partition.stop_waiting(cursor)
        if not cursor.queued:
            return True
        if cursor.cold is not None and cursor.cold.task is not None:
            cursor.cold.task.cancel()
        elif cursor.cold is not None and not cursor.cold.limit:
            self._cold.remove(cursor)
        else:
            self._queue.remove(cursor)
        self._forget_cold(cursor)
        self._begin_cold_reads()
        return True

    def close(self) -> None:
        """Drop all partitions; a waiting `read` ends with []."""
        self._is_closed = True
        self.interrupt()
        for key in self.keys():
            self.drop(key)

    def enqueue(self, cursor: ReadCursor) -> None:
        """Queue a cursor that may have something to read."""
        if not cursor.queued and self._cursors.get(cursor.key) is cursor:
            cursor.queued = True
            self._queue.append(cursor)
            self.interrupt()

    @property
    def is_ready(self) -> bool:
        """True if `wait` would return at once."""
        return bool(self._queue) or self._is_closed

    def interrupt(self) -> None:
        """Let a waiting `read` check again."""
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def wait(self) -> None:
        """Wait until there may be something to read, or the reader was closed."""
        loop = asyncio.get_running_loop()
        while not self.is_ready:
            await self._sleep(loop, None)

    async def read(
        self, max_bytes: int, *, max_records: int = 0, max_wait_ms: int | None = None
    ) -> list[ReadDelivery | Problem]:
        """Return at most about `max_bytes` and `max_records` (0: no limit) but at least a batch; []
        if nothing came within `max_wait_ms` (None: wait without end).
        """
        loop = asyncio.get_running_loop()
        deadline = None if max_wait_ms is None else loop.time() + max_wait_ms / 1000
        self._cold_bytes = max_bytes
        while not self._is_closed:
            found = self._collect(max_bytes, max_records)
            self._begin_cold_reads()
            if found:
                return found
            if self._queue:
                # all records in memory may be aborted: let other tasks run
                await asyncio.sleep(0)
            elif not await self._sleep(loop, None if self._cold or self._reading else deadline):
                break
        return []

    def _collect(self, max_bytes: int, max_records: int) -> list[ReadDelivery | Problem]:
        """Return everything that can be read without waiting. Cursors that must wait leave the
        queue for `_begin_cold_reads`.
        """
        found: list[ReadDelivery | Problem] = []
        room, wanted = max_bytes, max_records or _NO_LIMIT
        while self._queue and room > 0 and wanted > 0:
            cursor = self._queue[0]
            try:
                chunk = self._chunk_at(cursor, room)
            except SparrowError as error:
                found.append(self._fail(cursor, error))
                continue
            if chunk is None:
                self._queue.popleft()
                cursor.cold = ColdRead()
                self._cold.append(cursor)
                continue
            if cursor.cold is not None and found and len(chunk.data) > room:
                break
            self._forget_cold(cursor)
            room -= len(chunk.data)
            delivery = self._advance(cursor, self._readable(cursor, chunk, wanted))
            if delivery is not None:
                found.append(delivery)
                wanted -= delivery.records
        return found

    def _chunk_at(self, cursor: ReadCursor, max_bytes: int) -> Chunk | None:
        """Return the chunk at a cursor; None if it has to wait for the store."""
        cold, partition = cursor.cold, cursor.partition
        if cold is not None:
            if cold.failure is not None:
                self._forget_cold(cursor)
                raise cold.failure
            partition.log  # noqa: B018 - raises when the topic was deleted
            return cold.chunk
        if not partition.is_open and not partition.open_nowait():
            return None
        # A partition whose topic was deleted raises at any use.
        return partition.log.read_nowait(cursor.offset, max_bytes)

    def _readable(self, cursor: ReadCursor, chunk: Chunk, wanted: int) -> Chunk:
        """Return the part of a chunk that the reader gets."""
        if not self._committed:
            return _first_records(chunk, cursor.offset, wanted)
        partition, offset = cursor.partition, cursor.offset
        chunk = _first_records(stable(partition, chunk, offset), offset, wanted)
        return without_aborted(partition, chunk, offset)

    def _begin_cold_reads(self) -> None:
        """Wait for the store for as many cursors as the limits allow."""
        while self._cold and not self._is_closed and self._reading < READS_AT_ONCE:
            limit = max(1, self._cold_bytes // min(READS_AT_ONCE, len(self._cold) + self._reading))
            if self._reserved_bytes and self._reserved_bytes + limit > self._cold_bytes:
                return
            cursor = self._cold.popleft()
            cold = cursor.cold
            assert cold is not None, "a cursor waits for its cold read"
            self._reading += 1
            self._reserved_bytes += limit
            cold.limit = limit
            cold.task = asyncio.get_running_loop().create_task(self._read_cold(cursor, cold))
            cold.task.add_done_callback(partial(self._end_cold_read, cursor, cold))

    async def _read_cold(self, cursor: ReadCursor, cold: ColdRead) -> None:
        try:
            log = await cursor.partition.opened()
            cold.chunk = await log.read(cursor.offset, cold.limit)
        except Exception as error:  # noqa: BLE001 - `read` raises it, or tells of it
            cold.failure = error

    def _end_cold_read(self, cursor: ReadCursor, cold: ColdRead, _: asyncio.Task[None]) -> None:
        self._reading -= 1
        cold.task = None
        if cursor.cold is cold:  # else it was dropped meanwhile
            self._queue.append(cursor)
        self._begin_cold_reads()
        self.interrupt()

    def _forget_cold(self, cursor: ReadCursor) -> None:
        """End a cold read: free the bytes that were reserved for it."""
        if cursor.cold is not None:
            self._reserved_bytes -= cursor.cold.limit
            cursor.cold = None

    def _advance(self, cursor: ReadCursor, chunk: Chunk) -> ReadDelivery | None:
        """Move the head cursor behind `chunk` and to the tail, or out of the queue if it is at the
        end, which spares a read that finds nothing.
        """
        self._queue.popleft()
        if chunk.next_offset <= cursor.offset:
            cursor.queued = False
            cursor.partition.wait(cursor)
            return None
        offset, cursor.offset = cursor.offset, chunk.next_offset
        end = cursor.partition.visible_end
        if cursor.offset < end:
            self._queue.append(cursor)
        else:
            cursor.queued = False
            cursor.partition.wait(cursor)
        if not chunk.data:  # all records were aborted
            return None
        cursor.partition.count_read(chunk.next_offset - offset, len(chunk.data))
        topic, partition = cursor.key
        return ReadDelivery(
            topic,
            partition,
            offset,
            chunk.next_offset,
            end,
            chunk.data,
            chunk.next_offset - offset,
        )

    def _fail(self, cursor: ReadCursor, error: SparrowError) -> Problem:
        self.drop(cursor.key)
        return Problem(*cursor.key, cursor.offset, error)

    async def _sleep(self, loop: asyncio.AbstractEventLoop, deadline: float | None) -> bool:
        """Wait until a cursor is queued; return False if the deadline passed."""
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
    """Return the batches of `chunk` up to the one that holds the last of `wanted` records from
    `offset` on.
    """
    if chunk.next_offset - offset <= wanted:
        return chunk
    position, next_offset = 0, offset
    while next_offset - offset < wanted:
        header = parse_header(chunk.data, position)
        position += header.size_bytes
        next_offset = header.next_offset
    return Chunk(chunk.data[:position], chunk.base_offset, next_offset, next_offset - chunk.base_offset)
