"""One fetch over many partitions with long poll: minimum bytes, maximum wait (Kafka's Fetch; also a plain read).

Stateless: the caller names the offsets each time. Waits at the partitions' ends until `min_bytes` are there, the wait is over,
or something is wrong with one of the partitions (which is answered at once).

A reader of committed records alone (`committed`) gets batches before the last stable offset, and with them the aborted transactions that have
records among them: it is the reader that drops those (KIP-98).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from sparrow.base.errors import SparrowError, UnknownTopicId
from sparrow.broker.alarm import Alarm
from sparrow.broker.transactions.committed import stable as stable_part

if TYPE_CHECKING:
    import uuid

    from sparrow.broker.partition import Partition
    from sparrow.broker.topics import Topic, Topics
    from sparrow.broker.transactions.index import AbortedTransaction
    from sparrow.storage.store import Chunk

_READ_AT_ONCE: Final = 256
"""Partitions that are read before the loop may do something else."""


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What is wanted of one partition."""

    topic: str
    partition: int
    offset: int
    max_bytes: int = 1 << 20
    topic_id: uuid.UUID | None = None
    """The topic must be this one, not another of its name; None: any."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one partition gave: a chunk (None if nothing) or an error. `aborted` is for readers of committed records."""

    topic: str
    partition: int
    chunk: Chunk | None = None
    error: SparrowError | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    last_stable_offset: int = -1
    aborted: Sequence[AbortedTransaction] = ()

    @property
    def size_bytes(self) -> int:
        return len(self.chunk.data) if self.chunk else 0


class ReadMemory(Protocol):
    """Memory for records, which many fetches share."""

    def take(self, wanted_bytes: int) -> int:
        """How many bytes may be read now; 0: the first batch alone."""
        ...

    def give_back(self, granted_bytes: int) -> None:
        """What was granted has been read."""
        ...


class _Growth:
    """How much was appended since something was read, so that what is too little is not read again and again.

    `can_tell` is False where sizes say nothing about what a reader sees: the partition is gone, or has a transaction open.
    """

    def __init__(self, partitions: dict[int, Partition], *, committed: bool) -> None:
        self._partitions = partitions
        self._committed = committed
        self._sizes = {number: self._size(partition) for number, partition in partitions.items()}
        self._grown: dict[int, int] = {}
        self.can_tell = True

    def look(self, numbers: Iterable[int]) -> int:
        """Bytes that were appended to these partitions and those looked at before."""
        for number in numbers:
            before, now = self._sizes[number], self._size(self._partitions[number])
            self.can_tell = self.can_tell and 0 <= before <= now
            self._grown[number] = now - before
        return sum(self._grown.values())

    def _size(self, partition: Partition) -> int:
        """-1: it cannot be told."""
        with suppress(SparrowError):
            if not self._committed or partition.last_stable_offset == partition.visible_end:
                return partition.log.size_bytes
        return -1


async def fetch(
    topics: Topics,
    requests: Sequence[FetchRequest],
    *,
    max_bytes: int,
    min_bytes: int,
    max_wait_ms: int,
    committed: bool = False,
    stop: asyncio.Future[None] | None = None,
    memory: ReadMemory | None = None,
) -> list[Fetched]:
    """Answers in the order of the requests. The first non-empty partition gives at least one batch, whatever its size.

    `stop` ends the wait early. `memory` is asked before each read, and given back what it granted when that is done.
    """
    if not requests:
        return []
    deadline = asyncio.get_running_loop().time() + max_wait_ms / 1000
    alarm = Alarm(_partitions(topics, requests)) if max_wait_ms > 0 and min_bytes > 0 else None
    try:
        results = await _read_within(
            memory, topics, requests, range(len(requests)), max_bytes, committed=committed
        )
        is_over = alarm is None
        while not is_over and not _is_enough(results.values(), min_bytes, committed=committed):
            assert alarm is not None
            got = _size_of(results.values())
            if got:
                results.clear()  # a wait may be long: others need the memory
                is_over = not await _wait_for_bytes(
                    alarm, min_bytes - got, deadline, stop, committed=committed
                )
                alarm.take()
                again: Sequence[int] = range(len(requests))
            else:
                is_over = not await _wait(alarm, deadline, stop)
                again = sorted(alarm.take())
            results |= await _read_within(memory, topics, requests, again, max_bytes, committed=committed)
        return [results[number] for number in range(len(requests))]
    finally:
        if alarm is not None:
            alarm.close()


async def _wait(alarm: Alarm[int], deadline: float, stop: asyncio.Future[None] | None) -> bool:
    """Wait for any of the partitions; False when time is over, or it is to stop."""
    remaining = deadline - asyncio.get_running_loop().time()
    if remaining <= 0:
        return False
    await asyncio.wait(
        [alarm.rung] if stop is None else [alarm.rung, stop],
        timeout=remaining,
        return_when=asyncio.FIRST_COMPLETED,
    )
    return alarm.rung.done() and not (stop is not None and stop.done())


