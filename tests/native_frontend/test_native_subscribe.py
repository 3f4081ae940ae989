"""Subscribing through the native frontend: credit, pulls, updates, slow consumers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sparrow.base.errors import DiskFull, InvalidArgument
from sparrow.protocol.native import messages as m
from tests.native_frontend.raw import Listener, OpenListener, RawClient, batch_of, values_of

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker


async def _filled(broker: Broker, topic: str, *values: bytes) -> None:
    if broker.parts.topic_registry.find(topic) is None:
        await broker.topics.create(topic, 1)
    for value in values:
        await broker.records.publish(topic, 0, batch_of(value), acks=1)


async def test_push_delivers_present_and_later_records(broker: Broker, client: RawClient) -> None:
    await _filled(broker, "orders", b"a")
    await client.subscribe("orders", credit_bytes=1 << 20)
    assigned = await client.expect(m.Assigned, 2)
    assert assigned.added == [m.PartitionAt("orders", 0, 0)]
    assert await client.deliveries(1) == [b"a"]
    await _filled(broker, "orders", b"b")
    head = await client.expect(m.Deliver, 2)
    assert (head.offset, head.next_offset, head.high_watermark, head.ref) == (1, 2, 2, -1)


async def test_without_credit_nothing_comes_and_credit_is_taken_below_zero_once(
    broker: Broker, client: RawClient
) -> None:
    size = len(batch_of(b"0"))
    await _filled(broker, "orders", *[b"%d" % n for n in range(5)])
    await client.subscribe("orders", credit_bytes=0, max_deliver_bytes=1)
    await client.expect(m.Assigned, 2)
    assert await client.nothing_comes()
    client.send(m.Credit(size + 1), 2)
    assert await client.deliveries(2) == [b"0", b"1"]
    assert await client.nothing_comes()
    client.send(m.Credit(size - 1), 2)
    assert await client.nothing_comes()
    client.send(m.Credit(1), 2)
    assert await client.deliveries(1) == [b"2"]


async def test_a_channel_without_credit_stalls_no_other(broker: Broker, client: RawClient) -> None:
    await _filled(broker, "orders", b"a", b"b")
    await client.subscribe("orders", channel=2, credit_bytes=0)
    await client.expect(m.Assigned, 2)
    await client.subscribe("orders", channel=3, credit_bytes=1 << 20)
    await client.expect(m.Assigned, 3)
    assert await client.deliveries(2, channel=3) == [b"a", b"b"]
    await _filled(broker, "orders", b"c")
    assert await client.deliveries(1, channel=3) == [b"c"]


async def test_channels_of_one_connection_take_turns(broker: Broker, client: RawClient) -> None:
    await _filled(broker, "orders", *[bytes(1000)] * 20)
    for channel in (2, 3):
        await client.subscribe("orders", channel=channel, credit_bytes=0, max_deliver_bytes=1100)
        await client.expect(m.Assigned, channel)
    client.send(m.Credit(1 << 20), 2)
    client.send(m.Credit(1 << 20), 3)
    order = [(await client.receive()).channel for _ in range(20)]
    assert 8 <= order.count(2) <= 12


async def test_a_consumer_that_does_not_read_stalls_only_itself(
    broker: Broker, open_listener: OpenListener
) -> None:
    listener = await open_listener(broker, write_high_water_bytes=10_000)
    await _filled(broker, "orders", *[bytes(100_000)] * 100)
    slow, quick = await listener.client(), await listener.client()
    await slow.subscribe("orders", credit_bytes=1 << 30, max_deliver_bytes=1)
    await quick.subscribe("orders", credit_bytes=1 << 30, max_deliver_bytes=1)
    await quick.expect(m.Assigned, 2)
    assert len(await quick.deliveries(100)) == 100
    for session in listener.frontend.open_connections:
        assert session.unsent_bytes < 400_000
    await slow.expect(m.Assigned, 2)
    assert len(await slow.deliveries(100)) == 100


async def test_a_pull_of_nothing_is_answered(broker: Broker, client: RawClient) -> None:
    await _filled(broker, "orders")
    await client.subscribe("orders", push=False)
    await client.expect(m.Assigned, 2)
    client.send(m.Pull(1, 10, wait_ms=0), 2)
    assert await client.expect(m.Pulled, 2) == m.Pulled(1, 0, 0)
    client.send(m.Pull(2, 10, wait_ms=5), 2)
    assert await client.expect(m.Pulled, 2) == m.Pulled(2, 0, 0)


async def test_a_pull_waits_for_the_first_record(broker: Broker, client: RawClient) -> None:
    await _filled(broker, "orders")
    await client.subscribe("orders", push=False)
    await client.expect(m.Assigned, 2)
    client.send(m.Pull(7, 10, wait_ms=60_000), 2)
    assert await client.nothing_comes()
    await _filled(broker, "orders", b"a")
    head = await client.expect(m.Deliver, 2)
    assert head.ref == 7
    size = len(client.batches)
    assert await client.expect(m.Pulled, 2) == m.Pulled(7, 1, size)


async def test_pull_returns_about_the_requested_size(broker: Broker, client: RawClient) -> None:
    await _filled(broker, "orders", *[b"%d" % n for n in range(10)])
    await client.subscribe("orders", push=False)
    await client.expect(m.Assigned, 2)
    client.send(m.Pull(1, 3), 2)
    assert await client.deliveries(3) == [b"0", b"1", b"2"]
    assert (await client.expect(m.Pulled, 2)).records == 3
    assert await client.nothing_comes()
    client.send(m.Pull(2, 0), 2)
    assert len(await client.deliveries(7)) == 7


async def test_closing_a_channel_ends_its_pull(broker: Broker, client: RawClient) -> None:
    await _filled(broker, "orders")
    await client.subscribe("orders", push=False)
    await client.expect(m.Assigned, 2)
    client.send(m.Pull(1, 10, wait_ms=60_000), 2)
    client.send(m.Close(), 2)
    await client.expect(m.Closed, 2)
    await client.subscribe("orders", credit_bytes=1)


@pytest.mark.parametrize(
    ("push", "head"),
    [
        (True, m.Pull(1, 10)),
        (False, m.Pull(1, -1)),
        (False, m.Pull(1, 1, 0)),
        (False, m.Pull(1, 1, 1, -5)),
        (True, m.Credit(-1)),
    ],
)
async def test_a_wrong_frame_ends_the_channel_with_the_reason(
    broker: Broker, client: RawClient, push: bool, head: m.Head
) -> None:
    await _filled(broker, "orders")
    await client.subscribe("orders", push=push)
    await client.expect(m.Assigned, 2)
    client.send(head, 2)
    assert (await client.expect(m.Error, 2)).code == "INVALID_ARGUMENT"
    await client.call("broker.describe")


async def test_a_second_pull_at_a_time_ends_the_channel(broker: Broker, client: RawClient) -> None:
    await _filled(broker, "orders")
    await client.subscribe("orders", push=False)
    await client.expect(m.Assigned, 2)
    client.send(m.Pull(1, 10, wait_ms=60_000), 2)
    client.send(m.Pull(2, 10, wait_ms=60_000), 2)
    assert "unanswered" in (await client.expect(m.Error, 2)).text


@pytest.mark.parametrize(
    "head",
    [
        m.Subscribe([m.Selector("../etc")]),
        m.Subscribe([m.Selector("x" * 300)]),
        m.Subscribe([m.Selector("orders", start=m.Start("yesterday"))]),
        m.Subscribe([m.Selector("orders", offsets={0: -4})]),
        m.Subscribe([m.Selector("orders")], credit_bytes=-1),
        m.Subscribe([m.Selector("orders")], max_deliver_bytes=0),
        m.Subscribe([m.Selector("orders")], isolation="serializable"),
    ],
)
async def test_a_wrong_subscribe_is_refused_on_its_channel(client: RawClient, head: m.Subscribe) -> None:
    client.send(head, 2)
    error = await client.expect(m.Error, 2)
    assert error.code in {"INVALID_ARGUMENT", "INVALID_TOPIC_NAME"}
    await client.call("broker.describe")


async def test_update_adds_and_drops_on_a_live_subscription(broker: Broker, client: RawClient) -> None:
    await _filled(broker, "orders", b"a")
    await _filled(broker, "audit", b"b")
    await client.subscribe("orders", credit_bytes=1 << 20)
    await client.expect(m.Assigned, 2)
    assert await client.deliveries(1) == [b"a"]
    client.send(m.Update(5, [m.Selector("audit", start=m.Start("beginning"))], ["orders"]), 2)
    heads = [(await client.receive()).head for _ in range(4)]
    assert m.Response(5) in heads
    assert m.Revoke(2, [("orders", 0)], "DROPPED") in heads
    assert any(isinstance(h, m.Assigned) and h.added[0].topic == "audit" for h in heads)
    assert any(isinstance(h, m.Deliver) and h.topic == "audit" for h in heads)


async def test_a_wrong_update_is_answered_and_changes_nothing(broker: Broker, client: RawClient) -> None:
    await _filled(broker, "orders")
    await client.subscribe("orders", credit_bytes=1 << 20)
    await client.expect(m.Assigned, 2)
    client.send(m.Update(5, [], ["nothing"]), 2)
    response = await client.expect(m.Response, 2)
    assert response.failure
    assert response.failure.code == "INVALID_ARGUMENT"
    await _filled(broker, "orders", b"a")
    assert await client.deliveries(1) == [b"a"]


async def test_a_pattern_takes_topics_that_come_later(broker: Broker, client: RawClient) -> None:
    await client.subscribe("audit.*", credit_bytes=1 << 20)
    await _filled(broker, "audit.eu", b"a")
    assert (await client.expect(m.Assigned, 2)).added == [m.PartitionAt("audit.eu", 0, 0)]
    assert await client.deliveries(1) == [b"a"]


async def test_a_deleted_topic_is_revoked(broker: Broker, client: RawClient) -> None:
    await _filled(broker, "orders")
    await client.subscribe("orders", credit_bytes=1)
    await client.expect(m.Assigned, 2)
    await broker.topics.delete("orders")
    revoke = await client.expect(m.Revoke, 2)
    assert (revoke.partitions, revoke.reason) == ([("orders", 0)], "UNKNOWN_TOPIC")


async def test_a_batch_over_the_frame_limit_ends_the_channel_and_says_so(
    broker: Broker, open_listener: OpenListener
) -> None:
    await _filled(broker, "orders", bytes(500_000))
    listener = await open_listener(broker, max_frame_bytes=100_000)
    client = await listener.client()
    await client.subscribe("orders", credit_bytes=1 << 20)
    await client.expect(m.Assigned, 2)
    error = await client.expect(m.Error, 2)
    assert error.code == "RECORD_TOO_LARGE"
    assert "max_frame_bytes" in error.text
    await client.call("broker.describe")


async def test_deliveries_are_whole_batches(broker: Broker, client: RawClient) -> None:
    await broker.topics.create("orders", 1)
    await broker.records.publish("orders", 0, batch_of(b"0", b"1", b"2", b"3"), acks=1)
    client.send(m.Subscribe([m.Selector("orders", offsets={0: 2})], credit_bytes=1 << 20), 2)
    await client.expect(m.Subscribed, 2)
    await client.expect(m.Assigned, 2)
    head = await client.expect(m.Deliver, 2)
    assert (head.offset, head.next_offset) == (2, 4)
    assert values_of(client.batches) == [b"0", b"1", b"2", b"3"]
    assert values_of(client.batches, head.offset) == [b"2", b"3"]


async def test_a_lost_consumer_leaves_nothing_behind(broker: Broker, listener: Listener) -> None:
    await _filled(broker, "orders")
    client = await listener.client()
    await client.subscribe("orders", credit_bytes=1)
    await client.expect(m.Assigned, 2)
    client.writer.transport.abort()
    await listener.frontend.wait_until_gone(5)
    assert listener.frontend.connections == 0
    await _filled(broker, "orders", b"a")


async def test_an_opening_that_fails_late_leaves_the_next_channel_of_its_number_alone(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure, failing = broker.parts.topic_registry.ensure, asyncio.Event()

    async def slow(name: str) -> object:
        if name != "slow":
            return await ensure(name)
        await failing.wait()
        raise DiskFull("no room for a topic")

    monkeypatch.setattr(broker.parts.topic_registry, "ensure", slow)
    client.send(m.Subscribe([m.Selector("slow")]), 2)
    client.send(m.Close(), 2)
    await client.expect(m.Closed, 2)
    await client.subscribe("good", credit_bytes=1 << 20)
    await client.expect(m.Assigned, 2)
    failing.set()
    assert await client.nothing_comes()
    await _filled(broker, "good", b"a")
    assert await client.deliveries(1) == [b"a"]


async def test_a_channel_that_ended_says_nothing_more(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await client.subscribe("orders", credit_bytes=1)
    await client.expect(m.Assigned, 2)
    (session,) = listener.frontend.open_connections
    subscription = session.channels.readers[2]
    session.end_channel(2, InvalidArgument("over"))
    subscription.assigned(9, [("orders", 0, 0)])  # in the same iteration of the event loop
    await client.expect(m.Error, 2)
    assert await client.nothing_comes()


async def test_many_channels_that_wake_at_once_do_not_all_read_for_a_peer_that_takes_nothing(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await _filled(broker, "big", *[b"x" * 500_000] * 2)
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for channel in range(2, 42):
        selector = m.Selector("big", False, m.Start("beginning"))
        client.send(m.Subscribe([selector], credit_bytes=1 << 30, max_deliver_bytes=1 << 20), channel)
    (session,) = listener.frontend.open_connections
    for _ in range(10_000):
        await asyncio.sleep(0)
        if not session.can_write:
            break
    for _ in range(100):
        await asyncio.sleep(0)
    assert 1 << 20 < session.unsent_bytes < 8 << 20
