"""Extends the leases of jobs that a framework is working on.

Frameworks take a job and settle it when its function is done, which may last longer than a lease.
Until then the lease is extended whenever half of it is over. A process that dies extends nothing:
its jobs are delivered to others when their leases end.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparrow.client.job import Job

INTERVAL_S: Final = 0.25
"""Time between two looks at all jobs."""


class LeaseKeeper:
    """Keeper of the leases of one client. Loop thread only; `start` it, and `stop` it."""

    def __init__(self) -> None:
        self._jobs: dict[Job, float] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to extend leases."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Extend nothing any more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def keep(self, job: Job) -> None:
        """Extend the lease of a job until it is settled or lost."""
        self._jobs[job] = max(job.deadline - time.monotonic(), 0.0)

    @property
    def jobs(self) -> list[Job]:
        """The jobs that are not settled."""
        return [job for job in self._jobs if not job.is_settled and not job.is_lost]

    async def _run(self) -> None:
        while True:
            now = time.monotonic()
            for job, length_s in list(self._jobs.items()):
                if job.is_settled or job.is_lost:
                    del self._jobs[job]
                elif job.deadline - now < length_s / 2:
                    job.extend_nowait()
            await asyncio.sleep(INTERVAL_S)