async def _wait_for_bytes(
    alarm: Alarm[int], missing: int, deadline: float, stop: asyncio.Future[None] | None, *, committed: bool
) -> bool:
    """Wait until so many bytes were appended; False when time is over, or it is to stop."""
    if alarm.woken:  # while something was read
        return await _wait(alarm, deadline, stop)
    growth = _Growth(alarm.partitions, committed=committed)
    while await _wait(alarm, deadline, stop):
        if growth.look(alarm.take()) >= missing or not growth.can_tell:
            return True
    return False


def _partitions(topics: Topics, requests: Sequence[FetchRequest]) -> dict[int, Partition]:
    """What is asked for and exists, by its place in the request."""
    found = {}
    for number, request in enumerate(requests):
        topic = topics.find(request.topic)
        if topic is not None and 0 <= request.partition < len(topic.partitions):
            found[number] = topic.partitions[request.partition]
    return found


def _is_enough(results: Iterable[Fetched], min_bytes: int, *, committed: bool) -> bool:
    """Also whether waiting is of no use: something is wrong, or a reader is behind and its chunk was cut (by a limit, or at the end
    of a segment)."""
    return (
        _size_of(results) >= min_bytes
        or any(r.error for r in results)
        or any(
            r.chunk.next_offset < (r.last_stable_offset if committed else r.high_watermark)
            for r in results
            if r.chunk and r.chunk.data
        )
    )


def _size_of(results: Iterable[Fetched]) -> int:
    return sum(r.size_bytes for r in results)


async def _read_within(
    memory: ReadMemory | None,
    topics: Topics,
    requests: Sequence[FetchRequest],
    numbers: Sequence[int],
    max_bytes: int,
    *,
    committed: bool,
) -> dict[int, Fetched]:
    if memory is None:
        return await _read(topics, requests, numbers, max_bytes, committed=committed)
    granted = memory.take(min(max_bytes, sum(requests[number].max_bytes for number in numbers)))
    try:
        return await _read(topics, requests, numbers, granted, committed=committed)
    finally:
        memory.give_back(granted)


async def _read(
    topics: Topics,
    requests: Sequence[FetchRequest],
    numbers: Iterable[int],
    max_bytes: int,
    *,
    committed: bool,
) -> dict[int, Fetched]:
    """What some of the requests give, by their places."""
    results: dict[int, Fetched] = {}
    room = max_bytes
    for count, number in enumerate(numbers, 1):
        is_first = room == max_bytes
        result = await _read_one(topics, requests[number], room, is_first=is_first, committed=committed)
        room -= result.size_bytes
        results[number] = result
        if count % _READ_AT_ONCE == 0:
            await asyncio.sleep(0)
    return results


async def _read_one(
    topics: Topics, request: FetchRequest, room: int, *, is_first: bool, committed: bool
) -> Fetched:
    try:
        partition = _topic(topics, request).partition(request.partition)
        log = partition.log
        chunk: Chunk | None = None
        limit = min(room, request.max_bytes)
        if limit > 0 or is_first:
            chunk = log.read_nowait(request.offset, limit)
            if chunk is None:
                chunk = await log.read(request.offset, limit)
            # A batch larger than the limit is only forced on an answer that is empty otherwise (KIP-74).
            if len(chunk.data) > limit and not is_first:
                chunk = None
        # All raise when the topic was deleted while the disk was busy.
        end, start, stable = partition.visible_end, partition.start_offset, partition.last_stable_offset
    except SparrowError as error:
        return Fetched(request.topic, request.partition, error=error)
    aborted: Sequence[AbortedTransaction] = ()
    if committed and chunk is not None:
        chunk, aborted = _committed(partition, chunk, request.offset)
    if chunk is not None and chunk.data:
        partition.count_read(chunk.next_offset - request.offset, len(chunk.data))
    return Fetched(request.topic, request.partition, chunk, None, end, start, stable, aborted)


def _topic(topics: Topics, request: FetchRequest) -> Topic:
    topic = topics.get(request.topic)
    if request.topic_id is not None and request.topic_id != topic.id:
        raise UnknownTopicId(
            f"topic {request.topic!r} was deleted and made again: its id is {topic.id} now, {request.topic_id} was asked for"
        )
    return topic


def _committed(partition: Partition, chunk: Chunk, offset: int) -> tuple[Chunk, Sequence[AbortedTransaction]]:
    """The batches before the last stable offset, and the aborted transactions that reach into them."""
    chunk = stable_part(partition, chunk, offset)
    if not chunk.data:
        return chunk, ()
    return chunk, partition.aborted_transactions(offset, chunk.next_offset)
