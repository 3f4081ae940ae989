"""A broker that is killed while a consumer is at work: through a raw connection, so that nothing is
repeated by a client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sparrow.protocol.native import messages as m
from sparrow.testing import broker as running_broker
from sparrow.testing.running_broker import RunningBroker
from tests.native_frontend.raw import RawClient
from tests.queues_native.raw_queues import QUEUE, acked, codes, leased, opened, settled, settlement


@asynccontextmanager
async def _connected(broker: RunningBroker) -> AsyncIterator[RawClient]:
    client = RawClient(*await asyncio.open_connection("127.0.0.1", broker.port))
    try:
        await client.hello()
        yield client
    finally:
        client.close()
        await client.writer.wait_closed()


@pytest.mark.slow
async def test_after_a_kill_settled_records_stay_so_and_leased_records_are_still_leased() -> None:
    with running_broker(process=True) as broker:
        async with _connected(broker) as client:
            await client.call("queue.create", name=QUEUE, partitions=1, policy={"lease_ms": 600_000})
            await client.open_producer()
            await client.publish(QUEUE, *[b"%d" % n for n in range(10)])
            await opened(client, push=False, consumer_id="worker-1")
            assert len(await leased(client, 6, wait_ms=10_000)) == 6
            await acked(client, (0, 1), 4)
            assert await settled(client, settlement(m.SettleVerb.RETURN, 5)) == []
            await asyncio.to_thread(broker.kill)
            assert await client.at_eof()
        await asyncio.to_thread(broker.restart)
        async with _connected(broker) as other:
            await opened(other, push=False)
            found: list[tuple[int, bytes, int]] = []
            while len(found) < 5:
                found += await leased(other, 100, wait_ms=60_000)
            assert found == [(n, b"%d" % n, 1) for n in range(5, 10)]
        async with _connected(broker) as again:
            await opened(again, push=False, consumer_id="worker-1")
            failures = await settled(again, settlement(m.SettleVerb.ACK, 2, 0, 3))
            assert codes(failures) == [(0, 1, "NOT_LEASED")]
