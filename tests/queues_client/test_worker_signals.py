"""SIGTERM and SIGINT end workers: real processes, and the signal handlers that remain."""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

import pytest

import sparrow
import sparrow.testing
from sparrow.base.errors import InvalidArgument
from sparrow.client.client import Client
from sparrow.testing.running_broker import RunningBroker
from tests.client.frontends import Frontend
from tests.queues_client.fake_broker import FakeBroker

README = (Path(__file__).parents[2] / "README.md").read_text()
LIMIT_S = 60


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(default_partitions=1) as running:
        yield running


@pytest.fixture
def admin(server: RunningBroker) -> Iterator[sparrow.sync.Client]:
    with sparrow.sync.connect(server.url) as connected:
        yield connected


class Program:
    """A worker program in its own process."""

    def __init__(self, code: str, *arguments: str, ignores_sigint: bool = False) -> None:
        command = [sys.executable, "-u", "-c", textwrap.dedent(code), *arguments]
        if ignores_sigint:  # as a script does with commands that end in "&"
            command = ["sh", "-c", f"trap '' INT; exec {shlex.join(command)}"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def line(self) -> str:
        """Return the next line that it prints."""
        return _file(self.process.stdout).readline().decode().strip()

    def send(self, *signals: signal.Signals) -> None:
        """Send signals of different kinds: a second one of the same kind would be lost while the
        first waits.
        """
        for number in signals:
            self.process.send_signal(number)

    def end(self, say: bytes = b"") -> tuple[int, str]:
        """Return its exit code, and everything that it printed to stderr."""
        _, stderr = self.process.communicate(say, timeout=LIMIT_S)
        return self.process.returncode, stderr.decode()


def _file(file: IO[bytes] | None) -> IO[bytes]:
    assert file is not None
    return file


@contextmanager
def program(code: str, *arguments: str, ignores_sigint: bool = False) -> Iterator[Program]:
    started = Program(code, *arguments, ignores_sigint=ignores_sigint)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()
        for file in (started.process.stdin, started.process.stdout, started.process.stderr):
            _file(file).close()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_released(queue: sparrow.sync.Queue) -> bool:
    """Return True if the only record waits for a worker, and no delivery was counted."""
    (found,) = queue.peek()
    return (found.state, found.delivery_count) == ("ready", 0)


# ── the README's worker ───────────────────────────────────────────────────────────────────────────


def readme_worker(url: str) -> str:
    """Return the README's worker, with a call that takes as long as the first argument says."""
    (code,) = re.findall(r"^```python worker\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    code = code.replace("sparrow://127.0.0.1:9094", url)
    line = re.search(r'^( +)print\("sending".*\n', code, re.MULTILINE)
    assert line is not None
    works = f"{line[0]}{line[1]}await asyncio.sleep(float(sys.argv[1]))\n"
    return "import sys\n" + code.replace(line[0], works)


@pytest.mark.slow
def test_the_readmes_worker_stopped_ten_times_during_one_job_counts_one_delivery(
    server: RunningBroker, admin: sparrow.sync.Client
) -> None:
    code = readme_worker(server.url)
    with admin.queue("emails") as queue:
        queue.publish(b"to: alice")
        for number in range(10):
            with program(code, "3600") as worker:
                assert worker.line() == "sending b'to: alice' for the 1 time"
                first, second = [(signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)][number % 2]
                worker.send(first, second)
                assert worker.end() == (0, "")
            (found,) = queue.peek()
            assert (found.state, found.delivery_count) == ("ready", 0)
        with program(code, "0") as worker:
            assert worker.line() == "sending b'to: alice' for the 1 time"
            until(lambda: queue.statistics().acknowledged == 1)
            worker.send(signal.SIGTERM)
            assert worker.end() == (0, "")
        assert queue.statistics().unfinished == 0


# ── finishing and releasing ───────────────────────────────────────────────────────────────────────

ASYNC = """
    import asyncio, sys
    import sparrow

    async def main():
        async with sparrow.connect(sys.argv[1]) as client:

            @client.worker(sys.argv[2])
            async def handle(job):
                print("begun", job.value.decode(), job.delivery_count)
                await asyncio.to_thread(sys.stdin.readline)

            await client.run_workers(shutdown_timeout_s=float(sys.argv[3]))
            print("returned")

    asyncio.run(main())
"""

BLOCKING = """
    import sys
    import sparrow

    with sparrow.sync.connect(sys.argv[1]) as client:

        @client.worker(sys.argv[2])
        def handle(job):
            print("begun", job.value.decode(), job.delivery_count)
            sys.stdin.readline()

        client.run_workers(shutdown_timeout_s=float(sys.argv[3]))
        print("returned")
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("code", [ASYNC, BLOCKING], ids=["asyncio", "blocking"])
def test_running_jobs_finish_and_no_new_one_begins(
    server: RunningBroker, admin: sparrow.sync.Client, code: str, number: signal.Signals, sparrow_topic: str
) -> None:
    with admin.queue(sparrow_topic) as queue:
        queue.publish(b"one")
        queue.publish(b"two")
        with program(code, server.url, sparrow_topic, "600", ignores_sigint=True) as worker:
            assert worker.line() == "begun one 1"
            worker.send(number)
            until(lambda: queue.statistics().leased == 1)  # jobs that were not started are released
            _file(worker.process.stdin).write(b"finish\n")
            _file(worker.process.stdin).flush()
            assert worker.line() == "returned"
            assert worker.end() == (0, "")
        (left,) = queue.peek()
        assert (left.value, left.state, left.delivery_count) == (b"two", "ready", 0)
        assert queue.statistics().acknowledged == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["by its time", "by a second signal"])
@pytest.mark.parametrize("code", [ASYNC, BLOCKING], ids=["asyncio", "blocking"])
def test_unfinished_jobs_are_released_uncounted(
    server: RunningBroker, admin: sparrow.sync.Client, code: str, how: str, sparrow_topic: str
) -> None:
    with admin.queue(sparrow_topic) as queue:
        queue.publish(b"one")
        timeout_s, signals = ("0.1", 1) if how == "by its time" else ("600", 2)
        with program(code, server.url, sparrow_topic, timeout_s) as worker:
            assert worker.line() == "begun one 1"
            worker.send(*(signal.SIGINT, signal.SIGTERM)[:signals])
            # Until the consumer is closed the broker may lease it the same record again, for credit
            # given before.
            until(lambda: is_released(queue))
            # A thread cannot be interrupted; Python waits for it.
            assert worker.end(b"finish\n") == (0, "")
        assert is_released(queue)
        assert queue.statistics().acknowledged == 0


@pytest.mark.slow
def test_a_worker_that_waits_for_its_broker_ends_at_the_first_signal() -> None:
    code = """
        import asyncio, sys
        import sparrow

        async def main():
            async with sparrow.connect(sys.argv[1]) as client:
                client.worker("jobs")(handle)
                print("connected")
                sys.stdin.readline()  # the broker is gone now
                running = asyncio.create_task(client.run_workers())
                await asyncio.sleep(0)
                print("runs")
                await running

        async def handle(job):
            pass

        asyncio.run(main())
    """
    with sparrow.testing.broker() as mortal, program(code, mortal.url) as worker:
        assert worker.line() == "connected"
        mortal.stop()
        _file(worker.process.stdin).write(b"\n")
        _file(worker.process.stdin).flush()
        assert worker.line() == "runs", worker.end()
        worker.send(signal.SIGTERM)
        exit_code, stderr = worker.end()
    assert exit_code == 0
    assert "Traceback" not in stderr


# ── handlers ──────────────────────────────────────────────────────────────────────────────────────


CALLED: list[int] = []


def mine(number: int, frame: FrameType | None) -> None:
    """Handle a signal as a program's own handler."""
    CALLED.append(number)


@pytest.fixture
def own_handlers() -> Iterator[None]:
    CALLED.clear()
    before = {number: signal.signal(number, mine) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def handle(job: sparrow.Job) -> None:
    """Handle a job."""


@pytest.mark.usefixtures("own_handlers")
async def test_handlers_are_put_back(fake: FakeBroker, fake_client: Client) -> None:
    fake_client.worker("jobs")(handle)
    running = asyncio.create_task(fake_client.run_workers())
    await asyncio.sleep(0)
    assert signal.getsignal(signal.SIGTERM) is not mine
    signal.raise_signal(signal.SIGTERM)
    async with asyncio.timeout(LIMIT_S):
        await running
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == (mine, mine)
    assert CALLED == [signal.SIGTERM]  # a server beside the workers gets it, too


@pytest.mark.usefixtures("own_handlers")
async def test_signals_may_be_left_to_the_program(fake_client: Client) -> None:
    fake_client.worker("jobs")(handle)
    running = asyncio.create_task(fake_client.run_workers(handle_signals=False))
    await asyncio.sleep(0)
    assert signal.getsignal(signal.SIGTERM) is mine
    await fake_client.stop_workers()
    await running


@pytest.mark.usefixtures("own_handlers")
async def test_one_signal_stops_the_workers_of_all_clients(frontend: Frontend, client: Client) -> None:
    async with sparrow.connect(frontend.url) as other:
        client.worker("jobs")(handle)
        other.worker("jobs")(handle)
        running = [asyncio.create_task(each.run_workers()) for each in (client, other)]
        await asyncio.sleep(0)
        await client.stop_workers()  # the first listener leaves first
        await running[0]
        assert signal.getsignal(signal.SIGINT) is not mine
        signal.raise_signal(signal.SIGINT)
        async with asyncio.timeout(LIMIT_S):
            await running[1]
    assert signal.getsignal(signal.SIGINT) is mine


@pytest.mark.usefixtures("own_handlers")
async def test_in_another_thread_no_handlers_are_set(frontend: Frontend) -> None:
    during: list[object] = []

    async def work() -> None:
        async with sparrow.connect(frontend.url) as client:
            client.worker("jobs")(handle)
            running = asyncio.create_task(client.run_workers())
            await asyncio.sleep(0)
            during.append(signal.getsignal(signal.SIGTERM))
            await client.stop_workers()
            await running

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert during == [mine]


@pytest.mark.usefixtures("own_handlers")
def test_blocking_workers_in_the_main_thread_end_by_a_signal_to_any_thread(
    server: RunningBroker, sparrow_topic: str
) -> None:
    """Linux gives a signal that comes while another is pending to a thread of its choice."""
    with sparrow.sync.connect(server.url) as client:
        done: list[bytes | None] = []

        @client.worker(sparrow_topic)
        def work(job: sparrow.sync.Job) -> None:
            done.append(job.value)
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

        client.publish(sparrow_topic, b"one")
        client.run_workers()
        assert done == [b"one"]
        assert client.queue(sparrow_topic).statistics().acknowledged == 1
    assert signal.getsignal(signal.SIGTERM) is mine


async def test_a_time_that_cannot_be_is_refused(fake_client: Client) -> None:
    fake_client.worker("jobs")(handle)
    for seconds in (-1, float("nan")):
        with pytest.raises(InvalidArgument, match="shutdown_timeout_s"):
            await fake_client.run_workers(shutdown_timeout_s=seconds)
