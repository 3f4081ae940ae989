"""diy_message_broker: bytes, behaviour, and additions of Sparrow."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from sparrow.base.errors import DiskFull, NotLeased, SparrowError
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.queues.rules.settlement import Settlement
from sparrow.frontends.seeds.diy import DiyCursor
from sparrow.records.record import Record
from tests.seeds.diy_client import CONSUME, CONSUME_EMPTY, GOODBYE, PUBLISH, DiyClient, Frame, fields, frame
from tests.seeds.listeners import OpenListeners, Wire, publish, records, stored, until

NAME = "diy_message_broker"


@pytest.fixture
async def port(open_listeners: OpenListeners) -> int:
    return (await open_listeners(NAME))[NAME]


@pytest.fixture
async def client(port: int) -> DiyClient:
    return await DiyClient.connect(port)


async def test_the_bytes_of_a_conversation(port: int) -> None:
    wire = await Wire.open(port)
    now_ms = time.time_ns() // 1_000_000
    stamp = struct.pack(">q", now_ms * 1_000_000)
    # publish: the length, 9 + 6 + 2 + 5 = 22, leaves out the two bytes with the lengths of topic
    # and key
    wire.send(b"\x00\x00\x00\x16\x02" + stamp + b"\x06orders\x02k1first")
    # consume, twice: 9 + 6 = 15
    wire.send((b"\x00\x00\x00\x0f\x03" + stamp + b"\x06orders\x00") * 2)
    assert await wire.read(28) == b"\x00\x00\x00\x16\x03" + stamp + b"\x06orders\x02k1first"
    empty = await wire.read(13)
    assert empty[:5] == b"\x00\x00\x00\x09\x04"
    assert abs(struct.unpack(">q", empty[5:])[0] - time.time_ns()) < 60e9
    wire.send(b"\x00\x00\x00\x0c\x01" + stamp + b"bye")
    farewell = await wire.read_to_end()
    assert farewell[:5] + farewell[13:] == b"\x00\x00\x00\x1c\x01Goodbye from server"
    await wire.close()


async def test_a_topic_springs_into_being_with_one_partition(client: DiyClient, broker: Broker) -> None:
    assert (await client.consume(b"new")).type == CONSUME_EMPTY
    client.publish(b"newer", b"x")
    await records(broker, "newer", 1)
    assert [broker.topics.describe(name).partition_count for name in ("new", "newer")] == [1, 1]
    await client.close()


async def test_publishers_that_create_a_topic_at_the_same_time_lose_nothing(
    port: int, broker: Broker
) -> None:
    clients = [await DiyClient.connect(port) for _ in range(8)]
    for client in clients:
        client.publish(b"born", b"x")
    assert await asyncio.gather(*(client.goodbye() for client in clients)) == [b"Goodbye from server"] * 8
    assert len(await stored(broker, "born")) == 8
    for client in clients:
        await client.close()


async def test_published_message_can_be_consumed_at_once_on_the_same_connection(client: DiyClient) -> None:
    for number in range(20):
        client.publish(b"fresh", b"%d" % number)
        assert (await client.consume(b"fresh")).data == b"%d" % number
    await client.close()


async def test_requests_are_answered_before_later_messages_are_published(client: DiyClient) -> None:
    question = frame(CONSUME, fields(b"t"), 2)
    client.wire.send(question + frame(PUBLISH, fields(b"t", b"", b"late"), 2) + question)
    assert [(await client.read()).type for _ in range(2)] == [CONSUME_EMPTY, CONSUME]
    await client.close()


async def test_consumers_of_a_topic_share_one_cursor_in_order(port: int) -> None:
    producer = await DiyClient.connect(port)
    for number in range(60):
        producer.publish(b"shared", b"%d" % number)
    consumers = [await DiyClient.connect(port) for _ in range(3)]

    async def take(consumer: DiyClient) -> list[int]:
        mine = []
        while (response := await consumer.consume(b"shared")).type == CONSUME:
            mine.append(int(response.data))
        return mine

    await producer.goodbye()
    taken = await asyncio.gather(*map(take, consumers))
    assert sorted(number for mine in taken for number in mine) == list(range(60))
    assert all(mine == sorted(mine) for mine in taken)
    for each in (producer, *consumers):
        await each.close()


async def test_consumer_gets_messages_published_before_its_request(client: DiyClient, broker: Broker) -> None:
    await broker.topics.create("elsewhere", 1)
    await publish(broker, "elsewhere", b"one", None, key=b"k")
    one, none = [await client.consume(b"elsewhere") for _ in range(2)]
    assert one == Frame(CONSUME, 1_700_000_000_000 * 1_000_000, b"elsewhere", b"k", b"one")
    assert (none.type, none.data) == (CONSUME, b"")
    await client.close()


async def test_an_empty_key_is_no_key_and_a_key_that_does_not_fit_is_left_out(
    client: DiyClient, broker: Broker
) -> None:
    client.publish(b"keys", b"x")
    assert (await records(broker, "keys", 1))[0].key is None
    await publish(broker, "keys", b"y", key=b"k" * 256)
    assert [(await client.consume(b"keys")).key for _ in range(2)] == [b"", b""]
    client.publish(b"keys", b"z", b"k" * 251)
    assert (await client.consume(b"keys")).key == b"k" * 251
    await client.close()


async def test_topic_and_key_may_be_published_that_the_original_could_not_read_together(
    client: DiyClient, broker: Broker
) -> None:
    client.publish(b"t" * 200, b"data", b"k" * 200)
    (found,) = await records(broker, "t" * 200, 1)
    assert found.key == b"k" * 200
    response = await client.consume(b"t" * 200)
    assert (response.key, response.data) == (b"", b"data")
    await client.close()


@pytest.mark.parametrize("topic", [b"topic a", b"\xff\xfe", b"t" * 255, b"..", "größe".encode()])
async def test_any_bytes_may_name_a_topic(client: DiyClient, topic: bytes) -> None:
    client.publish(topic, b"x")
    response = await client.consume(topic)
    assert (response.topic, response.data) == (topic, b"x")
    assert (await client.consume(topic + b"!" if len(topic) < 255 else b"u" * 255)).type == CONSUME_EMPTY
    await client.close()


async def test_the_time_of_a_message_is_its_clients_unless_it_is_a_day_off(
    client: DiyClient, broker: Broker
) -> None:
    an_hour_ago = time.time_ns() - 3_600_000_000_000
    client.publish(b"times", b"", timestamp_ns=an_hour_ago)
    client.publish(b"times", b"", timestamp_ns=0)
    client.publish(b"times", b"", timestamp_ns=(1 << 63) - 1)
    client.publish(b"times", b"", timestamp_ns=-(1 << 63))
    found = await records(broker, "times", 4)
    assert found[0].timestamp == an_hour_ago // 1_000_000
    assert all(abs(record.timestamp - time.time() * 1000) < 60_000 for record in found[1:])
    await client.close()


async def test_a_goodbye_is_answered_when_everything_is_on_stable_storage(
    client: DiyClient, broker: Broker
) -> None:
    for number in range(1000):
        client.publish(b"durable", b"%d" % number)
    assert await client.goodbye() == b"Goodbye from server"
    partition = broker.parts.topic_registry.get("durable").partition(0)
    assert partition.log.durable_offset == 1000
    assert [record.value for record in await stored(broker, "durable")] == [b"%d" % n for n in range(1000)]
    assert await client.wire.read_to_end() == b""
    await client.close()


async def test_messages_sent_before_a_lost_connection_are_kept(client: DiyClient, broker: Broker) -> None:
    client.publish(b"lost", b"whole")
    client.wire.send(frame(PUBLISH, fields(b"lost", b"", b"half of it"), 2)[:-3])
    await client.close()
    assert [record.value for record in await records(broker, "lost", 1)] == [b"whole"]


async def test_unknown_types_and_empty_frames_from_clients_are_skipped(client: DiyClient) -> None:
    client.wire.send(frame(9, b"whatever") + frame(CONSUME_EMPTY, b"") + frame(0, b""))
    client.publish(b"after", b"x")
    assert (await client.consume(b"after")).data == b"x"
    await client.close()


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">IBq", 8, PUBLISH, 0),
        struct.pack(">IBq", 0, GOODBYE, 0),
        struct.pack(">IBq", 0xFFFFFFFF, PUBLISH, 0),
        struct.pack(">IBq", 0xFFFFFFFF, 77, 0),
        struct.pack(">IBq", 9, PUBLISH, 0) + b"\x05\x05",
        struct.pack(">IBq", 9, CONSUME, 0) + b"\x01\x00",
        struct.pack(">IBq", 12, PUBLISH, 0) + b"\x01t\x09" + b"\x00" * 2,
        struct.pack(">IBq", 9, PUBLISH, 0) + b"\x00\x00",
    ],
)
async def test_invalid_frame_ends_the_connection_after_earlier_ones_are_handled(
    port: int, broker: Broker, garbage: bytes
) -> None:
    client = await DiyClient.connect(port)
    client.publish(b"before", b"kept")
    client.wire.send(garbage)
    assert await client.wire.read_to_end() == b""
    assert [record.value for record in await records(broker, "before", 1)] == [b"kept"]
    await client.close()


async def test_a_message_over_the_topics_limit_ends_the_connection(port: int, broker: Broker) -> None:
    await broker.topics.create("small", 1, {"max.message.bytes": "1000"})
    client = await DiyClient.connect(port)
    client.publish(b"small", b"x" * 10)
    client.publish(b"small", b"x" * 2000)
    assert await client.wire.read_to_end() == b""
    assert [record.value for record in await stored(broker, "small")] == [b"x" * 10]
    await client.close()


async def test_without_topics_that_make_themselves_the_connection_ends(tmp_path: Path) -> None:
    async with Broker(tmp_path / "strict", config=BrokerConfig(auto_create_topics=False)) as broker:
        listeners = OpenListeners(broker)
        port = (await listeners(NAME))[NAME]
        for data in (frame(CONSUME, fields(b"none"), 2), frame(PUBLISH, fields(b"none", b"", b"x"), 2)):
            wire = await Wire.open(port)
            wire.send(data)
            assert await wire.read_to_end() == b""
        assert broker.parts.topic_registry.find("none") is None
        await listeners.close_all()


async def test_a_message_that_is_not_finished_in_time_ends_the_connection(
    open_listeners: OpenListeners,
) -> None:
    port = (await open_listeners(NAME, idle_timeout_ms=40))[NAME]
    idle, slow = await Wire.open(port), await Wire.open(port)
    slow.send(frame(PUBLISH, fields(b"t", b"", b"slow"), 2)[:-1])
    assert await slow.read_to_end() == b""
    assert await idle.is_silent()
    idle.send(frame(CONSUME, fields(b"t"), 2))
    assert (await idle.read(13))[4] == CONSUME_EMPTY
    for wire in (idle, slow):
        await wire.close()


async def test_a_client_that_left_before_the_answer_loses_no_message_to_the_next(
    port: int, broker: Broker
) -> None:
    await broker.topics.create("t", 1)
    await publish(broker, "t", b"only")
    gone = await Wire.open(port)
    gone.send(frame(CONSUME, fields(b"other"), 2) * 20)
    await gone.abort()
    client = await DiyClient.connect(port)
    assert (await client.consume(b"t")).data == b"only"
    await client.close()


async def test_a_consumer_that_does_not_read_is_not_answered_without_end(port: int, broker: Broker) -> None:
    await broker.topics.create("big", 1)
    for _ in range(40):
        await publish(broker, "big", b"x" * 900_000)
    deaf = await Wire.open(port)
    deaf.writer.transport.pause_reading()
    deaf.send(frame(CONSUME, fields(b"big"), 2) * 40)
    client = await DiyClient.connect(port)
    assert (await client.consume(b"other")).type == CONSUME_EMPTY
    queue = broker.parts.queue_registry.get("big.diy")
    left = -1
    while left != (left := queue.unfinished):  # until nothing changes any more
        await asyncio.sleep(0.1)
    assert left > 20
    await deaf.abort()
    await client.close()


async def test_a_client_that_closes_its_side_still_gets_its_answers_and_the_end_when_all_is_kept(
    client: DiyClient, broker: Broker
) -> None:
    for number in range(100):
        client.publish(b"t", b"%d" % number)
    client.wire.send(frame(CONSUME, fields(b"t"), 2) * 20)
    client.publish(b"t", b"last")
    client.wire.writer.write_eof()
    assert [(await client.read()).data for _ in range(20)] == [b"%d" % number for number in range(20)]
    assert await client.wire.read_to_end() == b""
    assert broker.parts.topic_registry.get("t").partition(0).log.durable_offset == 101


async def test_a_consumer_that_takes_nothing_for_a_time_ends(
    open_listeners: OpenListeners, broker: Broker
) -> None:
    await broker.topics.create("big", 1)
    for _ in range(20):
        await publish(broker, "big", b"x" * 900_000)
    port = (await open_listeners(NAME, idle_timeout_ms=60))[NAME]
    deaf = await Wire.open(port)
    deaf.writer.transport.pause_reading()
    deaf.send(frame(CONSUME, fields(b"big"), 2) * 20)
    listener = open_listeners.frontends[-1]._ports[0]
    await until(lambda: listener.connections == 1)
    await until(lambda: listener.connections == 0)


async def test_many_questions_at_once_are_answered_in_order(client: DiyClient) -> None:
    for number in range(100):
        client.publish(b"t", b"%d" % number)
    client.wire.send(frame(CONSUME, fields(b"t"), 2) * 101)
    assert [(await client.read()).data for _ in range(100)] == [b"%d" % number for number in range(100)]
    assert (await client.read()).type == CONSUME_EMPTY
    await client.close()


async def test_a_client_that_asks_at_the_same_time_for_large_messages_is_not_told_that_there_are_none(
    port: int, broker: Broker
) -> None:
    await broker.topics.create("big", 1)
    for _ in range(6):
        await publish(broker, "big", b"x" * 900_000)
    clients = [await DiyClient.connect(port) for _ in range(6)]
    responses = await asyncio.gather(*(client.consume(b"big") for client in clients))
    assert [response.type for response in responses] == [CONSUME] * 6


async def test_prefetched_messages_are_released_without_requests(
    client: DiyClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrow.frontends.seeds.diy.IDLE_S", 0.02)
    for number in range(20):
        client.publish(b"t", b"%d" % number)
    for number in range(4):
        assert (await client.consume(b"t")).data == b"%d" % number
    queue = broker.parts.queue_registry.get("t.diy")
    await until(lambda: not any(consumer.leased for consumer in queue.consumers.values()))
    for number in range(4, 20):
        assert (await client.consume(b"t")).data == b"%d" % number
    await client.close()


async def test_a_queue_that_is_deleted_or_purged_starts_again(client: DiyClient, broker: Broker) -> None:
    for number in range(10):
        client.publish(b"t", b"%d" % number)
    assert (await client.consume(b"t")).data == b"0"
    assert (await client.consume(b"t")).data == b"1"
    await broker.queues.delete("t.diy")
    again = await DiyClient.connect(client.wire.writer.get_extra_info("peername")[1])
    # the first request may fail by the end of its connection
    with suppress(asyncio.IncompleteReadError):
        await again.consume(b"t")
    again = await DiyClient.connect(client.wire.writer.get_extra_info("peername")[1])
    assert int((await again.consume(b"t")).data) in (0, 1)


async def test_acknowledged_responses_are_sent_when_a_later_request_fails(
    client: DiyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.publish(b"t", b"1")
    client.publish(b"t", b"2")
    lease = DiyCursor._lease_more

    async def lease_one(cursor: DiyCursor, count: int) -> list[Record]:
        monkeypatch.setattr(DiyCursor, "_lease_more", full)
        return await lease(cursor, 1)

    async def full(cursor: DiyCursor, count: int) -> list[Record]:
        raise DiskFull("the disk is full")

    await client.consume(b"other")  # the published message is there
    monkeypatch.setattr(DiyCursor, "_lease_more", lease_one)
    client.wire.send(frame(CONSUME, fields(b"t"), 2) * 3)
    assert (await client.read()).data == b"1"
    assert await client.wire.read_to_end() == b""


async def test_messages_of_a_refused_range_are_acknowledged_one_by_one(
    client: DiyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        client.publish(b"t", b"%d" % number)
    assert (await client.consume(b"t")).data == b"0"
    settle, sizes = DiyCursor._settle, []

    def refuse_ranges(
        cursor: DiyCursor, settlements: Sequence[Settlement]
    ) -> asyncio.Future[list[SparrowError | None]]:
        sizes.extend(each.last - each.first + 1 for each in settlements)
        if sizes[-1] == 1:
            return settle(cursor, settlements)
        refused: asyncio.Future[list[SparrowError | None]] = asyncio.get_running_loop().create_future()
        refused.set_result([NotLeased("not wholly leased")] * len(settlements))
        return refused

    monkeypatch.setattr(DiyCursor, "_settle", refuse_ranges)
    client.wire.send(frame(CONSUME, fields(b"t"), 2) * 11)
    assert [(await client.read()).data for _ in range(11)] == [b"%d" % number for number in range(1, 12)]
    assert max(sizes) > 1
    assert sizes.count(1) == 11
    monkeypatch.undo()
    await client.close()


async def test_a_queue_of_that_name_on_other_topics_hands_out_nothing(
    client: DiyClient, port: int, broker: Broker
) -> None:
    await broker.topics.create("t.diy", 1)
    await publish(broker, "t.diy", b"for others")
    await broker.queues.create("t.diy", ["t.diy"])
    client.publish(b"t", b"x")
    client.wire.send(frame(CONSUME, fields(b"t"), 2))
    assert await client.wire.read_to_end() == b""
    await broker.queues.delete("t.diy")
    assert (await (await DiyClient.connect(port)).consume(b"t")).data == b"x"


async def test_names_that_no_topic_may_have_leave_nothing_behind(tmp_path: Path) -> None:
    config = BrokerConfig(auto_create_topics=False)
    async with Broker(tmp_path / "fixed", config=config) as broker:
        listeners = OpenListeners(broker)
        port = (await listeners(NAME))[NAME]
        for number in range(20):
            client = await DiyClient.connect(port)
            client.wire.send(frame(CONSUME, fields(b"t%d" % number), 2))
            assert await client.wire.read_to_end() == b""
        assert not listeners.frontends[0]._ports[0]._cursors  # type: ignore[attr-defined]
        await listeners.close_all()


async def test_messages_survive_a_restart_and_the_cursor_too(
    open_listeners: OpenListeners, broker: Broker
) -> None:
    client = await DiyClient.connect((await open_listeners(NAME))[NAME])
    for number in range(5):
        client.publish(b"kept", b"%d" % number)
    assert [(await client.consume(b"kept")).data for _ in range(2)] == [b"0", b"1"]
    await client.goodbye()
    await client.close()
    await open_listeners.close()
    await broker.close()
    await broker.start()
    client = await DiyClient.connect((await open_listeners(NAME))[NAME])
    assert [(await client.consume(b"kept")).data for _ in range(3)] == [b"2", b"3", b"4"]
    assert (await client.consume(b"kept")).type == CONSUME_EMPTY
    await client.close()


def lease_at_the_drain(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let requests wait until the listener drains. The event is set when the first one waits."""
    lease, is_asked = DiyCursor._lease_more, asyncio.Event()

    async def lease_later(cursor: DiyCursor, count: int) -> list[Record]:
        is_asked.set()
        await until(lambda: cursor._port.is_stopping)
        return await lease(cursor, count)

    monkeypatch.setattr(DiyCursor, "_lease_more", lease_later)
    return is_asked


