"""Lost connections: no message is lost or doubled, and reading continues where it was."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from sparrow.client.client import Client
from sparrow.records.record import Record
from tests.client.conftest import OpenProxy
from tests.client.frontends import Frontend, client_of, everything


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_an_idempotent_producer_loses_and_doubles_nothing_over_a_connection_cut_at_random_bytes(
    frontend: Frontend, open_proxy: OpenProxy, client: Client, seed: int
) -> None:
    await client.admin.create_topic("t", partitions=3)
    proxy = await open_proxy(seed=seed, min_bytes=200, max_bytes=12_000)
    count = 2000
    async with client_of(proxy.url, connect_timeout_s=10) as cut_client:
        async with cut_client.producer(linger_ms=1, batch_bytes=1500) as producer:
            deliveries = [await producer.send("t", b"%06d" % i, partition=i % 3) for i in range(count)]
            placed = await asyncio.gather(*deliveries)
        proxy.never_cut()
    found = await everything(client, "t", count)
    assert proxy.cuts > 2
    assert Counter(m.value for m in found) == Counter(b"%06d" % i for i in range(count))
    assert {(p.partition, p.offset): b"%06d" % i for i, p in enumerate(placed) if p.offset >= 0} == {
        (m.partition, m.offset): m.value for m in found
    }
    for partition in range(3):
        values = [m.value for m in sorted(found, key=lambda m: m.offset) if m.partition == partition]
        assert values == sorted(values)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["push", "pull"])
@pytest.mark.parametrize("seed", range(3))
async def test_a_subscription_hands_out_each_message_once_over_a_connection_cut_at_random_bytes(
    frontend: Frontend, open_proxy: OpenProxy, client: Client, seed: int, mode: str
) -> None:
    await client.admin.create_topic("t", partitions=3)
    count = 3000
    async with client.producer(batch_bytes=2000) as producer:
        for i in range(count):
            await producer.send("t", b"%06d" % i, partition=i % 3)
    proxy = await open_proxy(seed=seed, min_bytes=500, max_bytes=20_000)
    found: list[Record] = []
    async with client_of(proxy.url, connect_timeout_s=10) as cut_client:
        subscription = cut_client.subscribe("t", start="beginning", mode=mode, prefetch_bytes=8000)
        async with subscription as sub, asyncio.timeout(20):
            async for message in sub:
                found.append(message)
                if len(found) == count:
                    break
        proxy.never_cut()
    assert proxy.cuts > 2
    for partition in range(3):
        offsets = [m.offset for m in found if m.partition == partition]
        assert offsets == list(range(count // 3))
