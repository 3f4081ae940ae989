"""Workers that compete for the jobs of a queue, of which one is killed (-9) while it holds some.

All compete for the first third of the jobs. Then the victim handles half of its next batch, keeps
all of it leased, and reports its jobs. The broker is asked whether it is so, the process is killed,
and the others continue. The jobs of the victim are delivered to others when their leases end.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import msgspec

import sparrow.sync
from sparrow.base.errors import SparrowError, TimedOut
from sparrow.demo.worker import BEGIN, GO_ON, Task

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from sparrow.sync.client import Client

LEASE_MS = 2000
"""Time after which the killed worker's jobs are delivered to others."""
STALL_TIMEOUT_S = 60.0
"""Time without progress after which the work is given up."""
MAX_BATCH = 200
_ASK_S = 0.25
_END_TIMEOUT_S = 3.0
_LAST_WORDS_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CrewJob:
    """The work to do."""

    url: str
    queue: str
    handled_topic: str
    total: int
    workers: int
    log_dir: str
    """Directory of the workers' error output."""


@dataclass(slots=True)
class Killed:
    """The worker that was killed, and the jobs that it held."""

    name: str
    pid: int
    holds: list[str]
    handled: int
    """Number of these that it had handled and not acknowledged."""
    leased: int
    """Number of jobs that the broker reported as leased by it."""


@dataclass(slots=True)
class Worked:
    """The result of the work."""

    seconds: float = 0.0
    waited_s: float = 0.0
    """The longest time after the kill in which no worker had anything to do: all that was left
    depended on the jobs of the victim.
    """
    acknowledged: int = 0
    lost: int = 0
    """Acknowledgements that came after the lease had ended: these jobs were delivered again
    although no worker died.
    """
    killed: Killed | None = None
    latencies: list[tuple[float, int]] = field(default_factory=list)
    """Time from lease to acknowledgement in ms, and the number of jobs."""

    def percentile_ms(self, share: float) -> float:
        """Return the time within which this share of the jobs was done."""
        wanted = share * sum(jobs for _, jobs in self.latencies)
        for milliseconds, jobs in sorted(self.latencies):
            wanted -= jobs
            if wanted <= 0:
                return milliseconds
        return 0.0


def work_off(job: CrewJob, progress: Callable[[int], None]) -> Worked:
    """Let workers handle every job of the queue, and kill one of them on the way.

    Raises:
        TimedOut: nothing was done for a minute.
        SparrowError: a worker ended by itself.
    """
    with _Crew(job, progress) as crew, sparrow.sync.connect(job.url, client_name="demo") as client:
        return crew.work_off(client)


