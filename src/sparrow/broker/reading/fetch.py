"""One fetch over many partitions with long poll: minimum bytes, maximum wait (Kafka's Fetch; also a
plain read).

Stateless: the caller names the offsets each time. It waits at the partitions' ends until
`min_bytes` are there, the wait is over, or one of the partitions has an error (which is returned at
once; but see `is_patient`).

A reader of committed records (`committed`) gets batches before the last stable offset, and with
them the aborted transactions that have records among them: the reader drops those itself (KIP-98).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from sparrow.base.errors import LogDamaged, SparrowError, UnknownTopicId
from sparrow.broker.reading.alarm import Alarm
from sparrow.broker.reading.committed_chunks import stable as stable_part

if TYPE_CHECKING:
    import uuid

    from sparrow.broker.partition import Partition
    from sparrow.broker.topics.registry import Topic, TopicRegistry
    from sparrow.broker.transaction_index import AbortedTransaction
    from sparrow.storage.store import Chunk

READS_AT_ONCE: Final = 8
"""The number of partitions of one fetch that wait for the store at the same time."""
_READ_AT_ONCE: Final = 256
"""Partitions that are read before other tasks run."""


class FetchRequest(Struct, frozen=True):
    """The part of a fetch that concerns one partition."""

    topic: str
    partition: int
    offset: int
    max_bytes: int = 1 << 20
    topic_id: uuid.UUID | None = None
    """The id that the topic must have; None: any topic of that name."""


class Fetched(Struct, frozen=True):
    """Result of one partition: a chunk (None if nothing) or an error. `aborted` is for readers of
    committed records.
    """

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
    """Memory for the records of one response, shared with other responses."""

    async def take(self, wanted_bytes: int, least_bytes: int = 0) -> int:
        """Wait for memory. Return the bytes that may be read: `least_bytes` or more."""
        ...

    def keep(self, size_bytes: int) -> bool:
        """Reserve the bytes that were read instead of those granted; return False if they are more
        and there is no room for them.
        """
        ...

    def resize(self, size_bytes: int) -> None:
        """Count the bytes that were read instead of those granted, even if there is no room for
        them.
        """
        ...

    def give_back(self) -> None:
        """Free the memory of all that was read."""
        ...


class _Growth:
    """The bytes appended since a read, so that a fetch with too little is not read again and again.

    `is_known` is False if sizes say nothing about the records that a reader sees: the partition was
    deleted, or has an open transaction.
    """

    def __init__(self, partitions: dict[int, Partition], *, committed: bool) -> None:
        self._partitions = partitions
        self._committed = committed
        self._sizes = {number: self._size(partition) for number, partition in partitions.items()}
        self._grown: dict[int, int] = {}
        self.is_known = True

    def look(self, numbers: Iterable[int]) -> int:
        """Return the bytes that were appended to these partitions and those looked at before."""
        for number in numbers:
            before, now = self._sizes[number], self._size(self._partitions[number])
            self.is_known = self.is_known and 0 <= before <= now
            self._grown[number] = now - before
        return sum(self._grown.values())

    def _size(self, partition: Partition) -> int:
        """Return the size of the log; -1 if it says nothing about the records that readers see."""
        with suppress(SparrowError):
            if not self._committed or partition.last_stable_offset == partition.visible_end:
                return partition.log.size_bytes
        return -1


async def fetch(
    topics: TopicRegistry,
    requests: Sequence[FetchRequest],
    *,
    max_bytes: int,
    min_bytes: int,
    max_wait_ms: int,
    committed: bool = False,
    stop: asyncio.Future[None] | None = None,
    memory: ReadMemory | None = None,
    is_patient: bool = False,
) -> list[Fetched]:
    """Return results in the order of the requests. The first non-empty partition gives at least one
    batch, of any size.

    `stop` ends the wait early. Memory is taken from `memory` before each read and holds the records
    when this returns; the caller frees it.

    Args:
        is_patient: a closed partition (`LogDamaged`) does not end the wait: the caller would ask
            again at once, without end.
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
        while not is_over and not _is_enough(
            results.values(), min_bytes, committed=committed, is_patient=is_patient
        ):
            assert alarm is not None
            got = _size_of(results.values())
            if got:
                results.clear()  # a wait may be long: other responses need the memory
                if memory is not None:
                    memory.give_back()
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
    """Wait for any of the partitions; return False if the time is over or `stop` is done."""
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
    """Wait until this many bytes were appended; return False if the time is over or `stop` is
    done.
    """
    if alarm.woken:  # something was appended during the read
        return await _wait(alarm, deadline, stop)
    growth = _Growth(alarm.partitions, committed=committed)
    while await _wait(alarm, deadline, stop):
        if growth.look(alarm.take()) >= missing or not growth.is_known:
            return True
    return False


