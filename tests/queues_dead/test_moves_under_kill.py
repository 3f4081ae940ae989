"""A real broker, killed -9 at random moments while records die and while they are sent back; real
workers.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

import pytest

import sparrow.testing
from sparrow.base.errors import SparrowError
from sparrow.client import Client
from tests.crash.publisher import connect_eagerly, read_all
from tests.repetitions import CRASH_ROUNDS

ROUNDS = max(3, CRASH_ROUNDS // 3)
RECORDS = 3000


async def responses(call, *arguments: object, **options: object):
    """Return the broker's response, however often it is killed before."""
    while True:
        with suppress(SparrowError):
            return await call(*arguments, **options)
        await asyncio.sleep(0.02)


async def reject_for_ever(client: Client) -> None:
    while True:
        with suppress(SparrowError):
            async with client.queue("jobs") as queue:
                while True:
                    jobs = await queue.lease(100, wait_s=0.2)
                    for job in jobs:
                        job.reject_nowait(f"number {job.value.decode()}")
                    with suppress(SparrowError):
                        await queue.flush()
        await asyncio.sleep(0.02)


async def redrive_for_ever(client: Client) -> None:
    while True:
        with suppress(SparrowError):
            if not (await client.admin.redrive_progress("jobs")).is_running:
                await client.admin.redrive_queue("jobs")
        await asyncio.sleep(0.01)


async def until_unfinished(client: Client, queue: str, wanted: int) -> None:
    async with asyncio.timeout(120):
        while (await responses(client.admin.describe_queue, queue)).statistics.unfinished != wanted:
            await asyncio.sleep(0.05)


async def with_kills(broker, work, seed: int) -> None:
    """Kill and restart the broker some times during the work."""
    dice = random.Random(seed)
    task = asyncio.create_task(work)
    for _ in range(ROUNDS):
        await asyncio.sleep(dice.uniform(0.05, 0.4))
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.restart)
    await task


async def act(broker) -> tuple[int, int]:
    numbers = [b"%d" % n for n in range(RECORDS)]
    async with await connect_eagerly(broker.url) as client:
        await client.admin.create_queue("jobs", policy={"lease_ms": 1000, "delivery_limit": 0}, partitions=2)
        async with client.producer() as producer:
            for number in numbers:
                await producer.send("jobs", number)
        rejecting = asyncio.create_task(reject_for_ever(client))
        await with_kills(broker, until_unfinished(client, "jobs", 0), seed=1)
        rejecting.cancel()
        died = Counter(each.value for each in await read_all(broker.url, "jobs.dead"))
        assert died == Counter(numbers)
        redriving = asyncio.create_task(redrive_for_ever(client))
        await with_kills(broker, until_unfinished(client, "jobs.dead", 0), seed=2)
        redriving.cancel()
        await asyncio.gather(rejecting, redriving, return_exceptions=True)
        everything = await read_all(broker.url, "jobs")
    sent = [each for each in everything if "redrive-queue" in dict(each.headers)]
    assert Counter(each.value for each in sent) == Counter(numbers)
    return len(died), len(sent)


@pytest.mark.slow
def test_each_record_is_in_exactly_one_place_after_kill_9() -> None:
    with sparrow.testing.broker(process=True) as broker:
        assert asyncio.run(act(broker)) == (RECORDS, RECORDS)


@pytest.mark.slow
def test_a_handler_that_always_fails_sees_its_job_as_often_as_the_limit_says_and_no_more() -> None:
    seen: Counter[bytes] = Counter()

    async def work(url: str) -> None:
        async with sparrow.connect(url) as client:
            await client.admin.create_queue("jobs", policy={"delivery_limit": 3})

            @client.worker("jobs", concurrency=4)
            async def handle(job) -> None:
                seen[job.value] += 1
                if job.value == b"poison":
                    raise RuntimeError("cannot swallow this")

            working = asyncio.create_task(client.run_workers())
            for value in [b"a", b"poison", b"b", b"c"]:
                await client.publish("jobs", value)
            async with asyncio.timeout(60):
                while (await client.admin.describe_queue("jobs")).statistics.dead == 0:
                    await asyncio.sleep(0.02)
                while (await client.admin.describe_queue("jobs")).statistics.unfinished:
                    await asyncio.sleep(0.02)
            await client.stop_workers()
            await working
            (letter,) = await client.admin.peek_queue("jobs.dead")
            headers = dict(letter.headers)
            assert letter.value == b"poison"
            assert headers["dead-letter-reason"] == b"DELIVERY_LIMIT"
            assert headers["dead-letter-delivery-count"] == b"3"
            assert b"cannot swallow this" in headers["dead-letter-error"]

    with sparrow.testing.broker(default_partitions=1) as broker:
        asyncio.run(work(broker.url))
    assert seen == {b"a": 1, b"b": 1, b"c": 1, b"poison": 3}
