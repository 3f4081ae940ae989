"""messagebroker: bytes, behaviour, and additions of Sparrow."""

from __future__ import annotations

import asyncio
import struct

import pytest

from sparrow.broker.broker import Broker
from sparrow.frontends.seeds.settings import SeedSettings
from tests.corrupt import bad
from tests.seeds.listeners import OpenListeners, Wire, publish, records, stored
from tests.seeds.messagebroker_client import (
    ACK,
    CURRENT,
    ERROR,
    FROM,
    NACK,
    SUBSCRIBE,
    SUBSCRIBED,
    UNSUBSCRIBE,
    Publisher,
    Subscriber,
    message,
    names,
    subscription,
)

NAME = "messagebroker"
QUICK = {"ack_timeout_ms": 30, "ack_delay_ms": 10}


@pytest.fixture
async def port(open_listeners: OpenListeners) -> int:
    return (await open_listeners(NAME))[NAME]


async def test_the_bytes_of_a_conversation(port: int) -> None:
    publisher = await Wire.open(port)
    publisher.send(b"\x00\x03\x00\x08topic:ab\x00\x00\x00\x05first")
    subscriber = await Wire.open(port)
    subscriber.send(b'\x00\x01\x00\x00\x00\x06["ab"]\x00\x00')
    assert await subscriber.read(2) == b"\x00\x01"
    assert await subscriber.read(17) == b"\x00\x02ab\x00\x00\x00\x00\x00\x00\x00\x05first"
    subscriber.send(b"\x00\x04")
    publisher.send(b"\x00\x08topic:ab\x00\x00\x00\x06second")
    assert await subscriber.read(18) == b"\x00\x02ab\x00\x00\x00\x00\x00\x00\x00\x06second"
    subscriber.send(b"\x00\x04")
    subscriber.send(b'\x00\x02\x00\x00\x00\x06["ab"]')
    assert await subscriber.read(2) == b"\x00\x02"
    publisher.send(b"\x00\x02ab\x00\x00\x00\x01x")
    status, size = struct.unpack(">HH", await publisher.read(4))
    assert status == 3
    assert b"topic:" in await publisher.read(size)
    assert await subscriber.is_silent()


def test_the_times_are_those_of_the_original() -> None:
    settings = SeedSettings()
    assert (settings.ack_timeout_ms, settings.ack_delay_ms, settings.redeliveries) == (2000, 1000, 4)


async def test_each_subscriber_gets_every_message(port: int) -> None:
    publisher = await Publisher.connect(port)
    subscribers = [await Subscriber.connect(port, "news", start=CURRENT) for _ in range(3)]
    publisher.publish(b"news", *(b"%d" % number for number in range(50)))
    for subscriber in subscribers:
        assert await subscriber.take(50) == [b"%d" % number for number in range(50)]


@pytest.mark.parametrize(
    ("start", "offset", "first"), [(0, 0, 0), (CURRENT, 0, 5), (FROM, 2, 2), (FROM, 9, 5)]
)
async def test_a_subscription_begins_where_it_says(
    port: int, broker: Broker, start: int, offset: int, first: int
) -> None:
    await broker.topics.create("t", 1)
    await publish(broker, "t", *(b"%d" % number for number in range(5)))
    subscriber = await Subscriber.connect(port, "t", start=start, offset=offset)
    await publish(broker, "t", b"5")  # directly after the response
    assert await subscriber.take(6 - first) == [b"%d" % number for number in range(first, 6)]
    assert await subscriber.wire.is_silent()


async def test_topics_come_and_go_on_one_connection(port: int) -> None:
    publisher = await Publisher.connect(port)
    publisher.publish(b"a", b"a1")
    publisher.publish(b"b", b"b1")
    subscriber = await Subscriber.connect(port, "a")
    assert await subscriber.take() == [b"a1"]
    await subscriber.subscribe("b", "c")
    assert await subscriber.take() == [b"b1"]
    await subscriber.unsubscribe("a", "never")
    publisher.publish(b"a", b"a2")
    publisher.publish(b"c", b"c1")
    assert await subscriber.take() == [b"c1"]
    await subscriber.subscribe("a")
    assert await subscriber.take(2) == [b"a1", b"a2"]
    await subscriber.subscribe("a", start=FROM, offset=1)
    assert await subscriber.take() == [b"a2"]
    assert await subscriber.wire.is_silent()


