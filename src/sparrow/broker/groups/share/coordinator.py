"""The coordinator of share groups (KIP-932): runs the pure groups (module `group`) with a clock,
the topics, a store and their queues.

A heartbeat is answered when its changes are durable and every partition in the response is a source
of the group's queue (`queues`). So a member can read each partition that it is assigned, from the
start that `share.auto.offset.reset` gave at that time.

As in Kafka a share group stays until it is deleted, with its progress. It keeps its name when it is
empty, and does not take over a name of another kind of group, or one that has committed offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from sparrow.base.errors import GroupFull, InvalidArgument, SparrowError, UnknownGroup
from sparrow.broker.groups.consumer.member import LEAVE_EPOCH, HeartbeatResponse
from sparrow.broker.groups.description import GroupType
from sparrow.broker.groups.persistence import check_storable
from sparrow.broker.groups.share import persistence
from sparrow.broker.groups.share.checks import check_heartbeat
from sparrow.broker.groups.share.description import ShareDescription, describe, describe_share
from sparrow.broker.groups.share.group import ShareGroup
from sparrow.broker.groups.share.settings import ShareSettings
from sparrow.broker.groups.table import GroupTable
from sparrow.broker.groups.writes import GroupWrites
from sparrow.broker.names import check_group_name

if TYPE_CHECKING:
    from sparrow.broker.groups.consumer.member import Assignment
    from sparrow.broker.groups.consumer.topics import TopicCatalog
    from sparrow.broker.groups.offsets import Committer
    from sparrow.broker.groups.registry import GroupRegistry
    from sparrow.broker.groups.share.member import ShareHeartbeat
    from sparrow.broker.groups.share.queues import GroupProgress, GroupQueues
    from sparrow.meta.store import Write
    from sparrow.model.groups import GroupDescription
    from sparrow.records.topic_partition import TopicPartition

SettingsOf = Callable[[str], ShareSettings]
"""Return the settings of a group: its own, else those of the broker."""
log = logging.getLogger(__name__)


class ShareGroupCoordinator(GroupTable[ShareGroup]):
    """All share groups of a broker. Loop thread only.

    Args:
        topics: the catalog of the consumer coordinator, which is registered before this one and
            keeps it up to date.
        max_groups: limits a flood of names, since empty groups stay.
    """

    type = GroupType.SHARE
    protocol_type = "share"
    queues: GroupQueues
    """Set by the composition of the broker before the first request."""

    def __init__(
        self,
        registry: GroupRegistry,
        topics: TopicCatalog,
        settings_of: SettingsOf = lambda _group: ShareSettings(),
        max_groups: int = 2_000,
    ) -> None:
        super().__init__(registry)
        self.topics = topics
        self._settings_of = settings_of
        self._max_groups = max_groups
        self._writes = GroupWrites[ShareGroup](registry.meta, persistence.writes)

    async def load(self) -> None:
        """Read the groups of earlier runs. Sessions of their members begin now.

        Raises:
            DirectoryUnreadable, NewerFormat: an entry is no group, or one of a later Sparrow.
        """
        now = self._clock.monotonic()
        for group in await persistence.load(self._registry.meta, self._empty_group):
            group.start_clocks(now, self._settings_of(group.name).session_timeout_ms / 1000)
            self._groups[group.name] = group

    # ── the protocol ──────────────────────────────────────────────────────────────────────────────

    async def heartbeat(self, name: str, beat: ShareHeartbeat) -> HeartbeatResponse:
        """Handle a heartbeat of a member that joins, continues or leaves. The response is durable,
        and its partitions can be read.

        Raises:
            InvalidArgument: the heartbeat is wrong by itself.
            UnknownGroup: there is none, or the name is taken by another kind of group.
            GroupFull: the group has too many members, or there are too many groups. UnknownMember,
                FencedMemberEpoch
            DiskFull, StorageFailed: the change could not be stored; the same heartbeat may be sent
                again.
        """
        if not name:
            raise InvalidArgument("A group needs a name.")
        check_heartbeat(beat)
        if beat.member_epoch == LEAVE_EPOCH:
            group = self.get(name)
            group.leave(beat.member_id)
            await self._writes.flush(group)
            return HeartbeatResponse(beat.member_id, LEAVE_EPOCH)
        group, response = self._beat(name, beat)
        await self._writes.flush(group)
        if self._groups.get(name) is group:  # else it was deleted meanwhile
            topics = {topic.name for topic in group.readable_topics()}
            await self.queues.ensure(name, topics, self._settings_of(name))
        return response

    def settings(self, name: str) -> ShareSettings:
        """Return the settings of a group, whether it exists or not."""
        return self._settings_of(name)

    def assignment(self, name: str, member_id: str) -> Assignment:
        """Return the partitions that a member was last assigned, by topic id.

        Raises:
            UnknownGroup, UnknownMember
        """
        return self.get(name).get(member_id).assigned

    def describe_share(self, name: str) -> ShareDescription:
        """Return a group as Kafka describes it.

        Raises:
            UnknownGroup: there is none, or it is of another kind.
        """
        return describe_share(self.get(name), self.topics)

    async def settings_changed(self, name: str) -> None:
        """Apply changed settings of a group to its queue, now or with the next heartbeat."""
        if name in self._groups:
            try:
                await self.queues.follow(name, self._settings_of(name))
            except SparrowError as error:
                log.warning("settings of share group %s do not hold yet: %s", name, error.text)

    # ── progress ──────────────────────────────────────────────────────────────────────────────────

    async def progress(self, name: str) -> dict[TopicPartition, GroupProgress]:
        """Return the progress of a group by topic and partition; empty for a missing group."""
        return await self.queues.progress(name) if name in self._groups else {}

    async def move(
        self, name: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, SparrowError | None]:
        """Let a group without members continue at other offsets. A missing group is created.

        Raises:
            InvalidArgument: no such name is possible.
            UnknownGroup: the name is taken by another kind of group. GroupFull, GroupNotEmpty,
                DiskFull, StorageFailed
        """
        check_storable(name, "")
        group = self._groups.get(name) or self._new_group(name)
        if not offsets:
            return {}
        self._registry.require_empty(name, "move it")
        group.changes.group = True
        self._groups[name] = group
        await self._writes.flush(group)
        return await self.queues.move(name, offsets, self._settings_of(name))

    async def drop_topic(self, name: str, topic: str) -> None:
        """Delete the progress of a group without members in a topic; the group begins there again
        when members subscribe to it.

        Raises:
            UnknownGroup, UnknownTopic, PolicyViolation, GroupNotEmpty, DiskFull, StorageFailed
        """
        self.get(name)
        self._registry.require_empty(name, "forget its offsets")
        await self.queues.drop_topic(name, topic)

    async def delete_data(self, name: str) -> None:
        """Delete the queue of a group that is about to be dropped.

        Raises:
            GroupNotEmpty, DiskFull, StorageFailed
        """
        await self.queues.delete(name)

    # ── called by the registry ────────────────────────────────────────────────────────────────────

    def describe(self, group: str) -> GroupDescription:
        return describe(self._groups[group], self.topics)

    def check_commit(self, group: str, committer: Committer, partitions: Iterable[TopicPartition]) -> None:  # noqa: ARG002
        """Raise UnknownGroup: share groups commit nothing (KIP-932)."""
        _no_offsets(group)

    def check_fetch(self, group: str, member_id: str | None, epoch: int) -> None:  # noqa: ARG002
        """Raise UnknownGroup."""
        _no_offsets(group)

    def subscribed(self, group: str) -> Collection[str]:
        """Raise UnknownGroup: there are no offsets to delete."""
        _no_offsets(group)

    def drop(self, group: str) -> Sequence[Write]:
        state = self._groups.pop(group)
        return persistence.deletes(group, [*state.members, *state.changes.members])

    def topics_changed(self, partition_counts: Mapping[str, int]) -> None:
        for group in self._groups.values():
            group.topics_changed(partition_counts)

    async def tick(self) -> None:
        """Remove members whose time is over.

        Raises:
            DiskFull, StorageFailed: something could not be written; it is tried again.
        """
        now = self._clock.monotonic()
        await self._writes.sweep(self._groups, lambda group: _expire(group, now))

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _beat(self, name: str, beat: ShareHeartbeat) -> tuple[ShareGroup, HeartbeatResponse]:
        check_storable(name, beat.member_id, beat.rack_id or "", *(beat.topics or ()))
        group = self.get(name) if beat.member_epoch > 0 else self._groups.get(name) or self._new_group(name)
        settings = self._settings_of(name)
        group.max_members = settings.max_members
        group.limit_topics(self.queues.own_topics(name))
        response = group.heartbeat(beat, self._clock.monotonic(), settings.session_timeout_ms / 1000)
        self._groups[name] = group
        return group, response

    def _new_group(self, name: str) -> ShareGroup:
        """Return a new group.

        Raises:
            InvalidArgument: no such name is possible.
            UnknownGroup: the name is taken.
            GroupFull: there are as many share groups as possible.
        """
        check_group_name(name)
        kind = self._registry.type_of(name)
        if kind is not None:
            raise UnknownGroup(f"Group {name!r} is no share group but a {kind} group; use another name.")
        if len(self._groups) >= self._max_groups:
            raise GroupFull(
                f"There are {len(self._groups)} share groups already; delete some, or raise "
                "groups.share_max_groups."
            )
        return self._empty_group(name)

    def _empty_group(self, name: str) -> ShareGroup:
        return ShareGroup(name, self.topics, self._settings_of(name).max_members)


def _expire(group: ShareGroup, now: float) -> None:
    for member_id in group.expire(now):
        log.info("share group %s: member %s is out: its session is over", group.name, member_id)


def _no_offsets(group: str) -> NoReturn:
    raise UnknownGroup(f"Group {group!r} is a share group: it has no committed offsets.")
