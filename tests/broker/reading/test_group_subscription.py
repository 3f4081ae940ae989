"""Subscriptions as members of groups: sharing, handing over, committing, returning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sparrow.base.errors import GroupNotEmpty, InvalidArgument, StaleMember, UnknownGroup, UnknownTopic
from sparrow.broker.broker import Broker
from sparrow.broker.groups.offsets import OffsetAndMetadata
from sparrow.broker.reading.positions import StartPosition
from sparrow.broker.reading.subscription import Selector, Subscription
from sparrow.meta.store import Write
from tests.broker.batches import batch
from tests.broker.reading.test_subscription import Listener, publish, take

FROM_BEGINNING = (Selector("orders", start=StartPosition("beginning")),)


class Member(Listener):
    """A listener that releases partitions at once, unless a test makes it wait."""

    def __init__(self) -> None:
        super().__init__()
        self.subscription: Subscription | None = None
        self.is_slow = False
        self.owed: list[tuple[int, list[tuple[str, int]]]] = []

    def revoked(self, epoch: int, partitions: list[tuple[str, int]], reason: str) -> None:
        super().revoked(epoch, partitions, reason)
        if reason == "":
            self.owed.append((epoch, partitions))
            if not self.is_slow:
                self.give_back()

    def give_back(self) -> None:
        owed, self.owed = self.owed, []
        for epoch, partitions in owed:
            assert self.subscription is not None
            self.subscription.confirm_revoked(epoch, partitions)


async def join(broker: Broker, group: str = "g", member_id: str = "", **options: int) -> Member:
    member = Member()
    member.subscription = await broker.records.subscribe(
        FROM_BEGINNING, listener=member, group=group, member_id=member_id, **options
    )
    return member


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


async def test_members_share_the_partitions_and_take_over_when_one_leaves(broker: Broker) -> None:
    await broker.topics.create("orders", 4)
    one = await join(broker)
    await until(lambda: len(one.reads) == 4)
    two = await join(broker)
    await until(lambda: len(one.reads) == 2 and len(two.reads) == 2)
    assert not one.reads.keys() & two.reads.keys()
    assert one.subscription is not None
    await one.subscription.close()
    await until(lambda: len(two.reads) == 4)


async def test_a_partition_moves_only_when_its_holder_gave_it_back(broker: Broker) -> None:
    await broker.topics.create("orders", 2)
    one = await join(broker)
    await until(lambda: len(one.reads) == 2)
    one.is_slow = True
    two = await join(broker)
    await until(lambda: bool(one.owed))
    await asyncio.sleep(0.05)
    assert two.reads == {}
    one.give_back()
    await until(lambda: len(two.reads) == 1)


async def test_a_group_continues_at_its_committed_offsets(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d") as broker:
        await broker.topics.create("orders", 1)
        await publish(broker, "orders", b"0", b"1", b"2")
        one = await join(broker)
        assert one.subscription is not None
        assert await take(one.subscription, 3) == [b"0", b"1", b"2"]
        await one.subscription.commit({("orders", 0): (2, "note")})
        await one.subscription.close()
    async with Broker(tmp_path / "d") as broker:
        (committed,) = broker.groups.fetch_offsets("g")
        assert (committed.offset, committed.metadata) == (2, "note")
        two = await join(broker)
        assert two.subscription is not None
        assert await take(two.subscription, 1) == [b"2"]
        assert two.reads == {("orders", 0): 2}


async def test_a_lost_connection_keeps_its_partitions_for_the_same_member(broker: Broker) -> None:
    await broker.topics.create("orders", 2)
    one = await join(broker)
    two = await join(broker)
    await until(lambda: len(one.reads) == 1 and len(two.reads) == 1)
    assert one.subscription is not None
    member_id, held = one.subscription.member_id, set(one.reads)
    await one.subscription.close(leave=False)
    back = await join(broker, member_id=member_id)
    await until(lambda: len(back.reads) == 1)
    assert set(back.reads) == held
    assert len(two.reads) == 1


async def test_a_member_that_does_not_come_back_is_put_out_after_its_session(broker: Broker) -> None:
    await broker.topics.create("orders", 2)
    one = await join(broker, session_timeout_ms=30)
    two = await join(broker)
    await until(lambda: len(one.reads) == 1 and len(two.reads) == 1)
    assert one.subscription is not None
    await one.subscription.close(leave=False)
    await until(lambda: len(two.reads) == 2)


async def test_a_commit_for_a_partition_of_somebody_else_is_refused(broker: Broker) -> None:
    await broker.topics.create("orders", 2)
    one, two = await join(broker), await join(broker)
    await until(lambda: len(one.reads) == 1 and len(two.reads) == 1)
    (foreign,) = two.reads
    assert one.subscription is not None
    with pytest.raises(StaleMember):
        await one.subscription.commit({foreign: (1, "")})


async def test_a_subscription_without_a_group_cannot_commit(broker: Broker) -> None:
    subscription = await broker.records.subscribe(FROM_BEGINNING, listener=Listener())
    with pytest.raises(InvalidArgument, match="subscribe with a group"):
        await subscription.commit({("orders", 0): (1, "")})
    await subscription.close()


async def test_a_topic_deleted_under_a_group_is_reported_and_the_group_continues(broker: Broker) -> None:
    await broker.topics.create("orders", 2)
    await broker.topics.create("payments", 1)
    member = Member()
    member.subscription = await broker.records.subscribe(
        [Selector("orders"), Selector("payments")], listener=member, group="g"
    )
    await until(lambda: len(member.reads) == 3)
    await broker.groups.commit_offsets("other", {("orders", 0): (0, "")})
    await broker.topics.delete("orders")
    assert (UnknownTopic.code, [("orders", 0), ("orders", 1)]) in [
        (a, sorted(b)) for a, b in member.calls if a == UnknownTopic.code
    ]  # type: ignore[call-overload]
    assert broker.groups.fetch_offsets("other") == []
    await publish(broker, "payments", b"x")
    assert await take(member.subscription, 1) == [b"x"]


async def test_groups_are_listed_described_reset_and_deleted(broker: Broker) -> None:
    await broker.topics.create("orders", 2)
    for ms in (1000, 2000, 3000):
        await broker.records.publish("orders", 0, batch(b"x", timestamp_ms=ms))
    member = await join(broker)
    await until(lambda: len(member.reads) == 2)
    assert member.subscription is not None
    await member.subscription.commit({("orders", 0): (1, "half")})
    described = broker.groups.describe("g")
    assert [(g.group, g.members) for g in broker.groups.listing()] == [("g", 1)]
    assert described.members[0].partitions == [("orders", 0), ("orders", 1)]
    ((lag),) = described.offsets
    assert (lag.offset, lag.end_offset, lag.lag, lag.metadata) == (1, 3, 2, "half")
    for refused in (
        broker.groups.reset("g", "orders", "beginning"),
        broker.groups.delete("g"),
        broker.groups.commit_offsets("g", {("orders", 0): (0, "")}),
    ):
        with pytest.raises(GroupNotEmpty):
            await refused
    await member.subscription.close()
    assert await broker.groups.reset("g", "orders", "timestamp", 2000) == [
        ("orders", 0, 1),
        ("orders", 1, 0),
    ]
    assert await broker.groups.reset("g", "orders", "offset", 99, [0]) == [("orders", 0, 3)]
    await broker.groups.delete("g")
    assert broker.groups.listing() == []
    with pytest.raises(UnknownGroup):
        broker.groups.describe("g")


async def test_a_new_holder_begins_behind_a_commit_that_was_under_way(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("orders", 1)
    await publish(broker, "orders", b"0", b"1", b"2")
    one = await join(broker)
    assert one.subscription is not None
    assert await take(one.subscription, 3) == [b"0", b"1", b"2"]
    meta, is_slow = broker.parts.group_registry._offsets._meta, asyncio.Event()
    write = meta.write

    async def late(writes: Sequence[Write]) -> None:
        await is_slow.wait()
        await write(writes)

    monkeypatch.setattr(meta, "write", late)
    commit = asyncio.create_task(one.subscription.commit({("orders", 0): (2, "")}))
    await asyncio.sleep(0.01)
    await one.subscription.close()
    two = await join(broker)
    asked = asyncio.create_task(broker.groups.fetch("g", [("orders", 0)]))
    await asyncio.sleep(0.05)
    assert two.reads == {}
    assert not asked.done(), "Kafka's members ask for it"
    is_slow.set()
    await commit
    await until(lambda: bool(two.reads))
    assert two.reads == {("orders", 0): 2}
    found = (await asked)["orders", 0]
    assert isinstance(found, OffsetAndMetadata)
    assert found.offset == 2
