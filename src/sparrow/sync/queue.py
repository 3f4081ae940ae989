"""A queue for threads.

Strategy: the background thread prefetches and decodes; iterating threads take jobs from its deque,
and wait for the background thread only when that is empty. A settlement crosses to it and waits;
those made with `_nowait` cross together.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from sparrow.client.blocking_jobs import BlockingJob, BlockingJobBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Unpack

    from sparrow.client.batch import RecordMetadata
    from sparrow.client.blocking_jobs import LoopBridge
    from sparrow.client.options import Acks
    from sparrow.client.prefetcher import Prefetcher
    from sparrow.client.queue import Queue as AsyncQueue
    from sparrow.client.queue import SettlementFailure
    from sparrow.client.results import PeekedRecord, QueueDescription, QueueStatistics
    from sparrow.client.schedule import Schedule
    from sparrow.sync.background import Background


class Queue:
    """A queue of one client, made by `client.queue(…)`; use it as `with`, or close it. Any number
    of threads may take jobs, each its own.
    """

    def __init__(self, background: Background, bridge: LoopBridge, queue: AsyncQueue) -> None:
        """Wrap an async queue that makes jobs of the class `BlockingJob`."""
        self._background = background
        self._bridge = bridge
        self._queue = queue

    def __repr__(self) -> str:
        return f"<blocking {repr(self._queue)[1:]}"

    @property
    def name(self) -> str:
        return self._queue.name

    # ── lifecycle ─────────────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._background.run_last(self._queue.abandon())

    def close(self) -> None:
        """End every iteration, wait for settlements under way, and release all unsettled jobs.
        Raises as the async queue's `close`.
        """
        self._background.run_last(self._queue.close())

    def stop(self) -> None:
        """End every running iteration and release the jobs that were not handed out. Any thread."""
        self._background.call_soon(self._queue.stop)

    # ── taking jobs ───────────────────────────────────────────────────────────────────────────────

    def __iter__(self) -> Iterator[BlockingJob]:
        """Yield jobs until the iteration is stopped or the queue closed. Raises as the async queue
        does.
        """
        run = self._background.run
        prefetcher = run(self._begin())
        jobs = prefetcher.jobs
        try:
            while bool(jobs) or run(self._queue.more(prefetcher)):
                try:
                    job = jobs.popleft()
                except IndexError:  # another thread was faster
                    continue
                if job.lease.latest_deadline > time.monotonic() and not job.is_lost:
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
        """Lease at most `max_jobs`, waiting at most `wait_s` seconds for the first; the batch is
        empty if none came.
        """
        owner, leases = self._background.run(self._queue.leased(max_jobs, wait_s, max_bytes))
        return BlockingJobBatch(self._bridge, owner, leases)

    # ── settlements that are not awaited ──────────────────────────────────────────────────────────

    @property
    def failures(self) -> list[SettlementFailure]:
        """Settlements made with `_nowait` that had no effect, since the last access or `flush`."""
        return self._background.run(self._failures())

    async def _failures(self) -> list[SettlementFailure]:
        return self._queue.failures

    def flush(self) -> None:
        """Wait until everything that this thread settled is on stable storage. Raises as the async
        queue's `flush`.
        """
        self._background.run(self._queue.flush())

    # ── publishing, describing, changing ──────────────────────────────────────────────────────────

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
        """Return the queue's topics, policy and statistics."""
        return self._background.run(self._queue.describe())

    def statistics(self) -> QueueStatistics:
        """Return the queue's statistics."""
        return self._background.run(self._queue.statistics())

    def peek(self, max_records: int = 10, *, states: Iterable[str] | None = None) -> list[PeekedRecord]:
        """Return the next unfinished records as they are now, without leasing them."""
        return self._background.run(self._queue.peek(max_records, states=states))

    def purge(self) -> int:
        """Finish all records that are not leased; return how many."""
        return self._background.run(self._queue.purge())

    def pause(self) -> None:
        """Stop delivery to all consumers until the queue is resumed."""
        self._background.run(self._queue.pause())

    def resume(self) -> None:
        """Resume delivery."""
        self._background.run(self._queue.resume())
