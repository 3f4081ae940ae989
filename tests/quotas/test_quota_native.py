"""Quotas in the native protocol: clients are throttled, never refused, and stay connected."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.quotas.rules import QuotaChange
from sparrow.frontends.native.connection import NativeConnection
from sparrow.protocol.native import messages as m
from tests.native_frontend.raw import Listener, OpenListener, values_of

KB = b"x" * 1000


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data", config=BrokerConfig(default_partitions=1)) as running:
        await running.topics.create("orders")
        yield running


@pytest_asyncio.fixture
async def listener(broker: Broker) -> AsyncIterator[Listener]:
    opener = OpenListener()
    yield await opener(broker, idle_timeout_ms=600)
    await opener.close()


async def limit(broker: Broker, client: str, **values: float) -> None:
    (refused,) = await broker.quotas.alter([QuotaChange((("client-id", client),), tuple(values.items()))])
    assert refused is None


@pytest.mark.slow
async def test_a_publisher_over_its_quota_is_confirmed_and_not_heard_for_a_while(
    broker: Broker, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[m.Head] = []
    send = NativeConnection.send

    def noted(session: NativeConnection, head: m.Head, *rest: Any) -> None:
        sent.append(head)
        send(session, head, *rest)

    monkeypatch.setattr(NativeConnection, "send", noted)
    await limit(broker, "fast", producer_byte_rate=2_000.0)
    client = await listener.client(client_name="fast")
    await client.open_producer()
    begun = time.monotonic()
    confirmation = await client.publish("orders", *[KB] * 21)
    assert confirmation.base_offset == 0
    client.send(m.Ping(7))
    assert (await client.receive()).head == m.Pong(7)
    assert time.monotonic() - begun >= 0.4
    assert m.Ping(0) in sent, "so that the client knows that the broker is alive"
    assert (await client.publish("orders", b"later")).base_offset == 21


async def test_others_publish_meanwhile(broker: Broker, listener: Listener) -> None:
    await limit(broker, "fast", producer_byte_rate=1.0)
    fast, slow = await listener.client(client_name="fast"), await listener.client(client_name="slow")
    await fast.open_producer()
    await slow.open_producer()
    await fast.publish("orders", *[KB] * 21)
    for number in range(5):
        assert (await slow.publish("orders", b"x")).base_offset == 21 + number


async def test_a_connection_that_is_throttled_can_end(broker: Broker, listener: Listener) -> None:
    await limit(broker, "fast", producer_byte_rate=1.0)
    client = await listener.client(client_name="fast")
    await client.open_producer()
    await client.publish("orders", *[KB] * 21)
    client.close()
    other = await listener.client()
    await other.call("broker.describe")


async def test_a_subscriber_over_its_quota_gets_the_rest_later(broker: Broker, listener: Listener) -> None:
    writer = await listener.client(client_name="writer")
    await writer.open_producer()
    for _ in range(12):
        await writer.publish("orders", *[KB] * 10)
    await limit(broker, "reader", consumer_byte_rate=10_000.0)
    reader = await listener.client(client_name="reader")
    begun = time.monotonic()
    await reader.subscribe("orders", credit_bytes=1 << 30)
    await reader.expect(m.Assigned, 2)
    values: list[bytes | None] = []
    while len(values) < 120:
        event = await reader.receive()
        if isinstance(event.head, m.Deliver):
            assert event.batches is not None
            values += values_of(bytes(event.batches), event.head.offset)
            if len(values) == 110:
                await limit(broker, "reader", consumer_byte_rate=1e9)
    assert values == [KB] * 120
    assert time.monotonic() - begun >= 0.1


@pytest.mark.slow
async def test_a_pull_over_the_quota_waits(broker: Broker, listener: Listener) -> None:
    writer = await listener.client(client_name="writer")
    await writer.open_producer()
    await writer.publish("orders", *[KB] * 21)
    await limit(broker, "reader", consumer_byte_rate=2_000.0)
    reader = await listener.client(client_name="reader")
    await reader.subscribe("orders", push=False)
    await reader.expect(m.Assigned, 2)
    begun = time.monotonic()
    for ref in (1, 2):
        reader.send(m.Pull(ref, 0, 1 << 20, 0), 2)
        while not isinstance((await reader.receive()).head, m.Pulled):
            pass
    assert time.monotonic() - begun >= 0.4


async def test_without_quotas_nothing_is_counted(broker: Broker, listener: Listener) -> None:
    client = await listener.client(client_name="any")
    await client.open_producer()
    await client.publish("orders", *[KB] * 100)
    assert broker.quotas._rates == {}
    await asyncio.sleep(0)
