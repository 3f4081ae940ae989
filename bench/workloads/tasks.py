"""Task systems beside each other: Sparrow's tasks, and Celery, taskiq, Dramatiq and arq over Redis,
with its file synced before each answer (`always`) and each second (`everysec`). One worker process
each.

A round of a system: jobs sent one by one, each awaited; jobs sent in bulk; the time from the start
of the worker's command to the first job; the time in which one worker process does them all, from
the first to the last; the time from the send of a job to its start, with 200 jobs a second; a
chain, and a fan into one callback, where it has such things.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.peers import redis
from bench.peers.daemon import NotInstalled, directory
from bench.peers.daemon import running as running_daemon
from bench.results import OURS, SYNCED, UNSYNCED, Measurement, Target
from bench.server import Server
from bench.tasks import arq_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT = "send, lease and ack on stable storage (group commit)"
_LIMIT_S = 120


class System(NamedTuple):
    """A task system on a broker."""

    name: str
    module: str
    strength: str
    durability: str
    share: float
    """Jobs, as a share of Sparrow's."""
    has_compositions: bool = False


SYSTEMS = (
    System(OURS, "sparrow_tasks", SYNCED, KEPT, 1.0, has_compositions=True),
    System("Celery", "celery_tasks", SYNCED, redis.DURABILITY, 0.05, has_compositions=True),
    System("Celery everysec", "celery_tasks", UNSYNCED, redis.UNSYNCED, 0.05, has_compositions=True),
    System("taskiq", "taskiq_tasks", SYNCED, redis.DURABILITY, 0.05),
    System("taskiq everysec", "taskiq_tasks", UNSYNCED, redis.UNSYNCED, 0.05),
    System("Dramatiq", "dramatiq_tasks", SYNCED, redis.DURABILITY, 0.05),
    System("Dramatiq everysec", "dramatiq_tasks", UNSYNCED, redis.UNSYNCED, 0.05),
    System("arq", "arq_tasks", SYNCED, redis.DURABILITY, 0.05),
    System("arq everysec", "arq_tasks", UNSYNCED, redis.UNSYNCED, 0.05),
)


@contextlib.contextmanager
def _broker(system: System) -> Iterator[str]:
    """Run the broker of a system; yield its URL."""
    with directory() as root:
        if system.name == OURS:
            server = Server(root / "data", "--default-partitions", "1")
            server.start()
            try:
                yield server.url
            finally:
                server.stop()
            return
        with redis.prepared(root) as peer:
            if system.strength == UNSYNCED:
                settings = root / "redis.conf"
                settings.write_text(
                    settings.read_text().replace("appendfsync always", "appendfsync everysec")
                )
            with running_daemon(peer.daemon):
                yield f"redis://127.0.0.1:{peer.address}/0"


class _Round:
    """One round of a system on its broker."""

    def __init__(self, system: System, url: str, where: Path) -> None:
        self._system = system
        self._environment = {**os.environ, "BENCH_URL": url, "BENCH_DIRECTORY": str(where)}

    @property
    def _python(self) -> str:
        """The Python that has the system. Raises NotInstalled."""
        if self._system.module != "arq_tasks":
            return sys.executable
        if not arq_tasks.python():
            raise NotInstalled(
                f"arq needs redis-py 5, the other systems have a newer one; name a Python that has arq by "
                f"{arq_tasks.PYTHON_VARIABLE}"
            )
        return arq_tasks.python()

    def ask(self, what: str, count: int) -> dict[str, float]:
        """Run the sender."""
        command = [self._python, "-m", "bench.tasks.send", self._system.module, what, str(count)]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{self._system.name} {what}: {done.stderr.strip()[-400:]}")
        answer: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
        return answer

    @contextlib.contextmanager
    def worker(self) -> Iterator[None]:
        """Run one worker process."""
        command = importlib.import_module(f"bench.tasks.{self._system.module}").worker_command()
        process = subprocess.Popen(
            command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _measured(system: System, scale: float) -> dict[str, float]:
    count = max(300, int(60_000 * scale * system.share))
    with _broker(system) as url, tempfile.TemporaryDirectory() as where:
        turn = _Round(system, url, Path(where))
        found = {
            "singly": turn.ask("singly", min(count, 2_000))["rate"],
            "bulk": turn.ask("bulk", count)["rate"],
        }
        called_ns = time.monotonic_ns()
        with turn.worker():
            ended = _file(Path(where) / "last")
            began = _file(Path(where) / "first")
            found["start"] = (began - called_ns) / 1e9
            found["done"] = count / ((ended - began) / 1e9)
            turn.ask("ready", 1)
            found |= turn.ask("latency", 400)
            if system.has_compositions:
                for what in ("chain", "fan"):
                    found[what] = turn.ask(what, _composed(scale))["seconds"]
        return found


def _composed(scale: float) -> int:
    """Return the number of steps of a composition."""
    return max(50, int(1_000 * scale))


def _file(path: Path) -> int:
    deadline = time.monotonic() + _LIMIT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the worker did not write {path.name}")
        time.sleep(0.002)
    text = path.read_text()
    path.unlink()
    return int(text)


_FIGURES: tuple[tuple[str, str, str, Target | None], ...] = (
    ("singly", "tasks: sent one by one, each awaited", "jobs/s", None),
    ("bulk", "tasks: sent in bulk", "jobs/s", Target(100_000)),
    ("done", "tasks: done by one worker process", "jobs/s", Target(15_000)),
    ("start", "tasks: start of a worker to its first job", "s", Target(0.5, at_least=False)),
    ("p50_ms", "tasks: send to start, p50", "ms", None),
    ("p99_ms", "tasks: send to start, p99", "ms", None),
    ("chain", "tasks: chain of 1,000 steps", "s", None),
    ("fan", "tasks: fan of 1,000 into one callback", "s", None),
)


def systems(runs: int, scale: float) -> list[Measurement]:
    """All systems, round after round."""
    found: dict[str, dict[str, list[float]]] = {}
    notes: dict[str, str] = {}
    for _ in range(runs):
        for system in SYSTEMS:
            if system.name in notes:
                continue
            try:
                figures = _measured(system, scale)
            except (NotInstalled, ImportError) as error:
                notes[system.name] = str(error)
                continue
            for name, value in figures.items():
                found.setdefault(system.name, {}).setdefault(name, []).append(value)
    rows: list[Measurement] = []
    for key, figure, unit, target in _FIGURES:
        for system in SYSTEMS:
            values = found.get(system.name, {}).get(key)
            if values:
                row = _row(system, figure, unit, target, values)
                if key in ("chain", "fan") and scale < 1:
                    row.note = f"a short round: {_composed(scale)} steps instead of 1,000"
                rows.append(row)
    rows += [Measurement(f"tasks: {name}", "", note=note) for name, note in notes.items()]
    return rows


def _row(system: System, figure: str, unit: str, target: Target | None, values: list[float]) -> Measurement:
    arguments: dict[str, Any] = {"runs": values, "figure": figure, "strength": system.strength}
    return Measurement(
        f"{figure}, {system.name}",
        unit,
        target=target if system.name == OURS else None,
        durability=system.durability,
        broker=OURS if system.name == OURS else "Redis",
        client="" if system.name == OURS else system.name,
        **arguments,
    )
