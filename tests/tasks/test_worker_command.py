"""`sparrow worker`: supervised processes, deployments, crashes, health."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import sparrow
from sparrow.testing import broker
from sparrow.testing.running_broker import RunningBroker
from tests.tasks import paced, sample
from tests.tasks.sample import app

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEADLINE_S = 90.0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def until(holds: Callable[[], Any], what: str) -> Any:
    """Wait until something holds, and return it."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = holds()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {DEADLINE_S:g} s: {what}")


class Command:
    """A running `sparrow worker`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, port: int) -> None:
        self.process = process
        self.port = port
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def status(self, path: str = "/health") -> dict[str, Any]:
        """Return the answer; {} while there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            return dict(json.load(error))
        except OSError:
            return {}

    def pids(self) -> list[int]:
        """Return the processes that take jobs."""
        return [each["pid"] for each in self.status().get("processes", []) if each["state"] == "working"]

    def until_working(self, count: int = 1) -> list[int]:
        return until(lambda: len(self.pids()) == count and self.pids(), f"{count} processes\n{self.log}")  # type: ignore[no-any-return]


@contextmanager
def working(
    url: str, tmp_path: Path, *arguments: str, target: str = "tests.tasks.sample:app"
) -> Iterator[Command]:
    port = free_port()
    log = tmp_path / f"worker-{port}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "sparrow", "worker", target, "--health", str(port), *arguments],
            cwd=ROOT, stdout=file, stderr=file, env={**os.environ, "SPARROW_URL": url},
        )  # fmt: skip
    try:
        yield Command(process, log, port)
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            process.send_signal(number)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                continue
            break


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    with broker(process=True, reserve_bytes=0) as found:
        app.url = found.url
        yield found
        app.url = None  # type: ignore[assignment]


def send(path: Path, line: str, seconds: float = 0.0) -> None:
    send_task(sample.append, str(path), line, seconds)


def send_task(task: Any, *arguments: Any) -> None:
    async def sending() -> None:
        async with app:
            await task.send(*arguments)

    asyncio.run(sending())


def statistics(url: str, queue: str = "quick") -> Any:
    """Return the statistics of a queue."""
    with sparrow.sync.connect(url) as client:
        return client.admin.describe_queue(queue).statistics


def lines(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1] if path.exists() else []


def has_lines(path: Path, count: int) -> bool:
    return len(lines(path)) == count


