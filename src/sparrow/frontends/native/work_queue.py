"""A queue of jobs that have to wait: in order, with limited concurrency, and without a task while
it is empty.

Requests of a connection run concurrently (`concurrency` at a time). Jobs of one subscription run
one after the other, so that a REVOKED never overtakes the COMMIT before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

WorkItem: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class WorkQueue:
    """Runs jobs, which handle their own exceptions. Loop thread only.

    Args:
        may_run: called before each job; when it returns False the queue pauses until `resume`.
        changed: receives each change of the number of waiting jobs, and 0 when a job is done.
    """

    __slots__ = ("_changed", "_concurrency", "_jobs", "_may_run", "_running", "_workers")

    def __init__(self, concurrency: int, may_run: Callable[[], bool], changed: Callable[[int], None]) -> None:
        self._concurrency = concurrency
        self._may_run = may_run
        self._changed = changed
        self._jobs: deque[WorkItem] = deque()
        self._running = 0
        self._workers: set[asyncio.Task[Any]] = set()

    @property
    def is_idle(self) -> bool:
        return not self._jobs and not self._running

    def add(self, job: WorkItem) -> None:
        """Run `job` after the jobs before it."""
        self._jobs.append(job)
        self._changed(1)
        self._start_worker()

    def resume(self) -> None:
        """Start jobs if `may_run` allows it again."""
        wanted = min(self._concurrency, len(self._jobs))
        while len(self._workers) < wanted and self._may_run():
            self._start_worker()

    def cancel(self) -> None:
        """Drop the waiting jobs and cancel the running ones, except the job of the caller."""
        self._changed(-len(self._jobs))
        self._jobs.clear()
        current = asyncio.current_task() if self._workers else None
        for worker in self._workers:
            if worker is not current:
                worker.cancel()

    def _start_worker(self) -> None:
        if len(self._workers) < self._concurrency and self._may_run():
            self._workers.add(asyncio.get_running_loop().create_task(self._work()))

    async def _work(self) -> None:
        try:
            while self._jobs and self._may_run():
                job = self._jobs.popleft()
                self._changed(-1)
                await self._run(job)
        finally:
            # Here and not in a done callback: a job added in between would not be run.
            self._workers -= {asyncio.current_task()}

    async def _run(self, job: WorkItem) -> None:
        self._running += 1
        try:
            await job()
        finally:
            self._running -= 1
            self._changed(0)
