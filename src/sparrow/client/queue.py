"""A queue as one client uses it: receive jobs, settle them, publish messages.

    async with client.queue("emails") as queue:
        await queue.publish(b"to: alice")
        async for job in queue:
            await send(job.value)
            await job.ack()

- **Two ways to take jobs**, each on its own channel, opened at the first use. Iterating: the broker
  pushes; at most `prefetch` jobs are here unsettled, and those that were not taken are released in
  time. `lease`: the caller asks for a number of jobs, and settles them by range. Both may be mixed;
  any number of tasks may do either.
- **Lost connection.** Jobs stay leased, and are settled on the next connection. Jobs that were on
  their way when the connection was lost come again when their lease ends.
- **The end.** Leaving an iteration releases the jobs that were not handed out; jobs in hand stay
  leased. Closing waits for settlements under way, and releases everything that is not settled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar, cast

from sparrow.base.clock import SystemClock
from sparrow.base.errors import InvalidArgument, NotLeased, QueueExists, SparrowError, UnknownQueue
from sparrow.base.ids import uuid7
from sparrow.client.job import Job
from sparrow.client.job_batch import JobBatch
from sparrow.client.leaser import Leaser
from sparrow.client.options import check_name
from sparrow.client.prefetcher import Prefetcher

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
    from sparrow.client.batch import RecordMetadata
    from sparrow.client.consumer import Consumer
    from sparrow.client.job import LeasedRecord
    from sparrow.client.lease import Lease
    from sparrow.client.options import Acks, QueueOptions
    from sparrow.client.policy import Policy
    from sparrow.client.results import PeekedRecord, QueueDescription, QueueStatistics
    from sparrow.client.schedule import Schedule
    from sparrow.client.session import Session
    from sparrow.client.settlements import Part
    from sparrow.records.record import Record

    OnFailure = Callable[["SettlementFailure"], None]

AnyConsumer = TypeVar("AnyConsumer", bound="Consumer")

_logger = logging.getLogger("sparrow.client")

_SLICE_S = 0.002
"""The longest time that an iteration runs before it yields to other tasks."""
_MAX_FAILURES = 1000
_ABANDON_TIMEOUT_S = 1.0
_MAX_LEASE_BYTES = 4 << 20
_UNLIMITED = 1 << 31
"""The largest number that may be asked for; it means "without limit"."""


class SettlementFailure(NamedTuple):
    """A settlement that was not awaited, and had no effect."""

    topic: str
    partition: int
    first: int
    last: int
    verb: int
    """A `SettleVerb`."""
    error: SparrowError


class Queue:
    """A queue of one client, made by `client.queue(…)`; use it as `async with`, or `close` it. Loop
    thread only.
    """

    def __init__(
        self,
        session: Session,
        admin: Admin,
        publish: Callable[..., Awaitable[RecordMetadata]],
        name: str,
        options: QueueOptions,
        *,
        on_failure: OnFailure | None = None,
        on_close: Callable[[Queue], None] | None = None,
        make_job: Callable[[Lease, Record, int], LeasedRecord] = Job,
    ) -> None:
        """Create a queue that is not opened. `make_job` makes the jobs of an iteration."""
        check_name("the name of a queue", name)
        self.name = name
        self.options = options
        self._session = session
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
        self._ensuring: asyncio.Task[None] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        session = self._session
        state = "closed" if self._is_closed else session.state
        if not self._is_closed and self._prefetcher is None and self._leaser is None:
            state += ", nothing taken yet"
        elif not self._is_closed:
            state += f", {self._leased_here()} jobs here"
        subscriber = f" for {self.options.subscriber!r}" if self.options.subscriber else ""
        return f"<Queue {self.name!r}{subscriber} of {session.address}, {state}>"

    def _leased_here(self) -> int:
        return sum(each.leased_records for each in (self._prefetcher, self._leaser) if each is not None)

    # ── lifecycle ─────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:  # show the block's own error
            await self.abandon()

    async def close(self) -> None:
        """End every iteration, wait for settlements under way (at most the client's
        `close_timeout_s`), and release all unsettled jobs.

        Raises:
            SparrowError: the first failure of a settlement that was not awaited and not read from
                `failures`.
        """
        await self._end(self._session.options.close_timeout_s)
        self._raise_unseen()

    async def abandon(self) -> None:
        """Close without waiting long, and without raising failed settlements."""
        await self._end(_ABANDON_TIMEOUT_S)

    async def _end(self, timeout_s: float) -> None:
        if self._session.is_forked:
            return
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
        """End every running iteration and release the jobs that were not handed out. Jobs in hand
        may still be settled.
        """
        if self._prefetcher is not None and not self._session.is_forked:
            self._prefetcher.stop()

    # ── taking jobs ───────────────────────────────────────────────────────────────────────────────

    def __aiter__(self) -> AsyncIterator[Job]:
        return self._jobs()

    async def _jobs(self) -> AsyncGenerator[Job, None]:
        prefetcher = await self.prefetcher()
        loop_time = self._session.loop.time
        prefetcher.begin()
        try:
            began = now = loop_time()
            while True:
                job = prefetcher.take_nowait(now)
                if job is not None:
                    yield job  # type: ignore[misc]  # `make_job` makes jobs
                    now = loop_time()
                    if now - began < _SLICE_S:
                        continue
                    await asyncio.sleep(0)
                elif not await prefetcher.arrival():
                    return
                began = now = loop_time()
        except NotLeased:
            if not self._is_closed:
                raise
        finally:
            prefetcher.end()

    async def more(self, prefetcher: Prefetcher) -> bool:
        """Wait until the prefetcher has `jobs` for another thread, or may have; return False when
        the iterations were ended.
        """
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
        """Lease at most `max_jobs`, waiting at most `wait_s` seconds for the first; the batch is
        empty if none came.

        Args:
            max_bytes: approximate limit of the batches' size; at least one job comes.

        Raises:
            SparrowError: the queue does not exist, or may not be consumed.
        """
        owner, leases = await self.leased(max_jobs, wait_s, max_bytes)
        return JobBatch(owner, leases, Job)

    async def leased(self, max_jobs: int, wait_s: float, max_bytes: int) -> tuple[Leaser, list[Lease]]:
        """Return the leases that `lease` makes a batch of, and their owner."""
        if not (max_jobs >= 1 and wait_s >= 0 and max_bytes >= 1):  # also refuses NaN
            raise InvalidArgument(
                f"a lease of {max_jobs} jobs and {max_bytes} bytes, waiting {wait_s} s; ask for 1 "
                "or more, and wait 0 or more"
            )
        leaser = await self._opened(self._leaser, self._make_leaser)
        return leaser, await leaser.lease(
            int(min(max_jobs, _UNLIMITED)), min(wait_s, _UNLIMITED), int(min(max_bytes, _UNLIMITED))
        )

    async def prefetcher(self) -> Prefetcher:
        """Return the open consumer that the broker pushes to."""
        return await self._opened(self._prefetcher, self._make_prefetcher)

    def _make_prefetcher(self) -> Prefetcher:
        self._prefetcher = Prefetcher(
            self._session,
            self.name,
            self.options,
            _new_id(),
            on_failure=self._failed,
            make_job=self._make_job,
        )
        self._prefetcher.publish = self._publish
        return self._prefetcher

    def _make_leaser(self) -> Leaser:
        return self._new_leaser(_new_id())

    def _new_leaser(self, consumer_id: str) -> Leaser:
        self._leaser = Leaser(self._session, self.name, self.options, consumer_id, on_failure=self._failed)
        self._leaser.publish = self._publish
        return self._leaser

    async def take_over(self, consumer_id: str) -> Consumer:
        """Open a consumer that is open on another connection, where it ends. Its leases may be
        settled here, and `close` releases the others. To be called once, on a new queue.

        Raises:
            SparrowError: the queue cannot be consumed.
        """
        leaser = self._new_leaser(consumer_id)
        await leaser.open()
        return leaser

    async def _opened(self, consumer: AnyConsumer | None, make: Callable[[], AnyConsumer]) -> AnyConsumer:
        """Return the consumer, or a new one if there is none or the last one failed. Concurrent
        callers share one opening.
        """
        self._session.check_process()
        if self._is_closed:
            raise NotLeased(f"queue {self.name!r} was closed here; take it from the client once more")
        self._session.check_loop()
        await self._ensured()
        if consumer is None or consumer.failure is not None:
            consumer = make()
            opening = self._session.loop.create_task(consumer.open())
            opening.add_done_callback(_mark_seen)
            self._opening[consumer] = opening
        task = self._opening.get(consumer)
        if task is not None:
            await asyncio.wait([task])
            self._opening.pop(consumer, None)
            task.result()
        return consumer

    # ── settlements that are not awaited ──────────────────────────────────────────────────────────

    @property
    def failures(self) -> list[SettlementFailure]:
        """Settlements made with `_nowait` that had no effect, since the last access or `flush`; the
        last 1000. Empty if the queue has an `on_failure`.
        """
        failures = list(self._failures)
        self._failures.clear()
        return failures

    async def flush(self) -> None:
        """Wait until everything settled before this call is on stable storage, or failed.

        Raises:
            SparrowError: the first failure of a settlement that was not awaited and not read from
                `failures`.
        """
        self._session.check_process()
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
        """Publish one message to the queue, as `client.publish` does, with the options of
        `Schedule` (delay, priority, parents, …).

        Args:
            topic: one of the queue's topics; default: the first.

        Raises:
            UnknownQueue: the queue does not exist, and `create` is False.
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
        """Return the first of the queue's topics, asked for once. Create the queue if it is missing
        and `create` is True, and apply the policy.

        Raises:
            UnknownQueue: the queue does not exist.
            InvalidArgument: the queue has no topic, as a Kafka share group before it subscribes.
        """
        if self._topic is None:
            topics = (await self._description()).topics
            if not topics:
                raise InvalidArgument(f"queue {self.name!r} has no topic yet; say to which one to publish")
            self._topic = topics[0]
        return self._topic

    async def _ensured(self) -> None:
        """Apply the queue's policy once, if one was given."""
        if self.options.policy is None:
            return
        task = self._ensuring
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._ensuring = self._session.loop.create_task(self._ensure())
            task.add_done_callback(_mark_seen)
        await asyncio.shield(task)

    async def _ensure(self) -> None:
        await self._admin.ensure_queue(self.name, policy=cast("Policy", self.options.policy))

    async def _description(self) -> QueueDescription:
        await self._ensured()
        try:
            return await self._admin.describe_queue(self.name)
        except UnknownQueue:
            if not self.options.create:
                raise
            with contextlib.suppress(QueueExists):  # made meanwhile, with settings of its own
                return await self._admin.create_queue(self.name)
            return await self._admin.describe_queue(self.name)

    # ── describing and changing ───────────────────────────────────────────────────────────────────

    async def describe(self) -> QueueDescription:
        """Return the queue's topics, policy and statistics. Raises UnknownQueue, as all that
        follow.
        """
        return await self._admin.describe_queue(self.name)

    async def statistics(self) -> QueueStatistics:
        """Return the queue's statistics."""
        return (await self.describe()).statistics

    async def peek(self, max_records: int = 10, *, states: Iterable[str] | None = None) -> list[PeekedRecord]:
        """Return the next unfinished records as they are now, without leasing them. See
        `client.admin.peek_queue`.
        """
        return await self._admin.peek_queue(
            self.name, max_records, states=states, subscriber=self.options.subscriber
        )

    async def purge(self) -> int:
        """Finish all records that are not leased; return how many."""
        return await self._admin.purge_queue(self.name)

    async def pause(self) -> None:
        """Stop delivery to all consumers until the queue is resumed."""
        await self._admin.pause_queue(self.name)

    async def resume(self) -> None:
        """Resume delivery."""
        await self._admin.resume_queue(self.name)


def _mark_seen(task: asyncio.Task[None]) -> None:
    """Mark the task's error as seen: a caller that waits gets it, but there may be none."""
    if not task.cancelled():
        task.exception()


def _new_id() -> str:
    return str(uuid7(SystemClock().wall_ms()))
