"""A queue for threads.

Strategy: the background thread prefetches and decodes; iterating threads take jobs from its deque, and wait for it only when that is empty. A verb of a job
crosses and waits; those with `_nowait` cross together.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from sparrow.client.blocking import BlockingJob, BlockingJobBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Unpack

    from sparrow.client.blocking import Crossing
    from sparrow.client.delivery import RecordMetadata
    from sparrow.client.options import Acks
    from sparrow.client.prefetching import Prefetcher
    from sparrow.client.queue import Queue as AsyncQueue
    from sparrow.client.queue import SettlementFailure
    from sparrow.client.results import PeekedRecord, QueueDescription, QueueStatistics
    from sparrow.client.schedule import Schedule
    from sparrow.sync.background import Background


class Queue:
    """Made by `client.queue(…)`; use it as `with`, or close it. Any number of threads may take jobs, each its own."""

    def __init__(self, background: Background, crossing: Crossing, queue: AsyncQueue) -> None:
        """`queue` makes jobs of the kind `BlockingJob`."""
        self._background = background
        self._crossing = crossing
        self._queue = queue

    @property
    def name(self) -> str:
        return self._queue.name

    # ── its life ──────────────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._background.run(self._queue.abandon())

    def close(self) -> None:
        """End every iteration, wait for settlements under way, give back what is not settled. Raises as the async queue's `close`."""
        self._background.run(self._queue.close())

    def stop(self) -> None:
        """End every iteration that is going on now; what was not handed out goes back. Any thread."""
        self._background.call_soon(self._queue.stop)

    # ── taking jobs ───────────────────────────────────────────────────────────────────────────────

    def __iter__(self) -> Iterator[BlockingJob]:
        """Job by job, until the iteration is stopped or the queue closed. Raises as the async queue does."""
        run = self._background.run
        prefetcher = run(self._begin())
        jobs = prefetcher.jobs
        try:
            while bool(jobs) or run(self._queue.more(prefetcher)):
                try:
                    job = jobs.popleft()
                except IndexError:  # another thread was faster
                    continue
                if job.lease.held_until > time.monotonic() and not job.is_lost:
                    yield job
        finally:
            self._background.call_soon(prefetcher.end)

    async def _begin(self) -> Prefetcher:
        prefetcher = await self._queue.prefetcher()
        prefetcher.begin()
        return prefetcher

    def lease(
        self, max_jobs: int = 100, *, wait_s: float = 1.0, max_bytes: int = 4 << 20
    ) -> BlockingJobBatch:
        """At most `max_jobs` at once, waiting at most `wait_s` for the first; an empty batch is an answer."""
        owner, leases = self._background.run(self._queue.leased(max_jobs, wait_s, max_bytes))
        return BlockingJobBatch(self._crossing, owner, leases)

    # ── settlements that nobody waits for ─────────────────────────────────────────────────────────

    @property
    def failures(self) -> list[SettlementFailure]:
        """What was said with `_nowait` and had no effect, since the last look or `flush`."""
        return self._background.run(self._failures())

    async def _failures(self) -> list[SettlementFailure]:
        return self._queue.failures

    def flush(self) -> None:
        """Wait until everything that this thread said of jobs is on stable storage. Raises as the async queue's `flush`."""
        self._background.run(self._queue.flush())

    # ── publishing, looking at it, changing it ────────────────────────────────────────────────────

    def publish(
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
        """Publish one message to the queue. Raises as the async queue's `publish`."""
        return self._background.run(
            self._queue.publish(
                value,
                topic=topic,
                key=key,
                headers=headers,
                timestamp_ms=timestamp_ms,
                partition=partition,
                acks=acks,
                **schedule,
            )
        )

    def describe(self) -> QueueDescription:
        """Its topics, policy and statistics."""
        return self._background.run(self._queue.describe())

    def statistics(self) -> QueueStatistics:
        """Where it stands."""
        return self._background.run(self._queue.statistics())

    def peek(self, max_records: int = 10, *, states: Iterable[str] | None = None) -> list[PeekedRecord]:
        """The next unfinished records as they are now, without leasing them."""
        return self._background.run(self._queue.peek(max_records, states=states))

    def purge(self) -> int:
        """Finish all records that nobody has leased; returns how many."""
        return self._background.run(self._queue.purge())

    def pause(self) -> None:
        """Deliver nothing more, to nobody, until it is resumed."""
        self._background.run(self._queue.pause())

    def resume(self) -> None:
        """Deliver again."""
        self._background.run(self._queue.resume())
