"""The check of published records, and the publishes that wait for it.

A batch that is checked within a millisecond or two is checked on the loop. One that becomes large
when it is decompressed (1 MiB may become 64 MiB) would delay all clients. It is copied and waits
for a thread, and publishes of clients for the same partition wait behind it, so that each client's
batches stay in order. There is one thread for the whole broker, so that one large batch at a time
is in memory. The waiting bytes are limited, too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from sparrow.base.errors import Draining, Overloaded, RecordTooLarge
from sparrow.records.batch import COMPRESSION, split
from sparrow.records.rewrite import with_compression, with_max_timestamp
from sparrow.records.validation import IS_COMPILED, check_records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.broker.publishes import Published
    from sparrow.records.batch import BatchHeader
    from sparrow.records.validation import Terms

    Batch = tuple[BatchHeader, memoryview]
    Append = Callable[[Sequence[Batch]], asyncio.Future[Published]]
    """Appends checked batches."""

MAX_PLAIN_BYTES_ON_LOOP: Final = 1 << 20
"""Compressed batches that become larger are checked in the thread. Clients' batches are at most
that large before compression, unless they are configured otherwise.
"""
MAX_RECORDS_ON_LOOP: Final = 500_000 if IS_COMPILED else 20_000
"""Publishes of more records are checked in the thread, compressed or not."""
MAX_WAITING_BYTES: Final = 64 << 20
"""The limit of the batches that wait for the thread, or behind one that does. Above it publishers
get `Overloaded`.
"""


class Work(Struct, frozen=True):
    """Batches to check, and the terms of their topic."""

    batches: Sequence[Batch]
    terms: Terms
    max_plain_bytes: int
    """The limit of each batch after decompression."""
    compression: str
    """The codec of the topic's batches; "producer" keeps each as it is. Recompression takes long,
    too, so the thread does it with the check.
    """


def maybe_check(work: Work) -> list[Batch] | None:
    """Return the batches, as `check` does, but not recompressed; None if the check takes long.

    Raises:
        as `check_records`.
    """
    room = MAX_PLAIN_BYTES_ON_LOOP
    records_left = MAX_RECORDS_ON_LOOP
    batches = []
    for each in work.batches:
        header, batch = each
        records_left -= header.record_count
        if records_left < 0:
            return None
        try:
            checked = check_records(header, batch, work.terms, min(room, work.max_plain_bytes))
        except RecordTooLarge:
            if work.max_plain_bytes <= room:
                raise
            return None
        is_right = checked.max_timestamp == header.max_timestamp
        batches.append(each if is_right else _with_time(header, batch, checked.max_timestamp))
        if header.attributes & COMPRESSION:
            room = max(room - checked.plain_bytes, 0)
    return batches


def check(work: Work) -> list[Batch]:
    """Check batches, even if that takes long. Return them recompressed, each with its true greatest
    timestamp in the header, as Kafka does. Thread-safe.

    Raises:
        as `check_records`.
    """
    batches = []
    for each in work.batches:
        header, batch = each
        checked = check_records(header, batch, work.terms, work.max_plain_bytes, in_thread=True)
        is_right = checked.max_timestamp == header.max_timestamp
        found = each if is_right else _with_time(header, batch, checked.max_timestamp)
        if work.compression != "producer":
            found = split(with_compression(*found, work.compression))[0]
        batches.append(found)
    return batches


def _with_time(header: BatchHeader, batch: memoryview, max_timestamp_ms: int) -> Batch:
    return split(with_max_timestamp(header, batch, max_timestamp_ms))[0]


class RecordChecks:
    """The thread of one broker, and the number of bytes that wait for it. Loop thread only."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._waiting_bytes = 0
        self._running: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def reserve(self, size_bytes: int) -> None:
        """Count bytes that are going to wait, until `release`.

        Raises:
            Overloaded: too many bytes wait.
            Draining: the broker is stopping.
        """
        if self._is_closed:
            raise Draining("the broker is stopping; publish again when it is back")
        if self._waiting_bytes + size_bytes > MAX_WAITING_BYTES:
            raise Overloaded(
                f"{self._waiting_bytes} bytes of large compressed batches wait to be checked; try again,"
                " or publish smaller batches"
            )
        self._waiting_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Free bytes that were reserved."""
        self._waiting_bytes -= size_bytes

    def spawn(self, publishes: DeferredPublishes) -> None:
        """Start the task that handles the deferred publishes of a partition."""
        task = asyncio.get_running_loop().create_task(publishes.work_off())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def in_thread(self, work: Work) -> list[Batch]:
        """Run `check` in the thread."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "sparrow-records")
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(check, work))

    async def close(self) -> None:
        """Wait for the checks that have begun; `reserve` raises from now on."""
        self._is_closed = True
        while self._running:
            await asyncio.wait(set(self._running))
        if self._pool is not None:
            self._pool.shutdown(wait=False)


class _Deferred(Struct, frozen=True):
    work: Work
    append: Append
    promise: asyncio.Future[Published]
    size_bytes: int


class DeferredPublishes:
    """Publishes for one partition that wait for a check, in their order. Loop thread only."""

    def __init__(self, checks: RecordChecks) -> None:
        self._checks = checks
        self.waiting: deque[_Deferred] = deque()

    def add(self, work: Work, append: Append, promise: asyncio.Future[Published]) -> None:
        """Defer a publish. Its batches are copied.

        Args:
            append: called when the batches are valid; may raise.
            promise: the future that the publisher holds.

        Raises:
            Overloaded, Draining: it cannot wait.
        """
        size_bytes = sum(len(batch) for _, batch in work.batches)
        self._checks.reserve(size_bytes)
        copies = [(header, memoryview(bytes(batch))) for header, batch in work.batches]
        self.waiting.append(_Deferred(replace(work, batches=copies), append, promise, size_bytes))
        if len(self.waiting) == 1:
            self._checks.spawn(self)

    async def work_off(self) -> None:
        """Check and append until nothing waits."""
        while self.waiting:
            deferred = self.waiting[0]
            try:
                await self._settle(deferred)
            finally:
                self.waiting.popleft()
                self._checks.release(deferred.size_bytes)

    async def _settle(self, deferred: _Deferred) -> None:
        promise = deferred.promise
        try:
            batches = maybe_check(deferred.work)
            if batches is None:
                batches = await self._checks.in_thread(deferred.work)
            else:
                await asyncio.sleep(0)  # many publishes may wait
            published = deferred.append(batches)
        except Exception as error:  # noqa: BLE001 - it is reported to the publisher
            if not promise.done():
                promise.set_exception(error)
            return
        published.add_done_callback(partial(_copy_result, promise))


def _copy_result(promise: asyncio.Future[Published], published: asyncio.Future[Published]) -> None:
    if promise.done() or published.cancelled():
        return
    error = published.exception()
    if error is not None:
        promise.set_exception(error)
    else:
        promise.set_result(published.result())
