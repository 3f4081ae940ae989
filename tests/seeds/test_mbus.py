"""Message Bus (mbus): bytes, behaviour, and additions of Sparrow."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Mapping

import msgspec
import pytest

from sparrow.broker.broker import Broker
from tests.seeds.listeners import OpenListeners, Wire, publish, records, stored, until
from tests.seeds.mbus_client import binary, consume, message, produce, send, text

Ports = Mapping[str, int]


@pytest.fixture
async def ports(open_listeners: OpenListeners) -> Ports:
    return await open_listeners("mbus", "mbus_consumer")


@pytest.fixture
def producers(ports: Ports) -> int:
    return ports["mbus"]


@pytest.fixture
def consumers(ports: Ports) -> int:
    return ports["mbus_consumer"]


async def test_the_bytes_of_a_message_and_of_its_line(producers: int, consumers: int) -> None:
    producer = await Wire.open(producers)
    producer.send(b"\x82\xa5Topic\xa6orders\xa4Data\xc4\x16look ma! a new order.\x00")
    producer.writer.write_eof()
    assert await producer.read_to_end() == b""
    consumer = await Wire.open(consumers)
    consumer.send(b"orders\n")
    assert await consumer.read_to_end() == b"look ma! a new order.\x00\n"


async def test_the_topic_is_created_with_one_partition(producers: int, broker: Broker) -> None:
    await produce(producers, b"orders", b"x")
    assert broker.topics.describe("orders").partition_count == 1


async def test_messages_come_in_order_once_and_to_one_consumer(producers: int, consumers: int) -> None:
    for number in range(30):
        await produce(producers, b"orders", b"%d" % number)
    assert await consume(consumers, b"orders") == [b"%d" % number for number in range(30)]
    assert await consume(consumers, b"orders") == []
    await produce(producers, b"orders", b"more")
    assert await consume(consumers, b"orders") == [b"more"]


async def test_a_producer_that_does_not_wait_is_heard_in_the_order_of_its_connections(
    producers: int, consumers: int, open_listeners: OpenListeners
) -> None:
    """The first connects before it has sent anything; the second connects when the first has sent
    everything.
    """
    first = socket.create_connection(("127.0.0.1", producers))
    listener = open_listeners.frontends[0]._ports[0]
    await until(lambda: listener._slow)  # type: ignore[attr-defined]
    first.sendall(message(b"orders", b"1"))
    first.close()
    with socket.create_connection(("127.0.0.1", producers)) as second:
        second.sendall(message(b"orders", b"2"))
    async with asyncio.timeout(5):
        found: list[bytes] = []
        while len(found) < 2:
            found += await consume(consumers, b"orders")
    assert found == [b"1", b"2"]


async def test_consumers_at_the_same_time_share(producers: int, consumers: int, broker: Broker) -> None:
    await produce(producers, b"orders", b"first")
    await publish(broker, "orders", *(b"%d" % number for number in range(5000)))
    taken = await asyncio.gather(*(consume(consumers, b"orders") for _ in range(4)))
    assert sorted(line for lines in taken for line in lines) == sorted(
        [b"first"] + [b"%d" % number for number in range(5000)]
    )


async def test_the_connection_is_closed_when_the_message_is_on_stable_storage(
    producers: int, broker: Broker
) -> None:
    await produce(producers, b"orders", b"x")
    assert broker.parts.topic_registry.get("orders").partition(0).log.durable_offset == 1


async def test_the_connection_is_reset_when_the_message_is_not_kept(producers: int, broker: Broker) -> None:
    await broker.topics.create("small", 1, {"max.message.bytes": "200"})
    wire = await send(producers, message(b"small", b"x" * 300))
    with pytest.raises(ConnectionResetError):
        await wire.reader.read()


async def test_a_producer_that_closes_at_once_is_heard(producers: int, broker: Broker) -> None:
    def original() -> None:
        with socket.create_connection(("127.0.0.1", producers)) as connection:
            connection.sendall(message(b"orders", b"x"))

    for _ in range(20):
        await asyncio.to_thread(original)
    assert len(await records(broker, "orders", 20)) == 20


@pytest.mark.parametrize(
    "data",
    [
        message(b"t", b"data"),
        b"\x82" + text(b"topic") + text(b"t") + text(b"data") + text(b"data"),
        b"\x82" + text(b"Data") + binary(b"data") + text(b"Topic") + binary(b"t"),
        b"\x82" + binary(b"TOPIC") + text(b"t") + binary(b"DATA") + binary(b"data"),
        b"\xde\x00\x02" + text(b"Topic") + text(b"t") + text(b"Data") + b"\xc5\x00\x04data",
        b"\xdf\x00\x00\x00\x02" + text(b"Topic") + b"\xd9\x01t" + text(b"Data") + b"\xdb\x00\x00\x00\x04data",
        msgspec.msgpack.encode(
            {"Topic": "t", "Id": -7, "x": None, "y": 1.5, "z": 1 << 60, "Data": b"data", "w": "w"}
        ),
    ],
)
async def test_names_and_types_may_differ(producers: int, consumers: int, data: bytes) -> None:
    wire = await send(producers, data)
    assert await wire.read_to_end() == b""
    assert await consume(consumers, b"t") == [b"data"]


@pytest.mark.parametrize(
    "data", [b"\x81" + text(b"Topic") + text(b"t"), msgspec.msgpack.encode({"Topic": "t", "Data": None})]
)
async def test_a_message_without_data_is_an_empty_one(producers: int, consumers: int, data: bytes) -> None:
    await send(producers, data)
    await produce(producers, b"t", b"")
    assert await consume(consumers, b"t") == [b"", b""]


GARBAGE = [
    b"\x00",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x80",
    b"\x81" + text(b"Data") + text(b"x"),
    b"\x82" + text(b"Topic") + b"\xc0" + text(b"Data") + text(b"x"),
    b"\x82" + text(b"Topic") + b"\x07" + text(b"Data") + text(b"x"),
    b"\x82" + text(b"Topic") + text(b"t") + text(b"Data") + b"\x92\x01\x02",
    b"\x82" + text(b"Topic") + text(b"t") + text(b"Data") + b"\xd4\x01\x00",
    b"\x83" + text(b"Topic") + text(b"t") + text(b"Data") + text(b"x") + text(b"more") + b"\x90",
    b"\x83" + text(b"Topic") + text(b"t") + text(b"Data") + text(b"x") + b"\x05\x05",
    message(b"t", b"x") + b"\x00",
    message(b"t", b"x") * 2,
    message(b"t", b"x")[:-1],
    message(b"t", b"x")[:8],
    b"\x82" + text(b"Topic") + text(b"t") + text(b"Data") + b"\xc6\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\x81" * 5000,
]


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_is_refused_with_a_line_in_the_log(
    producers: int, broker: Broker, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "sparrow.seeds"):
        wire = await send(producers, garbage)
        assert await wire.read_to_end() == b""
    assert [record.name for record in caplog.records] == ["sparrow.seeds"]
    assert not list(broker.parts.topic_registry)
    await produce(producers, b"t", b"still there")


async def test_a_connection_without_a_word_is_nothing(
    producers: int, consumers: int, caplog: pytest.LogCaptureFixture
) -> None:
    for port in (producers, consumers):
        wire = await send(port, b"")
        assert await wire.read_to_end() == b""
    assert not caplog.records


async def test_a_message_over_the_limit_is_refused(open_listeners: OpenListeners, broker: Broker) -> None:
    port = (await open_listeners("mbus", max_message_bytes=1000))["mbus"]
    wire = await send(port, message(b"t", b"x" * 1_000_000))
    await wire.read_to_end()
    assert not list(broker.parts.topic_registry)


async def test_a_slow_producer_ends_after_a_time(open_listeners: OpenListeners) -> None:
    ports = await open_listeners("mbus", "mbus_consumer", idle_timeout_ms=40)
    for port, word in ((ports["mbus"], b"\x82"), (ports["mbus"], b""), (ports["mbus_consumer"], b"orders")):
        wire = await Wire.open(port)
        wire.send(word)
        assert await wire.read_to_end() == b""


async def test_a_producer_that_vanishes_in_the_middle_sends_nothing(producers: int, broker: Broker) -> None:
    wire = await Wire.open(producers)
    wire.send(message(b"t", b"x" * 100)[:50])
    await wire.abort()
    await produce(producers, b"u", b"y")
    assert broker.parts.topic_registry.find("t") is None


async def test_a_topic_that_does_not_exist_has_no_messages_and_is_not_made(
    consumers: int, broker: Broker
) -> None:
    assert await consume(consumers, b"never") == []
    assert not list(broker.parts.topic_registry)


@pytest.mark.parametrize("question", [b"orders", b"orders\r\n", b"orders\nand more"])
async def test_a_question_may_end_otherwise(producers: int, consumers: int, question: bytes) -> None:
    await produce(producers, b"orders", b"x")
    wire = await send(consumers, question)
    assert await wire.read_to_end() == b"x\n"


async def test_a_huge_name_is_refused(consumers: int, producers: int) -> None:
    wire = await Wire.open(consumers)
    wire.send(b"x" * 200_000)
    assert await wire.read_to_end() == b""
    assert await consume(consumers, b"") == []
    await produce(producers, b"n" * 60_000, b"x")
    assert await consume(consumers, b"n" * 60_000) == [b"x"]


async def test_names_may_have_any_characters(producers: int, consumers: int) -> None:
    for name in (b"topic a", b"\xff", "größe".encode()):
        await produce(producers, name, name)
        assert await consume(consumers, name) == [name]


async def test_unread_messages_are_ready_for_the_next_consumer(
    producers: int, consumers: int, broker: Broker
) -> None:
    await broker.topics.create("big", 1)
    for number in range(30):
        await publish(broker, "big", b"%02d" % number + b"x" * 900_000)
    gone = await Wire.open(consumers)
    gone.writer.transport.pause_reading()
    gone.send(b"big\n")
    await until(lambda: broker.parts.queue_registry.find("big.mbus") is not None)
    queue = broker.parts.queue_registry.get("big.mbus")
    await until(lambda: queue.unfinished and queue.consumers)
    await asyncio.sleep(0.1)  # it takes only what fits into the buffers of both sockets
    await gone.abort()
    await until(lambda: not queue.consumers)
    rest = await consume(consumers, b"big")
    assert len(rest) > 10
    assert [line[:2] for line in rest] == [b"%02d" % number for number in range(30 - len(rest), 30)]


async def test_messages_in_flight_at_a_kill_are_ready_at_once(
    producers: int, consumers: int, broker: Broker
) -> None:
    await produce(producers, b"orders", b"1")
    assert await consume(consumers, b"orders") == [b"1"]
    await produce(producers, b"orders", b"2")
    lost = await broker.queues.open_consumer("orders.mbus", consumer_id="mbus-lost")
    living = await broker.queues.open_consumer("orders.mbus", consumer_id="mbus-living")
    assert await lost.lease(1, wait_ms=5000)
    await produce(producers, b"orders", b"3")
    assert await living.lease(1, wait_ms=5000)
    lost.end(None)
    assert await consume(consumers, b"orders") == [b"2"]
    await living.close(release=True)
    assert await consume(consumers, b"orders") == [b"3"]


async def test_records_of_all_partitions_and_without_a_value_are_lines(
    consumers: int, broker: Broker
) -> None:
    await broker.topics.create("t", 2)
    await publish(broker, "t", None, b"two\nlines", key=b"k")
    assert await consume(consumers, b"t") == [b"", b"two", b"lines"]


async def test_messages_survive_a_restart(open_listeners: OpenListeners, broker: Broker) -> None:
    ports = await open_listeners("mbus", "mbus_consumer")
    for data in (b"1", b"2"):
        await produce(ports["mbus"], b"t", data)
    assert await consume(ports["mbus_consumer"], b"t") == [b"1", b"2"]
    await produce(ports["mbus"], b"t", b"3")
    await open_listeners.close()
    await broker.close()
    await broker.start()
    ports = await open_listeners("mbus", "mbus_consumer")
    assert await consume(ports["mbus_consumer"], b"t") == [b"3"]


async def test_drain_keeps_sent_messages(
    producers: int, open_listeners: OpenListeners, broker: Broker
) -> None:
    wires = [await send(producers, message(b"t", b"%d" % number)) for number in range(50)]
    await records(broker, "t", 1)
    half = await Wire.open(producers)
    half.send(b"\x82")
    await open_listeners.close()
    assert len(await stored(broker, "t")) == len([w for w in wires if await w.read_to_end() == b""]) == 50


async def test_lengths_are_big_endian() -> None:
    assert binary(b"ab") == b"\xc6\x00\x00\x00\x02ab"
    assert text(b"x" * 40)[:3] == b"\xda" + struct.pack(">H", 40)
