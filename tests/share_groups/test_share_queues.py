"""A share group is a queue: its topics, start, progress, and the effect of administration on it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sparrow.base.clock import ManualClock
from sparrow.base.errors import (
    GroupNotEmpty,
    GroupTypeMismatch,
    InvalidArgument,
    PolicyViolation,
    UnknownPartition,
    UnknownQueue,
    UnknownTopic,
)
from sparrow.broker.access.authz import ANONYMOUS
from sparrow.broker.broker import Broker
from sparrow.broker.configs.changes import ConfigChange, ConfigOperation
from sparrow.broker.configs.service import ConfigResource, ConfigResourceType
from sparrow.broker.groups.share.member import ShareHeartbeat
from sparrow.broker.groups.share.queues import BY_RESET
from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.broker.reading.subscription import Selector, SubscriptionListener
from tests.broker.batches import batch, values
from tests.share_groups.machine import joining

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(wall_ms=NOW_MS)


@pytest_asyncio.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data", clock=clock) as running:
        yield running


class Silent(SubscriptionListener):
    """A listener that ignores all calls."""


async def configure(broker: Broker, group: str, **settings: str) -> None:
    changes = [
        ConfigChange(name.replace("_", "."), ConfigOperation.SET, value) for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResourceType.GROUP, group)
    await broker.configs.alter(resource, changes, principal=ANONYMOUS)


async def publish(broker: Broker, topic: str, *data: bytes, at_ms: int = NOW_MS, partition: int = 0) -> None:
    await broker.records.publish(topic, partition, batch(*data, timestamp_ms=at_ms))


async def join(broker: Broker, group: str, *topics: str, member_id: str = "m") -> None:
    await broker.parts.group_registry.share.heartbeat(group, joining(member_id, *topics))


async def leave(broker: Broker, group: str, member_id: str = "m") -> None:
    await broker.parts.group_registry.share.heartbeat(group, ShareHeartbeat(member_id, -1))


async def read(broker: Broker, group: str, acknowledge: bool = True) -> list[bytes | None]:
    """Return the values of everything that is ready, acknowledged or left leased."""
    consumer = await broker.queues.open_consumer(group, consumer_id="m")
    got: list[bytes | None] = []
    for leased in await consumer.lease(100, wait_ms=50):
        for first, last, _ in leased.ranges:
            got += values(leased.data)
            if acknowledge:
                done = Settlement(Verb.ACK, leased.topic, leased.partition, first, last)
                assert await consumer.settle([done]) == [None]
    await consumer.close(release=False)
    return got


async def progress(broker: Broker, group: str) -> dict[tuple[str, int], tuple[int, int, int]]:
    return {
        key: tuple(each) for key, each in (await broker.parts.group_registry.share.progress(group)).items()
    }  # type: ignore[misc]


# ── where it begins ───────────────────────────────────────────────────────────────────────────────


async def test_group_begins_at_the_end_unless_it_says_otherwise(broker: Broker) -> None:
    await broker.topics.create("a", 1)
    await publish(broker, "a", b"1", b"2")
    await join(broker, "late", "a")
    await configure(broker, "early", share_auto_offset_reset="earliest")
    await join(broker, "early", "a")
    await publish(broker, "a", b"3")
    assert await read(broker, "late") == [b"3"]
    assert await read(broker, "early") == [b"1", b"2", b"3"]
    assert await progress(broker, "late") == {("a", 0): (3, 3, 0)}


async def test_group_may_begin_some_time_ago(broker: Broker) -> None:
    await broker.topics.create("a", 1)
    await publish(broker, "a", b"old", at_ms=NOW_MS - 3 * HOUR_MS)
    await publish(broker, "a", b"new", at_ms=NOW_MS - HOUR_MS)
    await configure(broker, "g", share_auto_offset_reset="by_duration:PT2H")
    await join(broker, "g", "a")
    assert await read(broker, "g") == [b"new"]


async def test_partitions_that_come_later_are_read_from_their_beginning(broker: Broker) -> None:
    await broker.topics.create("a", 1)
    await join(broker, "g", "a")
    await broker.topics.add_partitions("a", 2)
    await publish(broker, "a", b"x", partition=1)
    assert await read(broker, "g") == [b"x"]
    told = await broker.parts.group_registry.share.heartbeat("g", ShareHeartbeat("m", 1))
    assert len(told.assignment or ()) == 2


async def test_topic_that_comes_after_the_member_is_read_from_where_the_group_says(broker: Broker) -> None:
    await join(broker, "g", "a")
    await broker.topics.create("a", 1)
    await broker.parts.group_registry.share.heartbeat("g", ShareHeartbeat("m", 1))
    await publish(broker, "a", b"x")
    assert await read(broker, "g") == [b"x"]


async def test_topic_that_is_deleted_and_made_again_is_another_one(broker: Broker) -> None:
    await broker.topics.create("a", 1)
    await join(broker, "g", "a")
    await publish(broker, "a", b"1")
    await read(broker, "g")
    await broker.topics.delete("a")
    assert await progress(broker, "g") == {}
    await broker.topics.create("a", 1)
    told = await broker.parts.group_registry.share.heartbeat("g", ShareHeartbeat("m", 1))
    assert len(told.assignment or ()) == 1
    await publish(broker, "a", b"2")
    assert await read(broker, "g") == [b"2"]
    assert await progress(broker, "g") == {("a", 0): (1, 1, 0)}


# ── how far it is ─────────────────────────────────────────────────────────────────────────────────


async def test_lag_counts_unfinished_records_behind_the_start(broker: Broker) -> None:
    await broker.topics.create("a", 1)
    await join(broker, "g", "a")
    await publish(broker, "a", *(b"%d" % n for n in range(10)))
    assert await progress(broker, "g") == {("a", 0): (0, 10, 10)}
    consumer = await broker.queues.open_consumer("g", consumer_id="m")
    await consumer.lease(10)
    acks = [Settlement(Verb.ACK, "a", 0, first, last) for first, last in ((2, 3), (7, 7))]
    assert await consumer.settle(acks) == [None, None]
    assert await progress(broker, "g") == {("a", 0): (0, 10, 7)}
    assert await consumer.settle([Settlement(Verb.ACK, "a", 0, 0, 1)]) == [None]
    assert await progress(broker, "g") == {("a", 0): (4, 10, 5)}
    await consumer.close(release=True)


async def test_progress_of_a_group_survives_the_broker(tmp_path: Path, clock: ManualClock) -> None:
    async with Broker(tmp_path / "d", clock=clock) as broker:
        await broker.topics.create("a", 1)
        await join(broker, "g", "a")
        await publish(broker, "a", b"1", b"2")
        await read(broker, "g")
        await publish(broker, "a", b"3")
    async with Broker(tmp_path / "d", clock=clock) as broker:
        assert await progress(broker, "g") == {("a", 0): (2, 3, 1)}
        assert await read(broker, "g") == [b"3"]


# ── what an administrator does ────────────────────────────────────────────────────────────────────


async def test_empty_group_is_moved_within_the_log(broker: Broker) -> None:
    await broker.topics.create("a", 2)
    await publish(broker, "a", b"1", b"2", b"3")
    await join(broker, "g", "a")
    with pytest.raises(GroupNotEmpty):
        await broker.parts.group_registry.share.move("g", {("a", 0): 1})
    await leave(broker, "g")
    moved = await broker.parts.group_registry.share.move("g", {("a", 0): 1, ("a", 1): 99})
    assert moved == {("a", 0): None, ("a", 1): None}
    assert await progress(broker, "g") == {("a", 0): (1, 3, 2), ("a", 1): (0, 0, 0)}
    # the whole batch, of which the last two are leased
    assert await read(broker, "g") == [b"1", b"2", b"3"]
    await broker.parts.group_registry.share.move("g", {("a", 0): BY_RESET})
    assert await progress(broker, "g") == {("a", 0): (3, 3, 0), ("a", 1): (0, 0, 0)}


async def test_group_that_does_not_exist_is_created_at_the_given_offsets(broker: Broker) -> None:
    await broker.topics.create("a", 2)
    await publish(broker, "a", b"1", b"2")
    await publish(broker, "a", b"3", partition=1)
    await broker.parts.group_registry.share.move("g", {("a", 0): 1})
    assert await progress(broker, "g") == {("a", 0): (1, 2, 1), ("a", 1): (1, 1, 0)}
    await join(broker, "g", "a")
    assert await progress(broker, "g") == {("a", 0): (1, 2, 1), ("a", 1): (1, 1, 0)}


async def test_partitions_that_cannot_be_moved_are_named(broker: Broker) -> None:
    await broker.topics.create("a", 1)
    moved = await broker.parts.group_registry.share.move(
        "g", {("a", 1): 0, ("x", 0): 0, ("a", 0): -2, ("a", -1): 0}
    )
    assert {key: type(error) for key, error in moved.items()} == {
        ("a", 1): UnknownPartition,
        ("x", 0): UnknownTopic,
        ("a", 0): InvalidArgument,
        ("a", -1): UnknownPartition,
    }
    assert await progress(broker, "g") == {}


async def test_group_whose_records_are_leased_is_not_moved(broker: Broker) -> None:
    await broker.topics.create("a", 1)
    await join(broker, "g", "a")
    await publish(broker, "a", b"1")
    await read(broker, "g", acknowledge=False)
    await leave(broker, "g")
    with pytest.raises(GroupNotEmpty):
        await broker.parts.group_registry.share.move("g", {("a", 0): 0})
    with pytest.raises(GroupNotEmpty):
        await broker.parts.group_registry.share.drop_topic("g", "a")


async def test_forgotten_topic_begins_again(broker: Broker) -> None:
    await configure(broker, "g", share_auto_offset_reset="earliest")
    await broker.topics.create("a", 1)
    await broker.topics.create("b", 1)
    await publish(broker, "a", b"1")
    await join(broker, "g", "a", "b")
    assert await read(broker, "g") == [b"1"]
    await leave(broker, "g")
    await broker.parts.group_registry.share.drop_topic("g", "a")
    assert set(await progress(broker, "g")) == {("b", 0)}
    with pytest.raises(UnknownTopic):
        await broker.parts.group_registry.share.drop_topic("g", "a")
    await join(broker, "g", "a", "b")
    assert await read(broker, "g") == [b"1"]


async def test_deleted_group_takes_its_queue_along(broker: Broker) -> None:
    await broker.topics.create("a", 1)
    await join(broker, "g", "a")
    await leave(broker, "g")
    await broker.groups.delete("g")
    with pytest.raises(UnknownQueue):
        broker.queues.describe("g")
    assert await progress(broker, "g") == {}


async def test_reset_of_a_group_by_the_native_verb_moves_a_share_group(broker: Broker) -> None:
    await broker.topics.create("a", 1)
    await publish(broker, "a", b"1", b"2")
    await join(broker, "g", "a")
    await leave(broker, "g")
    assert await broker.groups.reset("g", "a", "beginning") == [("a", 0, 0)]
    assert await progress(broker, "g") == {("a", 0): (0, 2, 2)}
    (lag,) = (await broker.groups.report("g")).offsets
    assert (lag.offset, lag.end_offset, lag.lag) == (0, 2, 2)


# ── queues that somebody made ─────────────────────────────────────────────────────────────────────


async def test_members_join_a_queue_of_their_groups_name(broker: Broker) -> None:
    await broker.topics.create("a", 1)
    await broker.topics.create("b", 1)
    await broker.queues.create("g", ["a"], {"lease_ms": 1234})
    await publish(broker, "a", b"1")
    answer = await broker.parts.group_registry.share.heartbeat("g", joining("m", "a", "b"))
    assert len(answer.assignment or ()) == 1
    found = broker.queues.describe("g")
    assert (found.kind, found.topics, found.policy["lease_ms"]) == ("queue", ["a"], 1234)
    assert await read(broker, "g") == [b"1"]
    await leave(broker, "g")
    with pytest.raises(PolicyViolation):
        await broker.parts.group_registry.share.drop_topic("g", "a")
    assert type((await broker.parts.group_registry.share.move("g", {("b", 0): 0}))["b", 0]) is UnknownTopic
    await broker.groups.delete("g")
    assert broker.queues.describe("g").kind == "queue"


# ── settings ──────────────────────────────────────────────────────────────────────────────────────


async def test_settings_of_the_group_are_the_policy_of_its_queue(broker: Broker) -> None:
    await broker.topics.create("a", 3)
    await join(broker, "g", "a")
    policy = broker.queues.describe("g").policy
    assert (policy["lease_ms"], policy["delivery_limit"], policy["max_leased"]) == (30_000, 5, 6000)
    assert (policy["isolation"], policy["dead_letter_topic"]) == ("read_uncommitted", None)
    await configure(
        broker,
        "g",
        share_record_lock_duration_ms="15000",
        share_delivery_count_limit="2",
        share_partition_max_record_locks="100",
        share_isolation_level="read_committed",
        errors_deadletterqueue_topic_name="dlq.g",
    )
    policy = broker.queues.describe("g").policy
    assert (policy["lease_ms"], policy["delivery_limit"], policy["max_leased"]) == (15_000, 2, 300)
    assert (policy["isolation"], policy["dead_letter_topic"]) == ("read_committed", "dlq.g")


async def test_queue_can_have_many_partitions_with_many_locks(broker: Broker) -> None:
    await broker.topics.create("a", 1001)
    await configure(broker, "g", share_partition_max_record_locks="10000")
    await join(broker, "g", "a")
    assert broker.queues.describe("g").policy["max_leased"] == 10_000_000


async def test_dead_letters_go_to_topics_that_broker_and_topic_allow(broker: Broker) -> None:
    for name, enabled in (("dlq.yes", "true"), ("dlq.no", "false"), ("other", "true")):
        await broker.topics.create(name, 1, {"errors.deadletterqueue.group.enable": enabled})
    refused = {
        name
        for name in ("dlq.yes", "dlq.no", "dlq.missing", "other")
        if broker.parts.share_dead_letter_refusal(name) is not None
    }
    assert refused == {"dlq.no", "dlq.missing", "other"}
    resource = ConfigResource(ConfigResourceType.BROKER, "")
    rules = {
        "errors.deadletterqueue.topic.name.prefix": "",
        "errors.deadletterqueue.auto.create.topics.enable": "true",
    }
    changes = [ConfigChange(name, ConfigOperation.SET, value) for name, value in rules.items()]
    await broker.configs.alter(resource, changes, principal=ANONYMOUS)
    assert broker.parts.share_dead_letter_refusal("other") is None
    assert broker.parts.share_dead_letter_refusal("dlq.missing") is None
    assert broker.parts.share_dead_letter_refusal("dlq.no") is not None


async def test_native_group_does_not_take_the_name_of_a_share_group(broker: Broker) -> None:
    await broker.topics.create("a", 1)
    await join(broker, "g", "a")
    await leave(broker, "g")
    with pytest.raises(GroupTypeMismatch):
        await broker.records.subscribe([Selector("a")], listener=Silent(), group="g")


async def test_queue_that_was_deleted_is_made_again_by_the_next_heartbeat(broker: Broker) -> None:
    await broker.topics.create("a", 1)
    await join(broker, "g", "a")
    await broker.queues.delete("g")
    await broker.parts.group_registry.share.heartbeat("g", ShareHeartbeat("m", 1))
    assert broker.queues.describe("g").topics == ["a"]
