"""The supervisor of `sparrow worker`: keeps a number of worker processes running.

- A process that ends by itself is started again, after a delay that grows with each failure in a
  row. If none can ever work (the module does not exist, the app has no tasks), the supervisor ends
  with that error.
- A process that has done `max_jobs`, or has more than `max_memory`, finishes its jobs while its
  successor starts.
- A process that reports nothing for `stuck_timeout` (it was stopped, or its event loop is blocked)
  is killed: its leases end by themselves meanwhile. While it imports the app it has five minutes.
- The first SIGTERM or SIGINT lets all processes finish, the second releases their jobs at once.
  SIGHUP, or a changed file with `reload`, replaces all processes.
- If the supervisor itself is killed, its processes finish what runs, and end.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from typing import TYPE_CHECKING, Final

from sparrow.base.retry import Backoff
from sparrow.base.units import format_duration, format_size
from sparrow.tasks.errors import TaskError
from sparrow.tasks.supervisor.child import Child

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.tasks.supervisor.early import EarlyProcess
    from sparrow.tasks.supervisor.options import SupervisorOptions

_logger = logging.getLogger("sparrow.worker")

_LOOK_S: Final = 0.25
_KILL_AFTER_S: Final = 10.0
"""A process that has not ended this long after its shutdown timeout is killed."""
_IMPORT_S: Final = 300.0
"""The time that a process has to import the app."""
_STOPPED_S: Final = 1.0
"""A look that comes so much later than the one before comes from a process that was stopped."""
_STEADY_S: Final = 30.0
"""A process that worked for so long has recovered: the next failure is the first again."""


class CannotWork(TaskError):
    """No worker process can work."""

    code = "CANNOT_WORK"


class EndedTotals:
    """Numbers of processes that have ended."""

    def __init__(self) -> None:
        self.done = 0
        self.failed = 0
        self.rejected = 0
        self.restarts = 0
        self.recycled = 0


class Supervisor:
    """Keeps worker processes running. Loop thread only."""

    def __init__(self, options: SupervisorOptions, early: EarlyProcess | None = None) -> None:
        """Create a supervisor. `early` is a process for its first worker, if one is there."""
        self.options = options
        self._early = early
        self.children: set[Child] = set()
        self.totals = EndedTotals()
        self.began_at = time.monotonic()
        self._stopping = asyncio.Event()
        self._failure: CannotWork | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._kill_at = float("inf")
        self._has_worked = False

    @property
    def is_stopping(self) -> bool:
        """True from the first signal on."""
        return self._stopping.is_set()

    @property
    def is_healthy(self) -> bool:
        """True if as many processes work as should."""
        return sum(child.is_working for child in self.children) >= self.options.processes

    async def run(self, *services: Callable[[Supervisor], Awaitable[None]]) -> None:
        """Run the processes until a signal, and `services` beside them.

        Raises:
            CannotWork: no process can work. SparrowError: a service cannot.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGHUP, self.reload, "SIGHUP")
        keepers = [loop.create_task(self._keep()) for _ in range(self.options.processes)]
        watch = loop.create_task(self._watch())
        beside = [loop.create_task(_awaited(service(self))) for service in services]
        try:
            await self._until_ended(keepers, beside)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)
            for task in (watch, *beside, *keepers):
                task.cancel()
            for child in self.children:
                child.signal(signal.SIGKILL)
            await asyncio.wait([watch, *beside, *keepers])
            if self._background:
                await asyncio.wait(self._background)
        if self._failure is not None:
            raise self._failure

    async def _until_ended(self, keepers: list[asyncio.Task[None]], beside: list[asyncio.Task[None]]) -> None:
        pending: set[asyncio.Task[None]] = {*keepers, *beside}
        while any(task in pending for task in keepers):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a service that fails ends all
        if self._background:
            await asyncio.wait(self._background)

    # ── one process after the other ───────────────────────────────────────────────────────────────

    async def _keep(self) -> None:
        """Keep one process running."""
        backoff = Backoff(self.options.restart_initial_s, self.options.restart_max_s, lambda: 1.0)
        while not self._stopping.is_set():
            early, self._early = self._early, None
            child = await Child.start(self.options.worker, early)
            if self._stopping.is_set():  # the signal came meanwhile
                child.signal(signal.SIGTERM)
            self.children.add(child)
            started_at = time.monotonic()
            await self._until_due(child)
            if not child.ended.done():
                # It was asked to end and finishes its jobs: its successor starts now.
                self._spawn(self._finished(child))
                continue
            code = await self._ended(child)
            if self._stopping.is_set() or child.is_ending:
                continue
            if child.has_worked and time.monotonic() - started_at > _STEADY_S:
                backoff.reset()
            if self._is_hopeless(child):
                return
            delay_s = backoff.next_delay_s()
            self.totals.restarts += 1
            _logger.error(
                "worker process %d ended %s%s; another starts in %s",
                child.pid,
                how_ended(code),
                f": {child.report.error}" if child.report.error else "",
                format_duration(round(delay_s * 1000)),
            )
            await self._pause(delay_s)

    async def _until_due(self, child: Child) -> None:
        """Wait for the end of a process, or until it was asked to end for a successor."""
        while not child.ended.done():
            await asyncio.wait([child.ended], timeout=_LOOK_S)
            if child.is_ending and not self.is_stopping:
                return

    def _is_hopeless(self, child: Child) -> bool:
        """Return True, and end all, if processes of this program cannot work."""
        report = child.report
        if report.state != "failed" or not report.is_permanent or self.options.reload:
            return False
        if self._has_worked:  # a deployment that failed: the next one may repair it
            return False
        self._failure = CannotWork(report.error)
        self.stop()
        return True

    async def _finished(self, child: Child) -> None:
        limit_s = self.options.worker.shutdown_timeout_s + _KILL_AFTER_S
        await asyncio.wait([child.ended], timeout=limit_s)
        if not child.ended.done():
            _logger.warning("worker process %d did not end in %g s, it is killed", child.pid, limit_s)
            child.signal(signal.SIGKILL)
        await self._ended(child)

    async def _ended(self, child: Child) -> int:
        code = await child.wait()
        self.children.discard(child)
        self._has_worked = self._has_worked or child.has_worked
        totals, report = self.totals, child.report
        totals.done += report.done
        totals.failed += report.failed
        totals.rejected += report.rejected
        return code

    async def _pause(self, delay_s: float) -> None:
        stopping = asyncio.get_running_loop().create_task(self._stopping.wait())
        await asyncio.wait([stopping], timeout=delay_s)
        stopping.cancel()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.get_running_loop().create_task(_awaited(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # ── limits ────────────────────────────────────────────────────────────────────────────────────

    async def _watch(self) -> None:
        """Look at the reports of all processes from time to time."""
        now = time.monotonic()
        while True:
            last_look_at = now
            await asyncio.sleep(_LOOK_S)
            now = time.monotonic()
            if now - last_look_at > _STOPPED_S:
                # This process was stopped (SIGSTOP), not they: their reports wait to be read.
                for child in self.children:
                    child.heard_at = now
            for child in list(self.children):
                if now > self._kill_at:
                    child.signal(signal.SIGKILL)
                elif now - child.heard_at > self._patience_s(child) and not child.ended.done():
                    _logger.error(
                        "worker process %d has reported nothing for %g s, it is killed",
                        child.pid,
                        self._patience_s(child),
                    )
                    child.heard_at = now
                    child.signal(signal.SIGKILL)
                elif child.is_working:
                    self._recycle(child)

    def _patience_s(self, child: Child) -> float:
        """Return the time after which a silent process is stuck. It is silent while it imports the
        app, which may load much.
        """
        stuck_s = self.options.stuck_timeout_s
        return stuck_s if child.has_worked else max(stuck_s, _IMPORT_S)

    def _recycle(self, child: Child) -> None:
        options, report = self.options, child.report
        if options.max_jobs is not None and report.done + report.failed >= options.max_jobs:
            why = f"it has done {report.done + report.failed} jobs"
        elif options.max_memory_bytes is not None and report.rss_bytes > options.max_memory_bytes:
            why = f"it has {format_size(report.rss_bytes)} of memory"
        else:
            return
        self.totals.recycled += 1
        _logger.info("worker process %d is replaced: %s", child.pid, why)
        child.signal(signal.SIGTERM)

    # ── signals ───────────────────────────────────────────────────────────────────────────────────

    def reload(self, why: str) -> None:
        """Replace all processes; the running ones finish their jobs."""
        if self.is_stopping:
            return
        _logger.info("all worker processes are replaced: %s", why)
        for child in self.children:
            if not child.is_ending:
                child.signal(signal.SIGTERM)

    def stop(self) -> None:
        """Let all processes finish; a further call releases their jobs."""
        is_second = self.is_stopping
        self._stopping.set()
        self._kill_at = time.monotonic() + _KILL_AFTER_S
        if not is_second:
            self._kill_at += self.options.worker.shutdown_timeout_s
        for child in self.children:
            if not child.is_ending:  # one that is replaced has had its first signal
                child.signal(signal.SIGTERM)
            if is_second:  # not SIGTERM again: the system makes one of two that are pending
                child.signal(signal.SIGINT)

    def _signalled(self, number: signal.Signals) -> None:
        word = "release what runs" if self.is_stopping else "finish what runs"
        _logger.info("%s: %d worker processes %s", signal.Signals(number).name, len(self.children), word)
        self.stop()


def how_ended(code: int) -> str:
    """Return words for an exit code."""
    return f"by signal {signal.Signals(-code).name}" if code < 0 else f"with code {code}"


async def _awaited(work: Awaitable[None]) -> None:
    await work
