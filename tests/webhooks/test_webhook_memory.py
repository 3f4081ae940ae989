"""Large records on their way take a bounded memory, and everybody goes on."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.frontends.webhook.memory import Memory
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from tests.webhooks.conftest import Hooks
from tests.webhooks.endpoints import EndpointServer, Got, answer


@given(st.lists(st.integers(1, 500), max_size=30))
def test_no_more_is_granted_than_there_is(wanted: list[int]) -> None:
    memory = Memory(1000)
    granted = [memory.take(each) for each in wanted]
    assert sum(granted) == min(sum(wanted), 1000)
    for each in granted:
        memory.give_back(each)
    assert memory.room_bytes == 1000
    memory.hold(1500)
    assert memory.room_bytes == memory.take(5) == 0


async def test_large_records_are_delivered_a_few_at_a_time(hooks: Hooks) -> None:
    size, go = 100_000, asyncio.Event()
    hooks.door.memory.total_bytes = 3 * size

    async def wait(_: Got) -> bytes:
        await go.wait()
        return answer()

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
        assert hooks.door.memory.held_bytes < 6 * size
        go.set()
        await hooks.done("one")
        await hooks.done("two")
        await hooks.until(lambda: hooks.door.memory.held_bytes == 0)


@pytest.mark.slow
async def test_compressed_records_are_unpacked_a_few_at_a_time(hooks: Hooks) -> None:
    size, count, go = 1 << 20, 30, asyncio.Event()
    hooks.door.memory.total_bytes = 3 * size

    async def wait(_: Got) -> bytes:
        await go.wait()
        return answer()

    async with EndpointServer(wait) as server:
        await hooks.queue()
        await hooks.publish(b"first")
        batch = build_batch([bytes(size)], compression=Compression.ZSTD)
        for _ in range(count):
            await hooks.broker.publish("jobs", 0, batch)
        await hooks.hook(server.url, concurrency=count)
        await server.until(4)
        await asyncio.sleep(0.05)
        assert len(server.got) <= 5
        assert hooks.door.memory.held_bytes < 5 * size
        go.set()
        await hooks.done()
        await hooks.until(lambda: hooks.door.memory.held_bytes == 0)
    assert len(server.got) == count + 1
