"""One worker process: the workers of an app's queues, threads and processes for its tasks, and the
way it ends.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument
from sparrow.client.signals import listening
from sparrow.client.worker import Shutdown, WorkerOptions, WorkerSet
from sparrow.tasks.errors import TaskError
from sparrow.tasks.hard_limits import Watchdog
from sparrow.tasks.process_pool import ProcessPool
from sparrow.tasks.worker import Counts, Executors, TaskWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.tasks.connection import Connection
    from sparrow.tasks.interface import App

_logger = logging.getLogger("sparrow.worker")

MAX_CONCURRENCY: Final = 10_000
PREFETCH_PER_CALL: Final = 4
_MIN_PREFETCH: Final = 100
"""Jobs that the broker may push ahead, also for few slots: short tasks would wait for it."""


class Runtime:
    """The workers of one process. Loop thread only."""

    def __init__(
        self,
        app: App,
        *,
        concurrency: int = 8,
        queues: Sequence[str] | None = None,
        prefetch: int | None = None,
        has_delays: bool = True,
    ) -> None:
        """Prepare workers.

        Raises:
            InvalidArgument: an argument is out of range. TaskError: a task cannot be run, or there
                is none.
        """
        if not 1 <= concurrency <= MAX_CONCURRENCY:
            raise InvalidArgument(f"concurrency is {concurrency}; it must be from 1 to {MAX_CONCURRENCY}")
        self.app = app
        self.counts = Counts()
        self.stuck = ""
        """The reason, if a call did not end at its hard timeout: the process must be replaced."""
        self.end_process: Callable[[str], object] | None = None
        """Ends this process at once when a task blocks the event loop beyond its hard timeout; it
        gets the reason. None: nothing is done then.
        """
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._has_delays = has_delays
        self._queues = self._chosen(queues)
        self._workers = WorkerSet()
        self._task_workers: list[TaskWorker] = []
        self._shutdown: Shutdown | None = None
        self.when_working: Callable[[], None] = lambda: None
        """Called when the workers have been started."""

    def _chosen(self, queues: Sequence[str] | None) -> list[str]:
        app = self.app
        if not app.tasks:
            raise TaskError(f"the app {app.name!r} has no tasks; declare them with @app.task")
        for task in app.tasks.values():
            task.signature.resolve()
        if queues is None:
            return app.queues
        for queue in queues:
            if queue not in app.queues:
                raise TaskError(
                    f"the app {app.name!r} has no task for the queue {queue!r}; its queues are "
                    f"{', '.join(app.queues)}"
                )
        return list(dict.fromkeys(queues))

    async def run(self, shutdown_timeout_s: float = 30.0, *, handle_signals: bool = True) -> None:
        """Work until `stop` or a signal. Raises as `Tasks.run_worker`."""
        shutdown = self._shutdown = Shutdown(self._workers, shutdown_timeout_s)
        loop = asyncio.get_running_loop()
        if not handle_signals:
            await self._run(shutdown)
            return
        with listening(lambda name: loop.call_soon_threadsafe(shutdown.signalled, name)):
            await self._run(shutdown)

    def stop(self, reason: str) -> None:
        """Take no new jobs and end when the running ones have; a second call releases them."""
        if self._shutdown is not None:
            self._shutdown.signalled(reason)

    async def _run(self, shutdown: Shutdown) -> None:
        app = self.app
        was_connected = app.is_connected
        connection = await app.connection()
        threads = ThreadPoolExecutor(self._concurrency, f"sparrow {app.name}")
        processes = ProcessPool(app, self._concurrency)
        loop = asyncio.get_running_loop()
        warming: asyncio.Task[None] | None = None
        watchdog: Watchdog | None = None
        try:
            await _call_all(app.start_hooks)
            for schedule in app.schedules.values():
                if schedule.task.settings.queue in self._queues:
                    await schedule.put(connection)
            warming = loop.create_task(self._warm(processes))
            executors = self._executors(threads, processes)
            self._make_workers(connection, executors)
            watchdog = self._watchdog(executors)
            self.when_working()
            await shutdown.run()
        finally:
            if watchdog is not None:
                watchdog.stop()
            # A thread cannot be interrupted; what it runs was released.
            threads.shutdown(wait=False, cancel_futures=True)
            if warming is not None:
                warming.cancel()
                await asyncio.wait([warming])
            await processes.close()
            await _call_all(app.stop_hooks)
            if not was_connected:  # otherwise the program uses it, too
                await app.close()

    async def _warm(self, processes: ProcessPool) -> None:
        """Start the first process for tasks beside the first jobs. If it cannot load the tasks,
        their jobs fail with the same reason.
        """
        if any(task.settings.executor == "process" for task in self.app.tasks.values()):
            try:
                await processes.warm()
            except TaskError as error:
                _logger.error("%s", error.text)  # noqa: TRY400 - the text has the traceback

    def _executors(self, threads: ThreadPoolExecutor, processes: ProcessPool) -> Executors:
        slots = asyncio.Semaphore(self._concurrency) if len(self._queues) > 1 else None
        return Executors(threads, processes, slots, self._stuck)

    def _watchdog(self, executors: Executors) -> Watchdog | None:
        """Start a watchdog if it has something to do."""
        if self.end_process is None or not any(
            task.is_async and task.settings.hard_timeout_s is not None for task in self.app.tasks.values()
        ):
            return None
        loop = asyncio.get_running_loop()
        watchdog = Watchdog(self.app, loop, executors.limits, self._task_workers, self.end_process)
        watchdog.start()
        return watchdog

    def _make_workers(self, connection: Connection, executors: Executors) -> None:
        prefetch = self._prefetch or max(self._concurrency * PREFETCH_PER_CALL, _MIN_PREFETCH)
        for queue in self._queues:
            options = WorkerOptions(
                concurrency=self._concurrency,
                prefetch=max(prefetch, self._concurrency),
                policy=self.app.settings_of(queue),
            )
            worker = TaskWorker(
                self.app, connection, queue, options, executors, self.counts, has_delays=self._has_delays
            )
            self._workers.add(worker)
            self._task_workers.append(worker)

    def _stuck(self, why: str) -> None:
        _logger.error("%s; this process takes no more jobs, and is replaced", why)
        self.stuck = self.stuck or why
        if self._shutdown is not None and not self._shutdown.is_stopping:
            self.stop("hard timeout")


async def _call_all(hooks: Sequence[Callable[[], object]]) -> None:
    for hook in hooks:
        found = hook()
        if inspect.isawaitable(found):
            await found
