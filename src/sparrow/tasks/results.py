"""Results of jobs: records of a compacted topic with a time to live, `APP.results`, by job ID.

A result is one record, and so is each progress: compaction leaves the last one of a job, retention
removes it after the app's `results_ttl`. Times of the topic are the broker's.

A reader (`ResultReader`) follows the topic from the time of the oldest job that was asked for, and
keeps what it saw, up to a limit; each process that asks for results has one. Older results are read
from the topic again, from the time in the job's ID. Rejected: a topic or a partition for each
sender, which other processes could not ask; an index by key in the broker, which would keep all
results in memory for the few that are asked for twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

import msgspec

from sparrow.base.errors import SparrowError, TimedOut
from sparrow.client.missing_topic import create_if_missing
from sparrow.tasks.errors import TaskError, TaskFailed
from sparrow.tasks.signature import ENCODER, decode_other
from sparrow.tasks.wire import created_ms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from sparrow.client.client import Client

R = TypeVar("R")
T = TypeVar("T")

_MARGIN_MS: Final = 10_000
"""The sender's clock may be ahead of the broker's by this much. The results of jobs from further
ahead may be anywhere in the topic, and are looked for from its beginning.
"""
_MAX_KEPT_BYTES: Final = 32 << 20
_OVERHEAD_BYTES: Final = 300
_SETTLE_S: Final = 1.0
"""A result that is not there after this is looked for from the beginning of the topic."""


class JobOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record of the results topic."""

    state: Literal["running", "done", "failed"]
    task: str = ""
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    attempt: int = 0
    fraction: float = 0.0
    text: str = ""

    @property
    def is_final(self) -> bool:
        return self.state != "running"


class Progress(msgspec.Struct, frozen=True):
    """The state of a job: `state` is "waiting", "running", "done" or "failed"."""

    state: str
    fraction: float = 0.0
    """0 to 1."""
    text: str = ""
    attempt: int = 0


_DECODER: Final = msgspec.json.Decoder(JobOutcome)


def encode_outcome(outcome: JobOutcome) -> bytes:
    """Return the value of a record of the results topic."""
    return ENCODER.encode(outcome)


