"""Every message that is published by the client of one seed, or of Kafka, is delivered to the
clients of all others.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator

import confluent_kafka
import pytest

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.seeds import mbus_client
from tests.seeds.diy_client import DiyClient
from tests.seeds.messagebroker_client import CURRENT, Publisher, Subscriber
from tests.seeds.msbq_client import MsbqClient
from tests.seeds.syncbrok_client import SyncbrokClient
from tests.webhooks.endpoints import EndpointServer, http_response

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("wires")]
SENT = [b"by kafka", b"by diy", b"by messagebroker", b"by mbus", b"by msbq", b"by syncbrok"]


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(
        seeds_diy_port=0,
        seeds_messagebroker_port=0,
        seeds_mbus_port=0,
        seeds_mbus_consumer_port=0,
        seeds_msbq_port=0,
        seeds_syncbrok_port=0,
        default_partitions=1,
    ) as running:
        yield running


async def send_by_all(running: RunningBroker, topic: str) -> None:
    """Send one message with each client; each is in the topic when the next is sent."""
    port = {name: port for name, (_, port) in running.seeds.items()}
    name = topic.encode()
    producer = confluent_kafka.Producer({"bootstrap.servers": running.kafka})
    producer.produce(topic, b"by kafka")
    assert await asyncio.to_thread(producer.flush, 10) == 0
    diy = await DiyClient.connect(port["diy_message_broker"])
    diy.publish(name, b"by diy")
    await diy.goodbye()
    subscriber = await Subscriber.connect(port["messagebroker"], topic, start=CURRENT)
    publisher = await Publisher.connect(port["messagebroker"])
    publisher.publish(name, b"by messagebroker")
    assert await subscriber.take() == [b"by messagebroker"]
    await mbus_client.produce(port["mbus"], name, b"by mbus")
    msbq = await MsbqClient.connect(port["msbq"])
    msbq.publish(topic, b"by msbq")
    assert await subscriber.take(2) == [b"by mbus", b"by msbq"]
    await (await SyncbrokClient.connect(port["syncbrok"])).publish(topic, b"by syncbrok")


async def take_by_those_that_share_no_queue(running: RunningBroker, topic: str) -> dict[str, list[bytes]]:
    port = {name: port for name, (_, port) in running.seeds.items()}
    diy = await DiyClient.connect(port["diy_message_broker"])
    subscriber = await Subscriber.connect(port["messagebroker"], topic)
    return {
        "kafka": await asyncio.to_thread(take_by_kafka, running, topic),
        "diy": [(await diy.consume(topic.encode())).data for _ in SENT],
        "messagebroker": await subscriber.take(len(SENT)),
        "mbus": await mbus_client.consume(port["mbus_consumer"], topic.encode()),
    }


def take_by_kafka(running: RunningBroker, topic: str) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": running.kafka, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        messages = [consumer.poll(10) for _ in SENT]
    finally:
        consumer.close()
    return [message.value() or b"" for message in messages if message is not None]


async def test_in_by_each_out_by_each_with_msbq(running: RunningBroker) -> None:
    await send_by_all(running, "pairs")
    for taker, taken in (await take_by_those_that_share_no_queue(running, "pairs")).items():
        assert taken == SENT, taker
    msbq = await MsbqClient.connect(running.seeds["msbq"][1])
    msbq.consume("pairs")
    assert await msbq.bodies(len(SENT)) == SENT


async def test_in_by_each_out_by_each_with_syncbrok(running: RunningBroker) -> None:
    """Syncbrok's queue has the same name as that of msbq, and subscribers."""
    await send_by_all(running, "hooked")
    for taker, taken in (await take_by_those_that_share_no_queue(running, "hooked")).items():
        assert taken == SENT, taker
    async with EndpointServer(http_response(200, b"true")) as endpoint:
        client = await SyncbrokClient.connect(running.seeds["syncbrok"][1])
        await client.queue("hooked")
        await client.subscribe("hooked", endpoint.url)
        got = await endpoint.until(len(SENT))
    assert sorted(base64.b64decode(each.json["content"]) for each in got) == sorted(SENT)
