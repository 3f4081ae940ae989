"""Workers that compete for the jobs of a queue, of which one is killed (-9) while it holds some.

All compete for the first third of the jobs. Then the victim handles half of its next batch, keeps
all of it leased, and says so. The broker is asked which jobs it holds, the process is killed, and
the others continue. The jobs of the victim are delivered to others when their leases end.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import quantiles
from typing import TYPE_CHECKING, Self

import msgspec

import sparrow.sync
from sparrow.base.errors import SparrowError, TimedOut
from sparrow.demo.worker import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.client.results import QueueStatistics
    from sparrow.demo.surroundings import Context
    from sparrow.sync.client import Client

LEASE_MS = 2000
"""Time after which the killed worker's jobs are delivered to others."""
STALL_TIMEOUT_S = 60.0
"""Time without progress after which the work is given up."""
MAX_BATCH = 200
_ASK_S = 0.1
_END_TIMEOUT_S = 3.0


@dataclass(slots=True)
class Killed:
    """The worker that was killed, and the jobs that it held."""

    name: str
    holds: list[str]
    handled: int
    """Number of these that it had handled and not acknowledged."""
    leased: int = 0
    """Number of jobs that the broker counted as leased by it."""


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
    """Jobs that were delivered again although no worker died: their leases had ended."""
    killed: Killed | None = None
    latencies_ms: list[float] = field(default_factory=list)
    """Time that each job took."""

    def percentile_ms(self, share: float) -> float:
        """Return the time within which this share of the jobs was done."""
        many = self.latencies_ms if len(self.latencies_ms) > 1 else [*self.latencies_ms, 0.0, 0.0]
        return round(quantiles(many, n=100, method="inclusive")[round(share * 100) - 1], 2)


def work_off(context: Context, progress: Callable[[int], None]) -> Worked:
    """Let workers handle every job of the queue, and kill one of them on the way.

    Raises:
        TimedOut: nothing was done for a minute.
        SparrowError: a worker ended by itself.
    """
    with (
        sparrow.sync.connect(context.url, client_name="demo") as client,
        _Crew(context, client, progress) as crew,
    ):
        return crew.work_off()


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
        """Return a line of its stdout, b"" if there is none now."""
        assert self.process.stdout is not None
        return self.process.stdout.readline() if select.select([self.process.stdout], [], [], 0)[0] else b""

    def end(self, timeout_s: float) -> list[float]:
        """Wait for its end, or kill it; return how long its jobs took."""
        try:
            told = self.process.communicate(timeout=timeout_s)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            told = self.process.communicate()[0]
        return list(json.loads(told)) if told else []

    def last_words(self) -> str:
        """Return why it ended."""
        with open(self._log_path, encoding="utf-8", errors="replace") as log:
            return " ".join(log.read()[-1000:].split()) or f"exit code {self.process.wait()}"


class _Crew:
    """The workers of a `with` block; they have ended behind it."""

    def __init__(self, context: Context, client: Client, progress: Callable[[int], None]) -> None:
        self._context = context
        self._client = client
        self._progress = progress
        self._running: list[_Process] = []
        self._worked = Worked()
        self._last_news = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        deadline = time.monotonic() + (_END_TIMEOUT_S if kind is None else 0.0)
        for each in self._running:
            each.close()
        for each in self._running:
            self._worked.latencies_ms += each.end(max(0.0, deadline - time.monotonic()))

    def work_off(self) -> Worked:
        """See the function of this name."""
        context, worked = self._context, self._worked
        names = [f"worker-{number}" for number in range(1, context.workers + 1)]
        for name in names:
            self._start(name, first_jobs=context.total // (3 * context.workers), is_to_hold=name == names[0])
        began = self._last_news = time.monotonic()
        victim = self._running[0]
        self._until(lambda: self._holds_jobs(victim))
        self._running.remove(victim)
        victim.process.kill()
        victim.close()
        victim.process.communicate()
        if context.workers == 1:
            self._start("worker-2", first_jobs=0, is_to_hold=False)
        for each in self._running:
            each.order()
        self._until(self._is_empty)
        worked.seconds = time.monotonic() - began
        if worked.killed is not None:
            worked.lost = self._statistics().redelivered - len(worked.killed.holds)
        return worked

    def _start(self, name: str, *, first_jobs: int, is_to_hold: bool) -> None:
        context = self._context
        task = Task(
            url=context.url,
            queue=context.topic,
            handled_topic=context.handled_topic,
            name=name,
            batch=min(MAX_BATCH, max(1, context.total // (10 * context.workers))),
            first_jobs=first_jobs,
            is_to_hold=is_to_hold,
        )
        logs = os.path.join(context.work_dir, "workers")
        os.makedirs(logs, exist_ok=True)
        self._running.append(_Process(task, f"{logs}/{name}.log"))

    def _until(self, is_reached: Callable[[], bool]) -> None:
        """Wait for a condition.

        Raises:
            TimedOut: no job was done for a minute.
            SparrowError: a worker ended by itself.
        """
        while not is_reached():
            for each in self._running:
                if each.process.poll() is not None:
                    raise SparrowError(f"{each.name} ended by itself: {each.last_words()}")
            if time.monotonic() - self._last_news > STALL_TIMEOUT_S:
                raise self._stalled(self._statistics())
            time.sleep(_ASK_S)

    def _holds_jobs(self, victim: _Process) -> bool:
        """Return True if the worker has said that it holds jobs, and the broker counts as many that
        it has leased: it renews its leases.
        """
        if said := victim.said():
            self._worked.killed = Killed(victim.name, **json.loads(said))
        killed, found = self._worked.killed, self._statistics()
        if killed is None:
            return False
        killed.leased = sum(each.leased for each in found.consumers if each.client_name == victim.name)
        return killed.leased == len(killed.holds)

    def _is_empty(self) -> bool:
        """Return True if the broker has no unfinished job."""
        return self._statistics().unfinished == 0

    def _statistics(self) -> QueueStatistics:
        """Return what the broker says, and take note of progress."""
        found = self._client.admin.describe_queue(self._context.topic).statistics
        now, worked = time.monotonic(), self._worked
        if worked.killed is not None:
            worked.waited_s = max(worked.waited_s, min(now - self._last_news, LEASE_MS / 1000))
        if found.acknowledged > worked.acknowledged:
            worked.acknowledged = found.acknowledged
            self._last_news = now
            self._progress(worked.acknowledged)
        return found

    def _stalled(self, found: QueueStatistics) -> SparrowError:
        return TimedOut(
            f"no job was done for {STALL_TIMEOUT_S:g} s: of {self._context.total:,} jobs "
            f"{found.unfinished:,} are left, {found.ready:,} ready, {found.leased:,} leased, "
            f"{found.blocked:,} waiting for parents, {found.delayed:,} for a time"
        )
