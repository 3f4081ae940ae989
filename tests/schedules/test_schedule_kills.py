"""A real broker that is killed -9 again and again while schedules are due each second."""

from __future__ import annotations

import asyncio
import random

import pytest

import sparrow.testing
from sparrow.client import Client
from sparrow.records.wellknown import SCHEDULE_NAME, SCHEDULE_TIME
from tests.crash.publisher import connect_eagerly

KILLS = 5
SCHEDULES = 5


async def collect(client: Client, found: list[tuple[str, int]]) -> None:
    """Add (schedule, tick) of all jobs, until cancelled."""
    async with client.subscribe("jobs", start="beginning") as subscription:
        async for message in subscription:
            headers = dict(message.headers)
            found.append(((headers[SCHEDULE_NAME] or b"").decode(), int(headers[SCHEDULE_TIME] or b"")))


async def until(found: list[tuple[str, int]], count: int) -> None:
    async with asyncio.timeout(60):
        while len(found) < count:
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_each_tick_is_one_job_over_kills() -> None:
    dice = random.Random(7)
    with sparrow.testing.broker(process=True) as broker:
        async with await connect_eagerly(broker.url) as client:
            await client.admin.create_queue("jobs", partitions=2)
            for number in range(SCHEDULES):
                await client.admin.put_schedule(f"s{number}", "jobs", every="1s", misfire="run_all")
            found: list[tuple[str, int]] = []
            collector = asyncio.create_task(collect(client, found))
            for _ in range(KILLS):
                await asyncio.sleep(dice.uniform(0.6, 1.4))
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.restart)
            await until(found, SCHEDULES * (KILLS + 2))
            for number in range(SCHEDULES):
                await client.admin.pause_schedule(f"s{number}")
            await until(found, sum(each.offset for each in await client.admin.offsets("jobs", "end")))
            collector.cancel()
            await asyncio.gather(collector, return_exceptions=True)
    assert len(found) == len(set(found)), "a tick was published twice"
    for number in range(SCHEDULES):
        ticks = sorted(tick for name, tick in found if name == f"s{number}")
        assert ticks == list(range(ticks[0], ticks[-1] + 1, 1000)), "a tick was lost"
