"""A queue, as one client uses it: jobs in, settlements out, messages published to it.

    async with client.queue("emails") as queue:
        await queue.publish(b"to: alice")
        async for job in queue:
            await send(job.value)
            await job.ack()

- **Two ways to take jobs**, each on a channel of its own that is opened when it is first used. Iterating: the broker pushes, at most `prefetch` jobs are
  here unsettled, and those that nobody took go back in time. `lease`: one asks for a number, and settles them by range. They may be mixed;
  any number of tasks may do either.
- **Lost link.** Jobs stay leased, and are settled on the next link. Jobs that were on their way when the link was lost come again when their lease ends.
- **The end.** Leaving an iteration gives back what was not handed out; jobs in hand stay leased. Closing waits for settlements under way, and gives back all that
  is not settled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from sparrow.base.clock import SystemClock
from sparrow.base.errors import InvalidArgument, NotLeased, SparrowError, UnknownQueue
from sparrow.base.ids import uuid7
from sparrow.client.job import Job
from sparrow.client.job_batch import JobBatch
from sparrow.client.leasing import Leaser
from sparrow.client.options import check_name
from sparrow.client.prefetching import Prefetcher

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Mapping,
        Sequence,
    )
    from types import TracebackType
    from typing import Unpack

    from sparrow.client.admin import Admin
    from sparrow.client.connection import Connection
    from sparrow.client.consumer import Consumer
    from sparrow.client.delivery import RecordMetadata
    from sparrow.client.job import LeasedRecord
    from sparrow.client.lease import Lease
    from sparrow.client.options import Acks, QueueOptions
    from sparrow.client.results import PeekedRecord, QueueDescription, QueueStatistics
    from sparrow.client.schedule import Schedule
    from sparrow.client.settling import Part
    from sparrow.records.record import Record

    OnFailure = Callable[["SettlementFailure"], None]

AnyConsumer = TypeVar("AnyConsumer", bound="Consumer")

_logger = logging.getLogger("sparrow.client")

_TURN_S = 0.002
"""How long an iteration may go on before other tasks have their turn."""
_MAX_FAILURES = 1000
_ABANDON_TIMEOUT_S = 1.0
_MAX_LEASE_BYTES = 4 << 20
_MOST = 1 << 31
"""Of anything that one may ask for; it stands for "without limit"."""


class SettlementFailure(NamedTuple):
    """Something that was said of records without waiting, and had no effect."""

    topic: str
    partition: int
    first: int
    last: int
    verb: int
    """A `SettleVerb`."""
    error: SparrowError


class Queue:
    """Made by `client.queue(…)`; use it as `async with`, or `close` it. Loop thread only."""

    def __init__(
        self,
        connection: Connection,
        admin: Admin,
        publish: Callable[..., Awaitable[RecordMetadata]],
        name: str,
        options: QueueOptions,
        *,
        on_failure: OnFailure | None = None,
        on_close: Callable[[Queue], None] | None = None,
        make_job: Callable[[Lease, Record, int], LeasedRecord] = Job,
    ) -> None:
        """`make_job` makes what an iteration hands out."""
        check_name("the name of a queue", name)
        self.name = name
        self.options = options
        self._connection = connection
        self._admin = admin
        self._publish = publish
        self._on_failure = on_failure
        self._on_close = on_close
        self._make_job = make_job
        self._prefetcher: Prefetcher | None = None
        self._leaser: Leaser | None = None
        self._opening: dict[Consumer, asyncio.Task[None]] = {}
        self._failures: deque[SettlementFailure] = deque(maxlen=_MAX_FAILURES)
        self._topic: str | None = None
        self._is_closed = False

    # ── its life ──────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:  # the block's own error is the one to see
            await self.abandon()

    async def close(self) -> None:
        """End every iteration, wait for settlements under way (within the client's `close_timeout_s`), give back what is not settled.

        Raises:
            SparrowError: the first failure of a settlement that nobody waited for, and that nobody looked at.
        """
        await self._end(self._connection.options.close_timeout_s)
        self._raise_unseen()

    async def abandon(self) -> None:
        """As `close`, without waiting long and without raising what failed."""
        await self._end(_ABANDON_TIMEOUT_S)

    async def _end(self, timeout_s: float) -> None:
        self._is_closed = True
        if self._on_close is not None:
            self._on_close(self)
        self.stop()
        for consumer in (self._prefetcher, self._leaser):
            if consumer is not None:
                await consumer.close(timeout_s)
        for task in self._opening.values():
            task.cancel()

    def stop(self) -> None:
        """End every iteration that is going on now; what was not handed out goes back. Jobs in hand may be settled."""
        if self._prefetcher is not None:
            self._prefetcher.stop()

    # ── taking jobs ───────────────────────────────────────────────────────────────────────────────

    def __aiter__(self) -> AsyncIterator[Job]:
        return self._jobs()

    async def _jobs(self) -> AsyncGenerator[Job, None]:
        prefetcher = await self.prefetcher()
        loop_time = self._connection.loop.time
        prefetcher.begin()
        try:
            began = now = loop_time()
            while True:
                job = prefetcher.take_nowait(now)
                if job is not None:
                    yield job  # type: ignore[misc]  # `make_job` makes jobs
                    now = loop_time()
                    if now - began < _TURN_S:
                        continue
                    await asyncio.sleep(0)
                elif not await self.more(prefetcher):
                    return
                began = now = loop_time()
        finally:
            prefetcher.end()

    async def more(self, prefetcher: Prefetcher) -> bool:
        """Wait until the prefetcher has `jobs`, or may have; False when the iterations were ended."""
        try:
            goes_on = prefetcher.refill() or await prefetcher.arrival()
        except NotLeased:
            if self._is_closed:
                return False
            raise
        prefetcher.wake_next()
        return goes_on

    async def lease(
        self, max_jobs: int = 100, *, wait_s: float = 1.0, max_bytes: int = _MAX_LEASE_BYTES
    ) -> JobBatch:
        """At most `max_jobs` at once, waiting at most `wait_s` for the first; an empty batch is an answer.

        Args:
            max_bytes: of their batches, about; at least one job comes.

        Raises:
            SparrowError: the queue is not there, or cannot be had.
        """
        owner, leases = await self.leased(max_jobs, wait_s, max_bytes)
        return JobBatch(owner, leases, Job)

    async def leased(self, max_jobs: int, wait_s: float, max_bytes: int) -> tuple[Leaser, list[Lease]]:
        """As `lease`: what a batch is made of."""
        if not (max_jobs >= 1 and wait_s >= 0 and max_bytes >= 1):  # written so that no NaN passes
            raise InvalidArgument(
                f"a lease of {max_jobs} jobs and {max_bytes} bytes, waiting {wait_s} s; ask for 1 or more, and wait 0 or more"
            )
        leaser = await self._opened(self._leaser, self._make_leaser)
        return leaser, await leaser.lease(
            int(min(max_jobs, _MOST)), min(wait_s, _MOST), int(min(max_bytes, _MOST))
        )

    async def prefetcher(self) -> Prefetcher:
        """The consumer to whom the broker pushes, opened."""
        return await self._opened(self._prefetcher, self._make_prefetcher)

    def _make_prefetcher(self) -> Prefetcher:
        self._prefetcher = Prefetcher(
            self._connection,
            self.name,
            self.options,
            _new_id(),
            on_failure=self._failed,
            make_job=self._make_job,
        )
        return self._prefetcher

    def _make_leaser(self) -> Leaser:
        self._leaser = Leaser(self._connection, self.name, self.options, _new_id(), on_failure=self._failed)
        return self._leaser

    async def _opened(self, consumer: AnyConsumer | None, make: Callable[[], AnyConsumer]) -> AnyConsumer:
        """The consumer; a new one if there is none, or the last one failed. Opened once, whoever asks first."""
        if self._is_closed:
            raise NotLeased(f"queue {self.name!r} was closed here; take it from the client once more")
        self._connection.check_loop()
        if consumer is None or consumer.failure is not None:
            consumer = make()
            opening = self._connection.loop.create_task(consumer.open())
            opening.add_done_callback(_look)
            self._opening[consumer] = opening
        task = self._opening.get(consumer)
        if task is not None:
            await asyncio.wait([task])
            self._opening.pop(consumer, None)
            task.result()
        return consumer

    # ── settlements that nobody waits for ─────────────────────────────────────────────────────────

    @property
    def failures(self) -> list[SettlementFailure]:
        """What was said with `_nowait` and had no effect, since the last look or `flush`; the last 1000. Empty where there is an `on_failure`."""
        failures = list(self._failures)
        self._failures.clear()
        return failures

    async def flush(self) -> None:
        """Wait until everything that was said of jobs before this call is on stable storage, or failed.

        Raises:
            SparrowError: the first failure that nobody waited for and nobody looked at.
        """
        for consumer in (self._prefetcher, self._leaser):
            if consumer is not None:
                await consumer.flush()
        self._raise_unseen()

    def _raise_unseen(self) -> None:
        failures = self.failures
        if failures:
            raise failures[0].error

    def _failed(self, part: Part, error: SparrowError) -> None:
        (verb, topic, partition, *_), first, last, _ = part
        failure = SettlementFailure(topic, partition, first, last, verb, error)
        if self._on_failure is None:
            self._failures.append(failure)
            return
        try:
            self._on_failure(failure)
        except Exception:
            _logger.exception("the callback on_failure of queue %r failed", self.name)

    # ── publishing ────────────────────────────────────────────────────────────────────────────────

    async def publish(
        self,
        value: bytes | None,
        *,
        topic: str | None = None,
        key: bytes | None = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
        acks: Acks = "all",
        **schedule: Unpack[Schedule],
    ) -> RecordMetadata:
        """Publish one message to the queue, as `client.publish` does, with the options of `Schedule` (delay, priority, parents, …).

        Args:
            topic: which of the queue's topics; default: its first one.

        Raises:
            UnknownQueue: there is none, and it is not to be made.
            SparrowError: as `client.publish`.
        """
        return await self._publish(
            topic or await self.topic(),
            value,
            key=key,
            headers=headers,
            timestamp_ms=timestamp_ms,
            partition=partition,
            acks=acks,
            **schedule,
        )

    async def topic(self) -> str:
        """The first of the queue's topics; the queue is made if it is missing and shall be. Asked for once.

        Raises:
            UnknownQueue: there is none.
            InvalidArgument: it has no topic of its own, as a share group of Kafka has.
        """
        if self._topic is None:
            topics = (await self._description()).topics
            if not topics:
                raise InvalidArgument(f"queue {self.name!r} has no topic yet; say to which one to publish")
            self._topic = topics[0]
        return self._topic

    async def _description(self) -> QueueDescription:
        try:
            return await self._admin.describe_queue(self.name)
        except UnknownQueue:
            if not self.options.create:
                raise
            return await self._admin.create_queue(self.name)

    # ── looking at it, and changing it ────────────────────────────────────────────────────────────

    async def describe(self) -> QueueDescription:
        """Its topics, policy and statistics. Raises UnknownQueue, as all that follow."""
        return await self._admin.describe_queue(self.name)

    async def statistics(self) -> QueueStatistics:
        """Where it stands."""
        return (await self.describe()).statistics

    async def peek(self, max_records: int = 10, *, states: Iterable[str] | None = None) -> list[PeekedRecord]:
        """The next unfinished records as they are now, without leasing them. See `client.admin.peek_queue`."""
        return await self._admin.peek_queue(
            self.name, max_records, states=states, subscriber=self.options.subscriber
        )

    async def purge(self) -> int:
        """Finish all records that nobody has leased; returns how many."""
        return await self._admin.purge_queue(self.name)

    async def pause(self) -> None:
        """Deliver nothing more, to nobody, until it is resumed."""
        await self._admin.pause_queue(self.name)

    async def resume(self) -> None:
        """Deliver again."""
        await self._admin.resume_queue(self.name)


def _look(task: asyncio.Task[None]) -> None:
    """Whoever waits learns of a failure; nobody need wait."""
    if not task.cancelled():
        task.exception()


def _new_id() -> str:
    return str(uuid7(SystemClock().wall_ms()))