class _Process:
    """A worker's process. Its reports go to `told` with the process; None is its end."""

    def __init__(self, task: Task, log_dir: str, told: queue.SimpleQueue[tuple[_Process, Any]]) -> None:
        self.name = task.name
        self._log_path = f"{log_dir}/{task.name}.log"
        self.is_ready = False
        self.is_killed = False
        with open(self._log_path, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sparrow.demo.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C at the terminal is the demonstration's, which ends its workers.
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, args=(told,), name=task.name, daemon=True)
        self._reader.start()
        self.say(msgspec.json.encode(task).decode())

    def say(self, order: str) -> None:
        """Write one line to its stdin; no effect if it is gone."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(order.encode() + b"\n")
            self._process.stdin.flush()

    def kill(self) -> None:
        """Send SIGKILL, and wait until it is gone."""
        self.is_killed = True
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close its stdin, upon which it ends."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def end(self, timeout_s: float) -> None:
        """Wait for its end; kill it if it does not come."""
        assert self._process.stdout is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join()
        self._process.stdout.close()

    def last_words(self) -> str:
        """Return why it ended."""
        code = self._process.wait()
        with open(self._log_path, encoding="utf-8", errors="replace") as log:
            return " ".join(log.read()[-1000:].split()) or f"exit code {code}"

    def _read(self, told: queue.SimpleQueue[tuple[_Process, Any]]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(msgspec.DecodeError):  # the last line of one that is killed
                told.put((self, msgspec.json.decode(line)))
        told.put((self, None))


class _Crew:
    """The workers, and their reports."""

    def __init__(self, job: CrewJob, progress: Callable[[int], None]) -> None:
        self._job = job
        self._progress = progress
        self._told: queue.SimpleQueue[tuple[_Process, Any]] = queue.SimpleQueue()
        self._processes: list[_Process] = []
        self._worked = Worked()
        self._last_news = time.monotonic()
        self._asked_at = 0.0

    def __enter__(self) -> Self:
        os.makedirs(self._job.log_dir, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        deadline = time.monotonic() + (_END_TIMEOUT_S if kind is None else 0.0)
        for each in self._processes:
            each.close()
        for each in self._processes:
            each.end(max(0.0, deadline - time.monotonic()))

    def work_off(self, client: Client) -> Worked:
        """See the function of this name."""
        job = self._job
        for number in range(job.workers):
            self._start(first_jobs=job.total // (3 * job.workers), is_to_hold=number == 0)
        self._until(lambda: all(each.is_ready for each in self._processes), client)
        began = time.monotonic()
        self._tell_all(BEGIN)
        victim = self._processes[0]
        self._until(lambda: self._holds_jobs(victim, client), client)
        victim.kill()
        if job.workers == 1:
            self._start(first_jobs=0, is_to_hold=False)
            self._tell_all(BEGIN)
        self._tell_all(GO_ON)
        self._until(lambda: self._is_empty(client), client)
        self._worked.seconds = time.monotonic() - began
        self._hear_the_last()
        return self._worked

    def _start(self, *, first_jobs: int, is_to_hold: bool) -> None:
        job = self._job
        task = Task(
            url=job.url,
            queue=job.queue,
            handled_topic=job.handled_topic,
            name=f"worker-{len(self._processes) + 1}",
            batch=min(MAX_BATCH, max(1, job.total // (10 * job.workers))),
            first_jobs=first_jobs,
            is_to_hold=is_to_hold,
        )
        self._processes.append(_Process(task, job.log_dir, self._told))

    def _tell_all(self, order: str) -> None:
        for each in self._processes:
            each.say(order)

    def _holds_jobs(self, victim: _Process, client: Client) -> bool:
        """Return True if the worker reports jobs, and the broker reports the same number: it renews
        its leases.
        """
        killed = self._worked.killed
        if killed is None:
            return False
        consumers = client.admin.describe_queue(self._job.queue).statistics.consumers
        killed.leased = sum(each.leased for each in consumers if each.client_name == victim.name)
        return killed.leased == len(killed.holds)

    def _is_empty(self, client: Client) -> bool:
        """Return True if the broker reports no unfinished job. Asked four times a second."""
        now = time.monotonic()
        if now - self._asked_at < _ASK_S:
            return False
        self._asked_at = now
        return client.admin.describe_queue(self._job.queue).statistics.unfinished == 0

    def _until(self, is_reached: Callable[[], bool], client: Client) -> None:
        """Take the workers' reports until a condition holds."""
        self._last_news = time.monotonic()
        while not is_reached():
            self._hear()
            if time.monotonic() - self._last_news > STALL_TIMEOUT_S:
                raise self._stalled(client)

    def _hear_the_last(self) -> None:
        """Take the last reports, as the broker knows of an acknowledgement before the worker
        reports it.
        """
        deadline = time.monotonic() + _LAST_WORDS_S
        while self._worked.acknowledged < self._job.total and time.monotonic() < deadline:
            self._hear()

    def _hear(self) -> None:
        """Take the reports that have arrived; waits a moment for the first."""
        timeout_s: float | None = _ASK_S
        with suppress(queue.Empty):
            while True:
                process, report = self._told.get(timeout=timeout_s) if timeout_s else self._told.get_nowait()
                timeout_s = None
                now = time.monotonic()
                if self._processes[0].is_killed:
                    gap_s = min(now - self._last_news, LEASE_MS / 1000)
                    self._worked.waited_s = max(self._worked.waited_s, gap_s)
                self._last_news = now
                self._heard(process, report)

    def _heard(self, process: _Process, report: dict[str, Any] | None) -> None:
        worked = self._worked
        if report is None:
            if not process.is_killed:
                raise SparrowError(f"{process.name} ended by itself: {process.last_words()}")
        elif "ready" in report:
            process.is_ready = True
        elif "holds" in report:
            worked.killed = Killed(process.name, process.pid, report["holds"], report["of_them_handled"], 0)
        else:
            worked.acknowledged += report["handled"]
            worked.lost += report["lost"]
            worked.latencies.append((report["ms"], report["handled"]))
            self._progress(worked.acknowledged)

    def _stalled(self, client: Client) -> SparrowError:
        found = client.admin.describe_queue(self._job.queue).statistics
        return TimedOut(
            f"no job was done for {STALL_TIMEOUT_S:g} s: of {self._job.total:,} jobs "
            f"{found.unfinished:,} are left, "
            f"{found.ready:,} ready, {found.leased:,} leased, {found.blocked:,} waiting for "
            f"parents, {found.delayed:,} for a time"
        )
