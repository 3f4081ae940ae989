"""The coordinator of consumer groups: the store, restarts, kinds of groups and their conversion,
offsets.
"""

import asyncio
import uuid
from collections.abc import Sequence

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import (
    DirectoryUnreadable,
    DiskFull,
    GroupNotEmpty,
    InconsistentGroupProtocol,
    InvalidArgument,
    MemberIdRequired,
    NewerFormat,
    RebalanceInProgress,
    StaleMember,
    StaleMemberEpoch,
    UnknownGroup,
    UnknownMember,
    UnsupportedVersion,
)
from sparrow.broker.config import BrokerConfig
from sparrow.broker.groups.assembly import BrokerGroups
from sparrow.broker.groups.classic.protocol import JoinResponse, Leaver, SyncRequest
from sparrow.broker.groups.consumer.member import Heartbeat
from sparrow.broker.groups.consumer.persistence import GROUP_KIND
from sparrow.broker.groups.consumer.protocol import read_assignment, write_assignment
from sparrow.broker.groups.consumer.topics import TopicView
from sparrow.broker.groups.coordinator import GROUPS_PER_YIELD
from sparrow.broker.groups.description import GroupState, GroupType
from sparrow.broker.groups.offsets import Committer, OffsetAndMetadata
from sparrow.broker.groups.registry import GroupRegistry
from sparrow.broker.groups.retention import GRACE_MS
from sparrow.meta.memory import MemoryMetaStore
from sparrow.meta.store import Put, Write
from tests.consumer_groups.machine import joining
from tests.groups.classic_driver import request, subscription

TOPICS = {"a": TopicView("a", uuid.uuid4(), 4), "b": TopicView("b", uuid.uuid4(), 1)}


class Stand:
    """The groups of a broker, which can be restarted."""

    def __init__(self, **config: object) -> None:
        self.clock = ManualClock()
        self.meta = MemoryMetaStore()
        self.config = BrokerConfig(group_initial_rebalance_delay_ms=0, **config)  # type: ignore[arg-type]

    async def start(self) -> GroupRegistry:
        self.groups = BrokerGroups(self.meta, self.clock, self.config, TOPICS.get)
        await self.groups.load()
        self.groups.topics_changed({name: topic.partitions for name, topic in TOPICS.items()})
        return self.groups

    async def restart(self) -> GroupRegistry:
        self.groups.close()
        self.meta = MemoryMetaStore(dict(self.meta.entries))
        return await self.start()

    def named(self, partitions: object) -> set[tuple[str, int]]:
        names = {topic.topic_id: name for name, topic in TOPICS.items()}
        return {(names[topic_id], number) for topic_id, number in partitions}  # type: ignore[attr-defined]


@pytest.fixture
def stand() -> Stand:
    return Stand()


async def classic_member(groups: GroupRegistry, member_id: str = "", **more: object) -> JoinResponse:
    return await groups.classic.join(request(member_id, **more))


async def stable_classic(groups: GroupRegistry) -> JoinResponse:
    """Return a classic group of one member that has all of a."""
    joined = await classic_member(groups)
    assignment = write_assignment(0, [("a", range(4))])
    await groups.classic.sync(
        SyncRequest("g", joined.member_id, joined.generation, assignments={joined.member_id: assignment})
    )
    return joined


# ── the store ─────────────────────────────────────────────────────────────────────────────────────


async def test_group_goes_on_after_a_restart_as_if_nothing_had_happened(stand: Stand) -> None:
    groups = await stand.start()
    await groups.consumer.heartbeat("g", joining("m", "a"))
    await groups.consumer.heartbeat("g", joining("n", regex="b", instance_id="i"))
    before = groups.consumer.describe_consumer("g")
    groups = await stand.restart()
    assert groups.consumer.describe_consumer("g") == before
    assert (await groups.consumer.heartbeat("g", Heartbeat("m", 1))).member_epoch == 2
    assert groups.consumer.describe_consumer("g").epoch == before.epoch


async def test_member_that_does_not_come_back_after_a_restart_is_put_out(stand: Stand) -> None:
    groups = await stand.start()
    await groups.consumer.heartbeat("g", joining("m", "a"))
    groups = await stand.restart()
    stand.clock.advance(46)
    await groups.tick()
    assert groups.describe("g").state is GroupState.EMPTY
    assert (await stand.restart()).describe("g").members == []


async def test_heartbeat_that_cannot_be_kept_is_not_answered_and_can_be_sent_again(stand: Stand) -> None:
    groups = await stand.start()
    stand.meta.full = True
    with pytest.raises(DiskFull):
        await groups.consumer.heartbeat("g", joining("m", "a"))
    stand.meta.full = False
    answer = await groups.consumer.heartbeat("g", joining("m", "a"))
    assert stand.named(answer.assignment) == {("a", n) for n in range(4)}
    groups = await stand.restart()
    await groups.consumer.heartbeat("g", Heartbeat("m", answer.member_epoch))


