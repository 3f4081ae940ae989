"""One fetch over many partitions with long poll: minimum bytes, maximum wait (Kafka's Fetch; also a plain read).

Stateless: the caller names the offsets each time. Waits at the partitions' ends until `min_bytes` are there, the wait is over,
or something is wrong with one of the partitions (which is answered at once).

A reader of committed records alone (`committed`) gets batches before the last stable offset, and with them the aborted transactions that have
records among them: it is the reader that drops those (KIP-98).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrow.base.errors import SparrowError
from sparrow.records.batch import parse_header
from sparrow.storage.store import Chunk

if TYPE_CHECKING:
    from sparrow.broker.partition import Partition
    from sparrow.broker.topics import Topic, Topics
    from sparrow.broker.transactions.index import AbortedTransaction


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What is wanted of one partition."""

    topic: str
    partition: int
    offset: int
    max_bytes: int = 1 << 20


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


class _Alarm:
    """Waits at the ends of several partitions at once."""

    def __init__(self) -> None:
        self.rung: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if not self.rung.done():
            self.rung.set_result(None)


async def fetch(
    topics: Topics,
    requests: Sequence[FetchRequest],
    *,
    max_bytes: int,
    min_bytes: int,
    max_wait_ms: int,
    committed: bool = False,
    stop: asyncio.Future[None] | None = None,
) -> list[Fetched]:
    """Answers in the order of the requests. The first non-empty partition gives at least one batch, whatever its size.

    `stop` ends the wait early.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max_wait_ms / 1000
    while True:
        alarm = _Alarm()
        partitions = [t.partitions[r.partition] for r in requests if (t := _topic(topics, r)) is not None]
        for partition in partitions:
            partition.wait(alarm)
        try:
            results = await _read_all(topics, requests, max_bytes, committed=committed)
            remaining = deadline - loop.time()
            if remaining <= 0 or _is_enough(results, min_bytes) or (stop is not None and stop.done()):
                return results
            await asyncio.wait(
                [alarm.rung] if stop is None else [alarm.rung, stop],
                timeout=remaining,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for partition in partitions:
                partition.stop_waiting(alarm)


def _topic(topics: Topics, request: FetchRequest) -> Topic | None:
    topic = topics.find(request.topic)
    return topic if topic is not None and 0 <= request.partition < len(topic.partitions) else None


def _is_enough(results: list[Fetched], min_bytes: int) -> bool:
    return any(r.error for r in results) or sum(r.size_bytes for r in results) >= min_bytes


async def _read_all(
    topics: Topics, requests: Sequence[FetchRequest], max_bytes: int, *, committed: bool
) -> list[Fetched]:
    results: list[Fetched] = []
    room = max_bytes
    for request in requests:
        result = await _read_one(topics, request, room, is_first=room == max_bytes, committed=committed)
        room -= result.size_bytes
        results.append(result)
    return results


async def _read_one(
    topics: Topics, request: FetchRequest, room: int, *, is_first: bool, committed: bool
) -> Fetched:
    try:
        partition = topics.get(request.topic).partition(request.partition)
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
        chunk, aborted = _committed(partition, chunk, request.offset, stable)
    return Fetched(request.topic, request.partition, chunk, None, end, start, stable, aborted)


def _committed(
    partition: Partition, chunk: Chunk, offset: int, stable: int
) -> tuple[Chunk, Sequence[AbortedTransaction]]:
    """The batches before the last stable offset, and the aborted transactions that reach into them."""
    if chunk.next_offset > stable:
        chunk = _before(chunk, offset, stable)
    if not chunk.data:
        return chunk, ()
    return chunk, partition.aborted_transactions(offset, chunk.next_offset)


def _before(chunk: Chunk, offset: int, stable: int) -> Chunk:
    """The leading batches whose records all lie before `stable`."""
    position, next_offset = 0, offset
    size = len(chunk.data)
    while position < size:
        header = parse_header(chunk.data, position)
        if header.next_offset > stable:
            break
        position += header.size_bytes
        next_offset = header.next_offset
    return Chunk(chunk.data[:position], chunk.base_offset, next_offset, max(0, next_offset - chunk.base_offset))
