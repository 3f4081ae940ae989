"""The coordinator of share groups (KIP-932): gives the pure groups (`group`) a clock, the topics, a store and their queues.

A heartbeat is answered when what it changed is durable and every partition that it tells of is a source of the group's queue (`queues`), so that
whoever is told of a partition can read it, from where `share.auto.offset.reset` said at that time.

As in Kafka a share group stays until it is deleted, and with it how far it is. Its name belongs to it even when it is empty; and it does not take
a name over that another kind of group has, or has offsets by.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from sparrow.base.errors import GroupFull, InvalidArgument, SparrowError, UnknownGroup
from sparrow.broker.groups.consumer.member import LEAVE_EPOCH, HeartbeatAnswer
from sparrow.broker.groups.description import GroupDescription, GroupInfo, GroupType
from sparrow.broker.groups.groups import check_group_name
from sparrow.broker.groups.share import facts
from sparrow.broker.groups.share.checks import check_heartbeat
from sparrow.broker.groups.share.description import ShareDescription, describe, describe_share
from sparrow.broker.groups.share.group import ShareGroup
from sparrow.broker.groups.share.settings import ShareSettings
from sparrow.broker.groups.stored import check_storable
from sparrow.broker.groups.writes import GroupWrites

if TYPE_CHECKING:
    from sparrow.broker.groups.consumer.member import Assignment
    from sparrow.broker.groups.consumer.topics import TopicCatalog
    from sparrow.broker.groups.family import Committer
    from sparrow.broker.groups.groups import Groups
    from sparrow.broker.groups.native.assignor import Partition as NamedPartition
    from sparrow.broker.groups.share.member import ShareHeartbeat
    from sparrow.broker.groups.share.queues import GroupQueues, Progress
    from sparrow.meta.store import Write

SettingsOf = Callable[[str], ShareSettings]
"""What holds for a group: the broker's settings, but for what the group sets itself."""
log = logging.getLogger(__name__)


