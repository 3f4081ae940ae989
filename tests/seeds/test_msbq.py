"""msbq: bytes, behaviour, and additions of Sparrow."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import random
import socket
import struct
import time
import uuid
from pathlib import Path

import pytest

from sparrow.base.errors import UnknownTopic
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.frontends.seeds.msbq import MsbqPort
from tests.corrupt.bad import KINDS
from tests.seeds.listeners import OpenListeners, Wire, publish, records, stored, until
from tests.seeds.msbq_client import MsbqClient, frame, message, queue

NAME = "msbq"


@pytest.fixture
async def port(open_listeners: OpenListeners) -> int:
    return (await open_listeners(NAME))[NAME]


def listener(open_listeners: OpenListeners) -> MsbqPort:
    found = open_listeners.frontends[-1]._ports[0]
    assert isinstance(found, MsbqPort)
    return found


def has_queue(broker: Broker, name: str) -> bool:
    return broker.parts.queue_registry.find(name) is not None


# ── its bytes ─────────────────────────────────────────────────────────────────────────────────────


async def test_the_bytes_of_a_conversation(port: int) -> None:
    wire = await Wire.open(port)
    stream = b"6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    wire.send(
        b"\x75\x00\x00\x00"
        b'{"MessageType":"Queue","Name":"orders","Type":"P2P","Durable":true,"StreamID":"' + stream + b'"}'
    )
    wire.send(
        b"\x5e\x00\x00\x00"
        b'{"MessageType":"EPMessage","Route":"orders","Type":"P2P","Body":"aGVsbG8=","StreamID":"other"}'
    )
    assert await wire.read(4 + 125) == (
        b"\x7d\x00\x00\x00"
        b'{"MessageType":"EPMessage","Route":"orders","Type":"P2P","Body":"aGVsbG8=","StreamID":"'
        + stream
        + b'"}'
    )


async def test_the_bytes_of_an_error(port: int) -> None:
    wire = await Wire.open(port)
    wire.send(b'\x28\x00\x00\x00{"MessageType":"Channel","StreamID":"s"}')
    text = b"the MessageType is 'Channel'; it is Queue or EPMessage"
    expected = b'{"MessageType":"ErrorMessage","Body":"' + base64.b64encode(text) + b'","StreamID":"s"}'
    assert await wire.read(4 + len(expected)) == struct.pack("<I", len(expected)) + expected


async def test_html_characters_are_escaped_as_go_does(port: int) -> None:
    wire = await Wire.open(port)
    wire.send(frame(queue("a<b>&c", stream="<\u2028>")) + frame(message("a<b>&c", b"x")))
    (length,) = struct.unpack("<I", await wire.read(4))
    pushed = await wire.read(length)
    assert b'"Route":"a\\u003cb\\u003e\\u0026c"' in pushed
    assert b'"StreamID":"\\u003c\\u2028\\u003e"' in pushed
    assert json.loads(pushed)["Route"] == "a<b>&c"


async def test_field_names_come_in_any_case_with_nulls_and_unknown_fields(port: int) -> None:
    client = await MsbqClient.connect(port)
    client.wire.send(
        frame(b'{"messagetype":"Queue","NAME":"q","type":"P2P","Extra":[1],"streamid":"mine","Durable":null}')
        + frame(
            b'{"MessageType":"EPMessage","route":"q","Type":null,"body":"aGVs\\r\\nbG8=","MessageSize":7}'
        )
    )
    assert await client.read() == message("q", b"hello", stream="mine")


async def test_a_consumer_message_is_accepted_and_means_nothing(port: int) -> None:
    client = await MsbqClient.connect(port)
    client.wire.send(frame({"MessageType": "Consumer", "Route": "q"}))
    client.wire.send(frame({"MessageType": "ErrorMessage", "Body": "eA==", "StreamID": "s"}))
    stream = client.consume("q")
    client.publish("q", b"x")
    assert await client.get() == (stream, b"x")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "not an object"),
        (b"{}", "MessageType is missing"),
        (b'{"MessageType":null}', "MessageType is missing"),
        (b'{"MessageType":["Queue"]}', "it is Queue or EPMessage"),
        (b'{"MessageType":"EPMessage","Route":"q","Body":"!"}', "Body is not base64"),
        (b'{"MessageType":"EPMessage","Route":"q","Body":"aGk"}', "Body is not base64"),
        (b'{"MessageType":"EPMessage","Route":"q","Body":[1]}', "it is a text in base64"),
        (b'{"MessageType":"EPMessage","Route":7}', "Route is 7; it is a text"),
        (b'{"MessageType":"EPMessage","Body":"aGk="}', "a topic needs a name"),
        (b'{"MessageType":"Queue","Type":"P2P"}', "a topic needs a name"),
        (b'{"MessageType":"Queue","Name":"q","Type":"P2P","Durable":"yes"}', "it is true or false"),
        (b'{"MessageType":"Queue","Name":"q","Type":"FANOUT"}', "it is P2P or PUBSUB"),
        (json.dumps(queue("q" * 250)).encode(), "queue's name is too long"),
        (json.dumps(queue("q", stream="s" * 201)).encode(), "StreamID is too long"),
        (json.dumps(message("q", b"", kind="k" * 250)).encode(), "Type is too long"),
    ],
)
async def test_a_wrong_frame_is_answered_and_the_next_one_counts(
    port: int, content: bytes, said: str
) -> None:
    client = await MsbqClient.connect(port)
    client.wire.send(frame(content))
    assert said in (await client.error())[0]
    stream = client.consume("after")
    client.publish("after", b"fine")
    assert await client.get() == (stream, b"fine")


async def test_an_error_is_long_enough_for_the_original_client(port: int) -> None:
    """The client reads the first 50 bytes of a frame, and then at least 50 more."""
    client = await MsbqClient.connect(port)
    client.wire.send(frame(b"{}"))
    (length,) = struct.unpack("<I", await client.wire.read(4))
    assert length > 100


async def test_a_length_that_lies_is_answered_and_ends_the_connection(port: int) -> None:
    client = await MsbqClient.connect(port)
    client.wire.send(b"\xff\xff\xff\xff" + b"x" * 100_000)
    assert "a frame of 4294967295 bytes was announced" in (await client.error())[0]
    assert await client.wire.read_to_end() == b""


async def test_a_client_that_vanishes_in_mid_frame_leaves_nothing_behind(port: int, broker: Broker) -> None:
    client = await MsbqClient.connect(port)
    client.publish("q", b"whole")
    client.wire.send(frame(message("q", b"half"))[:-3])
    await client.wire.close()
    assert [each.value for each in await records(broker, "q", 1)] == [b"whole"]


async def test_a_client_that_does_not_go_on_with_a_frame_is_cut_off(open_listeners: OpenListeners) -> None:
    ports = await open_listeners(NAME, idle_timeout_ms=40)
    idle, slow = [await MsbqClient.connect(ports[NAME]) for _ in range(2)]
    slow.wire.send(b"\x10\x00\x00\x00{")
    assert await slow.wire.read_to_end() == b""
    stream = idle.consume("q")
    idle.publish("q", b"x")
    assert await idle.get() == (stream, b"x")


@pytest.mark.slow
async def test_garbage_disturbs_no_client(port: int, broker: Broker) -> None:
    seed = random.Random(7)
    good = [frame(queue("g", "PUBSUB", durable=False)), frame(message("g", b"x")), frame(b"{}"), frame(b"")]
    reader = await MsbqClient.connect(port)
    stream = reader.consume("calm")
    for _ in range(100):
        wire = await Wire.open(port)
        spoiled = bytearray(b"".join(seed.choices(good, k=4)) + b"\x00")
        for _ in range(seed.randrange(4)):
            spoiled[seed.randrange(len(spoiled))] = seed.randrange(256)
        wire.send(bytes(spoiled))
        await (wire.abort() if seed.random() < 0.5 else wire.close())
    reader.publish("calm", b"x")
    assert await reader.get() == (stream, b"x")
    await until(lambda: not has_queue(broker, "g"))


# ── queues and streams ────────────────────────────────────────────────────────────────────────────


async def test_messages_wait_while_a_queue_has_no_consumer(port: int) -> None:
    producer = await MsbqClient.connect(port)
    producer.publish("q", *(b"%d" % number for number in range(100)))
    consumer = await MsbqClient.connect(port)
    consumer.consume("q")
    assert await consumer.bodies(100) == [b"%d" % number for number in range(100)]
    producer.publish("q", b"later")
    assert await consumer.bodies(1) == [b"later"]


async def test_p2p_one_stream_gets_each_message_in_rotation(port: int) -> None:
    first, second = [await MsbqClient.connect(port) for _ in range(2)]
    streams = [first.consume("q"), first.consume("q"), second.consume("q")]
    first.publish("other", b"x")  # so the assertions are done
    first.consume("other")
    assert (await first.get())[1] == b"x"
    producer = await MsbqClient.connect(port)
    producer.publish("q", *(b"%d" % number for number in range(30)))
    got = [await client.get() for client, count in ((first, 20), (second, 10)) for _ in range(count)]
    assert sorted(int(body) for _, body in got) == list(range(30))
    assert [sum(stream == each for stream, _ in got) for each in streams] == [10, 10, 10]


async def test_pubsub_each_stream_gets_every_message_in_order(port: int) -> None:
    clients = [await MsbqClient.connect(port) for _ in range(3)]
    streams = [client.consume("news", "PUBSUB") for client in clients for _ in range(2)]
    for client in clients:
        client.consume("ready")
    clients[0].publish("ready", b"", b"", b"")
    for client in clients:
        await client.get()
    clients[0].publish("news", *(b"%d" % number for number in range(50)), kind="PUBSUB")
    for index, client in enumerate(clients):
        got = [await client.get() for _ in range(100)]
        for stream in streams[2 * index : 2 * index + 2]:
            assert [body for each, body in got if each == stream] == [b"%d" % number for number in range(50)]


async def test_a_stream_that_asserts_twice_gets_each_message_once(port: int) -> None:
    client = await MsbqClient.connect(port)
    for _ in range(3):
        client.consume("q", "PUBSUB", stream="same")
    client.publish("q", b"1", b"2", kind="PUBSUB")
    assert await client.bodies(2) == [b"1", b"2"]
    assert await client.wire.is_silent()


async def test_one_stream_may_be_registered_for_several_queues(port: int) -> None:
    client = await MsbqClient.connect(port)
    client.consume("a", stream="s")
    client.consume("b", "PUBSUB", stream="s")
    client.publish("a", b"1")
    client.publish("b", b"2", kind="PUBSUB")
    assert sorted([await client.get() for _ in range(2)]) == [("s", b"1"), ("s", b"2")]


async def test_a_queue_keeps_its_type_as_long_as_it_has_consumers(port: int) -> None:
    client = await MsbqClient.connect(port)
    client.consume("q", "P2P")
    stream = client.consume("q", "PUBSUB")
    text, named = await client.error()
    assert named == stream
    assert "'q' is of Type P2P as long as it has consumers, not PUBSUB" in text
    await client.wire.close()
    other = await MsbqClient.connect(port)
    while True:
        other.consume("q", "PUBSUB", stream="s")
        other.publish("q", b"x")
        if (await other.read())["MessageType"] == "EPMessage":
            break


async def test_type_and_body_come_back_as_they_were(port: int) -> None:
    client = await MsbqClient.connect(port)
    sent = [
        message("q", b"\x00\xff" * 50, kind="anything <at all>"),
        {"MessageType": "EPMessage", "Route": "q", "Type": "PUBSUB", "Body": None, "StreamID": "s"},
        {"MessageType": "EPMessage", "Route": "q", "Type": "P2P", "Body": "", "StreamID": "s"},
    ]
    client.consume("q", stream="s")
    client.wire.send(b"".join(map(frame, sent)))
    assert [await client.read() for _ in sent] == sent


async def test_a_name_that_no_topic_can_have_is_a_queue_all_the_same(port: int, broker: Broker) -> None:
    client = await MsbqClient.connect(port)
    client.publish("my queue/ü", b"x")
    client.consume("my queue/ü", stream="s")
    assert await client.read() == message("my queue/ü", b"x", stream="s")
    assert not has_queue(broker, "my queue/ü")


async def test_an_assertion_makes_a_durable_queue_of_one_partition(port: int, broker: Broker) -> None:
    client = await MsbqClient.connect(port)
    client.consume("q")
    await until(lambda: has_queue(broker, "q"))
    assert broker.topics.describe("q").partition_count == 1
    await client.wire.close()
    client.publish("q", b"x")
    await until(lambda: not broker.parts.queue_registry.get("q").consumers)
    assert has_queue(broker, "q")


async def test_a_queue_that_is_not_durable_vanishes_with_its_last_consumer(port: int, broker: Broker) -> None:
    first, second = [await MsbqClient.connect(port) for _ in range(2)]
    producer = await MsbqClient.connect(port)
    producer.publish("q", b"before")
    first.consume("q", durable=False)
    assert await first.bodies(1) == [b"before"]
    second.consume("q", durable=False)
    await first.wire.close()
    producer.publish("q", b"x")
    assert await second.bodies(1) == [b"x"]
    await second.wire.close()
    await until(lambda: not has_queue(broker, "q") and broker.parts.topic_registry.find("q") is None)
    third = await MsbqClient.connect(port)
    third.consume("q", durable=False)
    third.publish("q", b"again")
    assert await third.bodies(1) == [b"again"]


async def test_a_queue_that_was_there_does_not_vanish(port: int, broker: Broker) -> None:
    await broker.topics.create("topic", 1)
    await broker.queues.create("queue")
    client = await MsbqClient.connect(port)
    for name in ("topic", "queue"):
        client.consume(name, durable=False, stream="s")
        client.publish(name, b"x")
        await client.get()
    client.consume("asked", durable=False, stream="s")
    client.consume("asked", durable=True, stream="s")
    client.publish("asked", b"x")
    await client.get()
    await client.wire.close()
    await until(lambda: not any(queue.consumers for queue in broker.parts.queue_registry))
    assert {"topic", "queue", "asked"} <= {queue.name for queue in broker.parts.queue_registry}
    assert all(broker.parts.topic_registry.find(name) for name in ("topic", "queue", "asked"))


async def test_a_queue_that_is_deleted_is_reported_and_can_be_had_again(port: int, broker: Broker) -> None:
    client = await MsbqClient.connect(port)
    client.consume("q", stream="s")
    client.publish("q", b"1")
    assert await client.bodies(1) == [b"1"]
    await broker.queues.delete("q")
    text, stream = await client.error()
    assert "queue 'q' ended" in text
    assert stream == "s"
    client.consume("q", stream="t")
    client.publish("q", b"2")
    assert (await client.get())[0] == "t"


async def test_a_queue_with_subscribers_is_refused(port: int, broker: Broker) -> None:
    await broker.queues.create("q", policy={"subscribers": ["a"]})
    client = await MsbqClient.connect(port)
    stream = client.consume("q")
    text, named = await client.error()
    assert named == stream
    assert "queue 'q' cannot be had" in text


async def test_a_queue_that_is_the_cursor_of_another_seed_is_refused(port: int, broker: Broker) -> None:
    await broker.topics.create("news", 1)
    await broker.queues.create("news.mbus", ["news"])
    client = await MsbqClient.connect(port)
    client.consume("news.mbus", stream="s")
    text, stream = await client.error()
    assert ("hands out the messages of topic 'news'" in text, stream) == (True, "s")
    assert not broker.parts.queue_registry.get("news.mbus").consumers


async def test_a_publisher_that_closes_its_side_learns_the_end_when_all_is_kept(
    port: int, broker: Broker
) -> None:
    client = await MsbqClient.connect(port)
    client.publish("new", b"1")
    client.publish("newer", *[b"x"] * 300)
    client.wire.writer.write_eof()
    assert await client.wire.read_to_end() == b""
    assert [
        broker.parts.topic_registry.get(name).partition(0).log.durable_offset for name in ("new", "newer")
    ] == [1, 300]


async def test_read_messages_are_kept_when_the_connection_is_lost(
    port: int, broker: Broker, open_listeners: OpenListeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, is_asked, is_lost = MsbqPort.make_topic, asyncio.Event(), asyncio.Event()

    async def make_later(port: MsbqPort, name: str) -> None:
        is_asked.set()
        await is_lost.wait()
        await make(port, name)

    monkeypatch.setattr(MsbqPort, "make_topic", make_later)
    client = await MsbqClient.connect(port)
    sent = message("new", b"1"), queue("q"), message("newer", b"2")
    client.wire.send(b"".join(map(frame, sent)))
    await is_asked.wait()
    listener(open_listeners).open_connections.copy().pop().abort()
    await until(lambda: not listener(open_listeners).connections)
    is_lost.set()
    assert [record.value for record in await records(broker, "newer", 1)] == [b"2"]
    assert not has_queue(broker, "q")


async def test_drain_keeps_messages_read_behind_an_assertion(
    port: int, broker: Broker, open_listeners: OpenListeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, is_asked = MsbqPort.make_topic, asyncio.Event()

    async def make_later(port: MsbqPort, name: str) -> None:
        is_asked.set()
        await until(lambda: port.is_stopping)
        await make(port, name)

    monkeypatch.setattr(MsbqPort, "make_topic", make_later)
    client = await MsbqClient.connect(port)
    client.wire.send(frame(message("new", b"1")) + frame(queue("q")) + frame(message("newer", b"2")))
    await is_asked.wait()
    await open_listeners.close()
    assert [record.value for record in await stored(broker, "newer")] == [b"2"]


async def test_a_connection_has_a_limit_of_streams(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrow.frontends.seeds.msbq.MAX_REGISTRATIONS", 2)
    client = await MsbqClient.connect(port)
    for name in ("a", "b", "a", "c"):
        client.consume(name, stream="s")
    assert "'c' cannot be had: this connection has 2 streams" in (await client.error())[0]


async def test_messages_that_cannot_be_stored_are_reported(tmp_path: Path) -> None:
    async with Broker(tmp_path / "other", config=BrokerConfig(auto_create_topics=False)) as broker:
        open_listeners = OpenListeners(broker)
        client = await MsbqClient.connect((await open_listeners(NAME))[NAME])
        client.publish("missing", b"1", b"2", stream="mine")
        text, stream = await client.error()
        assert "2 of the messages for queue 'missing' could not be kept" in text
        assert stream == "mine"
        client.consume("missing")
        assert "'missing' cannot be had" in (await client.error())[0]
        await broker.topics.create("small", 1, {"max.message.bytes": "1000"})
        client.publish("small", b"x" * 5000)
        assert "1 of the messages for queue 'small' could not be kept" in (await client.error())[0]
        await open_listeners.close_all()
        with pytest.raises(UnknownTopic):
            broker.parts.topic_registry.get("missing")


async def test_messages_of_other_frontends_come_out(port: int, broker: Broker) -> None:
    await broker.topics.create("q", 3)
    await publish(broker, "q", b"from elsewhere", None, b"\xff")
    client = await MsbqClient.connect(port)
    client.consume("q", stream="s")
    got = [await client.read() for _ in range(3)]
    assert got[0] == message("q", b"from elsewhere", stream="s")
    assert [each["Body"] for each in got[1:]] == [None, "/w=="]


async def test_an_unreadable_message_goes_to_the_dead_letters_and_the_next_comes(
    port: int, broker: Broker
) -> None:
    await broker.topics.create("q", 1, {"record.validation": "header"})
    client = await MsbqClient.connect(port)
    client.consume("q")
    await broker.records.publish("q", 0, KINDS["header counts"]())
    await until(lambda: broker.parts.topic_registry.find("q.dead") is not None)
    client.publish("q", b"2")
    assert await client.bodies(1) == [b"2"]


async def test_a_worker_of_another_frontend_competes_with_the_streams(port: int, broker: Broker) -> None:
    client = await MsbqClient.connect(port)
    client.publish("q", b"1")
    await records(broker, "q", 1)
    worker = await broker.queues.open_consumer("q", create=True)
    leased = await worker.lease(1, wait_ms=5000)
    client.consume("q")
    client.publish("q", b"2")
    assert await client.bodies(1) == [b"2"]
    await worker.settle([Settlement(Verb.NACK, "q", 0, 0, 0)])
    assert leased[0].records == 1
    assert await client.bodies(1) == [b"1"]


# ── consumers that do not read, and those that go ─────────────────────────────────────────────────

LARGE = b"x" * 60_000
MANY = 200
"""More large messages than the buffers of sockets hold."""


async def deaf(port: int, name: str, kind: str) -> MsbqClient:
    """Return a consumer that is registered and stops reading."""
    client = await MsbqClient.connect(port)
    client.consume(name, kind)
    client.wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    return client


@pytest.mark.slow
async def test_untaken_messages_of_a_lost_consumer_are_redelivered_uncounted(
    port: int, broker: Broker, open_listeners: OpenListeners
) -> None:
    client = await deaf(port, "q", "P2P")
    producer = await MsbqClient.connect(port)
    producer.publish("q", *(LARGE + b"%03d" % number for number in range(MANY)))
    await until(lambda: listener(open_listeners).untaken_bytes > 0)
    await records(broker, "q", MANY)
    await client.wire.abort()
    await until(lambda: listener(open_listeners).connections == 1)
    worker = await broker.queues.open_consumer("q")
    ranges = [
        each for lease in await worker.lease(MANY, max_bytes=1 << 30, wait_ms=5000) for each in lease.ranges
    ]
    assert ranges[-1][1] == MANY - 1
    assert {count for _, _, count in ranges} == {1}


@pytest.mark.slow
async def test_a_p2p_consumer_that_does_not_read_leaves_the_rest_to_others(
    port: int, open_listeners: OpenListeners
) -> None:
    deaf_one = await deaf(port, "q", "P2P")
    await until(lambda: listener(open_listeners)._routes)
    reader = await MsbqClient.connect(port)
    reader.consume("q")
    producer = await MsbqClient.connect(port)
    producer.publish("q", *(LARGE for _ in range(2 * MANY)))
    assert len(await reader.bodies(MANY)) == MANY
    assert listener(open_listeners).untaken_bytes < 2 << 20
    await deaf_one.wire.abort()


@pytest.mark.slow
async def test_a_pubsub_consumer_that_does_not_read_is_dropped_and_the_others_go_on(
    open_listeners: OpenListeners, caplog: pytest.LogCaptureFixture
) -> None:
    port = (await open_listeners(NAME, stall_timeout_ms=300))[NAME]
    deaf_one = await deaf(port, "news", "PUBSUB")
    await until(lambda: listener(open_listeners)._routes)
    reader = await MsbqClient.connect(port)
    reader.consume("news", "PUBSUB")
    producer = await MsbqClient.connect(port)
    sent = [LARGE + b"%03d" % number for number in range(2 * MANY)]
    peak = 0
    with caplog.at_level(logging.WARNING, "sparrow.seeds"):
        producer.publish("news", *sent, kind="PUBSUB")
        for body in sent:
            assert await reader.bodies(1) == [body]
            peak = max(peak, listener(open_listeners).untaken_bytes)
    assert "took nothing of what was sent to it for 0.3 s" in caplog.text
    assert peak < 3 << 20
    assert listener(open_listeners).connections == 2
    await deaf_one.wire.abort()


@pytest.mark.slow
async def test_leases_of_a_slow_consumer_are_extended(
    port: int, broker: Broker, open_listeners: OpenListeners
) -> None:
    await broker.queues.create("q", policy={"lease_ms": 200, "delivery_limit": 1}, partitions=1)
    producer = await MsbqClient.connect(port)
    sent = [LARGE + b"%03d" % number for number in range(MANY)]
    producer.publish("q", *sent)
    await records(broker, "q", MANY)
    client = await deaf(port, "q", "P2P")
    await until(lambda: listener(open_listeners).untaken_bytes > 0)
    await asyncio.sleep(0.5)  # longer than two leases
    client.wire.writer.transport.resume_reading()  # type: ignore[attr-defined]
    got = await client.bodies(MANY)
    assert [body[-3:] for body in got] == [body[-3:] for body in sent]
    assert broker.parts.topic_registry.find("q.dead") is None


def read_as_the_original(port: int, name: str, count: int) -> list[bytes]:
    """Read as the original's client does: each of three reads counts as whole, for the length, the
    first 50 bytes and the rest.
    """
    bodies = []
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(frame(queue(name, "PUBSUB", stream=str(uuid.uuid4()))))
        time.sleep(0.1)  # it falls behind
        for _ in range(count):
            (length,) = struct.unpack("<I", connection.recv(4))
            content = connection.recv(50) + connection.recv(length - 50)
            bodies.append(base64.b64decode(json.loads(content)["Body"]))
    return bodies


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the system does not tell the peer's window")
async def test_frames_arrive_whole_at_a_client_that_takes_each_read_for_a_frame(
    port: int, broker: Broker
) -> None:
    producer = await MsbqClient.connect(port)
    sent = [b"%d" % number * (number % 300) for number in range(3000)]
    producer.publish("news", *sent)
    await records(broker, "news", 3000)
    assert await asyncio.to_thread(read_as_the_original, port, "news", 3000) == sent


async def test_messages_leased_at_a_kill_are_delivered_at_once(port: int, broker: Broker) -> None:
    await broker.topics.create("q", 1)
    await publish(broker, "q", b"x")
    before = await broker.queues.open_consumer("q", consumer_id="msbq", create=True)
    assert await before.lease(1, wait_ms=5000)
    client = await MsbqClient.connect(port)
    client.consume("q")
    assert await client.bodies(1) == [b"x"]


@pytest.mark.slow
async def test_a_client_that_does_not_read_errors_is_not_read_from(open_listeners: OpenListeners) -> None:
    port = (await open_listeners(NAME, stall_timeout_ms=200))[NAME]
    wire = await Wire.open(port)
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    wire.send(frame(b"{}") * 200_000)
    await until(lambda: listener(open_listeners).connections == 0)


async def test_drain_finishes_taken_messages(
    port: int, broker: Broker, open_listeners: OpenListeners
) -> None:
    client = await MsbqClient.connect(port)
    client.consume("q", durable=False)
    client.publish("q", b"1")
    assert await client.bodies(1) == [b"1"]
    await open_listeners.close()
    assert await client.wire.read_to_end() == b""
    info = broker.queues.describe("q").statistics
    assert (info.unfinished, info.leased) == (0, 0)
