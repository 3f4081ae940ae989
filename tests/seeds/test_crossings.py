"""Messages between diy_message_broker, messagebroker, mbus and other listeners in both directions,
and the messages that survive a kill -9.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import confluent_kafka
import pytest

import sparrow
import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.seeds import mbus_client
from tests.seeds.diy_client import CONSUME, CONSUME_EMPTY, DiyClient
from tests.seeds.listeners import Wire
from tests.seeds.messagebroker_client import CURRENT, Publisher, Subscriber

pytestmark = pytest.mark.slow
LISTENERS = {
    "seeds_diy_port": 0,
    "seeds_messagebroker_port": 0,
    "seeds_mbus_port": 0,
    "seeds_mbus_consumer_port": 0,
}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(http_port=0, **LISTENERS) as running:
        yield running


@pytest.fixture(autouse=True)
async def wires() -> AsyncIterator[None]:
    yield
    while Wire.opened:
        await Wire.opened.pop().close()


def port(running: RunningBroker, name: str) -> int:
    return running.seeds[name][1]


async def send_by_all(running: RunningBroker, topic: str) -> list[bytes]:
    """Send one message with each seed, one after the other; each is durable, or at least in the
    log, when the next is sent.
    """
    name = topic.encode()
    diy = await DiyClient.connect(port(running, "diy_message_broker"))
    diy.publish(name, b"by diy", b"key")
    await diy.goodbye()
    subscriber = await Subscriber.connect(port(running, "messagebroker"), topic, start=CURRENT)
    publisher = await Publisher.connect(port(running, "messagebroker"))
    publisher.publish(name, b"by messagebroker")
    assert await subscriber.take() == [b"by messagebroker"]
    await subscriber.wire.close()
    await mbus_client.produce(port(running, "mbus"), name, b"by mbus")
    return [b"by diy", b"by messagebroker", b"by mbus"]


async def take_by_all(running: RunningBroker, topic: str, count: int) -> list[list[bytes]]:
    """Read all messages with each seed."""
    name = topic.encode()
    diy = await DiyClient.connect(port(running, "diy_message_broker"))
    taken = [[(await diy.consume(name)).data for _ in range(count)]]
    assert (await diy.consume(name)).type == CONSUME_EMPTY
    subscriber = await Subscriber.connect(port(running, "messagebroker"), topic)
    taken.append(await subscriber.take(count))
    await subscriber.wire.close()
    taken.append(await mbus_client.consume(port(running, "mbus_consumer"), name))
    return taken


def read_by_kafka(running: RunningBroker, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": running.kafka, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        messages = [consumer.poll(10) for _ in range(count)]
    finally:
        consumer.close()
    return [(message.key(), message.value()) for message in messages if message is not None]


def read_by_http(running: RunningBroker, topic: str) -> list[str]:
    with urllib.request.urlopen(f"{running.http}/v1/topics/{topic}/messages?from=beginning") as response:
        return [message["value"] for message in json.load(response)["messages"]]


async def test_in_by_each_seed_out_by_each_seed_kafka_native_and_http(running: RunningBroker) -> None:
    sent = await send_by_all(running, "crossing")
    assert await take_by_all(running, "crossing", 3) == [sent] * 3
    by_kafka = await asyncio.to_thread(read_by_kafka, running, "crossing", 3)
    assert by_kafka == [(b"key", sent[0]), (None, sent[1]), (None, sent[2])]
    values = []
    async with (
        sparrow.connect(running.url) as client,
        client.subscribe("crossing", start="beginning") as messages,
    ):
        async for message in messages:
            values.append(message.value)
            if len(values) == len(sent):
                break
    assert values == sent
    by_http = await asyncio.to_thread(read_by_http, running, "crossing")
    assert by_http == [value.decode() for value in sent]


async def test_in_by_kafka_and_native_out_by_each_seed(running: RunningBroker) -> None:
    async with sparrow.connect(running.url) as client:
        await client.admin.create_topic("inward", partitions=1)
        await client.publish("inward", b"by a native client")
    producer = confluent_kafka.Producer({"bootstrap.servers": running.kafka, "compression.type": "gzip"})
    for number in range(3):
        producer.produce("inward", b"by kafka %d" % number, key=b"k", headers=[("h", b"v")])
    await asyncio.to_thread(producer.flush, 10)
    expected = [b"by a native client", *(b"by kafka %d" % number for number in range(3))]
    assert await take_by_all(running, "inward", 4) == [expected] * 3


async def test_records_of_a_transaction_come_when_it_is_committed(running: RunningBroker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": running.kafka, "transactional.id": "t"})
    await asyncio.to_thread(producer.init_transactions, 10)
    async with sparrow.connect(running.url) as client:
        await client.admin.create_topic("atomic", partitions=1)
    for value, is_kept in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce("atomic", value)
        await asyncio.to_thread(producer.flush, 10)
        if is_kept:
            assert await mbus_client.consume(port(running, "mbus_consumer"), b"atomic") == []
        end = producer.commit_transaction if is_kept else producer.abort_transaction
        await asyncio.to_thread(end, 10)
    subscriber = await Subscriber.connect(port(running, "messagebroker"), "atomic")
    assert await subscriber.take() == [b"committed"]
    assert await subscriber.wire.is_silent()
    diy = await DiyClient.connect(port(running, "diy_message_broker"))
    assert (await diy.consume(b"atomic")).data == b"committed"


async def publish_and_stay(running: RunningBroker) -> list[Wire]:
    """Open publishers that have sent something and wait for the end of their connection; the broker
    has read it.
    """
    diy = await DiyClient.connect(port(running, "diy_message_broker"))
    diy.publish(b"staying", b"x")
    publisher = await Publisher.connect(port(running, "messagebroker"))
    publisher.publish(b"staying", b"x")
    subscriber = await Subscriber.connect(port(running, "messagebroker"), "staying")
    assert await subscriber.take(2) == [b"x", b"x"]
    mbus = await Wire.open(port(running, "mbus"))
    mbus.send(mbus_client.message(b"staying", b"x")[:-1])
    return [diy.wire, publisher.wire, mbus]


async def test_after_a_kill_everything_that_was_taken_is_there(tmp_path: Path) -> None:
    with sparrow.testing.broker(process=True, data_dir=str(tmp_path), **LISTENERS) as running:
        sent = await send_by_all(running, "kept")
        diy = await DiyClient.connect(port(running, "diy_message_broker"))
        assert (await diy.consume(b"kept")).data == sent[0]
        for number in range(2000):
            diy.publish(b"many", b"%d" % number)
        await diy.goodbye()
        for number in range(20):
            await mbus_client.produce(port(running, "mbus"), b"more", b"%d" % number)
        publishers = await publish_and_stay(running)
        running.kill()
        for wire in publishers:  # closing them would confirm that the messages are stored
            with pytest.raises(ConnectionResetError):
                await wire.reader.read()
        running.restart()
        diy = await DiyClient.connect(port(running, "diy_message_broker"))
        responses = [await diy.consume(b"kept") for _ in range(3)]
        assert [response.data for response in responses] == [*sent[1:], b""]
        assert responses[-1].type == CONSUME_EMPTY
        assert (await diy.consume(b"many")).type == CONSUME
        subscriber = await Subscriber.connect(port(running, "messagebroker"), "many")
        assert await subscriber.take(2000) == [b"%d" % number for number in range(2000)]
        lines = await mbus_client.consume(port(running, "mbus_consumer"), b"more")
        assert lines == [b"%d" % number for number in range(20)]


async def test_kill_while_consuming_loses_at_most_messages_in_flight(tmp_path: Path) -> None:
    with sparrow.testing.broker(process=True, data_dir=str(tmp_path), **LISTENERS) as running:
        diy = await DiyClient.connect(port(running, "diy_message_broker"))
        for number in range(500):
            diy.publish(b"jobs", b"%d" % number)
        got: list[int] = []

        async def consume() -> None:
            while (response := await diy.consume(b"jobs")).type == CONSUME:
                got.append(int(response.data))
                if len(got) == 50:
                    running.kill()

        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await consume()
        running.restart()
        diy = await DiyClient.connect(port(running, "diy_message_broker"))
        while (response := await diy.consume(b"jobs")).type == CONSUME:
            got.append(int(response.data))
        assert got == sorted(set(got))  # no message was delivered twice, and all in order
        assert set(range(500)) - set(got) <= {got[49] + 1}