class ShareGroups:
    """All share groups of a broker. Loop thread only.

    Args:
        topics: kept up to date by the family that is registered before this one.
        max_groups: groups stay when they are empty, so a flood of names must end somewhere.
    """

    type = GroupType.SHARE
    queues: GroupQueues
    """Set by whoever composes the broker, before the first verb."""

    def __init__(
        self,
        roof: Groups,
        topics: TopicCatalog,
        settings_of: SettingsOf = lambda _group: ShareSettings(),
        max_groups: int = 2_000,
    ) -> None:
        self.topics = topics
        self._roof = roof
        self._clock = roof.clock
        self._settings_of = settings_of
        self._max_groups = max_groups
        self._groups: dict[str, ShareGroup] = {}
        self._writes = GroupWrites[ShareGroup](roof.meta, facts.writes)

    async def load(self) -> None:
        """Read the groups of earlier runs. Sessions of their members begin now.

        Raises:
            DirectoryUnreadable, NewerFormat: a fact is no group, or one of a later Sparrow.
        """
        now = self._clock.monotonic()
        for group in await facts.load(self._roof.meta, self._empty_group):
            group.start_clocks(now, self._settings_of(group.name).session_timeout_ms / 1000)
            self._groups[group.name] = group

    # ── the protocol ──────────────────────────────────────────────────────────────────────────────

    async def heartbeat(self, name: str, beat: ShareHeartbeat) -> HeartbeatAnswer:
        """Join, go on or leave. What it tells is durable, and can be read.

        Raises:
            InvalidArgument: the heartbeat is wrong in itself.
            UnknownGroup: there is none, or the name is taken by another kind of group.
            GroupFull: of members, or there are too many groups.
            UnknownMember, FencedMemberEpoch
            DiskFull, StorageFailed: could not be kept; the same heartbeat may be sent again.
        """
        if not name:
            raise InvalidArgument("A group needs a name.")
        check_heartbeat(beat)
        if beat.member_epoch == LEAVE_EPOCH:
            group = self.get(name)
            group.leave(beat.member_id)
            await self._writes.flush(group)
            return HeartbeatAnswer(beat.member_id, LEAVE_EPOCH)
        group, answer = self._beat(name, beat)
        await self._writes.flush(group)
        if self._groups.get(name) is group:  # else it was deleted meanwhile
            topics = {topic.name for topic in group.readable_topics()}
            await self.queues.ensure(name, topics, self._settings_of(name))
        return answer

    def settings(self, name: str) -> ShareSettings:
        """What holds for a group, whether it exists or not."""
        return self._settings_of(name)

    def is_member(self, name: str, member_id: str) -> bool:
        """Whether a group has a member of this id now."""
        group = self._groups.get(name)
        return group is not None and member_id in group.members

    def assignment(self, name: str, member_id: str) -> Assignment:
        """The partitions that a member was told last, by topic id.

        Raises:
            UnknownGroup, UnknownMember
        """
        return self.get(name).get(member_id).assigned

    def describe_share(self, name: str) -> ShareDescription:
        """A group as Kafka describes it.

        Raises:
            UnknownGroup: there is none, or it is of another kind.
        """
        return describe_share(self.get(name), self.topics)

    async def settings_changed(self, name: str) -> None:
        """Something is configured of a group: its queue follows, now or with the next heartbeat."""
        if name in self._groups:
            try:
                await self.queues.follow(name, self._settings_of(name))
            except SparrowError as error:
                log.warning("settings of share group %s do not hold yet: %s", name, error.text)

    # ── how far groups are ────────────────────────────────────────────────────────────────────────

    async def progress(self, name: str) -> dict[NamedPartition, Progress]:
        """How far a group is, by topic and partition; empty for one that does not exist."""
        return await self.queues.progress(name) if name in self._groups else {}

    async def move(
        self, name: str, offsets: Mapping[NamedPartition, int]
    ) -> dict[NamedPartition, SparrowError | None]:
        """Let a group without members begin anew at other offsets; a group that does not exist is made.

        Raises:
            InvalidArgument: no such name.
            UnknownGroup: the name is taken by another kind of group.
            GroupFull, GroupNotEmpty, DiskFull, StorageFailed
        """
        check_storable(name, "")
        group = self._groups.get(name) or self._new_group(name)
        if not offsets:
            return {}
        self._roof.require_empty(name, "move it")
        group.changes.group = True
        self._groups[name] = group
        await self._writes.flush(group)
        return await self.queues.move(name, offsets, self._settings_of(name))

    async def drop_topic(self, name: str, topic: str) -> None:
        """Forget how far a group without members is in a topic; it begins there anew when members subscribe to it.

        Raises:
            UnknownGroup, UnknownTopic, PolicyViolation, GroupNotEmpty, DiskFull, StorageFailed
        """
        self.get(name)
        self._roof.require_empty(name, "forget its offsets")
        await self.queues.drop_topic(name, topic)

    async def delete_queue(self, name: str) -> None:
        """Forget the queue of a group that is about to be dropped.

        Raises:
            GroupNotEmpty, DiskFull, StorageFailed
        """
        await self.queues.delete(name)

    # ── what the roof asks ────────────────────────────────────────────────────────────────────────

    def names(self) -> Collection[str]:
        return self._groups.keys()

    def owns(self, group: str) -> bool:
        return group in self._groups

    def member_count(self, group: str) -> int:
        return len(self._groups[group].members)

    def info(self, group: str) -> GroupInfo:
        state = self._groups[group]
        return GroupInfo(group, state.state, len(state.members), self.type, "share")

    def describe(self, group: str) -> GroupDescription:
        return describe(self._groups[group], self.topics)

    def check_commit(self, group: str, committer: Committer, partitions: Iterable[NamedPartition]) -> None:  # noqa: ARG002
        """Share groups commit nothing (KIP-932).

        Raises:
            UnknownGroup
        """
        _no_offsets(group)

    def check_fetch(self, group: str, member_id: str | None, epoch: int) -> None:  # noqa: ARG002
        """Raises UnknownGroup."""
        _no_offsets(group)

    def subscribed(self, group: str) -> Collection[str]:
        """Raises UnknownGroup: there are no offsets to delete."""
        _no_offsets(group)

    def drop(self, group: str) -> Sequence[Write]:
        state = self._groups.pop(group)
        return facts.deletes(group, [*state.members, *state.changes.members])

    def topics_changed(self, partition_counts: Mapping[str, int]) -> None:
        for group in self._groups.values():
            group.topics_changed(partition_counts)

    async def tick(self) -> None:
        """Put out members whose time is over.

        Raises:
            DiskFull, StorageFailed: something could not be written; it is tried again.
        """
        now = self._clock.monotonic()
        await self._writes.sweep(self._groups, lambda group: _expire(group, now))

    def close(self) -> None:
        """Nothing happens here by itself."""

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def get(self, name: str) -> ShareGroup:
        """A group.

        Raises:
            UnknownGroup
        """
        group = self._groups.get(name)
        if group is None:
            raise UnknownGroup(f"There is no share group {name!r}.")
        return group

    def _beat(self, name: str, beat: ShareHeartbeat) -> tuple[ShareGroup, HeartbeatAnswer]:
        check_storable(name, beat.member_id, beat.rack_id or "", *(beat.topics or ()))
        group = self.get(name) if beat.member_epoch > 0 else self._groups.get(name) or self._new_group(name)
        settings = self._settings_of(name)
        group.max_members = settings.max_members
        group.limit_topics(self.queues.own_topics(name))
        answer = group.heartbeat(beat, self._clock.monotonic(), settings.session_timeout_ms / 1000)
        self._groups[name] = group
        return group, answer

    def _new_group(self, name: str) -> ShareGroup:
        """A group that does not exist yet.

        Raises:
            InvalidArgument: no such name is possible.
            UnknownGroup: the name is taken.
            GroupFull: there are as many share groups as possible.
        """
        check_group_name(name)
        kind = self._roof.type_of(name)
        if kind is not None:
            raise UnknownGroup(f"Group {name!r} is no share group but a {kind} group; use another name.")
        if len(self._groups) >= self._max_groups:
            raise GroupFull(
                f"There are {len(self._groups)} share groups already; delete some, or raise groups.share_max_groups."
            )
        return self._empty_group(name)

    def _empty_group(self, name: str) -> ShareGroup:
        return ShareGroup(name, self.topics, self._settings_of(name).max_members)


def _expire(group: ShareGroup, now: float) -> None:
    for member_id in group.expire(now):
        log.info("share group %s: member %s is out: its session is over", group.name, member_id)


def _no_offsets(group: str) -> NoReturn:
    raise UnknownGroup(f"Group {group!r} is a share group: it has no committed offsets.")
