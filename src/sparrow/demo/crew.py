"""Workers that compete for the jobs of a queue, of which one is killed (-9) while it holds some.

All compete for the first third of the jobs. Then the victim handles half of its next batch, keeps
all of it leased, and says so. The broker is asked which jobs it holds, the process is killed, and
the others continue. The jobs of the victim are delivered to others when their leases end. In a
cluster the broker that owns the data dies with the victim, so that jobs are left whatever happens.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import msgspec

from sparrow.base.errors import SparrowError, TimedOut
from sparrow.demo.surroundings import last_lines
from sparrow.demo.worker import Task
from sparrow.sync import Client, connect

if TYPE_CHECKING:
    from sparrow.client.results import QueueStatistics
    from sparrow.demo.surroundings import Context, Progress

LEASE_MS = 2000
"""Time after which the killed worker's jobs are delivered to others."""
STALL_TIMEOUT_S = 60.0
"""Time without progress after which the work is given up."""
MAX_BATCH = 200
_ASK_S = 0.1
_PROGRESS_S = 0.5
_END_TIMEOUT_S = 3.0


class Killed(msgspec.Struct):
    """The worker that was killed, and the jobs that it held."""

    name: str
    holds: list[str]
    handled: int
    """Number of these that it had handled and not acknowledged."""
    leased: int = 0
    """Number of jobs that the broker counted as leased by it."""


class FailedOver(msgspec.Struct):
    """The death of the broker that owned the data, while workers worked."""

    seconds: float
    """Time until another one served."""
    acknowledged: int
    """Number of jobs that were acknowledged before."""
    in_flight: int
    """The most jobs that workers can have had at that moment."""


class Worked(msgspec.Struct):
    """The result of the work."""

    seconds: float = 0.0
    waited_s: float = 0.0
    """The longest time after the kill in which no worker had anything to do: all that was left
    depended on the jobs of the victim.
    """
    acknowledged: int = 0
    lost: int = 0
    """Jobs that were delivered again although no worker died: their leases had ended."""
    killed: Killed | None = None
    failed_over: FailedOver | None = None
    latencies_ms: list[float] = msgspec.field(default_factory=list)
    """Time that each job took."""

    def percentile_ms(self, share: float) -> float:
        """Return the time within which this share of the jobs was done."""
        ordered = sorted(self.latencies_ms) or [0.0]
        return ordered[round(share * (len(ordered) - 1))]


def work_off(context: Context, progress: Progress) -> Worked:
    """Let workers handle every job of the queue, and kill one of them on the way.

    Raises:
        TimedOut: nothing was done for a minute.
        SparrowError: a worker ended by itself.
    """
    with connect(context.url, client_name="demo") as client, _Crew(context, client, progress) as crew:
        worked, first_jobs = crew.worked, context.total // (3 * context.workers)
        for number in range(1, context.workers + 1):
            crew.start(number, first_jobs=first_jobs, is_to_hold=number == 1)
        began = crew.last_news = time.monotonic()
        victim = crew.running[0]
        crew.wait_until(lambda: crew.holds_jobs(victim))
        crew.running.remove(victim)
        if context.workers == 1:
            crew.start(2, first_jobs=0, is_to_hold=False)
        for each in crew.running:
            each.order()
        if context.fail_over is not None:
            crew.wait_for_progress()
        victim.process.kill()
        victim.process.communicate()
        if context.fail_over is not None:
            crew.fail_over(context.fail_over)
        crew.wait_until(lambda: crew.statistics().unfinished == 0)
        worked.seconds = time.monotonic() - began
        if worked.killed is not None:
            # The counters of a broker that took over begin with it.
            worked.lost = max(0, crew.statistics().redelivered - len(worked.killed.holds))
    return worked


class _Process:
    """A worker's process."""

    def __init__(self, task: Task, log_path: str) -> None:
        self.name = task.name
        self._log_path = log_path
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sparrow.demo.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C at the terminal is the demonstration's, which ends its workers.
                start_new_session=True,
            )
        self.order(msgspec.json.encode(task))

    def order(self, line: bytes = b"") -> None:
        """Write one line to its stdin; no effect if it is gone."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()

    def close(self) -> None:
        """Close its stdin, upon which it ends."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        self.process.stdin = None

    def said(self) -> bytes:
        """Return a line of its stdout; b"" if there is none now."""
        assert self.process.stdout is not None
        return self.process.stdout.readline() if select.select([self.process.stdout], [], [], 0)[0] else b""

    def end(self, timeout_s: float) -> list[float]:
        """Wait for its end, or kill it; return how long its jobs took."""
        try:
            output = self.process.communicate(timeout=timeout_s)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            output = self.process.communicate()[0]
        return list(json.loads(output)) if output else []

    def last_words(self) -> str:
        """Return why it ended."""
        return " ".join(map(str.strip, last_lines(self._log_path))) or f"exit code {self.process.wait()}"


