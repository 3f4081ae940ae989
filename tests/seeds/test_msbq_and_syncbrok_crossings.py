"""Messages between msbq, Syncbrok and other listeners in both directions, and the messages that
survive a kill -9.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import confluent_kafka
import pytest

import sparrow
import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.seeds.listeners import Wire
from tests.seeds.msbq_client import MsbqClient
from tests.seeds.syncbrok_client import SyncbrokClient
from tests.webhooks.endpoints import EndpointServer, Got, http_response

pytestmark = pytest.mark.slow
Headers = list[tuple[str, bytes]]


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(seeds_msbq_port=0, seeds_syncbrok_port=0) as running:
        yield running


@pytest.fixture(autouse=True)
async def wires() -> AsyncIterator[None]:
    yield
    while Wire.opened:
        await Wire.opened.pop().close()


async def msbq(running: RunningBroker) -> MsbqClient:
    return await MsbqClient.connect(running.seeds["msbq"][1])


async def taken(client: MsbqClient) -> None:
    """Wait until the earlier messages of the client are in the broker: a connection is handled in
    order.
    """
    client.consume("taken")
    client.publish("taken", b"")
    await client.get()


async def syncbrok(running: RunningBroker) -> SyncbrokClient:
    return await SyncbrokClient.connect(running.seeds["syncbrok"][1])


async def by_kafka(running: RunningBroker, topic: str, count: int) -> list[tuple[bytes | None, Headers]]:
    """Return the first messages of a topic, as librdkafka reads them."""
    return await asyncio.to_thread(_by_kafka, running, topic, count)


def _by_kafka(running: RunningBroker, topic: str, count: int) -> list[tuple[bytes | None, Headers]]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": running.kafka, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        messages = [consumer.poll(10) for _ in range(count)]
    finally:
        consumer.close()
    assert all(message is not None and message.error() is None for message in messages)
    return [(message.value(), message.headers() or []) for message in messages if message is not None]


def content_of(got: Got) -> bytes:
    return base64.b64decode(got.json["content"])


async def test_in_by_msbq_out_by_kafka_a_worker_and_a_webhook(running: RunningBroker) -> None:
    client = await msbq(running)
    client.publish("jobs", b"first", b"second", kind="P2P")
    await taken(client)
    values = []
    async with sparrow.connect(running.url) as native, native.queue("jobs") as queue:
        async for job in queue:
            values.append(job.value)
            await job.ack()
            if len(values) == 2:
                break
    assert values == [b"first", b"second"]
    header = [("msbq-type", b"P2P")]
    assert await by_kafka(running, "jobs", 2) == [(b"first", header), (b"second", header)]
    async with EndpointServer(http_response(200, b"true")) as endpoint:
        await (await syncbrok(running)).subscribe("jobs", endpoint.url)
        client.publish("jobs", b"third")
        assert content_of((await endpoint.until(1))[0]) == b"third"


async def test_in_by_kafka_and_native_out_by_msbq(running: RunningBroker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": running.kafka})
    producer.produce("jobs", b"by kafka", key=b"k")
    producer.flush(10)
    client = await msbq(running)
    client.consume("jobs", "PUBSUB", stream="s")
    assert await client.get() == ("s", b"by kafka")
    async with sparrow.connect(running.url) as native:
        await native.queue("jobs").publish(b"by a native client")
    assert await client.get() == ("s", b"by a native client")


async def test_in_by_syncbrok_out_by_kafka_with_ids_and_by_msbq(running: RunningBroker) -> None:
    client = await syncbrok(running)
    parent = (await client.publish("news", b"parent")).encode()
    child = (await client.publish("news", b"child", parent.decode())).encode()
    assert await by_kafka(running, "news", 2) == [
        (b"parent", [("message-id", parent)]),
        (b"child", [("message-id", child), ("parent-id", parent)]),
    ]
    consumer = await msbq(running)
    consumer.consume("news")
    assert await consumer.bodies(2) == [b"parent", b"child"]


async def test_in_by_kafka_out_to_an_endpoint_of_syncbrok_in_causal_order(running: RunningBroker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": running.kafka})
    async with EndpointServer(http_response(200, b"true")) as endpoint:
        await (await syncbrok(running)).subscribe("news", endpoint.url)
        producer.produce("news", b"child", headers=[("parent-id", b"p")])
        producer.produce("news", b"parent", headers=[("message-id", b"p")])
        producer.flush(10)
        assert [content_of(got) for got in await endpoint.until(2)] == [b"parent", b"child"]


async def test_waiting_messages_survive_a_kill_and_parents_still_block_children(tmp_path: Path) -> None:
    with sparrow.testing.broker(
        process=True, data_dir=str(tmp_path), seeds_msbq_port=0, seeds_syncbrok_port=0
    ) as running:
        async with EndpointServer(http_response(200, b"false")) as endpoint:
            client = await syncbrok(running)
            await client.subscribe("news", endpoint.url)
            parent = await client.publish("news", b"parent")
            await client.publish("news", b"child", parent)
            producer = await msbq(running)
            producer.publish("jobs", *(b"%d" % number for number in range(100)))
            await taken(producer)
            assert len(await by_kafka(running, "jobs", 100)) == 100
            await endpoint.until(1)
            running.kill()
            before = len(endpoint.got)
            endpoint.responses = [http_response(200, b"true")]
            running.restart()
            await endpoint.until(before + 2, timeout_s=30)
            assert {content_of(got) for got in endpoint.got[:before]} == {b"parent"}
            assert [content_of(got) for got in endpoint.got[before:]] == [b"parent", b"child"]
        consumer = await msbq(running)
        consumer.consume("jobs")
        assert await consumer.bodies(100) == [b"%d" % number for number in range(100)]


async def test_untaken_messages_are_redelivered_after_a_kill(tmp_path: Path) -> None:
    large = b"x" * 60_000
    with sparrow.testing.broker(process=True, data_dir=str(tmp_path), seeds_msbq_port=0) as running:
        deaf = await msbq(running)
        deaf.consume("jobs")
        deaf.wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        producer = await msbq(running)
        producer.publish("jobs", *(large + b"%03d" % number for number in range(150)))
        await taken(producer)
        assert len(await by_kafka(running, "jobs", 150)) == 150
        running.kill()
        running.restart()
        consumer = await msbq(running)
        consumer.consume("jobs")
        last = b""
        while last != b"149":
            body = (await consumer.bodies(1))[0]
            assert last == b"" or int(body[-3:]) == int(last) + 1
            last = body[-3:]
