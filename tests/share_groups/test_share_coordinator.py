"""The coordinator of share groups: the store, restarts, other kinds of groups, their queues and
settings.
"""

import uuid
from collections.abc import Collection, Mapping

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import (
    DirectoryUnreadable,
    DiskFull,
    GroupFull,
    GroupNotEmpty,
    GroupTypeMismatch,
    InvalidArgument,
    NewerFormat,
    SparrowError,
    UnknownGroup,
    UnknownMember,
)
from sparrow.broker.config import BrokerConfig
from sparrow.broker.groups.assembly import BrokerGroups
from sparrow.broker.groups.consumer.topics import TopicView
from sparrow.broker.groups.description import GroupState, GroupType
from sparrow.broker.groups.offsets import Committer, OffsetAndMetadata
from sparrow.broker.groups.registry import GroupRegistry
from sparrow.broker.groups.retention import GRACE_MS
from sparrow.broker.groups.share.coordinator import ShareGroupCoordinator
from sparrow.broker.groups.share.member import ShareHeartbeat
from sparrow.broker.groups.share.persistence import GROUP_KIND
from sparrow.broker.groups.share.queues import GroupProgress
from sparrow.broker.groups.share.settings import ShareSettings
from sparrow.meta.memory import MemoryMetaStore
from sparrow.meta.store import Put
from tests.consumer_groups.machine import joining as consumer_joining
from tests.groups.classic_driver import request
from tests.share_groups.machine import joining

TOPICS = {"a": TopicView("a", uuid.uuid4(), 4), "b": TopicView("b", uuid.uuid4(), 1)}
HOUR_S = 3600


class FakeQueues:
    """Queues by name; each is the topics that it reads."""

    def __init__(self) -> None:
        self.topics: dict[str, set[str]] = {}
        self.made_by_others: dict[str, tuple[str, ...]] = {}
        self.followed: dict[str, ShareSettings] = {}
        self.error: SparrowError | None = None

    def own_topics(self, group: str) -> Collection[str] | None:
        return self.made_by_others.get(group)

    async def ensure(self, group: str, topics: Collection[str], settings: ShareSettings) -> None:
        if self.error is not None:
            raise self.error
        self.topics.setdefault(group, set()).update(topics)
        self.followed[group] = settings

    async def follow(self, group: str, settings: ShareSettings) -> None:
        if self.error is not None:
            raise self.error
        self.followed[group] = settings

    async def progress(self, group: str) -> dict[tuple[str, int], GroupProgress]:
        return {(topic, 0): GroupProgress(0, 0, 0) for topic in self.topics.get(group, ())}

    async def move(
        self, group: str, offsets: Mapping[tuple[str, int], int], settings: ShareSettings
    ) -> dict[tuple[str, int], SparrowError | None]:
        self.topics.setdefault(group, set()).update(topic for topic, _ in offsets)
        return dict.fromkeys(offsets)

    async def drop_topic(self, group: str, topic: str) -> None:
        self.topics[group].discard(topic)

    async def delete(self, group: str) -> None:
        self.topics.pop(group, None)


