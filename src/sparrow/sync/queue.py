"""A queue for threads.

Strategy: the background thread prefetches and decodes; iterating threads take jobs from its deque,
and wait for the background thread only when that is empty. A settlement crosses to it and waits;
those made with `_nowait` cross together.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from sparrow.client.blocking_jobs import BlockingJob, BlockingJobBatch
from sparrow.client.queue import Queue as AsyncQueue
from sparrow.sync.part import BlockingPart, blocking

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from sparrow.client.prefetcher import Prefetcher
    from sparrow.client.queue import SettlementFailure


class Queue(BlockingPart[AsyncQueue]):
    """A queue of one client, made by `client.queue(…)`; use it as `with`, or close it. Any number
    of threads may take jobs, each its own.
    """

    @property
    def name(self) -> str:
        return self._inner.name

    # ── lifecycle ─────────────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._background.run_last(self._inner.abandon())

    def close(self) -> None:
        """End every iteration, wait for settlements under way, and release all unsettled jobs.
        Raises as the async queue's `close`.
        """
        self._background.run_last(self._inner.close())

    def stop(self) -> None:
        """End every running iteration and release the jobs that were not handed out. Any thread."""
        self._background.call_soon(self._inner.stop)

    # ── taking jobs ───────────────────────────────────────────────────────────────────────────────

    def __iter__(self) -> Iterator[BlockingJob]:
        """Yield jobs until the iteration is stopped or the queue closed. Raises as the async queue
        does.
        """
        run = self._background.run
        prefetcher = run(self._begin())
        jobs = prefetcher.jobs
        try:
            while bool(jobs) or run(self._inner.more(prefetcher)):
                try:
                    job = jobs.popleft()
                except IndexError:  # another thread was faster
                    continue
                if job.lease.latest_deadline > time.monotonic() and not job.is_lost:
                    yield job
        finally:
            self._background.call_soon(prefetcher.end)

    async def _begin(self) -> Prefetcher:
        prefetcher = await self._inner.prefetcher()
        prefetcher.begin()
        return prefetcher

    def lease(
        self, max_jobs: int = 100, *, wait_s: float = 1.0, max_bytes: int = 4 << 20
    ) -> BlockingJobBatch:
        """Lease at most `max_jobs`, waiting at most `wait_s` seconds for the first; the batch is
        empty if none came.
        """
        owner, leases = self._background.run(self._inner.leased(max_jobs, wait_s, max_bytes))
        return BlockingJobBatch(self._background.bridge, owner, leases)

    # ── settlements that are not awaited ──────────────────────────────────────────────────────────

    @property
    def failures(self) -> list[SettlementFailure]:
        """Settlements made with `_nowait` that had no effect, since the last access or `flush`."""
        return self._background.run(self._failures())

    async def _failures(self) -> list[SettlementFailure]:
        return self._inner.failures

    flush = blocking(AsyncQueue.flush)

    # ── publishing, describing, changing ──────────────────────────────────────────────────────────

    publish = blocking(AsyncQueue.publish)
    describe = blocking(AsyncQueue.describe)
    statistics = blocking(AsyncQueue.statistics)
    peek = blocking(AsyncQueue.peek)
    purge = blocking(AsyncQueue.purge)
    pause = blocking(AsyncQueue.pause)
    resume = blocking(AsyncQueue.resume)