def _partitions(topics: TopicRegistry, requests: Sequence[FetchRequest]) -> dict[int, Partition]:
    """Return the partitions that exist, by their index in the request."""
    found = {}
    for number, request in enumerate(requests):
        topic = topics.find(request.topic)
        if topic is not None and 0 <= request.partition < len(topic.partitions):
            found[number] = topic.partitions[request.partition]
    return found


def _is_enough(results: Iterable[Fetched], min_bytes: int, *, committed: bool, is_patient: bool) -> bool:
    """Return True if the results may be returned: they are large enough, or waiting is useless
    because of an error, or because a reader is behind and its chunk was cut (by a limit, or at the
    end of a segment).
    """
    return (
        _size_of(results) >= min_bytes
        or any(r.error and not (is_patient and isinstance(r.error, LogDamaged)) for r in results)
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
    topics: TopicRegistry,
    requests: Sequence[FetchRequest],
    numbers: Sequence[int],
    max_bytes: int,
    *,
    committed: bool,
) -> dict[int, Fetched]:
    if memory is None:
        return await _read(topics, requests, numbers, max_bytes, committed=committed)
    wanted_bytes = min(max_bytes, sum(requests[number].max_bytes for number in numbers))
    least_bytes = 0
    while True:
        granted = await memory.take(wanted_bytes, least_bytes)
        try:
            results = await _read(topics, requests, numbers, granted, committed=committed)
        except BaseException:
            memory.give_back()
            raise
        least_bytes = _size_of(results.values())
        if memory.keep(least_bytes):
            return results
        # the first batch is larger than the granted memory: it is read again when there is room for
        # it
        results.clear()


async def _read(
    topics: TopicRegistry,
    requests: Sequence[FetchRequest],
    numbers: Iterable[int],
    max_bytes: int,
    *,
    committed: bool,
) -> dict[int, Fetched]:
    """Return the results of some requests, by their index. Partitions that wait for the store wait
    together.
    """
    reading = _Reading(topics, requests, max_bytes, committed=committed)
    for count, number in enumerate(numbers, 1):
        if reading.is_waiting_enough:
            await reading.wait()
        if not reading.read_nowait(number):
            await reading.wait()  # the results so far decide if this one may exceed the limit
            reading.read_nowait(number)
        if count % _READ_AT_ONCE == 0:
            await asyncio.sleep(0)
    await reading.wait()
    return reading.results


