"""Subscriptions outside groups: first offsets, topics that come and go, fairness, waking up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparrow.base.errors import InvalidArgument, InvalidTopicName, NotAuthorized, SparrowError
from sparrow.broker.access.authz import Operation, Principal, ResourceType
from sparrow.broker.broker import Broker
from sparrow.broker.reading.positions import StartPosition
from sparrow.broker.reading.subscription import Selector, Subscription
from sparrow.model.access import CLUSTER_NAME
from sparrow.storage.store import Chunk
from tests.broker.batches import batch, values

BEGINNING = StartPosition("beginning")


class Listener:
    """A listener that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []
        self.reads: dict[tuple[str, int], int] = {}

    def assigned(self, epoch: int, added: list[tuple[str, int, int]]) -> None:
        self.calls.append(("assigned", added))
        self.reads.update({(t, p): o for t, p, o in added})

    def revoked(self, epoch: int, partitions: list[tuple[str, int]], reason: str) -> None:
        self.calls.append((reason, partitions))
        for key in partitions:
            self.reads.pop(key, None)

    def ended(self, error: SparrowError) -> None:
        self.calls.append(("ended", error))


@asynccontextmanager
async def subscribed(broker: Broker, *selectors: Selector) -> AsyncIterator[tuple[Subscription, Listener]]:
    listener = Listener()
    subscription = await broker.records.subscribe(selectors, listener=listener)
    try:
        yield subscription, listener
    finally:
        await subscription.close()


async def take(subscription: Subscription, count: int) -> list[bytes | None]:
    """Return the next `count` values."""
    found: list[bytes | None] = []
    while len(found) < count:
        deliveries = await subscription.read(1 << 20, max_wait_ms=5000)
        assert deliveries, f"{found} and then nothing"
        for d in deliveries:
            found += values(d.data, d.offset)
    return found


async def publish(broker: Broker, topic: str, *items: bytes, partition: int = 0) -> None:
    for item in items:
        await broker.records.publish(topic, partition, batch(item))


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (StartPosition("beginning"), [b"0", b"1", b"2", b"new"]),
        (StartPosition("end"), [b"new"]),
        (StartPosition("offset", 1), [b"1", b"2", b"new"]),
        (StartPosition("timestamp", 2000), [b"2", b"new"]),
        (StartPosition("timestamp", 1 << 50), [b"new"]),
    ],
)
async def test_a_subscription_starts_at_its_start_position(
    broker: Broker, start: StartPosition, expected: Sequence[bytes]
) -> None:
    await broker.topics.create("orders")
    for i in range(3):
        await broker.records.publish("orders", 0, batch(str(i).encode(), timestamp_ms=i * 1000 + 1))
    async with subscribed(broker, Selector("orders", start=start)) as (subscription, listener):
        while not listener.reads:
            await asyncio.sleep(0)
        await publish(broker, "orders", b"new")
        assert await take(subscription, len(expected)) == expected


async def test_explicit_offsets_win_over_start(broker: Broker) -> None:
    await broker.topics.create("orders", 2)
    for p in (0, 1):
        await publish(broker, "orders", b"a", b"b", partition=p)
    async with subscribed(broker, Selector("orders", start=BEGINNING, offsets={1: 1})) as (subscription, _):
        assert sorted(await take(subscription, 3)) == [b"a", b"b", b"b"]


async def test_a_waiting_read_wakes_at_a_publish_and_ends_at_close(broker: Broker) -> None:
    async with subscribed(broker, Selector("orders")) as (subscription, listener):
        reading = asyncio.ensure_future(subscription.read(1000))
        while not listener.reads:
            await asyncio.sleep(0)
        await publish(broker, "orders", b"x", partition=0)
        (delivery,) = await asyncio.wait_for(reading, 5)
        assert values(delivery.data) == [b"x"]
        assert (delivery.offset, delivery.next_offset, delivery.high_watermark) == (0, 1, 1)
        reading = asyncio.ensure_future(subscription.read(1000))
        await asyncio.sleep(0)
        await subscription.close()
        assert await asyncio.wait_for(reading, 5) == []


