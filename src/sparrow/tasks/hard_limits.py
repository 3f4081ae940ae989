"""Hard limits of async tasks: a thread that ends the process when a task blocks the event loop.

While the loop runs, it handles each limit itself (`worker.py`). A task that never yields blocks it,
so that nothing of the process can be settled there. Then a thread of its own (`Watchdog`):

- logs the task, with the line at which it is,
- opens the consumers of all queues again, on a connection and an event loop of its own. The broker
  ends those of the blocked loop, and keeps their leases,
- makes the settlements that the broker has not confirmed, and the failure of the task,
- closes the consumers, which releases all other leases: those deliveries do not count,
- ends the process.

Only the task that runs on the loop at its limit is at fault. One whose limit passes while another
blocks the loop is released.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from sparrow.client.options import QueueOptions
from sparrow.tasks.errors import TimeLimitExceeded
from sparrow.tasks.jobs import job_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.client.settlements import Part
    from sparrow.tasks.connection import Connection
    from sparrow.tasks.interface import App
    from sparrow.tasks.jobs import TaskJob
    from sparrow.tasks.results import JobOutcome
    from sparrow.tasks.worker import TaskWorker

_logger = logging.getLogger("sparrow.worker")

_LOOK_S: Final = 0.25
_PATIENCE_S: Final = 1.0
"""A loop that has not handled a limit so long after it is blocked."""
_SETTLE_S: Final = 15.0
"""The longest time that settling takes; after it leases end by themselves."""


class HardLimit(Struct, frozen=True, eq=False):
    """The limit of one running call."""

    worker: TaskWorker
    job: TaskJob
    call: asyncio.Task[Any]
    ends_at: float
    """Monotonic time (s)."""


class HardLimits:
    """The limits of all running calls. Any thread: each limit is taken by one."""

    def __init__(self) -> None:
        self._limits: dict[HardLimit, None] = {}

    def add(self, limit: HardLimit) -> None:
        """Add a limit."""
        self._limits[limit] = None

    def discard(self, limit: HardLimit) -> bool:
        """Remove a limit; return False if the other thread did."""
        return self._limits.pop(limit, limit) is None

    def overdue(self, now: float) -> list[HardLimit]:
        """Return the limits that the loop has not handled in time."""
        return [limit for limit in list(self._limits) if limit.ends_at + _PATIENCE_S <= now]


class Watchdog:
    """A thread that ends this process when a task blocks the event loop beyond its hard limit."""

    def __init__(
        self,
        app: App,
        loop: asyncio.AbstractEventLoop,
        limits: HardLimits,
        workers: Sequence[TaskWorker],
        end: Callable[[str], object],
    ) -> None:
        """Create it for the loop of this thread. `end` ends the process; it gets the reason."""
        self._app = app
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._limits = limits
        self._workers = workers
        self._end = end
        self._is_stopped = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._watch, name="sparrow hard limits", daemon=True).start()

    def stop(self) -> None:
        """Let the thread end."""
        self._is_stopped.set()

    def _watch(self) -> None:
        suspect: HardLimit | None = None
        while not self._is_stopped.wait(_LOOK_S):
            overdue = self._limits.overdue(time.monotonic())
            blocking = next(filter(self._is_running, overdue), None) if overdue else None
            # A loop that was blocked by another task may be about to handle the limit.
            if blocking is not None and blocking is suspect and self._limits.discard(blocking):
                self._end(self._settle(blocking))
                return
            suspect = blocking

    def _is_running(self, limit: HardLimit) -> bool:
        """Return True if the loop runs the call, or a task that it has started."""
        running = asyncio.current_task(self._loop)
        if running is None or running is limit.call:
            return running is not None
        context_of = getattr(running, "get_context", None)  # since Python 3.12
        return context_of is not None and job_of(context_of()) is limit.job

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    def _settle(self, limit: HardLimit) -> str:
        """Settle what this process has leased; return why it ends."""
        # If the task ends now, the loop must not go on with what is settled here.
        self._loop.call_soon_threadsafe(threading.Event().wait)
        job = limit.job
        hard_s = self._app.tasks[job.task].settings.hard_timeout_s
        why = (
            f"the task {job.task!r} blocks the event loop beyond its hard_timeout of {hard_s:g} s (job "
            f"{job.id}, attempt {job.delivery_count})"
        )
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - its only name
        place = "" if frame is None else "".join(traceback.format_stack(frame, limit=8))
        _logger.error("%s; this process ends, and its other jobs are released\n%s", why, place.rstrip())
        error = TimeLimitExceeded(
            f"the task did not end within its hard_timeout of {hard_s:g} s: it blocked the event loop, and "
            "its worker process was ended"
        )
        try:
            asyncio.run(asyncio.wait_for(self._settle_all(limit, error), _SETTLE_S))
        except Exception as failure:  # noqa: BLE001 - the process ends in any case
            _logger.error(  # noqa: TRY400 - the text says it
                "jobs of this process could not be settled; they come again when their leases end: %s: %s",
                type(failure).__name__,
                failure,
            )
        return why

    async def _settle_all(self, limit: HardLimit, error: TimeLimitExceeded) -> None:
        outcome, failure = limit.worker.fail_blocked(limit.job, error)
        connection = await self._app.connection()
        results = await asyncio.gather(
            *(
                self._settle_queue(
                    connection,
                    worker,
                    outcome if worker is limit.worker else None,
                    failure if worker is limit.worker else None,
                    limit.job.id,
                )
                for worker in self._workers
            ),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _settle_queue(
        self,
        connection: Connection,
        worker: TaskWorker,
        outcome: JobOutcome | None,
        failure: Part | None,
        job_id: str,
    ) -> None:
        found = worker.unconfirmed()
        if found is None:
            return
        consumer_id, parts = found
        options = QueueOptions(create=False, subscriber=worker.options.subscriber)
        queue = connection.client.queue_with(worker.queue_name, options)
        consumer = await queue.take_over(consumer_id)
        consumer.settle_for(parts)
        if failure is not None:
            if outcome is not None:
                await (await connection.publish_outcome(job_id, outcome))
            consumer.settle_for([failure])
        await queue.close()