class _Reading:
    """One pass over partitions: those that need no waiting are read in their order, the others by a
    few tasks at a time.

    A read that waits has its limit of bytes reserved, so that all reads together keep the limit.
    """

    def __init__(
        self, topics: TopicRegistry, requests: Sequence[FetchRequest], max_bytes: int, *, committed: bool
    ) -> None:
        self.results: dict[int, Fetched] = {}
        self._topics = topics
        self._requests = requests
        self._committed = committed
        self._room = max_bytes
        self._got = 0
        self._waiting: dict[int, int] = {}
        """Indexes of partitions that wait for the store, with the bytes reserved for each."""

    @property
    def is_waiting_enough(self) -> bool:
        """Return True if nothing more may be read before the waiting reads."""
        return bool(self._waiting) and (len(self._waiting) >= READS_AT_ONCE or self._room <= 0)

    def read_nowait(self, number: int) -> bool:
        """Read one partition, or note that it has to wait for the store; return False if it can be
        read only after the others.
        """
        request = self._requests[number]
        try:
            partition = _topic(self._topics, request).partition(request.partition)
            limit = min(self._room, request.max_bytes)
            chunk: Chunk | None = None
            if not partition.is_open and not partition.open_nowait():
                self._reserve(number, max(0, limit))
                return True
            log = partition.log
            if limit > 0 or not self._got:
                chunk = log.read_nowait(request.offset, limit)
                if chunk is None:
                    self._reserve(number, min(limit, log.size_bytes))
                    return True
                if len(chunk.data) > limit and not self._got and self._waiting:
                    return False
            self._take(number, partition, chunk, limit)
        except SparrowError as error:
            self._fail(number, error)
        return True

    def _reserve(self, number: int, limit: int) -> None:
        self._waiting[number] = limit
        self._room -= limit

    async def wait(self) -> None:
        """Read all partitions that wait, and take their results in order."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        read = await asyncio.gather(*(self._read(number, limit) for number, limit in waiting.items()))
        for (number, limit), found in zip(waiting.items(), read, strict=True):
            self._room += limit
            if isinstance(found, SparrowError):
                self._fail(number, found)
                continue
            try:
                self._take(number, *found, limit)
            except SparrowError as error:  # the topic was deleted meanwhile
                self._fail(number, error)

    async def _read(self, number: int, limit: int) -> tuple[Partition, Chunk] | SparrowError:
        request = self._requests[number]
        try:
            partition = _topic(self._topics, request).partition(request.partition)
            log = await partition.opened()
            return partition, await log.read(request.offset, limit)
        except SparrowError as error:
            return error

    def _take(self, number: int, partition: Partition, chunk: Chunk | None, limit: int) -> None:
        """Read at an offset. A batch larger than the limit is only returned in a response that is
        empty otherwise (KIP-74).
        """
        request = self._requests[number]
        # All calls raise if the topic was deleted during the wait for the store.
        end, start, stable = partition.visible_end, partition.start_offset, partition.last_stable_offset
        if chunk is not None and len(chunk.data) > limit and self._got:
            chunk = None
        aborted: Sequence[AbortedTransaction] = ()
        if self._committed and chunk is not None:
            chunk, aborted = _committed(partition, chunk, request.offset)
        if chunk is not None and chunk.data:
            partition.count_read(chunk.next_offset - request.offset, len(chunk.data))
        found = Fetched(request.topic, request.partition, chunk, None, end, start, stable, aborted)
        self._room -= found.size_bytes
        self._got += found.size_bytes
        self.results[number] = found

    def _fail(self, number: int, error: SparrowError) -> None:
        request = self._requests[number]
        self.results[number] = Fetched(request.topic, request.partition, error=error)


def _topic(topics: TopicRegistry, request: FetchRequest) -> Topic:
    topic = topics.get(request.topic)
    if request.topic_id is not None and request.topic_id != topic.id:
        raise UnknownTopicId(
            f"topic {request.topic!r} was deleted and created again: its id is {topic.id} now, "
            f"{request.topic_id} was asked for"
        )
    return topic


def _committed(partition: Partition, chunk: Chunk, offset: int) -> tuple[Chunk, Sequence[AbortedTransaction]]:
    """Return the batches before the last stable offset, and the aborted transactions with records
    in them.
    """
    chunk = stable_part(partition, chunk, offset)
    if not chunk.data:
        return chunk, ()
    return chunk, partition.aborted_transactions(offset, chunk.next_offset)
