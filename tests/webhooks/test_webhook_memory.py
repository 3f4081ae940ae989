"""Large records in delivery take a limited memory, and every endpoint makes progress."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.frontends.webhook.memory import LeaseMemory, RecordMemory
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from tests.webhooks.conftest import Hooks
from tests.webhooks.endpoints import EndpointServer, Got, http_response


@given(st.lists(st.integers(1, 500), max_size=30))
def test_no_more_is_granted_than_there_is(wanted: list[int]) -> None:
    memory = RecordMemory(1000)
    leases = [LeaseMemory(memory) for _ in wanted]
    granted = [asyncio.run(lease.take(each)) for lease, each in zip(leases, wanted, strict=True)]
    assert sum(granted) == min(sum(wanted), 1000)
    for lease in leases:
        lease.give_back()
    assert memory.room_bytes == 1000
    memory.use(1500)
    assert memory.room_bytes == asyncio.run(LeaseMemory(memory).take(5)) == 0


async def test_large_records_are_delivered_a_few_at_a_time(hooks: Hooks) -> None:
    size, go = 100_000, asyncio.Event()
    hooks.frontend.memory.total_bytes = 3 * size

    async def wait(_: Got) -> bytes:
        await go.wait()
        return http_response()

    async with EndpointServer(wait) as one, EndpointServer(wait) as two:
        for queue in ("one", "two"):
            await hooks.queue(queue)
            for _ in range(10):
                await hooks.publish(b"x" * size, topic=queue)
        await hooks.hook(one.url, queue="one", concurrency=10)
        await one.until(3)
        await hooks.hook(two.url, queue="two", concurrency=10)
        await two.until(1)
        await asyncio.sleep(0.05)
        assert len(one.got) <= 4
        assert len(two.got) == 1
        assert hooks.frontend.memory.used_bytes < 6 * size
        go.set()
        await hooks.done("one")
        await hooks.done("two")
        await hooks.until(lambda: hooks.frontend.memory.used_bytes == 0)


@pytest.mark.slow
async def test_compressed_records_are_unpacked_a_few_at_a_time(hooks: Hooks) -> None:
    size, count, go = 1 << 20, 30, asyncio.Event()
    hooks.frontend.memory.total_bytes = 3 * size

    async def wait(_: Got) -> bytes:
        await go.wait()
        return http_response()

    async with EndpointServer(wait) as server:
        await hooks.queue()
        await hooks.publish(b"first")
        batch = build_batch([bytes(size)], compression=Compression.ZSTD)
        for _ in range(count):
            await hooks.broker.records.publish("jobs", 0, batch)
        await hooks.hook(server.url, concurrency=count)
        await server.until(4)
        await asyncio.sleep(0.05)
        assert len(server.got) <= 5
        assert hooks.frontend.memory.used_bytes < 5 * size
        go.set()
        await hooks.done()
        await hooks.until(lambda: hooks.frontend.memory.used_bytes == 0)
    assert len(server.got) == count + 1