async def test_a_pattern_takes_topics_that_come_later_from_their_beginning(broker: Broker) -> None:
    await broker.topics.create("orders.eu")
    await broker.topics.create("other")
    await publish(broker, "orders.eu", b"old")
    async with subscribed(broker, Selector("orders.*", is_pattern=True)) as (subscription, listener):
        while not listener.reads:
            await asyncio.sleep(0)
        await broker.topics.create("orders.us")
        await publish(broker, "orders.us", b"first")
        await publish(broker, "other", b"no")
        assert await take(subscription, 1) == [b"first"]
        assert set(listener.reads) == {("orders.eu", 0), ("orders.us", 0)}


async def test_partitions_added_later_are_read_from_their_beginning(broker: Broker) -> None:
    await broker.topics.create("orders")
    async with subscribed(broker, Selector("orders")) as (subscription, _):
        await broker.topics.add_partitions("orders", 3)
        await publish(broker, "orders", b"x", partition=2)
        assert await take(subscription, 1) == [b"x"]


async def test_topics_are_added_to_and_dropped_from_a_live_subscription(broker: Broker) -> None:
    async with subscribed(broker, Selector("a")) as (subscription, listener):
        await subscription.update([Selector("b", start=BEGINNING)], ["a"])
        while ("b", 0) not in listener.reads:
            await asyncio.sleep(0)
        await publish(broker, "a", b"no")
        await publish(broker, "b", b"yes")
        assert await take(subscription, 1) == [b"yes"]
        assert set(listener.reads) == {("b", 0)}
        with pytest.raises(InvalidArgument, match="'a' is not subscribed"):
            await subscription.update([], ["a"])


async def test_a_deleted_topic_is_reported_and_the_others_go_on(broker: Broker) -> None:
    await broker.topics.create("a")
    await broker.topics.create("b")
    async with subscribed(broker, Selector("a"), Selector("b")) as (subscription, listener):
        while len(listener.reads) < 2:
            await asyncio.sleep(0)
        await broker.topics.delete("a")
        assert listener.calls[-1] == ("UNKNOWN_TOPIC", [("a", 0)])
        await publish(broker, "b", b"x")
        assert await take(subscription, 1) == [b"x"]


async def test_a_position_that_retention_passed_is_reported_before_reading_continues(broker: Broker) -> None:
    await broker.topics.create("orders")
    await publish(broker, "orders", b"0", b"1", b"2")
    await broker.topics.delete_records("orders", {0: 2})
    async with subscribed(broker, Selector("orders", offsets={0: 0})) as (subscription, listener):
        assert await take(subscription, 1) == [b"2"]
        assert listener.calls[-2:] == [
            ("OFFSET_OUT_OF_RANGE", [("orders", 0)]),
            ("assigned", [("orders", 0, 2)]),
        ]


async def test_a_position_behind_the_end_is_reported_and_continues_at_the_end(broker: Broker) -> None:
    await broker.topics.create("orders")
    await publish(broker, "orders", b"0")
    async with subscribed(broker, Selector("orders", offsets={0: 50})) as (subscription, listener):
        assert await subscription.read(1000, max_wait_ms=20) == []
        assert listener.calls[-1] == ("assigned", [("orders", 0, 1)])


async def test_one_full_partition_does_not_starve_another(broker: Broker) -> None:
    await broker.topics.create("full")
    await broker.topics.create("small")
    for _ in range(50):
        await publish(broker, "full", b"x" * 1000)
    await publish(broker, "small", b"y")
    async with subscribed(broker, Selector("full", start=BEGINNING), Selector("small", start=BEGINNING)) as (
        s,
        _,
    ):
        topics = []
        for _ in range(3):
            topics += [d.topic for d in await s.read(2000, max_wait_ms=5000)]
        assert "small" in topics


async def test_a_read_of_n_records_stops_at_the_batch_that_reaches_n(broker: Broker) -> None:
    await broker.topics.create("orders")
    for _ in range(10):
        await broker.records.publish("orders", 0, batch(b"a", b"b", b"c"))
    async with subscribed(broker, Selector("orders", start=BEGINNING)) as (subscription, _):
        (delivery,) = await subscription.read(1 << 20, max_records=4, max_wait_ms=5000)
        assert (delivery.records, delivery.next_offset) == (6, 6)
        (delivery,) = await subscription.read(1 << 20, max_records=3, max_wait_ms=5000)
        assert (delivery.offset, delivery.next_offset) == (6, 9)