async def test_a_connection_may_begin_with_unsubscribe(port: int) -> None:
    subscriber = Subscriber(await Wire.open(port))
    await subscriber.unsubscribe("whatever")
    await subscriber.subscribe("t")


async def test_the_next_message_waits_for_the_answer(port: int) -> None:
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", b"1", b"2")
    subscriber = await Subscriber.connect(port, "t")
    assert (await subscriber.delivered())[1] == b"1"
    assert await subscriber.wire.is_silent()
    subscriber.reply()
    assert (await subscriber.delivered())[1] == b"2"


async def test_a_refused_message_is_delivered_again_after_the_others(open_listeners: OpenListeners) -> None:
    port = (await open_listeners(NAME, ack_timeout_ms=5000, ack_delay_ms=100))[NAME]
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", b"1", b"2", b"3")
    subscriber = await Subscriber.connect(port, "t")
    assert (await subscriber.delivered())[1] == b"1"
    subscriber.reply(NACK)
    assert await subscriber.take(3) == [b"2", b"3", b"1"]
    assert await subscriber.wire.is_silent(0.15)


async def test_a_message_that_is_refused_too_often_goes_to_the_dead_letters(
    open_listeners: OpenListeners, broker: Broker
) -> None:
    port = (await open_listeners(NAME, redeliveries=2, ack_timeout_ms=5000, ack_delay_ms=10))[NAME]
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", b"bad", b"good")
    subscriber = await Subscriber.connect(port, "t")
    seen = []
    for _ in range(4):
        seen.append((await subscriber.delivered())[1])
        subscriber.reply(NACK if seen[-1] == b"bad" else ACK)
    assert sorted(seen) == [b"bad"] * 3 + [b"good"]
    letter = (await records(broker, "t.dead", 1))[0]
    headers = dict(letter.headers)
    assert letter.value == b"bad"
    assert headers["dead-letter-reason"] == b"DELIVERY_LIMIT"
    assert headers["dead-letter-error"] == b"refused by the subscriber"
    assert (headers["dead-letter-topic"], headers["dead-letter-offset"]) == (b"t", b"0")
    assert headers["dead-letter-delivery-count"] == b"3"
    assert await subscriber.wire.is_silent()
    assert broker.topics.describe("t.dead").partition_count == 1


async def test_silence_is_a_refusal_after_the_timeout(open_listeners: OpenListeners, broker: Broker) -> None:
    port = (await open_listeners(NAME, redeliveries=1, **QUICK))[NAME]
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", b"ignored")
    subscriber = await Subscriber.connect(port, "t")
    assert [(await subscriber.delivered())[1] for _ in range(2)] == [b"ignored"] * 2
    letter = (await records(broker, "t.dead", 1))[0]
    assert dict(letter.headers)["dead-letter-error"] == b"not acknowledged within 30 ms"


async def test_there_are_no_dead_letters_of_dead_letters(
    open_listeners: OpenListeners, broker: Broker
) -> None:
    port = (await open_listeners(NAME, redeliveries=0, **QUICK))[NAME]
    await broker.topics.create("t.dead", 1)
    await publish(broker, "t.dead", b"1", b"2")
    subscriber = await Subscriber.connect(port, "t.dead")
    for expected in (b"1", b"2"):
        assert (await subscriber.delivered())[1] == expected
        subscriber.reply(NACK)
    assert await subscriber.wire.is_silent()
    assert broker.parts.topic_registry.find("t.dead.dead") is None


async def test_a_late_acknowledgement_is_taken_while_the_message_waits_to_come_again(
    open_listeners: OpenListeners,
) -> None:
    port = (await open_listeners(NAME, ack_timeout_ms=20, ack_delay_ms=150))[NAME]
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", b"slow")
    subscriber = await Subscriber.connect(port, "t")
    await subscriber.delivered()
    await asyncio.sleep(0.06)
    subscriber.reply()
    assert await subscriber.wire.is_silent(0.25)


async def test_silence_after_an_empty_message_is_an_acknowledgement(
    open_listeners: OpenListeners, broker: Broker
) -> None:
    port = (await open_listeners(NAME, redeliveries=1, **QUICK))[NAME]
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", b"", b"next")
    subscriber = await Subscriber.connect(port, "t")
    assert (await subscriber.delivered())[1] == b""
    assert await subscriber.take() == [b"next"]
    assert await subscriber.wire.is_silent(0.1)
    assert broker.parts.topic_registry.find("t.dead") is None


