"""Leases are extended while a framework works on a job, and by nobody else."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, cast

import pytest

import sparrow
from sparrow.client.job import Job
from sparrow.integrations.lease_keeper import LeaseKeeper
from sparrow.testing.running_broker import RunningBroker

WAIT_S = 60
TAKER = """
import sys
import sparrow.integrations.kombu
from kombu import Connection
with Connection(sys.argv[1], transport_options={"queue_policy": {"lease": "1s"}}) as connection:
    queue = connection.SimpleQueue("letters")
    print(queue.get(timeout=60).payload, flush=True)
    sys.stdin.read()
"""


class FakeJob:
    """A job whose lease a test sees."""

    is_settled = is_lost = False

    def __init__(self, length_s: float) -> None:
        self.deadline = time.monotonic() + length_s
        self.extended = asyncio.Event()

    def extend_nowait(self) -> None:
        self.extended.set()


async def test_leases_that_are_half_over_are_extended_until_the_job_is_settled() -> None:
    keeper = LeaseKeeper()
    keeper.start()
    job, settled, fresh = FakeJob(1.0), FakeJob(0.01), FakeJob(1000)
    settled.is_settled = True
    for each in (job, settled, fresh):
        keeper.keep(cast("Job", each))
    async with asyncio.timeout(WAIT_S):
        await job.extended.wait()
    assert not settled.extended.is_set()
    assert not fresh.extended.is_set()
    assert keeper.jobs == [job, fresh]
    await keeper.stop()


@pytest.mark.slow
async def test_a_message_of_a_killed_consumer_is_delivered_again(broker: RunningBroker) -> None:
    async with sparrow.connect(broker.url) as client:
        message: dict[str, Any] = {
            "body": "ImhlbGxvIg==",
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {},
            "properties": {"body_encoding": "base64", "delivery_info": {}, "delivery_tag": "1"},
        }
        await client.queue("letters", policy={"lease": "1s"}).publish(json.dumps(message).encode())
        pipe = asyncio.subprocess.PIPE
        taker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", TAKER, broker.url, stdin=pipe, stdout=pipe
        )
        assert taker.stdout is not None
        try:
            assert await taker.stdout.readline() == b"hello\n"
        finally:
            taker.kill()
            await taker.communicate()
        async with asyncio.timeout(WAIT_S):
            async for job in client.queue("letters"):
                assert job.delivery_count == 2
                await job.ack()
                break