async def test_bad_selectors_are_refused(broker: Broker) -> None:
    for selector, error in (
        (Selector("../x"), InvalidTopicName),
        (Selector("[a]*", is_pattern=True), InvalidTopicName),
        (Selector("orders", start=StartPosition("middle")), InvalidArgument),
        (Selector("orders", start=StartPosition("offset", -5)), InvalidArgument),
    ):
        with pytest.raises(error):
            await broker.records.subscribe([selector], listener=Listener())


class Forbidding:
    """An authorizer that allows all but a few operations."""

    def __init__(self, *forbidden: tuple[Operation, str]) -> None:
        self._forbidden = forbidden

    def allows(self, who: Principal, operation: Operation, kind: ResourceType, name: str) -> bool:
        return (operation, name) not in self._forbidden


async def test_live_subscription_cannot_be_updated_to_unreadable_topics(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d", authorizer=Forbidding((Operation.READ, "secret"))) as broker:
        await broker.topics.create("secret", 1)
        async with subscribed(broker, Selector("open", start=BEGINNING)) as (subscription, listener):
            with pytest.raises(NotAuthorized):
                await subscription.update([Selector("other"), Selector("secret", start=BEGINNING)], ["open"])
            await broker.records.publish("open", 0, batch(b"still"))
            assert await take(subscription, 1) == [b"still"]
        assert {topic for topic, _ in listener.reads} == {"open"}
        assert broker.parts.topic_registry.find("other") is None, "a refused update creates nothing"


async def test_subscribing_creates_a_topic_only_with_the_right_to_create(tmp_path: Path) -> None:
    forbidding = Forbidding((Operation.CREATE, "new"), (Operation.CREATE, CLUSTER_NAME))
    async with Broker(tmp_path / "d", authorizer=forbidding) as broker:
        with pytest.raises(NotAuthorized):
            await broker.records.subscribe([Selector("new")], listener=Listener())
        assert broker.parts.topic_registry.find("new") is None


async def test_a_topic_that_was_dropped_and_selected_again_begins_at_its_new_start_position(
    broker: Broker,
) -> None:
    await broker.topics.create("orders", 1)
    await broker.records.publish("orders", 0, batch(b"a"))
    await broker.records.publish("orders", 0, batch(b"b"))
    async with subscribed(broker, Selector("orders", offsets={0: 0})) as (subscription, listener):
        assert await take(subscription, 2) == [b"a", b"b"]
        await subscription.update([], ["orders"])
        await broker.topics.add_partitions("orders", 2)
        await broker.records.publish("orders", 1, batch(b"older than the wish"))
        await subscription.update([Selector("orders", offsets={0: 1})], [])
        assert await take(subscription, 1) == [b"b"]
        assert listener.reads == {("orders", 0): 1, ("orders", 1): 1}


async def test_a_selector_that_is_dropped_twice_in_one_update_is_dropped(broker: Broker) -> None:
    async with subscribed(broker, Selector("orders")) as (subscription, listener):
        await subscription.update([Selector("other", start=BEGINNING)], ["orders", "orders"])
        await broker.records.publish("other", 0, batch(b"a"))
        assert await take(subscription, 1) == [b"a"]
        assert {topic for topic, _ in listener.reads} == {"other"}


async def test_a_read_of_n_records_from_the_disk_stops_at_the_batch_that_reaches_n(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("orders")
    for _ in range(10):
        await broker.records.publish("orders", 0, batch(b"a", b"b", b"c"))
    log = broker.parts.topic_registry.get("orders").partition(0).log
    read_nowait = log.read_nowait

    async def read(_: object, offset: int, max_bytes: int) -> Chunk | None:
        return read_nowait(offset, max_bytes)

    monkeypatch.setattr(type(log), "read_nowait", lambda *_: None)
    monkeypatch.setattr(type(log), "read", read)
    async with subscribed(broker, Selector("orders", start=BEGINNING)) as (subscription, _):
        (delivery,) = await subscription.read(1 << 20, max_records=4, max_wait_ms=5000)
        assert (delivery.records, delivery.next_offset) == (6, 6)