async def ensure_topic(client: Client, topic: str, ttl_ms: int) -> None:
    """Create the topic of results if it is missing.

    Raises:
        SparrowError: it cannot be created.
    """
    await create_if_missing(
        client.admin,
        topic,
        partitions=1,
        config={
            "cleanup.policy": "compact,delete",
            "retention.ms": ttl_ms,
            "segment.ms": max(60_000, min(ttl_ms // 4, 7 * 86_400_000)),
            "message.timestamp.type": "LogAppendTime",
        },
    )


class ResultReader:
    """The results that one client has seen. Loop thread only."""

    def __init__(self, client: Client, topic: str) -> None:
        """Create a reader that reads nothing yet. The topic exists."""
        self._client = client
        self._topic = topic
        self._kept: OrderedDict[str, tuple[JobOutcome, int]] = OrderedDict()
        self._kept_bytes = 0
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._tail: asyncio.Task[None] | None = None
        self._from_ms = 0
        """Results of jobs that were created from here on are kept, or come."""
        self._position = 0
        """The next offset that the tail reads."""
        self._moved = asyncio.Event()

    async def close(self) -> None:
        """Stop reading."""
        if self._tail is not None:
            self._tail.cancel()
            await asyncio.wait([self._tail])

    def known(self, job_id: str) -> JobOutcome | None:
        """Return the last outcome of a job that was seen."""
        found = self._kept.get(job_id)
        return None if found is None else found[0]

    async def final(self, job_id: str, timeout_s: float | None) -> JobOutcome:
        """Wait for the final outcome of a job.

        Raises:
            TimedOut: it did not come in time.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        await self._cover(job_id)
        is_searched = False
        while True:
            found = self.known(job_id)
            if found is not None and found.is_final:
                return found
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise TimedOut(
                    f"the job {job_id} has no result after {timeout_s:g} s; it waits, runs, or its task "
                    "keeps no results (results=True)"
                )
            wait_s = left_s if is_searched else min(_SETTLE_S, left_s or _SETTLE_S)
            if not await self._changed(job_id, wait_s) and not is_searched:
                is_searched = True
                await self._search(job_id, 0)

    async def latest(self, job_id: str) -> JobOutcome | None:
        """Return the newest outcome of a job; None if there is none up to now."""
        await self._cover(job_id)
        await self._reach(await self._end())
        if job_id not in self._kept and created_ms(job_id) > time.time_ns() // 1_000_000 + _MARGIN_MS:
            await self._search(job_id, 0)
        return self.known(job_id)

    async def _changed(self, job_id: str, timeout_s: float | None) -> bool:
        """Wait until there is another outcome of the job; return False when the time is up."""
        future = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(job_id, set()).add(future)
        try:
            assert self._tail is not None  # `_cover` has started it
            await asyncio.wait([future, self._tail], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if self._tail.done() and not self._tail.cancelled():
                self._tail.result()
            return future.done()
        finally:
            waiting = self._waiters.get(job_id)
            if waiting is not None:
                waiting.discard(future)
                if not waiting:
                    self._waiters.pop(job_id, None)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    async def _cover(self, job_id: str) -> None:
        """See to it that the result of a job is kept, or will come."""
        since_ms = created_ms(job_id) - _MARGIN_MS
        if self._tail is None or self._tail.done():
            self._from_ms = max(since_ms, 0)
            self._position = await self._offset_at(self._from_ms)
            if self._tail is None or self._tail.done():  # another task may have been faster
                self._tail = asyncio.get_running_loop().create_task(self._follow(self._position))
        elif since_ms < self._from_ms and job_id not in self._kept:
            await self._search(job_id, max(since_ms, 0))

    async def _follow(self, start: int) -> None:
        async with self._client.subscribe(self._topic, start=start) as messages:
            async for batch in messages.batches():
                for record in batch:
                    self._take(record.key, record.value)
                self._position = batch[-1].offset + 1
                self._moved.set()
                self._moved = asyncio.Event()

    async def _end(self) -> int:
        return (await self._client.admin.offsets(self._topic, "end"))[0].offset

    async def _offset_at(self, since_ms: int) -> int:
        """Return the first offset that was appended at a time or later; 0 is the beginning."""
        start = datetime.fromtimestamp(since_ms / 1000, UTC) if since_ms else "beginning"
        end = await self._end()  # first: a record that comes between the two is read
        offset = (await self._client.admin.offsets(self._topic, start))[0].offset
        return offset if offset >= 0 else end

    async def _reach(self, offset: int) -> None:
        """Wait until the tail has read everything before an offset."""
        assert self._tail is not None
        while self._position < offset and not self._tail.done():
            moved = asyncio.get_running_loop().create_task(self._moved.wait())
            try:
                await asyncio.wait([moved, self._tail], return_when=asyncio.FIRST_COMPLETED, timeout=0.05)
            finally:
                moved.cancel()

    async def _search(self, job_id: str, since_ms: int) -> None:
        """Read the topic from a time on, up to its end, for one job."""
        end = await self._end()
        first = await self._offset_at(since_ms)
        key = job_id.encode()
        if first >= end:
            return
        async with self._client.subscribe(self._topic, start=first) as messages:
            async for batch in messages.batches():
                for record in batch:
                    if record.key == key:
                        self._take(record.key, record.value)
                if batch[-1].offset + 1 >= end:
                    return

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        if key is None or value is None:
            return
        job_id = key.decode(errors="replace")
        try:
            outcome = _DECODER.decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return  # a record that another program wrote
        before = self._kept.pop(job_id, None)
        if before is not None:
            self._kept_bytes -= before[1]
            if before[0].is_final and not outcome.is_final:
                outcome = before[0]  # progress of an attempt whose lease had ended
        size_bytes = len(value) + _OVERHEAD_BYTES
        self._kept[job_id] = outcome, size_bytes
        self._kept_bytes += size_bytes
        while self._kept_bytes > _MAX_KEPT_BYTES and len(self._kept) > 1:
            dropped, (_, dropped_bytes) = self._kept.popitem(last=False)
            self._kept_bytes -= dropped_bytes
            self._from_ms = max(self._from_ms, created_ms(dropped))
        for future in self._waiters.pop(job_id, ()):
            if not future.done():
                future.set_result(None)

    async def is_absent(self, job_id: str) -> bool:
        """Return True if the topic has no final outcome of a job up to its end of now."""
        await self._cover(job_id)
        await self._reach(await self._end())
        found = self.known(job_id)
        if found is None:  # rare: its sender's clock may have been wrong
            await self._search(job_id, 0)
            found = self.known(job_id)
        return found is None or not found.is_final


class Result(Generic[R]):
    """The result of a job, which may not be there yet; made by `await task.send(…)`."""

    __slots__ = ("_kind", "_reader", "id", "task")

    def __init__(
        self,
        job_id: str,
        task: str,
        reader: Callable[[], Awaitable[ResultReader]] | None,
        kind: Any = Any,
    ) -> None:
        """Create a result. `reader` is None if the task keeps no results."""
        self.id = job_id
        """ID of the job."""
        self.task = task
        """Name of the task."""
        self._reader = reader
        self._kind = kind

    def __repr__(self) -> str:
        return f"<Result of {self.task!r}, job {self.id}>"

    async def get(self, timeout: float | None = None) -> R:
        """Wait for the result and return it.

        Args:
            timeout: seconds; None: no limit.

        Raises:
            TimedOut: it is not there in time.
            TaskFailed: the job has failed for good; the text has its last error.
            TaskError: the task keeps no results.
        """
        outcome = await (await self._open()).final(self.id, timeout)
        return self.value_of(outcome)

    def value_of(self, outcome: JobOutcome) -> R:
        """Return the value of a final outcome. Raises TaskFailed, TaskError."""
        if outcome.state == "failed":
            raise TaskFailed(
                f"the job {self.id} of the task {outcome.task or self.task!r} failed: {outcome.error}",
                error=outcome.error,
            )
        try:
            value: R = msgspec.json.decode(outcome.result, type=self._kind, dec_hook=decode_other)
        except (msgspec.MsgspecError, TypeError) as error:
            raise TaskError(
                f"the result of the job {self.id} does not fit the type that the task {self.task!r} returns: "
                f"{error}"
            ) from None
        return value

    async def progress(self) -> Progress:
        """Return the state of the job as it was reported last. Raises TaskError as `get`."""
        outcome = await (await self._open()).latest(self.id)
        if outcome is None:
            return Progress("waiting")
        fraction = 1.0 if outcome.state == "done" else outcome.fraction
        return Progress(outcome.state, fraction, outcome.text, outcome.attempt)

    async def _open(self) -> ResultReader:
        if self._reader is None:
            raise TaskError(
                f"the task {self.task!r} keeps no results; declare it with results=True, and start the "
                "workers again"
            )
        return await self._reader()

    def __await__(self) -> Generator[Any, None, R]:
        return self.get().__await__()


def is_lost(error: BaseException) -> bool:
    """Return True for an error of the broker or the connection, which may pass."""
    return isinstance(error, SparrowError) and error.retriable