async def test_heartbeat_of_a_lost_connection_is_kept(stand: Stand) -> None:
    groups = await stand.start()
    beating = asyncio.create_task(groups.consumer.heartbeat("g", joining("m", "a")))
    await asyncio.sleep(0)
    beating.cancel()
    await asyncio.gather(beating, return_exceptions=True)
    await asyncio.sleep(0.01)
    assert [m.member_id for m in (await stand.restart()).describe("g").members] == ["m"]


async def test_heartbeat_without_news_writes_nothing(stand: Stand) -> None:
    groups = await stand.start()
    await groups.consumer.heartbeat("g", joining("m", "a"))
    commits = stand.meta.commits
    await groups.consumer.heartbeat("g", Heartbeat("m", 1))
    assert stand.meta.commits == commits


async def test_group_that_cannot_be_read_stops_the_start(stand: Stand) -> None:
    await stand.meta.write([Put(GROUP_KIND, "g", b"\xff")])
    with pytest.raises(DirectoryUnreadable):
        await stand.start()


async def test_group_of_a_newer_sparrow_stops_the_start(stand: Stand) -> None:
    await stand.meta.write([Put(GROUP_KIND, "g", b"\x95\x02\x01\x01\xc4\x00\x80")])
    with pytest.raises(NewerFormat):
        await stand.start()


@pytest.mark.parametrize(
    ("group", "beat"),
    [
        ("g" * 5_000, joining("m", "a")),
        ("g", joining("m" * 5_000, "a")),
        ("g", joining("m", regex="a" * (2 << 20))),
        ("g", joining("m", *(f"{number:0>200}" for number in range(6_000)))),
    ],
)
async def test_member_that_the_store_could_not_keep_is_refused_and_does_no_harm(
    stand: Stand, group: str, beat: Heartbeat
) -> None:
    groups = await stand.start()
    await groups.consumer.heartbeat("g", joining("n", "a"))
    with pytest.raises(InvalidArgument):
        await groups.consumer.heartbeat(group, beat)
    assert [m.member_id for m in groups.describe("g").members] == ["n"]
    await groups.consumer.heartbeat("g", joining("o", "a"))


async def test_classic_member_with_a_long_name_joins_all_the_same(stand: Stand) -> None:
    groups = await stand.start()
    await groups.consumer.heartbeat("g", joining("n", "a"))
    joined = await classic_member(groups, client_id="c" * 30_000)
    assert len(joined.member_id) < 300
    with pytest.raises(InvalidArgument):
        await classic_member(groups, "x" * 5_000)


# ── groups and their kinds ────────────────────────────────────────────────────────────────────────


async def test_unknown_group_is_joined_by_epoch_0_only(stand: Stand) -> None:
    groups = await stand.start()
    for epoch in (1, -1):
        with pytest.raises(UnknownGroup):
            await groups.consumer.heartbeat("g", Heartbeat("m", epoch))
    with pytest.raises(InvalidArgument):
        await groups.consumer.heartbeat("", joining("m", "a"))
    assert groups.list_groups() == []


async def test_empty_group_is_kept_until_it_is_deleted(stand: Stand) -> None:
    groups = await stand.start()
    await groups.consumer.heartbeat("g", joining("m", "a"))
    with pytest.raises(GroupNotEmpty):
        await groups.delete_group("g")
    await groups.consumer.heartbeat("g", Heartbeat("m", -1))
    assert [(i.group, i.state, i.type) for i in groups.list_groups()] == [
        ("g", GroupState.EMPTY, GroupType.CONSUMER)
    ]
    groups = await stand.restart()
    await groups.delete_group("g")
    assert (await stand.restart()).list_groups() == []
    assert not [key for key in stand.meta.entries if key[0].startswith("consumer-group")]


async def test_empty_group_without_offsets_is_forgotten_in_time(stand: Stand) -> None:
    groups = await stand.start()
    await groups.consumer.heartbeat("g", joining("m", "a"))
    await groups.consumer.heartbeat("g", Heartbeat("m", -1))
    stand.clock.advance(8 * 86_400)
    await groups.tick()
    assert groups.list_groups() == []
    assert GRACE_MS < 86_400_000


async def test_broker_makes_the_id_of_a_member_of_the_first_version(stand: Stand) -> None:
    groups = await stand.start()
    answer = await groups.consumer.heartbeat("g", joining("", "a", must_have_id=False))
    assert uuid.UUID(answer.member_id)