def test_ten_deployments_in_the_life_of_one_job_cost_no_delivery(
    running: RunningBroker, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    send(path, "long", 600.0)
    begun = tmp_path / "out.begun"
    with working(running.url, tmp_path, "-c", "2", "--shutdown-timeout", "100ms") as command:
        for deployment in range(10):
            until(functools.partial(has_lines, begun, deployment + 1), f"start {deployment}\n{command.log}")
            command.process.send_signal(signal.SIGHUP)
        until(functools.partial(has_lines, begun, 11), "the last start")
    # each start was the first attempt
    assert lines(begun) == ["long 1"] * 11
    assert "Traceback" not in command.log
    assert command.process.returncode == 0


def test_processes_that_are_killed_are_replaced_and_no_job_is_lost(
    running: RunningBroker, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    with working(running.url, tmp_path, "--processes", "2", "-c", "4") as command:
        first = command.until_working(2)
        for number in range(20):
            send(path, f"job-{number}", 0.3 if number % 5 == 0 else 0.0)
            if number == 10:
                os.kill(first[0], signal.SIGKILL)
        until(lambda: len({line.split()[0] for line in lines(path)}) == 20, f"all jobs\n{command.log}")
        until(lambda: set(command.until_working(2)) != set(first), "another process")
        assert f"worker process {first[0]} ended by signal SIGKILL; another starts in 500ms" in command.log
        metrics = (
            urllib.request.urlopen(f"http://127.0.0.1:{command.port}/metrics", timeout=30).read().decode()
        )
        assert re.search(r"^sparrow_worker_restarts_total 1$", metrics, re.MULTILINE)
        # the broker restarts in the middle
        running.kill()
        running.restart()
        send(path, "after")
        until(lambda: any(line.startswith("after") for line in lines(path)), f"the last job\n{command.log}")
        assert command.status("/ready")["status"] == "working"
        # all of them are acknowledged, and none failed
        until(lambda: statistics(running.url).unfinished == 0, "the last acknowledgement")
    assert statistics(running.url).dead == 0


def test_a_stopped_process_loses_its_jobs_to_others_and_is_killed(
    running: RunningBroker, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    with working(running.url, tmp_path, "--processes", "2", "-c", "1", "--stuck-timeout", "4s") as command:
        command.until_working(2)
        send(path, "slow", 3.0)
        until(lambda: lines(tmp_path / "out.begun"), "the start")
        busy = until(
            lambda: [each["pid"] for each in command.status()["processes"] if each["running"]],
            "the busy process",
        )
        os.kill(busy[0], signal.SIGSTOP)
        until(lambda: "slow 2" in lines(path), f"the second delivery\n{command.log}")
        until(
            lambda: f"worker process {busy[0]} has reported nothing for 4 s" in command.log, "the end of it"
        )
        command.until_working(2)
    assert lines(path).count("slow 2") == 1


def test_processes_end_with_their_supervisor_and_are_replaced_at_a_limit(
    running: RunningBroker, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    with working(running.url, tmp_path, "--max-jobs", "5") as command:
        (first,) = command.until_working()
        for number in range(6):
            send(path, f"job-{number}")
        until(lambda: command.pids() not in ([], [first]), f"a successor\n{command.log}")
        until(lambda: len(lines(path)) == 6, "all jobs")
        assert f"worker process {first} is replaced: it has done" in command.log
        (second,) = command.until_working()
        command.process.kill()
        until(lambda: not Path(f"/proc/{second}").exists(), "the end of the process")
        assert "signal='no supervisor'" in command.log


def test_a_process_beyond_its_memory_or_with_a_thread_without_end_is_replaced(
    running: RunningBroker, tmp_path: Path
) -> None:
    with working(running.url, tmp_path, "--max-memory", "300MB", "--shutdown-timeout", "100ms") as command:
        (first,) = command.until_working()
        send_task(sample.grow, 300)
        until(lambda: command.pids() not in ([], [first]), f"a successor\n{command.log}")
        assert re.search(f"worker process {first} is replaced: it has .* of memory", command.log)
        (second,) = command.until_working()
        send_task(sample.endless_thread)
        until(lambda: command.pids() not in ([], [second]), f"another successor\n{command.log}")
        assert "'endless_thread' runs in a thread for more than its hard_timeout of 0.3 s" in command.log
        until(lambda: not Path(f"/proc/{second}").exists(), "the end of the process with the thread")
        send(tmp_path / "out", "after")
        until(lambda: lines(tmp_path / "out") == ["after 1"], "the next job")
    with sparrow.sync.connect(running.url) as client:
        (letter,) = client.admin.dead_letters("quick")
    assert "did not end within its timeout of 0.1 s" in letter.error


def test_a_stopped_supervisor_costs_its_processes_nothing(running: RunningBroker, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with working(running.url, tmp_path, "--stuck-timeout", "4s") as command:
        (pid,) = command.until_working()
        command.process.send_signal(signal.SIGSTOP)
        stopped_at = time.monotonic()
        for number in range(3):
            send(path, f"job-{number}")
        until(lambda: has_lines(path, 3), "all jobs")
        until(lambda: time.monotonic() > stopped_at + 5, "longer than the timeout of stuck processes")
        command.process.send_signal(signal.SIGCONT)
        until(lambda: command.status()["processes"][0]["done"] == 3, "the reports of the process")
        assert command.pids() == [pid]
    assert "has reported nothing" not in command.log
    assert lines(path) == [f"job-{number} 1" for number in range(3)]


def busy_process(command: Command) -> int:
    """Wait until a process runs a job, and return its ID."""
    (pid,) = until(
        lambda: [each["pid"] for each in command.status().get("processes", []) if each["running"]],
        f"a busy process\n{command.log}",
    )
    return int(pid)


@pytest.mark.parametrize("ended", ["one process by SIGTERM", "the supervisor by SIGKILL", "the broker"])
def test_a_job_that_runs_when_something_ends_is_done_once_in_its_first_attempt(
    ended: str, running: RunningBroker, tmp_path: Path
) -> None:
    path, pipe = tmp_path / "out", tmp_path / "pipe"
    os.mkfifo(pipe)
    with working(running.url, tmp_path, "--processes", "2") as command, pipe.open("r+b", buffering=0) as end:
        command.until_working(2)
        send_task(sample.append_when_told, str(path), "told", str(pipe))
        busy = busy_process(command)
        until(lambda: lines(tmp_path / "out.begun"), "the start")
        if ended == "one process by SIGTERM":
            os.kill(busy, signal.SIGTERM)
            until(lambda: "what runs may finish" in command.log, f"the signal\n{command.log}")
        elif ended == "the supervisor by SIGKILL":
            command.process.kill()
            until(lambda: "signal='no supervisor'" in command.log, f"the processes see it\n{command.log}")
        else:
            running.kill()
            running.restart()
        end.write(b"\n")
        until(lambda: lines(path), f"the job\n{command.log}")
        until(lambda: statistics(running.url).unfinished == 0, f"the acknowledgement\n{command.log}")
        if ended != "the broker":
            until(lambda: not Path(f"/proc/{busy}").exists(), f"the end of the process\n{command.log}")
        assert lines(path) == lines(tmp_path / "out.begun") == ["told 1"]
        found = statistics(running.url)
        assert (found.acknowledged, found.redelivered, found.dead) == (1, 0, 0)


def test_a_worker_of_some_queues_takes_their_jobs_alone(running: RunningBroker, tmp_path: Path) -> None:
    path = tmp_path / "out"
    send_task(sample.note_from_sample, str(path))
    with working(running.url, tmp_path, "--queues", "quick,limited") as command:
        command.until_working()
        send(path, "quick")
        send_task(sample.note_from_limited, str(path))
        until(lambda: sorted(lines(path)) == ["limited 1", "quick 1"], f"both jobs\n{command.log}")
    assert len(lines(path)) == 2
    left = statistics(running.url, "sample")
    assert (left.ready, left.delivered) == (1, 0)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("tests.tasks.nowhere:app", "there is no module 'tests.tasks.nowhere'"),
        ("tests.tasks.sample:other", "the module 'tests.tasks.sample' has no 'other'; it has app"),
        ("tests.tasks.sample:asyncio", "it must be a sparrow.Tasks"),
        ("tests/tasks/sample.py", "names no app"),
    ],
)
def test_an_app_that_cannot_be_loaded_ends_the_command(tmp_path: Path, target: str, words: str) -> None:
    with working("sparrow://127.0.0.1:1", tmp_path, target=target) as command:
        assert command.process.wait(DEADLINE_S) != 0
        assert words in command.log
        assert "Traceback" not in command.log


def test_two_signals_release_the_jobs_at_once(running: RunningBroker, tmp_path: Path) -> None:
    path = tmp_path / "out"
    send(path, "long", 600.0)
    with working(running.url, tmp_path) as command:
        until(lambda: lines(tmp_path / "out.begun"), f"the start\n{command.log}")
        for word in ("finish what runs", "release what runs"):
            command.process.send_signal(signal.SIGINT)
            until(lambda: word in command.log, word)  # noqa: B023 - called at once
        assert command.process.wait(DEADLINE_S) == 0
        assert "this delivery does not count" in command.log


def test_a_signal_during_a_deployment_lets_jobs_finish(running: RunningBroker, tmp_path: Path) -> None:
    path = tmp_path / "out"
    send(path, "long", 3.0)
    with working(running.url, tmp_path) as command:
        until(lambda: lines(tmp_path / "out.begun"), f"the start\n{command.log}")
        command.process.send_signal(signal.SIGHUP)
        until(lambda: "all worker processes are replaced" in command.log, "the signal")
        command.process.send_signal(signal.SIGTERM)
        assert command.process.wait(DEADLINE_S) == 0
    assert lines(path) == ["long 1"], command.log


def test_reload_replaces_the_processes_when_a_file_changes(running: RunningBroker, tmp_path: Path) -> None:
    module = tmp_path / "changing.py"
    code = (
        "import sparrow\napp = sparrow.Tasks('changing')\n\n@app.task\ndef version() -> int:\n    return {}\n"
    )
    module.write_text(code.format(1))
    port = free_port()
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "sparrow", "worker", "changing:app", "--reload", "--health", str(port)],
            cwd=tmp_path, stdout=file, stderr=file,
            env={**os.environ, "SPARROW_URL": running.url, "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
    command = Command(process, log, port)
    try:
        (first,) = command.until_working()
        module.write_text(code.format(2))
        until(lambda: command.pids() not in ([], [first]), f"another process\n{command.log}")
        assert "changing.py has changed" in command.log
    finally:
        process.terminate()
        process.wait(30)


def test_a_rate_is_that_of_all_processes_together(running: RunningBroker, tmp_path: Path) -> None:
    path = tmp_path / "out"

    async def sending() -> None:
        async with paced.app:
            await paced.step.send_many([(str(path),) for _ in range(60)])

    paced.app.url = running.url
    asyncio.run(sending())
    paced.app.url = None  # type: ignore[assignment]
    with working(running.url, tmp_path, "--processes", "2", "-c", "1", target="tests.tasks.paced:app"):
        until(lambda: has_lines(path, 60), "all jobs")
    begun = [each.split() for each in lines(path)]
    assert len({pid for pid, _ in begun}) == 2
    times = sorted(float(at) for _, at in begun)
    # a burst of 2, then 20 a second: each of two processes for itself would need half of that
    assert times[-1] - times[0] > 2.5