async def test_a_drain_says_no_goodbye_which_would_confirm_messages_that_nobody_has_read(
    client: DiyClient, open_listeners: OpenListeners, broker: Broker
) -> None:
    client.publish(b"t", b"x")
    while not await stored(broker, "t"):
        await asyncio.sleep(0.01)
    await open_listeners.close()
    assert await client.wire.read_to_end() == b""
    await client.close()


async def test_a_drain_ends_an_idle_consumer_normally(
    client: DiyClient, open_listeners: OpenListeners
) -> None:
    assert (await client.consume(b"t")).type == CONSUME_EMPTY
    await open_listeners.close()
    assert await client.wire.read_to_end() == b""
    await client.close()


async def test_a_goodbye_that_was_received_before_a_drain_is_answered(
    client: DiyClient, open_listeners: OpenListeners, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked = lease_at_the_drain(monkeypatch)
    asked = frame(CONSUME, fields(b"t"), 2)
    client.wire.send(asked + frame(PUBLISH, fields(b"u", b"", b"x"), 2) + asked + frame(GOODBYE, b"bye"))
    await is_asked.wait()
    await open_listeners.close()
    assert [record.value for record in await stored(broker, "u")] == [b"x"]
    assert (await client.read()).type == CONSUME_EMPTY
    assert (await client.read()).type == GOODBYE


async def test_drain_keeps_messages_read_behind_a_request(
    client: DiyClient, open_listeners: OpenListeners, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked = lease_at_the_drain(monkeypatch)
    asked = frame(CONSUME, fields(b"t"), 2)
    client.wire.send(asked + frame(PUBLISH, fields(b"u", b"", b"x"), 2) + asked)
    await is_asked.wait()
    await open_listeners.close()
    assert [record.value for record in await stored(broker, "u")] == [b"x"]
    assert (await client.read()).type == CONSUME_EMPTY
    assert await client.wire.read_to_end() == b"", "what may be behind the last message is unconfirmed"


async def test_more_connections_than_allowed_are_refused(open_listeners: OpenListeners) -> None:
    port = (await open_listeners(NAME, max_connections=2))[NAME]
    first, second = await DiyClient.connect(port), await DiyClient.connect(port)
    await first.consume(b"t")
    await second.consume(b"t")
    third = await Wire.open(port)
    assert await third.read_to_end() == b""
    await first.close()
    await third.close()

    async def is_let_in() -> bool:
        client = await DiyClient.connect(port)
        try:
            return (await client.consume(b"t")).type == CONSUME_EMPTY
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        finally:
            await client.close()

    async with asyncio.timeout(5):
        while not await is_let_in():
            await asyncio.sleep(0.01)
    await second.close()


async def test_the_queue_is_one_that_others_can_look_at(client: DiyClient, broker: Broker) -> None:
    client.publish(b"seen", b"x")
    client.publish(b"seen", b"y")
    await client.consume(b"seen")
    await until(lambda: broker.queues.describe("seen.diy").topics)
    assert [peeked.value for peeked in await broker.queues.peek("seen.diy")] == [b"y"]
    await client.close()