# ── offsets ───────────────────────────────────────────────────────────────────────────────────────


async def test_offsets_are_committed_by_members_at_their_epoch(stand: Stand) -> None:
    groups = await stand.start()
    await groups.consumer.heartbeat("g", joining("m", "a"))
    offsets = {("a", 0): OffsetAndMetadata(3)}
    await groups.commit("g", offsets, Committer("m", 1))
    for committer, error in (
        (Committer("m", 2), StaleMemberEpoch),
        (Committer("m", 0), StaleMemberEpoch),
        (Committer("x", 1), UnknownMember),
        (Committer(), UnknownMember),
        (Committer("m", 1, knows_member_epochs=False), UnsupportedVersion),
        (Committer("m", 2, is_transactional=True), StaleMember),
    ):
        with pytest.raises(error):
            await groups.commit("g", offsets, committer)
    await groups.commit("g", offsets, Committer(is_transactional=True))
    await groups.consumer.heartbeat("g", Heartbeat("m", -1))
    await groups.commit("g", offsets)


async def test_offsets_are_fetched_by_members_at_their_epoch_and_by_nobody_in_particular(
    stand: Stand,
) -> None:
    groups = await stand.start()
    await groups.consumer.heartbeat("g", joining("m", "a"))
    groups.check_fetch("g", None, -1)
    groups.check_fetch("g", "m", 1)
    with pytest.raises(StaleMemberEpoch):
        groups.check_fetch("g", "m", 2)
    with pytest.raises(UnknownMember):
        groups.check_fetch("g", "x", 1)


# ── conversion ────────────────────────────────────────────────────────────────────────────────────


async def test_classic_group_with_members_becomes_a_consumer_group_and_a_classic_one_again(
    stand: Stand,
) -> None:
    groups = await stand.start()
    old = await stable_classic(groups)
    new = await groups.consumer.heartbeat("g", joining("m", "a"))
    assert (new.member_epoch, new.assignment) == (old.generation + 1, frozenset())
    assert groups.info("g").type is GroupType.CONSUMER

    with pytest.raises(RebalanceInProgress):
        groups.classic.heartbeat("g", old.member_id, old.generation)
    again = await classic_member(groups, old.member_id)
    assert (again.generation, again.leader, again.members) == (new.member_epoch, "", ())
    synced = await groups.classic.sync(SyncRequest("g", old.member_id, again.generation))
    assert len(read_assignment(synced.assignment) or ()) == 2
    groups.classic.heartbeat("g", old.member_id, again.generation)
    taken = await groups.consumer.heartbeat("g", Heartbeat("m", new.member_epoch))
    assert stand.named(taken.assignment) | set(read_assignment(synced.assignment) or ()) == {
        ("a", n) for n in range(4)
    }

    await groups.consumer.heartbeat("g", Heartbeat("m", -1))
    assert groups.info("g").type is GroupType.CLASSIC
    await groups.commit("g", {("a", 0): OffsetAndMetadata(1)}, Committer(old.member_id, again.generation))
    with pytest.raises(RebalanceInProgress):
        groups.classic.heartbeat("g", old.member_id, again.generation)
    back = await classic_member(groups, old.member_id)
    assert back.generation > again.generation
    assert back.leader == old.member_id


async def test_conversion_survives_restarts_on_either_side(stand: Stand) -> None:
    groups = await stand.start()
    old = await stable_classic(groups)
    await groups.consumer.heartbeat("g", joining("m", "a"))
    groups = await stand.restart()
    assert groups.info("g").type is GroupType.CONSUMER
    again = await classic_member(groups, old.member_id)
    await groups.consumer.heartbeat("g", Heartbeat("m", -1))
    groups = await stand.restart()
    assert groups.info("g").type is GroupType.CLASSIC
    assert [m.member_id for m in groups.describe("g").members] == [again.member_id]


async def test_failed_heartbeat_leaves_the_classic_group_in_place(stand: Stand) -> None:
    groups = await stand.start()
    await stable_classic(groups)
    with pytest.raises(Exception, match="regular expression"):
        await groups.consumer.heartbeat("g", joining("m", regex="("))
    assert groups.info("g").type is GroupType.CLASSIC
    assert len(groups.describe("g").members) == 1


