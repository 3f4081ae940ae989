"""The coordinator of native groups: notifications, commits, lists, deletion and expiry."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import (
    DiskFull,
    GroupNotEmpty,
    GroupSubscribedToTopic,
    InvalidArgument,
    OffsetMetadataTooLarge,
    Overloaded,
    SparrowError,
    StaleMember,
    UnknownGroup,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from sparrow.broker.groups.description import GroupState, GroupType
from sparrow.broker.groups.native.coordinator import Membership, NativeGroupCoordinator
from sparrow.broker.groups.offsets import OffsetAndMetadata
from sparrow.broker.groups.registry import GroupRegistry
from sparrow.broker.groups.retention import GRACE_MS
from sparrow.meta.memory import MemoryMetaStore
from sparrow.model.groups import GroupListing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.records.topic_partition import TopicPartition

A = [("a", n) for n in range(4)]
DAY_S = 86_400.0


@dataclass
class Member:
    """A listener that records its calls, and can release at once."""

    releases: bool = False
    membership: Membership | None = None
    partitions: set[TopicPartition] = field(default_factory=set)
    asked: list[tuple[int, tuple[TopicPartition, ...]]] = field(default_factory=list)
    fenced: SparrowError | None = None

    def on_assign(self, epoch: int, added: Sequence[TopicPartition]) -> None:
        self.partitions.update(added)

    def on_revoke(self, epoch: int, partitions: Sequence[TopicPartition]) -> None:
        self.asked.append((epoch, tuple(partitions)))
        if self.releases:
            self.release()

    def on_fenced(self, error: SparrowError) -> None:
        self.fenced = error
        self.partitions.clear()

    def release(self) -> None:
        assert self.membership is not None
        for epoch, partitions in self.asked:
            self.partitions.difference_update(partitions)
            self.membership.confirm_revoked(epoch, partitions)
        self.asked.clear()

    async def commit(self, offset: int, *partitions: TopicPartition) -> None:
        assert self.membership is not None
        await self.membership.commit(dict.fromkeys(partitions, (offset, "")))


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
    coordinator = GroupRegistry(meta, clock)
    coordinator.native = NativeGroupCoordinator(coordinator, max_members=50)
    coordinator.register(coordinator.native)
    await coordinator.load()
    coordinator.topics_changed({"a": 4, "b": 2})
    return coordinator


def joined(
    groups: GroupRegistry, member_id: str = "", *, releases: bool = False, topics: str = "a"
) -> Member:
    member = Member(releases)
    member.membership = groups.native.join(
        "g", topics.split(), member, member_id=member_id, client_name="test"
    )
    return member


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


# ── members ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_member_hears_of_partitions_after_join_has_returned(groups: GroupRegistry) -> None:
    member = joined(groups)
    assert member.partitions == set()
    await settle()
    assert member.partitions == set(A)


async def test_members_without_an_id_get_different_ones(groups: GroupRegistry) -> None:
    one, other = joined(groups).membership, joined(groups).membership
    assert one is not None
    assert other is not None
    assert one.member_id
    assert one.member_id != other.member_id


async def test_partitions_move_when_they_are_released(groups: GroupRegistry) -> None:
    one = joined(groups)
    await settle()
    other = joined(groups)
    await settle()
    assert other.partitions == set()
    one.release()
    await settle()
    assert len(one.partitions) == len(other.partitions) == 2
    assert groups.describe("g").state is GroupState.STABLE


async def test_a_listener_may_release_at_once(groups: GroupRegistry) -> None:
    members = [joined(groups, releases=True) for _ in range(4)]
    await settle()
    assert [len(member.partitions) for member in members] == [1, 1, 1, 1]


async def test_a_member_that_leaves_hears_no_more(groups: GroupRegistry) -> None:
    one = joined(groups)
    assert one.membership is not None
    await one.membership.leave()
    await one.membership.leave()
    await settle()
    assert one.partitions == set()
    assert one.fenced is None


async def test_a_listener_that_fails_does_not_silence_the_others(
    groups: GroupRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Member):
        def on_assign(self, epoch: int, added: Sequence[TopicPartition]) -> None:
            raise RuntimeError("broken")

    groups.native.join("g", ["b"], Broken())
    member = joined(groups)
    await settle()
    assert member.partitions == set(A)
    assert "could not be notified" in caplog.text


async def test_a_lost_connection_keeps_the_partitions_until_the_session_ends(
    groups: GroupRegistry, clock: ManualClock
) -> None:
    one, other = joined(groups, "one", releases=True), joined(groups, "other")
    await settle()
    assert one.membership is not None
    one.membership.detach()
    clock.advance(44)
    await groups.tick()
    await settle()
    assert len(other.partitions) == 2
    clock.advance(1)
    await groups.tick()
    await settle()
    assert other.partitions == set(A)


async def test_a_member_that_reconnects_goes_on_where_it_was(
    groups: GroupRegistry, clock: ManualClock
) -> None:
    one = joined(groups, "one", releases=True)
    joined(groups, "other")
    await settle()
    assert one.membership is not None
    one.membership.detach()
    clock.advance(30)
    again = joined(groups, "one")
    clock.advance(30)
    await groups.tick()
    await settle()
    assert again.partitions == one.partitions
    await again.commit(5, *again.partitions)


async def test_another_connection_takes_a_member_over_and_the_first_is_fenced(
    groups: GroupRegistry,
) -> None:
    first = joined(groups, "one")
    await settle()
    second = joined(groups, "one")
    await settle()
    assert isinstance(first.fenced, StaleMember)
    assert "another connection" in first.fenced.text
    assert second.partitions == set(A)
    with pytest.raises(UnknownMember):
        await first.commit(1, A[0])
    assert first.membership is not None
    first.membership.detach()
    await first.membership.leave()
    first.membership.heartbeat()
    await second.commit(1, A[0])


async def test_member_that_does_not_release_in_time_is_fenced(
    groups: GroupRegistry, clock: ManualClock
) -> None:
    one = joined(groups)
    await settle()
    other = joined(groups)
    clock.advance(60)
    await groups.tick()
    await settle()
    assert isinstance(one.fenced, StaleMember)
    assert other.partitions == set(A)
    with pytest.raises(UnknownMember):
        await one.commit(1, A[0])


async def test_a_member_without_connection_is_fenced_when_it_falls_silent(
    groups: GroupRegistry, clock: ManualClock
) -> None:
    member = Member()
    membership = groups.native.join("g", ["a"], member, session_timeout_ms=10_000, attached=False)
    for _ in range(3):
        clock.advance(9)
        membership.heartbeat()
        await groups.tick()
    await settle()
    assert member.partitions == set(A)
    clock.advance(10)
    await groups.tick()
    await settle()
    assert isinstance(member.fenced, UnknownMember)


async def test_new_partitions_and_topics_reach_the_members(groups: GroupRegistry) -> None:
    member = joined(groups, topics="a new")
    groups.topics_changed({"new": 2, "a": 5})
    await settle()
    assert member.partitions == {*A, ("a", 4), ("new", 0), ("new", 1)}
    assert member.membership is not None
    member.membership.update(["new"])
    await settle()
    assert [partitions for _, partitions in member.asked] == [(*A, ("a", 4))]


async def test_epochs_grow_over_a_restart_and_over_an_empty_group(
    groups: GroupRegistry, meta: MemoryMetaStore, clock: ManualClock
) -> None:
    epochs = []
    for coordinator in (groups, groups):
        for _ in range(30):
            member = joined(coordinator, "one")
            assert member.membership is not None
            epochs.append(member.membership.epoch)
        await member.membership.leave()
        await coordinator.tick()
    clock.advance(120)
    after_restart = joined(await started(meta, clock), "one").membership
    assert after_restart is not None
    epochs.append(after_restart.epoch)
    assert epochs == sorted(set(epochs))
    assert epochs[-1] < 1 << 31


@pytest.mark.parametrize(
    "arguments",
    [
        {"group": ""},
        {"group": "g" * 256},
        {"group": "g\n"},
        {"member_id": "m" * 256},
        {"session_timeout_ms": 0},
        {"rebalance_timeout_ms": 3_600_001},
    ],
    ids=str,
)
async def test_bad_arguments_are_refused_and_leave_no_group(
    groups: GroupRegistry, arguments: dict[str, str | int]
) -> None:
    with pytest.raises(InvalidArgument):
        groups.native.join(**{"group": "g", "topics": ["a"], "listener": Member(), **arguments})  # type: ignore[arg-type]
    assert groups.list_groups() == []


async def test_a_group_has_a_limit_of_members(groups: GroupRegistry) -> None:
    for n in range(50):
        joined(groups, f"m{n}")
    with pytest.raises(Overloaded):
        joined(groups)
    joined(groups, "m0")


# ── commits ───────────────────────────────────────────────────────────────────────────────────────


async def test_member_commits_its_partitions(
    groups: GroupRegistry, meta: MemoryMetaStore, clock: ManualClock
) -> None:
    member = joined(groups)
    await settle()
    assert member.membership is not None
    await member.membership.commit({A[0]: (7, "note")})
    assert groups.committed_offset("g", A[0]) == 7
    assert groups.committed_offset("g", A[1]) is None
    expected = {A[0]: OffsetAndMetadata(7, "note", -1, clock.wall_ms())}
    assert groups.fetch_offsets("g") == groups.fetch_offsets("g", A) == expected
    assert (await started(meta, clock)).fetch_offsets("g") == expected


async def test_member_does_not_commit_partitions_of_another(groups: GroupRegistry) -> None:
    one = joined(groups)
    await settle()
    other = joined(groups)
    await settle()
    (_, released) = one.asked[0]
    await one.commit(3, *released)  # finishes before it releases
    with pytest.raises(StaleMember):
        await other.commit(4, *released)
    one.release()
    await settle()
    with pytest.raises(StaleMember):
        await one.commit(5, *released)
    await other.commit(6, *released)
    assert {groups.committed_offset("g", p) for p in released} == {6}


async def test_others_commit_only_while_there_are_no_members(groups: GroupRegistry) -> None:
    await groups.commit("g", {A[0]: OffsetAndMetadata(1)})
    member = joined(groups)
    with pytest.raises(GroupNotEmpty, match="stop them"):
        await groups.commit("g", {A[0]: OffsetAndMetadata(2)})
    assert member.membership is not None
    await member.membership.leave()
    await groups.commit("g", {A[0]: OffsetAndMetadata(3)})
    assert groups.committed_offset("g", A[0]) == 3


@pytest.mark.parametrize(
    ("partition", "value", "error"),
    [
        (("x", 0), OffsetAndMetadata(1), UnknownTopic),
        (("a", 4), OffsetAndMetadata(1), UnknownPartition),
        (("a", -1), OffsetAndMetadata(1), UnknownPartition),
        (("a", 0), OffsetAndMetadata(1, "ä" * 2049), OffsetMetadataTooLarge),
    ],
)
async def test_impossible_commits_are_refused_whole(
    groups: GroupRegistry, partition: TopicPartition, value: OffsetAndMetadata, error: type[SparrowError]
) -> None:
    with pytest.raises(error):
        await groups.commit("g", {A[1]: OffsetAndMetadata(1), partition: value})
    assert groups.fetch_offsets("g") == {}


async def test_a_member_cannot_commit_a_negative_offset(groups: GroupRegistry) -> None:
    member = joined(groups)
    await settle()
    with pytest.raises(InvalidArgument, match="Offset -1 of 'a', partition 0, is negative"):
        await member.commit(-1, A[0])
    assert groups.fetch_offsets("g") == {}


async def test_symbolic_offset_of_a_kafka_client_is_none_for_others(
    groups: GroupRegistry,
) -> None:
    await groups.commit("g", {A[0]: OffsetAndMetadata(-2)})
    assert groups.committed_offset("g", A[0]) is None
    assert groups.fetch_offsets("g")[A[0]].offset == -2


async def test_a_full_disk_refuses_the_commit_and_keeps_the_member(
    groups: GroupRegistry, meta: MemoryMetaStore
) -> None:
    member = joined(groups)
    await settle()
    meta.full = True
    with pytest.raises(DiskFull):
        await member.commit(1, A[0])
    meta.full = False
    await member.commit(1, A[0])


# ── groups ────────────────────────────────────────────────────────────────────────────────────────


async def test_groups_with_members_or_offsets_are_listed(groups: GroupRegistry) -> None:
    assert groups.list_groups() == []
    await groups.commit("offsets", {A[0]: OffsetAndMetadata(1)})
    joined(groups)
    assert groups.list_groups() == [
        GroupListing("g", GroupState.STABLE, 1, GroupType.SPARROW, "sparrow"),
        GroupListing("offsets", GroupState.EMPTY, 0, GroupType.CLASSIC),
    ]
    assert groups.describe("offsets").members == []


async def test_description_shows_the_partitions_of_each_member(groups: GroupRegistry) -> None:
    joined(groups, "one")
    joined(groups, "two")
    description = groups.describe("g")
    one, two = description.members
    assert description.state is GroupState.RECONCILING
    assert (one.member_id, one.client_name, one.topics, one.is_attached) == ("one", "test", ["a"], True)
    assert sorted((*one.partitions, *one.releasing)) == A
    assert len(one.releasing) == 2
    assert two.partitions == []


async def test_an_unknown_group_is_an_error(groups: GroupRegistry) -> None:
    with pytest.raises(UnknownGroup):
        groups.describe("g")
    for call in (
        groups.delete_group("g"),
        groups.delete_offsets("g", A),
    ):
        with pytest.raises(UnknownGroup):
            await call
    with pytest.raises(UnknownMember):
        groups.native.heartbeat("g", "m", 1)


async def test_a_group_is_deleted_only_without_members(groups: GroupRegistry, meta: MemoryMetaStore) -> None:
    member = joined(groups)
    await settle()
    await member.commit(1, *A)
    await groups.tick()
    with pytest.raises(GroupNotEmpty):
        await groups.delete_group("g")
    assert member.membership is not None
    await member.membership.leave()
    await groups.delete_group("g")
    await groups.tick()
    assert groups.list_groups() == []
    assert meta.entries == {}


async def test_offsets_of_topics_that_members_read_are_not_deleted(groups: GroupRegistry) -> None:
    await groups.commit("g", {A[0]: OffsetAndMetadata(1), ("b", 0): OffsetAndMetadata(1)})
    joined(groups)
    with pytest.raises(GroupSubscribedToTopic):
        await groups.delete_offsets("g", [A[0]])
    await groups.delete_offsets("g", [("b", 0)])
    assert groups.fetch_offsets("g").keys() == {A[0]}


async def test_a_deleted_topic_is_forgotten(groups: GroupRegistry) -> None:
    member = joined(groups, topics="a b")
    await settle()
    await member.commit(1, A[0], ("b", 0))
    groups.topics_changed({"a": 0})
    await groups.topic_deleted("a")
    await settle()
    assert groups.fetch_offsets("g").keys() == {("b", 0)}
    assert member.asked == []
    groups.topics_changed({"a": 4})
    await settle()
    assert groups.committed_offset("g", A[0]) is None
    assert groups.describe("g").state is GroupState.STABLE


async def test_topics_whose_deletion_was_cut_short_are_forgotten_after_a_start(
    groups: GroupRegistry,
) -> None:
    await groups.commit("g", {A[0]: OffsetAndMetadata(1), ("b", 0): OffsetAndMetadata(1)})
    await groups.forget_other_topics({"b"})
    assert groups.fetch_offsets("g").keys() == {("b", 0)}


# ── retention ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_group_is_forgotten_a_week_after_its_last_member(
    groups: GroupRegistry, meta: MemoryMetaStore, clock: ManualClock
) -> None:
    member = joined(groups)
    await settle()
    await member.commit(1, A[0])
    clock.advance(30 * DAY_S)
    await groups.tick()
    assert member.membership is not None
    await member.membership.leave()
    await groups.tick()
    clock.advance(7 * DAY_S - 60)
    await groups.tick()
    assert groups.committed_offset("g", A[0]) == 1
    clock.advance(60)
    await groups.tick()
    assert groups.list_groups() == []
    assert meta.entries == {}


async def test_restarts_do_not_begin_the_week_again(
    groups: GroupRegistry, meta: MemoryMetaStore, clock: ManualClock
) -> None:
    member = joined(groups)
    await settle()
    await member.commit(1, A[0])
    assert member.membership is not None
    await member.membership.leave()
    await groups.tick()
    for day in range(7):
        coordinator = await started(meta, clock)
        clock.advance(DAY_S)
        await coordinator.tick()
        assert bool(coordinator.list_groups()) == (day < 6)


async def test_members_that_come_back_after_a_crash_find_their_offsets(
    groups: GroupRegistry, meta: MemoryMetaStore, clock: ManualClock
) -> None:
    """A group that was live for long and seldom commits must not be forgotten because all members
    are gone for a moment.
    """
    member = joined(groups)
    await settle()
    await member.commit(1, A[0])
    await groups.tick()
    clock.advance(30 * DAY_S)
    coordinator = await started(meta, clock)
    for _ in range(10):
        await coordinator.tick()
        clock.advance(GRACE_MS / 1000 / 10)
    await coordinator.tick()
    assert coordinator.committed_offset("g", A[0]) == 1


async def test_a_group_that_never_had_members_lives_by_its_commits(
    groups: GroupRegistry, meta: MemoryMetaStore, clock: ManualClock
) -> None:
    for _ in range(3):
        await groups.commit("g", {A[0]: OffsetAndMetadata(1)})
        clock.advance(6 * DAY_S)
        await groups.tick()
    clock.advance(DAY_S)
    await groups.tick()
    assert groups.list_groups() == []


async def test_a_tick_on_a_full_disk_fences_all_the_same_and_writes_later(
    groups: GroupRegistry, meta: MemoryMetaStore, clock: ManualClock
) -> None:
    one = joined(groups)
    await settle()
    await one.commit(1, A[0])
    joined(groups)
    clock.advance(60)
    meta.full = True
    with pytest.raises(DiskFull):
        await groups.tick()
    await settle()
    assert one.fenced is not None
    meta.full = False
    await groups.tick()
    assert ("group", "g") in meta.entries
