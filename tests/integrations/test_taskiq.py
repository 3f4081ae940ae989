"""taskiq with its own receiver on a queue of a real broker."""

from __future__ import annotations

import asyncio
import importlib
import time

import pytest
from taskiq import TaskiqResultTimeoutError
from taskiq.api import run_receiver_task
from taskiq.exceptions import SendTaskError

import sparrow
from sparrow.testing.running_broker import RunningBroker

WAIT_S = 60


async def nothing() -> None: ...


@pytest.mark.slow
async def test_tasks_results_retries_delays_and_dead_letters_work(broker: RunningBroker) -> None:
    example = importlib.import_module("taskiq_app")
    tasks = example.broker
    await tasks.startup()
    receiver = asyncio.create_task(run_receiver_task(tasks))
    try:
        began = time.monotonic()
        later = await example.add.kicker().with_labels(delay=1, priority=9).kiq(1, 1)
        task = await example.add.kiq(2, 3)
        result = await task.wait_result(timeout=WAIT_S, check_interval=0.02)
        assert (result.return_value, result.is_err) == (5, False)
        retried = await (await example.flaky.kiq()).wait_result(timeout=WAIT_S, check_interval=0.02)
        assert retried.return_value == 1
        assert (await later.wait_result(timeout=WAIT_S, check_interval=0.02)).return_value == 2
        assert time.monotonic() - began >= 1
        async with sparrow.connect(broker.url) as client:
            await client.queue("taskiq-jobs").publish(b"no task")
            async with asyncio.timeout(WAIT_S):
                while not (found := (await client.admin.describe_queue("taskiq-jobs")).statistics).dead or (
                    found.unfinished
                ):
                    await asyncio.sleep(0.02)
            (letter,) = await client.admin.dead_letters("taskiq-jobs")
            assert "the message is no task of taskiq" in letter.error + letter.reason
        missing = tasks.task("elsewhere")(nothing)
        del tasks.local_task_registry["elsewhere"]
        with pytest.raises(TaskiqResultTimeoutError):
            await (await missing.kiq()).wait_result(timeout=0.3, check_interval=0.05)
    finally:
        receiver.cancel()
        await asyncio.gather(receiver, return_exceptions=True)
        await tasks.shutdown()


async def test_a_broker_that_is_not_started_says_so(broker: RunningBroker) -> None:
    example = importlib.import_module("taskiq_app")
    with pytest.raises(SendTaskError) as refused:
        await example.add.kiq(1, 2)
    assert "the broker is not started" in str(refused.value.__cause__)
