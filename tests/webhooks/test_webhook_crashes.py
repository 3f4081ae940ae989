"""A real broker that is killed (-9) or stopped during deliveries."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

import sparrow.testing
from tests.crash.publisher import connect_eagerly
from tests.webhooks.endpoints import EndpointServer, Got, http_response

COUNT = 300
KILLS = 3
CONCURRENCY = 4


@pytest.mark.slow
async def test_kill_9_loses_nothing_and_acknowledged_deliveries_do_not_come_again() -> None:
    dice = random.Random(5)

    async def slowly(_: Got) -> bytes:
        await asyncio.sleep(dice.choice([0, 0.001, 0.02]))
        return http_response(500) if dice.random() < 0.02 else http_response()

    with sparrow.testing.broker(process=True, webhooks_allow=("127.0.0.1",)) as broker:
        async with EndpointServer(slowly) as server, await connect_eagerly(broker.url) as client:
            await client.admin.create_queue("jobs", policy={"delivery_limit": 250}, partitions=2)
            await client.admin.put_webhook("jobs", "hook", server.url, concurrency=CONCURRENCY, backoff_ms=1)
            await asyncio.gather(*(client.publish("jobs", b"%d" % n, partition=n % 2) for n in range(COUNT)))
            for kill in range(1, KILLS + 1):
                await server.until(COUNT * kill // (KILLS + 2), timeout_s=30)
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.restart)
            async with asyncio.timeout(20):  # leases of 30 s would delay them
                while (await client.admin.describe_queue("jobs")).statistics.unfinished:
                    await asyncio.sleep(0.02)
            came = Counter(server.bodies)
            assert set(came) == {b"%d" % number for number in range(COUNT)}
            # Delivered again: records that were refused, in delivery, or acknowledged but not yet
            # stored when the broker was killed.
            assert came.total() < COUNT * 1.5
            await client.admin.purge_queue("jobs")  # of nothing: all before it is on stable storage then
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.restart)
            await client.publish("jobs", b"last", partition=0)
            await server.until(came.total() + 1)
            assert Counter(server.bodies) == came + Counter([b"last"])


@pytest.mark.slow
async def test_stop_finishes_running_deliveries() -> None:
    async def slowly(_: Got) -> bytes:
        await asyncio.sleep(0.05)
        return http_response()

    with sparrow.testing.broker(process=True, webhooks_allow=("127.0.0.1",)) as broker:
        async with EndpointServer(slowly) as server, await connect_eagerly(broker.url) as client:
            await client.admin.create_queue("jobs")
            await client.admin.put_webhook("jobs", "hook", server.url, concurrency=CONCURRENCY)
            await asyncio.gather(*(client.publish("jobs", b"%d" % number) for number in range(40)))
            await server.until(10)
            await asyncio.to_thread(broker.restart)
            await server.until(40)
            async with asyncio.timeout(10):
                while (await client.admin.describe_queue("jobs")).statistics.unfinished:
                    await asyncio.sleep(0.02)
    assert Counter(server.bodies) == Counter(b"%d" % number for number in range(40))
    assert {got["sparrow-delivery-count"] for got in server.got} == {"1"}
