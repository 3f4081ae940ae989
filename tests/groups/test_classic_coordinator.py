"""The coordinator of classic groups on the loop: waiting requests, the store, restarts, kinds of
groups, offsets.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import (
    DirectoryUnreadable,
    DiskFull,
    GroupNotEmpty,
    GroupSubscribedToTopic,
    GroupTypeMismatch,
    InvalidGroupId,
    InvalidSessionTimeout,
    RebalanceInProgress,
    StaleMember,
    UnknownGroup,
    UnknownMember,
)
from sparrow.broker.config import BrokerConfig
from sparrow.broker.groups.assembly import BrokerGroups
from sparrow.broker.groups.classic.protocol import JoinResponse, Leaver, SyncRequest
from sparrow.broker.groups.description import GroupState, GroupType
from sparrow.broker.groups.offsets import Committer, OffsetAndMetadata
from sparrow.broker.groups.retention import GRACE_MS
from sparrow.meta.memory import MemoryMetaStore
from sparrow.meta.store import Put
from tests.consumer_groups.machine import joining
from tests.groups.classic_driver import request, subscription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.base.errors import SparrowError
    from sparrow.broker.groups.registry import GroupRegistry
    from sparrow.records.topic_partition import TopicPartition

A = ("a", 0)
DAY_S = 86_400.0
ASSIGNMENT = (
    b"\x00\x00\x00\x00\x00\x01\x00\x01a\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"
)
"""Partitions 1 and 0 of topic a."""


NOBODY_LEFT = msgspec.msgpack.encode((1, "consumer", "", "", ()))
"""A classic group after its first generation."""


class Silent:
    """A native member that ignores all calls."""

    def on_assign(self, epoch: int, added: Sequence[TopicPartition]) -> None: ...

    def on_revoke(self, epoch: int, partitions: Sequence[TopicPartition]) -> None: ...

    def on_fenced(self, error: SparrowError) -> None: ...


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def meta() -> MemoryMetaStore:
    return MemoryMetaStore()


@pytest.fixture
async def groups(meta: MemoryMetaStore, clock: ManualClock) -> GroupRegistry:
    return await started(meta, clock)


async def started(meta: MemoryMetaStore, clock: ManualClock) -> GroupRegistry:
    groups = BrokerGroups(
        meta, clock, BrokerConfig(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=6_000)
    )
    await groups.load()
    groups.topics_changed({"a": 4, "b": 2})
    return groups


async def stable(groups: GroupRegistry, count: int = 1, assignment: bytes = ASSIGNMENT) -> list[JoinResponse]:
    """Return a stable group of `count` members."""
    first = await groups.classic.join(request())
    joining = [asyncio.ensure_future(groups.classic.join(request(client_id=str(n)))) for n in range(1, count)]
    await asyncio.sleep(0)
    if count > 1:
        again = await groups.classic.join(request(first.member_id))
        answers = [again, *(await asyncio.gather(*joining))]
    else:
        answers = [first]
    given = {answer.member_id: assignment for answer in answers}
    syncs = [
        groups.classic.sync(
            SyncRequest("g", a.member_id, a.generation, assignments=given if a.members else {})
        )
        for a in answers
    ]
    assert {answer.assignment for answer in await asyncio.gather(*syncs)} == {assignment}
    return answers


# ── the protocol on the loop ──────────────────────────────────────────────────────────────────────


async def test_members_share_a_group(groups: GroupRegistry) -> None:
    answers = await stable(groups, 3)
    for answer in answers:
        groups.classic.heartbeat("g", answer.member_id, answer.generation)
    description = groups.describe("g")
    assert (description.state, description.type) == (GroupState.STABLE, GroupType.CLASSIC)
    assert [m.topics for m in description.members] == [["a"]] * 3
    assert [m.partitions for m in description.members] == [[("a", 0), ("a", 1)]] * 3


async def test_a_request_whose_connection_is_lost_leaves_the_member_in_the_group(
    groups: GroupRegistry,
) -> None:
    (one,) = await stable(groups)
    waiting = asyncio.ensure_future(groups.classic.join(request()))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    again = await groups.classic.join(request(one.member_id))
    assert len(again.members) == 2


async def test_sessions_end_by_the_clock(groups: GroupRegistry, clock: ManualClock) -> None:
    one, two = await stable(groups, 2)
    clock.advance(6)
    groups.classic.heartbeat("g", one.member_id, one.generation)
    clock.advance(6)
    await groups.tick()
    with pytest.raises(RebalanceInProgress):
        groups.classic.heartbeat("g", one.member_id, one.generation)
    with pytest.raises(UnknownMember):
        groups.classic.heartbeat("g", two.member_id, two.generation)


async def test_a_rebalance_goes_on_without_those_that_do_not_join(
    groups: GroupRegistry, clock: ManualClock
) -> None:
    one, two = await stable(groups, 2)
    again = asyncio.ensure_future(groups.classic.join(request(one.member_id)))
    await asyncio.sleep(0)
    for _ in range(12):
        clock.advance(5)
        if clock.monotonic() < 55:
            with pytest.raises(RebalanceInProgress):
                groups.classic.heartbeat("g", two.member_id, two.generation)
        await groups.tick()
    assert [m.member_id for m in (await again).members] == [one.member_id]


async def test_bad_requests_make_no_group(groups: GroupRegistry) -> None:
    with pytest.raises(InvalidGroupId):
        await groups.classic.join(request(group=""))
    for timeout_ms in (5_999, 1_800_001):
        with pytest.raises(InvalidSessionTimeout):
            await groups.classic.join(request(session_timeout_ms=timeout_ms))
    with pytest.raises(UnknownMember):
        await groups.classic.join(request("stranger"))
    with pytest.raises(UnknownMember):
        await groups.classic.sync(SyncRequest("g", "stranger", 1))
    assert [type(e) for e in groups.classic.leave("g", [Leaver("stranger")])] == [UnknownMember]
    assert groups.list_groups() == []


# ── the store ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_stable_group_goes_on_after_a_restart(
    groups: GroupRegistry, meta: MemoryMetaStore, clock: ManualClock
) -> None:
    one, two = await stable(groups, 2)
    clock.advance(3_600)
    after = await started(meta, clock)
    clock.advance(9)
    await after.tick()
    for member in (one, two):
        after.classic.heartbeat("g", member.member_id, member.generation)
    sync = await after.classic.sync(SyncRequest("g", two.member_id, two.generation))
    assert sync.assignment == ASSIGNMENT
    assert after.describe("g") == groups.describe("g")
    clock.advance(10)
    await after.tick()
    assert after.describe("g").members == []


async def test_a_group_that_was_empty_keeps_its_generation_over_a_restart(
    groups: GroupRegistry, meta: MemoryMetaStore, clock: ManualClock
) -> None:
    (one,) = await stable(groups)
    groups.classic.leave("g", [Leaver(one.member_id)])
    await asyncio.sleep(0.01)
    after = await started(meta, clock)
    assert (await after.classic.join(request())).generation == one.generation + 2


async def test_an_assignment_is_not_sent_before_it_is_durable(
    groups: GroupRegistry, meta: MemoryMetaStore
) -> None:
    one = await groups.classic.join(request())
    meta.full = True
    with pytest.raises(DiskFull):
        await groups.classic.sync(SyncRequest("g", one.member_id, 1, assignments={one.member_id: b"x"}))
    with pytest.raises(RebalanceInProgress):
        groups.classic.heartbeat("g", one.member_id, 1)
    meta.full = False
    again = await groups.classic.join(request(one.member_id))
    sync = SyncRequest("g", one.member_id, again.generation, assignments={one.member_id: b"y"})
    assert (await groups.classic.sync(sync)).assignment == b"y"


async def test_a_static_member_that_replaced_itself_is_known_after_a_restart(
    groups: GroupRegistry, meta: MemoryMetaStore, clock: ManualClock
) -> None:
    first = await groups.classic.join(request(instance_id="i"))
    given = {first.member_id: b"x"}
    await groups.classic.sync(SyncRequest("g", first.member_id, 1, "i", assignments=given))
    second = await groups.classic.join(request(instance_id="i"))
    after = await started(meta, clock)
    after.classic.heartbeat("g", second.member_id, 1, "i")
    assert (await after.classic.sync(SyncRequest("g", second.member_id, 1, "i"))).assignment == b"x"


async def test_a_group_that_cannot_be_read_stops_the_start(meta: MemoryMetaStore, clock: ManualClock) -> None:
    await meta.write([Put("classic-group", "g", b"\x00")])
    with pytest.raises(DirectoryUnreadable):
        await started(meta, clock)


async def test_entries_of_version_1_of_a_classic_group_are_read(
    meta: MemoryMetaStore, clock: ManualClock
) -> None:
    """The bytes are those of the first release; later entries may have more fields."""
    member = b"\x99\xa1m\xa1i\xa1c\xa2/h\xcd\x27\x10\xcd\xea\x60\x91\x92\xa5range\xc4\x01s\xc4\x01x\xc3"
    group = b"\x96\x07\xa8consumer\xa5range\xa1m\x91" + member + b"\xc3"
    await meta.write([Put("classic-group", "g", group)])
    groups = await started(meta, clock)
    assert (await groups.classic.sync(SyncRequest("g", "m", 7, "i"))).assignment == b"x"
    (described,) = groups.classic.describe_classic("g").members
    assert (described.instance_id, described.client_id, described.client_host, described.metadata) == (
        "i",
        "c",
        "/h",
        b"s",
    )


# ── kinds of groups ───────────────────────────────────────────────────────────────────────────────


async def test_a_name_belongs_to_one_kind_while_it_has_members(groups: GroupRegistry) -> None:
    (one,) = await stable(groups)
    with pytest.raises(GroupTypeMismatch):
        groups.native.join("g", ["a"], Silent())
    native = groups.native.join("n", ["a"], Silent())
    with pytest.raises(GroupTypeMismatch):
        await groups.classic.join(request(group="n"))
    groups.classic.leave("g", [Leaver(one.member_id)])
    groups.native.join("g", ["a"], Silent())
    await native.leave()
    await groups.classic.join(request(group="n"))
    assert [(g.group, g.type) for g in groups.list_groups()] == [
        ("g", GroupType.SPARROW),
        ("n", GroupType.CLASSIC),
    ]


async def test_a_group_that_changed_its_kind_is_of_that_kind_after_a_restart(
    groups: GroupRegistry, meta: MemoryMetaStore, clock: ManualClock
) -> None:
    (one,) = await stable(groups)
    await groups.commit("g", {A: OffsetAndMetadata(5)}, Committer(one.member_id, one.generation))
    groups.classic.leave("g", [Leaver(one.member_id)])
    native = groups.native.join("g", ["a"], Silent())
    await native.leave()
    await groups.tick()
    after = await started(meta, clock)
    assert [(g.group, g.type) for g in after.list_groups()] == [("g", GroupType.SPARROW)]
    assert after.committed_offset("g", A) == 5


async def test_a_name_that_a_crash_left_with_two_kinds_belongs_to_the_one_with_members(
    groups: GroupRegistry, meta: MemoryMetaStore, clock: ManualClock
) -> None:
    (one,) = await stable(groups)
    groups.classic.leave("g", [Leaver(one.member_id)])
    await asyncio.sleep(0.01)
    empty = meta.entries["classic-group", "g"]
    assert (await groups.consumer.heartbeat("g", joining("m", "a"))).member_epoch == 1
    await asyncio.sleep(0.01)
    assert ("classic-group", "g") not in meta.entries
    meta.entries["classic-group", "g"] = empty
    after = await started(meta, clock)
    assert after.type_of("g") is GroupType.CONSUMER
    assert ("classic-group", "g") not in meta.entries


async def test_a_group_of_which_only_offsets_are_known_is_a_classic_one(groups: GroupRegistry) -> None:
    await groups.commit("g", {A: OffsetAndMetadata(1)})
    (info,) = groups.list_groups()
    assert (info.type, info.state, info.protocol_type) == (GroupType.CLASSIC, GroupState.EMPTY, "")
    assert groups.classic.describe_classic("g").members == ()
    groups.native.join("n", ["a"], Silent())
    for unknown in ("n", "nothing"):
        with pytest.raises(UnknownGroup):
            groups.classic.describe_classic(unknown)


async def test_a_group_with_members_is_not_deleted_and_one_without_is_forgotten(
    groups: GroupRegistry, meta: MemoryMetaStore
) -> None:
    (one,) = await stable(groups)
    await groups.tick()
    with pytest.raises(GroupNotEmpty):
        await groups.delete_group("g")
    groups.classic.leave("g", [Leaver(one.member_id)])
    await asyncio.sleep(0.01)
    await groups.delete_group("g")
    await groups.tick()
    assert groups.list_groups() == []
    assert meta.entries == {}


async def test_a_group_that_is_given_away_tells_who_waits_to_join_again(groups: GroupRegistry) -> None:
    (one,) = await stable(groups)
    waiting = asyncio.ensure_future(groups.classic.join(request(client_id="new")))
    await asyncio.sleep(0)
    given = groups.classic.release("g")
    assert given is not None
    with pytest.raises(RebalanceInProgress):
        await waiting
    assert groups.owner("g") is None
    groups.classic.adopt(given)
    with pytest.raises(RebalanceInProgress):
        groups.classic.heartbeat("g", one.member_id, one.generation)


# ── offsets ───────────────────────────────────────────────────────────────────────────────────────


async def test_only_members_of_the_generation_commit(groups: GroupRegistry) -> None:
    with pytest.raises(StaleMember):
        await groups.commit("g", {A: OffsetAndMetadata(1)}, Committer("m", 1, knows_member_epochs=False))
    with pytest.raises(UnknownGroup):
        await groups.commit("g", {A: OffsetAndMetadata(1)}, Committer("m", 1))
    (one,) = await stable(groups)
    await groups.commit("g", {A: OffsetAndMetadata(2, "note")}, Committer(one.member_id, one.generation))
    with pytest.raises(StaleMember):
        await groups.commit("g", {A: OffsetAndMetadata(3)}, Committer(one.member_id, 0))
    with pytest.raises(UnknownMember):
        await groups.commit("g", {A: OffsetAndMetadata(3)})
    assert groups.fetch_offsets("g")[A].metadata == "note"


async def test_offsets_of_topics_that_consumers_read_are_not_deleted(groups: GroupRegistry) -> None:
    b = ("b", 0)
    await groups.commit("g", {A: OffsetAndMetadata(1), b: OffsetAndMetadata(1)})
    await stable(groups)
    with pytest.raises(GroupSubscribedToTopic):
        await groups.delete_offsets("g", [A, b])
    await groups.delete_offsets("g", [b])
    assert groups.fetch_offsets("g").keys() == {A}


async def test_offsets_are_not_deleted_under_members_that_do_not_say_what_they_read(
    groups: GroupRegistry,
) -> None:
    await groups.commit("g", {A: OffsetAndMetadata(1)})
    await groups.classic.join(request(protocol_type="connect"))
    with pytest.raises(GroupNotEmpty):
        await groups.delete_offsets("g", [A])


async def test_offsets_are_forgotten_a_week_after_the_last_member(
    groups: GroupRegistry, meta: MemoryMetaStore, clock: ManualClock
) -> None:
    (one,) = await stable(groups)
    await groups.commit("g", {A: OffsetAndMetadata(1)}, Committer(one.member_id, one.generation))
    groups.classic.leave("g", [Leaver(one.member_id)])
    await asyncio.sleep(0.01)
    await groups.tick()
    clock.advance(7 * DAY_S - 60)
    await groups.tick()
    assert groups.committed_offset("g", A) == 1
    clock.advance(60)
    await groups.tick()
    assert groups.list_groups() == []
    assert meta.entries == {}


async def test_a_stable_group_loses_only_offsets_of_topics_that_it_does_not_read(
    groups: GroupRegistry, clock: ManualClock
) -> None:
    b = ("b", 0)
    await groups.commit("g", {A: OffsetAndMetadata(1), b: OffsetAndMetadata(1)})
    (one,) = await stable(groups)
    for _ in range(8):
        clock.advance(DAY_S)
        groups.classic.heartbeat("g", one.member_id, one.generation)
        await groups.tick()
    assert groups.fetch_offsets("g").keys() == {A}


async def test_offsets_without_a_group_are_forgotten_one_by_one(
    groups: GroupRegistry, clock: ManualClock
) -> None:
    await groups.commit("g", {A: OffsetAndMetadata(1)})
    clock.advance(DAY_S)
    await groups.commit("g", {("a", 1): OffsetAndMetadata(1)})
    clock.advance(6 * DAY_S)
    await groups.tick()
    assert groups.fetch_offsets("g").keys() == {("a", 1)}


async def test_a_commit_may_say_how_long_it_is_kept(groups: GroupRegistry, clock: ManualClock) -> None:
    until = clock.wall_ms() + 2 * GRACE_MS
    await groups.commit("g", {A: OffsetAndMetadata(1, kept_until_ms=until)})
    clock.advance(2 * GRACE_MS / 1000 - 1)
    await groups.tick()
    assert groups.committed_offset("g", A) == 1
    clock.advance(61)
    await groups.tick()
    assert groups.committed_offset("g", A) is None


async def test_offsets_of_transactions_that_are_not_decided_keep_the_others(
    groups: GroupRegistry, clock: ManualClock
) -> None:
    await groups.commit("g", {A: OffsetAndMetadata(1), ("a", 1): OffsetAndMetadata(1)})
    groups.pending = lambda _group: {A}
    clock.advance(8 * DAY_S)
    await groups.tick()
    assert groups.fetch_offsets("g").keys() == {A}


async def test_a_name_that_the_store_cannot_keep_is_refused_and_does_not_stop_others_from_being_kept(
    groups: GroupRegistry, meta: MemoryMetaStore
) -> None:
    for name in ("x" * 5_000, "\0" * 1_000, "ä" * 2_000):
        with pytest.raises(InvalidGroupId):
            await groups.classic.join(request(group=name))
    long = "x" * 3_000
    joining_ = [asyncio.create_task(groups.classic.join(request(group=name))) for name in (long, "g")]
    await asyncio.sleep(0.05)
    assert all(isinstance(each.result(), JoinResponse) for each in joining_)
    await groups.tick()
    assert {key for kind, key in meta.entries if kind == "group"} == {long, "g"}


async def test_many_groups_that_nobody_uses_are_forgotten_in_few_writes(
    meta: MemoryMetaStore, clock: ManualClock
) -> None:
    for number in range(1_200):
        await meta.write([Put("classic-group", f"g{number}", NOBODY_LEFT)])
    groups = await started(meta, clock)
    assert len(groups.list_groups()) == 1_200
    clock.advance(GRACE_MS / 1000 + 61)
    commits = meta.commits
    await groups.tick()
    assert not groups.list_groups()
    assert not [key for kind, key in meta.entries if kind == "classic-group"]
    assert meta.commits - commits < 10


def test_metadata_of_consumers_is_understood() -> None:
    from sparrow.broker.groups.consumer.protocol import assigned_partitions, subscribed_topics

    assert subscribed_topics(subscription("a", "ä")) == {"a", "ä"}
    assert assigned_partitions(ASSIGNMENT) == (("a", 0), ("a", 1))
    for cut in range(len(ASSIGNMENT) - 4):
        assert assigned_partitions(ASSIGNMENT[:cut]) == ()
    for bad in (
        b"",
        b"\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff",
    ):
        assert subscribed_topics(bad) is None
