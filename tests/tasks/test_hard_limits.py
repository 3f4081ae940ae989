"""Hard limits of async tasks and threads in `sparrow worker`: the process is replaced, the failure
counts, and no other job is delivered with a higher count.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparrow
from sparrow.tasks import TaskFailed, TimeLimitExceeded
from sparrow.testing import broker
from sparrow.testing.running_broker import RunningBroker
from tests.tasks import sample
from tests.tasks.sample import app
from tests.tasks.test_worker_command import Command, lines, send_task, until, working

pytestmark = pytest.mark.slow

QUICK = ("--shutdown-timeout", "100ms")


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    with broker(process=True, reserve_bytes=0) as found:
        app.url = found.url
        yield found
        app.url = None  # type: ignore[assignment]


def outcome(task: Any, *arguments: Any) -> Any:
    """Send a job, and return its result."""

    async def sending() -> Any:
        async with app:
            return await (await task.send(*arguments)).get(60)

    return asyncio.run(sending())


def failure(task: Any, *arguments: Any) -> str:
    """Send a job, and return the error with which it fails."""
    with pytest.raises(TaskFailed) as caught:
        outcome(task, *arguments)
    return caught.value.error


def send(path: Path, line: str, seconds: float = 0.0) -> None:
    """Send a job to the queue of the tasks with limits. Its lease is longer than they block."""
    send_task(sample.append.options(queue="limited"), str(path), line, seconds)


def statistics(url: str) -> Any:
    with sparrow.sync.connect(url) as client:
        return client.admin.describe_queue("limited").statistics


def dead_letters(url: str) -> list[str]:
    with sparrow.sync.connect(url) as client:
        return [letter.error for letter in client.admin.dead_letters("limited")]


def until_replaced(command: Command, first: int) -> None:
    until(lambda: command.pids() not in ([], [first]), f"another process\n{command.log}")
    until(lambda: not Path(f"/proc/{first}").exists(), "the end of the first process")


@pytest.mark.parametrize("spins", [True, False], ids=["a loop without await", "a blocking call"])
def test_a_task_that_blocks_the_loop_fails_alone_and_its_process_is_replaced(
    running: RunningBroker, tmp_path: Path, spins: bool
) -> None:
    path = tmp_path / "out"
    begun = tmp_path / "out.begun"
    with working(running.url, tmp_path, "-c", "3", *QUICK) as command:
        (first,) = command.until_working()
        send(path, "long", 600.0)
        send_task(sample.ending_before, str(path))
        until(lambda: len(lines(begun)) == 2, f"the start of both\n{command.log}")
        send_task(sample.blocking, str(path), spins)
        until(lambda: "blocking 1" in lines(path), f"the block\n{command.log}")
        for number in range(20):  # pushed to the process, which does not read them
            send(path, f"job-{number}")
        until(lambda: "blocking 2" in lines(path), f"the next attempt\n{command.log}")
        until(lambda: len(lines(path)) == 23, f"all jobs\n{command.log}")
        until_replaced(command, first)
        assert (
            "the task 'blocking' blocks the event loop beyond its hard_timeout of 0.5 s (job " in command.log
        )
        assert "sample.py" in command.log  # the line at which it was
        assert "job failed, attempt 1 of 2, next in " in command.log
        assert f"worker process {first} ended with code 1: the task 'blocking' blocks" in command.log
        until(lambda: lines(begun).count("long 1") == 2, "the second start of the job that did not fail")
        until(lambda: statistics(running.url).unfinished == 1, "the acknowledgements")
    # what had returned was acknowledged, and no delivery of the others counted
    assert sorted(lines(path)) == sorted(
        ["ending 1", "blocking 1", "blocking 2", *(f"job-{number} 1" for number in range(20))]
    )
    assert sorted(lines(begun)) == ["ending 1", "long 1", "long 1"]
    assert statistics(running.url).dead == 0


def test_a_blocking_task_without_attempts_left_is_a_dead_letter_with_the_reason(
    running: RunningBroker, tmp_path: Path
) -> None:
    with working(running.url, tmp_path, *QUICK) as command:
        (first,) = command.until_working()
        words = "did not end within its hard_timeout of 0.5 s: it blocked the event loop"
        assert words in failure(sample.blocking_always)
        until_replaced(command, first)
        assert words in dead_letters(running.url)[0]
        assert "attempt 1 of 1, gave up" in command.log
        send(tmp_path / "out", "after")
        until(lambda: lines(tmp_path / "out") == ["after 1"], "the next job")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the contexts of tasks are not known")
def test_a_task_that_is_started_by_a_job_and_blocks_is_a_failure_of_the_job(
    running: RunningBroker, tmp_path: Path
) -> None:
    with working(running.url, tmp_path, *QUICK) as command:
        (first,) = command.until_working()
        assert outcome(sample.starting_a_blocking_task) == 2
        until_replaced(command, first)


def test_a_task_that_ignores_its_cancellation_fails_alone_and_its_process_is_replaced(
    running: RunningBroker, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    begun = tmp_path / "out.begun"
    with working(running.url, tmp_path, "-c", "2", *QUICK) as command:
        (first,) = command.until_working()
        send(path, "long", 600.0)
        until(lambda: lines(begun), f"the start\n{command.log}")
        words = "did not end within its hard_timeout of 0.5 s"
        assert words in failure(sample.uncancellable)
        until_replaced(command, first)
        assert words in dead_letters(running.url)[0]
        assert (
            "the task 'uncancellable' ignores its cancellation for more than its hard_timeout of 0.5 s (job "
            in command.log
        )
        until(lambda: lines(begun) == ["long 1", "long 1"], "the second start of the other job")
    assert statistics(running.url).dead == 1


def test_a_thread_without_end_fails_alone_and_running_jobs_finish_before_the_process_is_replaced(
    running: RunningBroker, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    with working(running.url, tmp_path, "-c", "2") as command:
        (first,) = command.until_working()
        send(path, "slow", 2.0)
        until(lambda: lines(tmp_path / "out.begun"), f"the start\n{command.log}")
        send_task(sample.endless_thread_without_timeout)
        until_replaced(command, first)
        assert lines(path) == ["slow 1"]
        assert "did not end within its hard_timeout of 0.3 s" in dead_letters(running.url)[0]
    assert lines(tmp_path / "out.begun") == ["slow 1"]


async def test_a_program_that_runs_a_worker_itself_gets_an_error_and_goes_on() -> None:
    with broker(process=True, reserve_bytes=0) as found:
        own = sparrow.Tasks("own", url=found.url)
        may_end = threading.Event()

        @own.task(retries=0, hard_timeout="200ms")
        def endless() -> None:
            may_end.wait()

        try:
            async with own:
                await endless.send()
                with pytest.raises(TimeLimitExceeded, match="'endless' runs in a thread for more than"):
                    await own.run_worker(handle_signals=False)
        finally:
            may_end.set()