async def test_a_subscriber_that_never_answers_delays_no_other(port: int) -> None:
    silent = await Subscriber.connect(port, "t", start=CURRENT)
    good = await Subscriber.connect(port, "t", start=CURRENT)
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", *(b"%d" % number for number in range(500)))
    assert await good.take(500) == [b"%d" % number for number in range(500)]
    assert (await silent.delivered())[1] == b"0"


@pytest.mark.slow
async def test_messages_waiting_for_redelivery_are_limited(
    open_listeners: OpenListeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrow.frontends.seeds.deliverer.MAX_PENDING", 3)
    port = (await open_listeners(NAME, ack_timeout_ms=5000, ack_delay_ms=300))[NAME]
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", *(b"%d" % number for number in range(10)))
    subscriber = await Subscriber.connect(port, "t")
    refused = []
    for _ in range(3):
        refused.append((await subscriber.delivered())[1])
        subscriber.reply(NACK)
    assert await subscriber.wire.is_silent(0.1)
    assert sorted(refused + await subscriber.take(10)) == sorted(
        [b"0", b"1", b"2"] + [b"%d" % n for n in range(10)]
    )


async def test_subscribing_while_a_message_is_out_is_answered_at_once(port: int) -> None:
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", b"1")
    publisher.publish(b"u", b"2")
    subscriber = await Subscriber.connect(port, "t")
    await subscriber.delivered()
    await subscriber.subscribe("u")
    subscriber.reply()
    assert await subscriber.take() == [b"2"]


async def test_request_between_two_messages_is_answered_before_the_second(port: int) -> None:
    """The original's client reads no message while it waits for a status."""
    subscriber = await Subscriber.connect(port, "t")
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", *(b"%d" % number for number in range(20)))
    for number in range(20):
        assert await subscriber.delivered() == (b"t", b"%d" % number)
        subscriber.wire.send(struct.pack(">H", ACK) + subscription([f"new-{number}"], CURRENT))
        assert await subscriber.status() == (SUBSCRIBED, "")


async def test_a_name_without_the_prefix_is_reported_and_the_publisher_goes_on(
    port: int, broker: Broker
) -> None:
    publisher = await Publisher.connect(port)
    publisher.wire.send(message(b"ab", b"not wanted", prefix=b"") + message(b"t", b"wanted"))
    status, text = await publisher.status()
    assert status == ERROR
    assert "topic:" in text
    assert [record.value for record in await records(broker, "t", 1)] == [b"wanted"]
    assert await publisher.wire.is_silent()


async def test_a_name_without_the_prefix_is_reported_before_its_message_is_there(port: int) -> None:
    publisher = await Publisher.connect(port)
    publisher.wire.send(b"\x00\x02ab")
    assert (await publisher.status())[0] == ERROR


def wide_message(topic: bytes, data: bytes) -> bytes:
    """Return a message whose topic has a length of 32 bits, as the tests of the original send
    it.
    """
    return b"\0\0" + message(topic, data)


@pytest.mark.parametrize("step", [1, 3, 1 << 20])
async def test_a_length_of_32_bits_for_the_topic_is_read(port: int, broker: Broker, step: int) -> None:
    sent = [b"%d" % number * (number % 3) for number in range(40)]
    publisher = await Publisher.connect(port)
    data = b"".join(wide_message(b"t", value) for value in sent) + message(b"t", b"narrow") + b"\0\0" * 3
    for start in range(0, len(data), step):
        publisher.wire.send(data[start : start + step])
        if step < len(data):
            await asyncio.sleep(0)
    publisher.wire.send(wide_message(b"t", b"last"))
    assert [record.value for record in await records(broker, "t", 42)] == [*sent, b"narrow", b"last"]
    assert await publisher.wire.is_silent()


async def test_errors_have_the_texts_that_clients_compare(port: int) -> None:
    publisher = await Publisher.connect(port)
    publisher.wire.send(b"\0\0" + message(b"t", b"x", prefix=b""))
    assert await publisher.status() == (ERROR, "topic data does not contain 'topic:' prefix")
    other = Subscriber(await Wire.open(port))
    other.wire.send(b"\x00\x63")
    assert await other.status() == (ERROR, "unknown action")
    subscriber = await Subscriber.connect(port, "t")
    subscriber.wire.send(b"\x00\x63")
    assert await subscriber.status() == (ERROR, "unknown action")


async def test_a_message_is_delivered_five_times_in_all(open_listeners: OpenListeners) -> None:
    port = (await open_listeners(NAME, ack_timeout_ms=60_000, ack_delay_ms=1))[NAME]
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", b"bad")
    subscriber = await Subscriber.connect(port, "t", "t.dead")
    seen = []
    while not seen or seen[-1][0] == b"t":
        seen.append(await subscriber.delivered())
        subscriber.reply(NACK if seen[-1][0] == b"t" else ACK)
    assert seen == [(b"t", b"bad")] * 5 + [(b"t.dead", b"bad")]


async def test_a_topic_without_a_name_is_reported(port: int, broker: Broker) -> None:
    publisher = await Publisher.connect(port)
    publisher.publish(b"", b"x")
    publisher.publish(b"t", b"y")
    assert (await publisher.status())[0] == ERROR
    assert [record.value for record in await records(broker, "t", 1)] == [b"y"]


async def test_a_message_over_the_limit_is_reported_and_skipped(
    open_listeners: OpenListeners, broker: Broker
) -> None:
    port = (await open_listeners(NAME, max_message_bytes=100))[NAME]
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", b"x" * 100, b"y" * 101, b"z")
    status, text = await publisher.status()
    assert (status, "101" in text) == (ERROR, True)
    assert [record.value for record in await records(broker, "t", 2)] == [b"x" * 100, b"z"]


async def test_a_message_that_cannot_be_kept_is_reported(port: int, broker: Broker) -> None:
    await broker.topics.create("small", 1, {"max.message.bytes": "200"})
    publisher = await Publisher.connect(port)
    publisher.publish(b"small", b"x" * 300, b"y")
    status, text = await publisher.status()
    assert (status, "small" in text) == (ERROR, True)
    assert [record.value for record in await records(broker, "small", 1)] == [b"y"]


@pytest.mark.parametrize("array", [b"{}", b'["a"', b"[1]", b"", b'[""]', b"\xff", b"[" * 5000, b'"a"'])
async def test_a_list_of_topics_that_is_none_is_reported_and_the_subscriber_goes_on(
    port: int, array: bytes
) -> None:
    subscriber = Subscriber(await Wire.open(port))
    subscriber.wire.send(struct.pack(">HI", SUBSCRIBE, len(array)) + array)
    # before the start of the subscription is known
    assert (await subscriber.status())[0] == ERROR
    subscriber.wire.send(struct.pack(">HH", FROM, 7))
    subscriber.wire.send(struct.pack(">HI", UNSUBSCRIBE, len(array)) + array)
    assert (await subscriber.status())[0] == ERROR
    await subscriber.subscribe("good")


async def test_half_closed_publisher_gets_errors_and_then_the_end_when_all_is_kept(
    port: int, broker: Broker
) -> None:
    await broker.topics.create("small", 1, {"max.message.bytes": "200"})
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", *[b"x"] * 100)
    publisher.publish(b"small", b"x" * 300)
    publisher.wire.send(message(b"t", b"x", prefix=b""))
    publisher.wire.writer.write_eof()
    assert [(await publisher.status())[0] for _ in range(2)] == [ERROR] * 2
    assert await publisher.wire.read_to_end() == b""
    assert broker.parts.topic_registry.get("t").partition(0).log.durable_offset == 100


async def test_a_list_of_topics_over_the_limit_is_reported_before_it_is_there(port: int) -> None:
    subscriber = Subscriber(await Wire.open(port))
    subscriber.wire.send(struct.pack(">HI", SUBSCRIBE, 0xFFFFFFFF))
    assert (await subscriber.status())[0] == ERROR
    subscriber.wire.send(b"x" * 100_000)
    assert await subscriber.wire.is_silent()


@pytest.mark.parametrize("wrong", [subscription(["t"], start=3), b"\x00\x09", b"\x00\x03", b"\xff\xff"])
async def test_an_unknown_start_or_action_is_reported_and_the_subscriber_goes_on(
    port: int, wrong: bytes
) -> None:
    subscriber = await Subscriber.connect(port, "t")
    subscriber.wire.send(wrong)
    assert (await subscriber.status())[0] == ERROR
    await subscriber.subscribe("u")


async def test_a_subscriber_that_sends_nothing_known_ends(port: int) -> None:
    subscriber = await Subscriber.connect(port, "t")
    subscriber.wire.send(b"\xff" * 10_000)
    responses = await subscriber.wire.read_to_end()
    assert responses.count(b"unknown action") == 16


@pytest.mark.parametrize("action", [b"\x00\x00", b"\x00\x04", b"\x00\x05", b"GET / HTTP/1.1\r\n\r\n"])
async def test_a_connection_that_begins_with_anything_else_is_reported_and_ends(
    port: int, action: bytes
) -> None:
    client = Subscriber(await Wire.open(port))
    client.wire.send(action)
    assert (await client.status())[0] == ERROR
    assert await client.wire.read_to_end() == b""


async def test_too_many_topics_are_reported(port: int) -> None:
    subscriber = await Subscriber.connect(port, "t")
    subscriber.wire.send(subscription([f"t{number}" for number in range(1001)]))
    assert (await subscriber.status())[0] == ERROR
    await subscriber.subscribe("t")


async def test_names_may_have_any_characters(port: int) -> None:
    publisher = await Publisher.connect(port)
    subscriber = await Subscriber.connect(port, "topic a", "ütopie")
    publisher.publish(b"topic a", b"1")
    assert await subscriber.delivered() == (b"topic a", b"1")
    subscriber.reply()
    publisher.publish("ütopie".encode(), b"2")
    assert await subscriber.delivered() == ("ütopie".encode(), b"2")


async def test_a_publisher_that_vanishes_in_the_middle_of_a_message_loses_only_that(
    port: int, broker: Broker
) -> None:
    publisher = await Publisher.connect(port)
    publisher.wire.send(message(b"t", b"whole") + message(b"t", b"half of it")[:-4])
    await publisher.wire.close()
    assert [record.value for record in await records(broker, "t", 1)] == [b"whole"]


async def test_an_unacknowledged_message_of_a_lost_connection_is_there_for_the_next(port: int) -> None:
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", b"1")
    subscriber = await Subscriber.connect(port, "t")
    await subscriber.delivered()
    await subscriber.wire.abort()
    assert await (await Subscriber.connect(port, "t")).take() == [b"1"]


async def test_records_of_transactions_and_keys_do_not_disturb(port: int, broker: Broker) -> None:
    await broker.topics.create("t", 3)
    await publish(broker, "t", b"keyed", None, key=b"k")
    subscriber = await Subscriber.connect(port, "t")
    assert await subscriber.take(2) == [b"keyed", b""]


async def test_a_deleted_topic_is_delivered_again_when_it_comes_back(port: int, broker: Broker) -> None:
    subscriber = await Subscriber.connect(port, "t", "other")
    await broker.topics.delete("t")
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", b"new")
    assert await subscriber.take() == [b"new"]


async def test_messages_survive_a_restart(open_listeners: OpenListeners, broker: Broker) -> None:
    publisher = await Publisher.connect((await open_listeners(NAME))[NAME])
    publisher.publish(b"t", b"1", b"2")
    await records(broker, "t", 2)
    await open_listeners.close()
    await broker.close()
    await broker.start()
    subscriber = await Subscriber.connect((await open_listeners(NAME))[NAME], "t", start=FROM, offset=1)
    assert await subscriber.take() == [b"2"]


async def test_drain_ends_subscribers_and_keeps_published_messages(
    port: int, open_listeners: OpenListeners, broker: Broker
) -> None:
    subscriber = await Subscriber.connect(port, "t")
    publisher = await Publisher.connect(port)
    publisher.publish(b"t", *[b"x"] * 100)
    await records(broker, "t", 100)
    await open_listeners.close()
    await subscriber.wire.read_to_end()
    assert len(await stored(broker, "t")) == 100


async def test_the_announced_names_are_those_of_wire_format() -> None:
    assert names(["a", "b"]) == b'\x00\x00\x00\x0a["a", "b"]'
    assert SUBSCRIBED == 1


async def test_a_batch_that_cannot_be_read_stops_no_subscriber(port: int, broker: Broker) -> None:
    await bad.fill(broker, "t", bad.good("a"), bad.KINDS["header counts"](), bad.good("b"))
    subscriber = await Subscriber.connect(port, "t", start=FROM, offset=0)
    assert await subscriber.take(6) == bad.BEFORE + bad.BEHIND
    assert broker.measures.corrupt_batches.counts["seed", "skip"] == 1