class _Crew:
    """The workers of a `with` block; they have ended behind it."""

    def __init__(self, context: Context, client: Client, progress: Progress) -> None:
        self._context = context
        self._client = client
        self._progress = progress
        self.running: list[_Process] = []
        self.worked = Worked()
        self.last_news = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        deadline = time.monotonic() + (_END_TIMEOUT_S if kind is None else 0.0)
        for each in self.running:
            each.close()
        for each in self.running:
            self.worked.latencies_ms += each.end(max(0.0, deadline - time.monotonic()))

    def start(self, number: int, *, first_jobs: int, is_to_hold: bool) -> None:
        """Start a worker."""
        context = self._context
        task = Task(
            url=context.url,
            queue=context.topic,
            handled_topic=context.handled_topic,
            name=f"worker-{number}",
            batch=self._batch,
            first_jobs=first_jobs,
            is_to_hold=is_to_hold,
        )
        logs = os.path.join(context.work_dir, "workers")
        os.makedirs(logs, exist_ok=True)
        self.running.append(_Process(task, f"{logs}/{task.name}.log"))

    def wait_until(self, is_reached: Callable[[], bool]) -> None:
        """Wait for a condition. Raises as `work_off` does."""
        while not is_reached():
            for each in self.running:
                if each.process.poll() is not None:
                    raise SparrowError(f"{each.name} ended by itself: {each.last_words()}")
            if time.monotonic() - self.last_news > STALL_TIMEOUT_S:
                found = self.statistics()
                raise TimedOut(
                    f"no job was done for {STALL_TIMEOUT_S:g} s: of {self._context.total:,} jobs "
                    f"{found.unfinished:,} are left, {found.ready:,} ready, {found.leased:,} leased, "
                    f"{found.blocked:,} waiting for parents, {found.delayed:,} for a time"
                )
            time.sleep(_ASK_S)

    def wait_for_progress(self) -> None:
        """Wait until the workers go on; not long, as all that is left may depend on the jobs of the
        victim, which keeps them until it is killed.
        """
        before, deadline = self.worked.acknowledged, time.monotonic() + _PROGRESS_S

        def goes_on() -> bool:
            self.statistics()
            return self.worked.acknowledged > before or time.monotonic() > deadline

        self.wait_until(goes_on)

    def fail_over(self, kill_owner: Callable[[], float]) -> None:
        """Kill the broker while the workers work; they find the other one by themselves."""
        acknowledged = self.worked.acknowledged
        seconds = kill_owner()
        self.last_news = time.monotonic()
        in_flight = self._batch * len(self.running)
        self.worked.failed_over = FailedOver(seconds, acknowledged, in_flight)

    @property
    def _batch(self) -> int:
        """Number of jobs that a worker handles at a time."""
        return min(MAX_BATCH, max(1, self._context.total // (10 * self._context.workers)))

    def holds_jobs(self, victim: _Process) -> bool:
        """Return True if the worker has said that it holds jobs, and the broker counts as many that
        it has leased: it renews its leases.
        """
        if said := victim.said():
            self.worked.killed = Killed(victim.name, **json.loads(said))
        killed, found = self.worked.killed, self.statistics()
        if killed is None:
            return False
        killed.leased = sum(each.leased for each in found.consumers if each.client_name == victim.name)
        return killed.leased == len(killed.holds)

    def statistics(self) -> QueueStatistics:
        """Return what the broker says, and take note of progress."""
        found = self._client.admin.describe_queue(self._context.topic).statistics
        now, worked = time.monotonic(), self.worked
        if worked.killed is not None:
            worked.waited_s = max(worked.waited_s, min(now - self.last_news, LEASE_MS / 1000))
        # The counter of a broker that took over begins with it.
        is_cluster = self._context.fail_over is not None
        acknowledged = self._context.total - found.unfinished if is_cluster else found.acknowledged
        if acknowledged > worked.acknowledged:
            worked.acknowledged = acknowledged
            self.last_news = now
            self._progress(worked.acknowledged, self._context.total)
        return found