class Stand:
    """The groups of a broker, which can be restarted."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.meta = MemoryMetaStore()
        self.queues = FakeQueues()
        self.set: dict[tuple[str, str], str] = {}
        self.config = BrokerConfig(
            group_initial_rebalance_delay_ms=0, share_max_members=3, share_max_groups=4
        )

    async def start(self) -> GroupRegistry:
        self.groups = BrokerGroups(
            self.meta, self.clock, self.config, TOPICS.get, lambda *key: self.set.get(key)
        )
        self.groups.share.queues = self.queues
        await self.groups.load()
        self.groups.topics_changed({name: topic.partitions for name, topic in TOPICS.items()})
        return self.groups

    async def restart(self) -> GroupRegistry:
        self.groups.close()
        self.meta = MemoryMetaStore(dict(self.meta.entries))
        return await self.start()


@pytest.fixture
async def stand() -> Stand:
    made = Stand()
    await made.start()
    return made


def is_member(share: ShareGroupCoordinator, group: str, member_id: str) -> bool:
    return share.owns(group) and member_id in share.get(group).members


async def join(stand: Stand, member_id: str, *topics: str, group: str = "g") -> int:
    answer = await stand.groups.share.heartbeat(group, joining(member_id, *topics))
    return answer.member_epoch


# ── the store ─────────────────────────────────────────────────────────────────────────────────────


async def test_share_group_goes_on_after_a_restart_as_if_nothing_had_happened(stand: Stand) -> None:
    await join(stand, "m", "a")
    await join(stand, "n", "a", "b")
    before = stand.groups.share.describe_share("g")
    groups = await stand.restart()
    assert groups.share.describe_share("g") == before
    assert (await groups.share.heartbeat("g", ShareHeartbeat("m", 1))).member_epoch == 2


async def test_member_that_does_not_come_back_is_put_out_and_stays_out(stand: Stand) -> None:
    await join(stand, "m", "a")
    groups = await stand.restart()
    stand.clock.advance(46)
    await groups.tick()
    assert groups.describe("g").state is GroupState.EMPTY
    assert (await stand.restart()).describe("g").members == []


async def test_heartbeat_that_cannot_be_kept_is_not_answered_and_can_be_sent_again(stand: Stand) -> None:
    stand.meta.full = True
    with pytest.raises(DiskFull):
        await join(stand, "m", "a")
    stand.meta.full = False
    assert await join(stand, "m", "a") == 1
    assert is_member((await stand.restart()).share, "g", "m")


async def test_partitions_are_assigned_only_when_they_can_be_read(stand: Stand) -> None:
    stand.queues.error = DiskFull("no room")
    with pytest.raises(DiskFull):
        await join(stand, "m", "a")
    stand.queues.error = None
    answer = await stand.groups.share.heartbeat("g", joining("m", "a"))
    assert len(answer.assignment or ()) == 4
    assert stand.queues.topics["g"] == {"a"}


@pytest.mark.parametrize(
    ("value", "error"), [(b"\xc1", DirectoryUnreadable), (b"\x94\x09\x00\x00\xc4\x00", NewerFormat)]
)
async def test_entry_that_is_no_share_group_is_named(value: bytes, error: type[Exception]) -> None:
    stand = Stand()
    await stand.meta.write([Put(GROUP_KIND, "g", value)])
    with pytest.raises(error):
        await stand.start()


# ── whose name it is ──────────────────────────────────────────────────────────────────────────────


async def test_share_group_does_not_take_a_name_from_another_kind_not_even_an_empty_one(stand: Stand) -> None:
    groups = stand.groups
    await groups.consumer.heartbeat("consumers", consumer_joining("m", "a"))
    await groups.classic.join(request(group="classics"))
    await groups.commit("offsets", {("a", 0): OffsetAndMetadata(1)})
    for name in ("consumers", "classics", "offsets"):
        with pytest.raises(UnknownGroup):
            await join(stand, "m", "a", group=name)
        with pytest.raises(UnknownGroup):
            await groups.share.move(name, {("a", 0): 0})
    assert not groups.share.names()


async def test_nobody_else_takes_the_name_of_a_share_group(stand: Stand) -> None:
    await join(stand, "m", "a")
    await stand.groups.share.heartbeat("g", ShareHeartbeat("m", -1))
    with pytest.raises(UnknownGroup):
        await stand.groups.consumer.heartbeat("g", consumer_joining("m", "a"))
    with pytest.raises(GroupTypeMismatch):
        await stand.groups.classic.join(request(group="g"))
    assert stand.groups.type_of("g") is GroupType.SHARE


async def test_share_groups_have_no_committed_offsets(stand: Stand) -> None:
    await join(stand, "m", "a")
    offsets = {("a", 0): OffsetAndMetadata(1)}
    with pytest.raises(UnknownGroup):
        await stand.groups.commit("g", offsets)
    with pytest.raises(UnknownGroup):
        await stand.groups.commit("g", offsets, Committer("m", 1))
    with pytest.raises(UnknownGroup):
        stand.groups.check_fetch("g", None, -1)
    with pytest.raises(UnknownGroup):
        await stand.groups.delete_offsets("g", [("a", 0)])
    await stand.groups.share.heartbeat("g", ShareHeartbeat("m", -1))
    with pytest.raises(UnknownGroup):
        await stand.groups.delete_offsets("g", [("a", 0)])


async def test_empty_share_group_stays_until_it_is_deleted(stand: Stand) -> None:
    await join(stand, "m", "a")
    await stand.groups.share.heartbeat("g", ShareHeartbeat("m", -1))
    stand.clock.advance(GRACE_MS / 1000 + HOUR_S * 24 * 30)
    await stand.groups.tick()
    assert stand.groups.info("g").state is GroupState.EMPTY
    await stand.groups.delete_group("g")
    assert not stand.groups.is_known("g")
    assert "g" not in stand.queues.topics
    assert not (await stand.restart()).is_known("g")


async def test_group_with_members_cannot_be_deleted_moved_or_forgotten(stand: Stand) -> None:
    await join(stand, "m", "a")
    with pytest.raises(GroupNotEmpty):
        await stand.groups.delete_group("g")
    with pytest.raises(GroupNotEmpty):
        await stand.groups.share.move("g", {("a", 0): 3})
    with pytest.raises(GroupNotEmpty):
        await stand.groups.share.drop_topic("g", "a")


async def test_group_is_listed_and_described_as_a_share_group(stand: Stand) -> None:
    await join(stand, "m", "a")
    (info,) = stand.groups.list_groups()
    assert (info.group, info.type, info.state, info.members) == ("g", GroupType.SHARE, GroupState.STABLE, 1)
    assert info.protocol_type == "share"
    (member,) = stand.groups.describe("g").members
    assert (member.member_id, member.topics, len(member.partitions)) == ("m", ["a"], 4)


async def test_group_of_another_name_is_unknown(stand: Stand) -> None:
    with pytest.raises(UnknownGroup):
        stand.groups.share.describe_share("g")
    with pytest.raises(UnknownGroup):
        await stand.groups.share.heartbeat("g", ShareHeartbeat("m", 1))
    with pytest.raises(UnknownGroup):
        await stand.groups.share.heartbeat("g", ShareHeartbeat("m", -1))
    with pytest.raises(UnknownGroup):
        await stand.groups.share.drop_topic("g", "a")
    with pytest.raises(InvalidArgument):
        await stand.groups.share.heartbeat("", joining("m", "a"))


# ── what others ask of members ────────────────────────────────────────────────────────────────────


async def test_members_and_their_partitions_are_known_by_id(stand: Stand) -> None:
    share = stand.groups.share
    await join(stand, "m", "b")
    assert is_member(share, "g", "m")
    assert not is_member(share, "g", "x")
    assert not is_member(share, "h", "m")
    assert share.assignment("g", "m") == {(TOPICS["b"].topic_id, 0)}
    with pytest.raises(UnknownMember):
        share.assignment("g", "x")
    with pytest.raises(UnknownGroup):
        share.assignment("h", "m")


async def test_queue_that_somebody_made_keeps_its_topics(stand: Stand) -> None:
    stand.queues.made_by_others["g"] = ("b",)
    answer = await stand.groups.share.heartbeat("g", joining("m", "a", "b"))
    assert answer.assignment == {(TOPICS["b"].topic_id, 0)}
    del stand.queues.made_by_others["g"]
    told = await stand.groups.share.heartbeat("g", ShareHeartbeat("m", 1))
    assert len(told.assignment or ()) == 5


# ── settings ──────────────────────────────────────────────────────────────────────────────────────


async def test_configuration_of_a_group_overrides_that_of_the_broker(stand: Stand) -> None:
    stand.set["g", "share.record.lock.duration.ms"] = "15000"
    stand.set["g", "share.isolation.level"] = "read_committed"
    stand.set["g", "share.renew.acknowledge.enable"] = "FALSE"
    stand.set["g", "errors.deadletterqueue.topic.name"] = "dlq.g"
    settings = stand.groups.share.settings("g")
    assert (settings.record_lock_duration_ms, settings.reads_committed_only) == (15_000, True)
    assert (settings.may_renew, settings.dead_letter_topic) == (False, "dlq.g")
    assert stand.groups.share.settings("h") == ShareSettings(max_members=3)


async def test_changed_settings_reach_the_queue_at_once_or_with_the_next_heartbeat(stand: Stand) -> None:
    await join(stand, "m", "a")
    stand.set["g", "share.delivery.count.limit"] = "7"
    stand.queues.error = DiskFull("no room")
    await stand.groups.share.settings_changed("g")
    stand.queues.error = None
    assert stand.queues.followed["g"].delivery_count_limit == 5
    await stand.groups.share.heartbeat("g", ShareHeartbeat("m", 1))
    assert stand.queues.followed["g"].delivery_count_limit == 7
    stand.set["g", "share.delivery.count.limit"] = "8"
    await stand.groups.share.settings_changed("g")
    assert stand.queues.followed["g"].delivery_count_limit == 8
    await stand.groups.share.settings_changed("unknown")
    assert "unknown" not in stand.queues.followed


async def test_session_timeout_of_a_group_is_its_own(stand: Stand) -> None:
    stand.set["g", "share.session.timeout.ms"] = "10000"
    await join(stand, "m", "a")
    await join(stand, "m", "a", group="h")
    stand.clock.advance(11)
    await stand.groups.tick()
    assert not is_member(stand.groups.share, "g", "m")
    assert is_member(stand.groups.share, "h", "m")


async def test_group_has_as_many_members_as_the_broker_allows(stand: Stand) -> None:
    for number in range(3):
        await join(stand, f"m{number}", "a")
    with pytest.raises(GroupFull):
        await join(stand, "m3", "a")


async def test_flood_of_names_ends_and_empty_groups_can_be_deleted(stand: Stand) -> None:
    for number in range(4):
        await join(stand, "m", "a", group=f"g{number}")
    with pytest.raises(GroupFull):
        await join(stand, "m", "a", group="g4")
    with pytest.raises(GroupFull):
        await stand.groups.share.move("g4", {("a", 0): 0})
    await stand.groups.share.heartbeat("g0", ShareHeartbeat("m", -1))
    await stand.groups.delete_group("g0")
    await join(stand, "m", "a", group="g4")


@pytest.mark.parametrize("name", ["g" * 256, "a\nb"])
async def test_name_that_no_queue_can_have_is_refused(stand: Stand, name: str) -> None:
    with pytest.raises(InvalidArgument):
        await join(stand, "m", "a", group=name)
    assert not stand.groups.share.names()


async def test_member_whose_names_the_store_cannot_keep_is_refused(stand: Stand) -> None:
    with pytest.raises(InvalidArgument):
        await join(stand, "m", "a", group="g" * 5000)
    with pytest.raises(InvalidArgument):
        await join(stand, "m", *(f"topic-{n}" * 20 for n in range(10_000)))
    assert not stand.groups.share.names()


async def test_disk_that_was_full_when_a_session_ended_is_tried_again(stand: Stand) -> None:
    await join(stand, "m", "a")
    stand.clock.advance(46)
    stand.meta.full = True
    with pytest.raises(DiskFull):
        await stand.groups.tick()
    assert not is_member(stand.groups.share, "g", "m")
    stand.meta.full = False
    await stand.groups.tick()
    assert (await stand.restart()).describe("g").members == []