@pytest.mark.parametrize(
    "assignment",
    [b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04mine", b"\x00\x00\x00\x00\x00\x07"],
)
async def test_group_with_an_assignor_of_its_own_is_not_converted(stand: Stand, assignment: bytes) -> None:
    groups = await stand.start()
    joined = await classic_member(groups)
    sync = SyncRequest("g", joined.member_id, joined.generation, assignments={joined.member_id: assignment})
    await groups.classic.sync(sync)
    with pytest.raises(UnknownGroup):
        await groups.consumer.heartbeat("g", joining("m", "a"))
    assert groups.info("g").type is GroupType.CLASSIC


async def test_group_of_another_protocol_type_is_not_converted(stand: Stand) -> None:
    groups = await stand.start()
    joining_classic = asyncio.create_task(classic_member(groups, protocol_type="connect"))
    await joining_classic
    with pytest.raises(UnknownGroup):
        await groups.consumer.heartbeat("g", joining("m", "a"))


async def test_nothing_is_converted_when_that_is_switched_off() -> None:
    stand = Stand(group_migration="disabled")
    groups = await stand.start()
    await stable_classic(groups)
    with pytest.raises(UnknownGroup):
        await groups.consumer.heartbeat("g", joining("m", "a"))


async def test_members_of_the_classic_protocol_join_a_consumer_group(stand: Stand) -> None:
    groups = await stand.start()
    await groups.consumer.heartbeat("g", joining("m", "a"))
    with pytest.raises(MemberIdRequired) as asked:
        await classic_member(groups, requires_member_id=True)
    joined = await classic_member(groups, asked.value.member_id, requires_member_id=True)
    assert joined.member_id == asked.value.member_id
    with pytest.raises(InconsistentGroupProtocol):
        await classic_member(groups, protocols=(("other", subscription("a")),))
    with pytest.raises(InconsistentGroupProtocol):
        await classic_member(groups, protocols=(("range", b"?"),))
    with pytest.raises(StaleMember):
        groups.classic.heartbeat("g", joined.member_id, joined.generation + 1)
    with pytest.raises(UnknownMember):
        groups.classic.heartbeat("g", "m", 1)
    refused, gone = groups.classic.leave("g", [Leaver("m"), Leaver(joined.member_id)])
    assert isinstance(refused, UnknownMember)
    assert gone is None
    assert [m.member_id for m in groups.describe("g").members] == ["m"]


async def test_member_of_the_classic_protocol_that_joins_but_never_syncs_is_put_out(stand: Stand) -> None:
    groups = await stand.start()
    await groups.consumer.heartbeat("g", joining("m", "a"))
    joined = await classic_member(groups, rebalance_timeout_ms=5_000, session_timeout_ms=30_000)
    stand.clock.advance(6)
    await groups.tick()
    with pytest.raises(UnknownMember):
        groups.classic.heartbeat("g", joined.member_id, joined.generation)


async def test_static_member_of_the_classic_protocol_is_replaced_by_one_of_the_new(stand: Stand) -> None:
    groups = await stand.start()
    joined = await classic_member(groups, instance_id="i")
    assignment = write_assignment(0, [("a", range(4))])
    sync = SyncRequest(
        "g", joined.member_id, joined.generation, "i", assignments={joined.member_id: assignment}
    )
    await groups.classic.sync(sync)
    answer = await groups.consumer.heartbeat("g", joining("m", "a", instance_id="i"))
    assert stand.named(answer.assignment) == {("a", n) for n in range(4)}
    assert [m.member_id for m in groups.describe("g").members] == ["m"]


# ── beside each other ──


async def test_state_of_a_failed_write_is_kept_before_the_next_heartbeat_is_answered(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = await stand.start()
    await groups.consumer.heartbeat("g", joining("one"))
    write, calls = stand.meta.write, 0

    async def first_fails(writes: Sequence[Write]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.sleep(0)
            raise DiskFull("no room for a moment")
        await write(writes)

    monkeypatch.setattr(stand.meta, "write", first_fails)
    two = asyncio.create_task(groups.consumer.heartbeat("g", joining("two")))
    three = asyncio.create_task(groups.consumer.heartbeat("g", joining("three")))
    with pytest.raises(DiskFull):
        await two
    await three
    known = await stand.restart()
    assert {each.member_id for each in known.describe("g").members} == {"one", "two", "three"}


async def test_a_tick_leaves_groups_alone_that_went_while_others_had_their_turn(stand: Stand) -> None:
    groups = await stand.start()
    for number in range(GROUPS_PER_YIELD + 1):
        await groups.consumer.heartbeat(f"g{number}", joining("m"))
    last = f"g{GROUPS_PER_YIELD}"
    stand.clock.advance(3_600)
    tick = asyncio.create_task(groups.consumer.tick())
    await asyncio.sleep(0)
    await stand.meta.write(groups.consumer.drop(last))
    await tick
    assert (GROUP_KIND, last) not in stand.meta.entries
    assert not any(groups.consumer.member_count(name) for name in groups.consumer.names())
