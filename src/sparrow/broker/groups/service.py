"""Operations on groups of all kinds: list and describe them; commit, show, reset and delete their
offsets.

Each operation checks the rights of its principal, and is one event of the audit if it changes
something. Where one request of the Kafka protocol names several things, those that fail are
returned with their errors instead of raised. The operations of members are in the services of the
kinds: `classic`, `consumer`, `share`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparrow.base.errors import GroupSubscribedToTopic, SparrowError, UnstableOffset
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.audit.event import names, safe
from sparrow.broker.groups.classic.service import ClassicGroupService
from sparrow.broker.groups.consumer.service import ConsumerGroupService
from sparrow.broker.groups.description import GroupType, only_topics
from sparrow.broker.groups.lag import lags_of_share, report
from sparrow.broker.groups.offsets import OffsetAndMetadata
from sparrow.broker.groups.registry import check_metadata, check_start_offsets
from sparrow.broker.groups.share.service import ShareGroupService
from sparrow.broker.names import check_group_name, compile_any_pattern
from sparrow.broker.reading.positions import StartPosition, locate
from sparrow.model.access import CLUSTER_NAME
from sparrow.model.groups import CommittedOffset, GroupDescription, GroupLag

if TYPE_CHECKING:
    from sparrow.broker.access.access import Access
    from sparrow.broker.audit.audit import Audit
    from sparrow.broker.groups.assembly import BrokerGroups
    from sparrow.broker.groups.offsets import Committer
    from sparrow.broker.topics.registry import TopicRegistry
    from sparrow.model.groups import GroupListing
    from sparrow.records.topic_partition import TopicPartition

_TOPIC = ResourceType.TOPIC
_GROUP = ResourceType.GROUP


class GroupService:
    """The service of groups, `broker.groups`. Loop thread only."""

    def __init__(self, groups: BrokerGroups, topics: TopicRegistry, access: Access, audit: Audit) -> None:
        self.classic = ClassicGroupService(groups.classic, access)
        self.consumer = ConsumerGroupService(groups.consumer, access)
        self.share = ShareGroupService(groups, access, audit)
        self._groups = groups
        self._topics = topics
        self._access = access
        self._audit = audit

    # ── groups ────────────────────────────────────────────────────────────────────────────────────

    def listing(self, *, principal: Principal = ANONYMOUS) -> list[GroupListing]:
        """Return groups of all kinds, by name: all of them to principals that may describe the
        cluster, else those that the principal may describe.
        """
        may_see_all = self._access.allows(principal, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        return [
            info
            for info in self._groups.list_groups()
            if may_see_all or self._access.allows(principal, Operation.DESCRIBE, _GROUP, info.group)
        ]

    def lags(
        self, topic: str | None = None, *, pattern: str = "*", principal: Principal = ANONYMOUS
    ) -> list[GroupLag]:
        """Return the groups that the principal may see with their lag, by name: all, or those that
        have committed offsets of a topic, with the lag there. Share groups are left out: they are
        queues.
        """
        matches = compile_any_pattern(pattern).match
        found = []
        for info in self.listing(principal=principal):
            if info.type is GroupType.SHARE or not matches(info.group):
                continue
            offsets = report(
                GroupDescription(info.group, ""), self._visible(principal, info.group), self._topics
            )
            lags = [each.lag for each in offsets.offsets if topic in (None, each.topic)]
            if topic is None or lags:
                found.append(GroupLag(info.group, info.state, info.members, info.type, sum(lags)))
        return found

    def _visible(self, principal: Principal, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the visible offsets in partitions that are open; an idle log stays closed."""
        visible = self._visible_offsets(principal, group)
        found = {}
        for (name, index), committed in visible.items():
            topic = self._topics.find(name)
            if topic is not None and index < len(topic.partitions) and topic.partitions[index].is_open:
                found[name, index] = committed
        return found

    def describe(self, group: str, *, principal: Principal = ANONYMOUS) -> GroupDescription:
        """Return members, committed offsets and lag, without topics that the principal may not
        describe.

        Raises:
            UnknownGroup, NotAuthorized
        """
        self._access.require(principal, Operation.DESCRIBE, _GROUP, group)
        described = self._groups.describe(group)
        shows = partial(self._access.allows, principal, Operation.DESCRIBE, _TOPIC)
        members = [only_topics(member, shows) for member in described.members]
        committed = self._visible_offsets(principal, group)
        return report(replace(described, members=members), committed, self._topics)

    async def report(self, group: str, *, principal: Principal = ANONYMOUS) -> GroupDescription:
        """Return what `describe` returns; a share group has its progress instead of committed
        offsets.

        Raises:
            UnknownGroup, NotAuthorized
        """
        found = self.describe(group, principal=principal)
        if found.type is not GroupType.SHARE:
            return found
        progress = await self.share.progress(group, principal=principal)
        return replace(found, offsets=lags_of_share(progress))

    async def delete(self, group: str, *, principal: Principal = ANONYMOUS) -> None:
        """Delete a group and its offsets.

        Raises:
            UnknownGroup, GroupNotEmpty, NotAuthorized
        """
        with self._audit.act(principal, "group.delete", _GROUP, group):
            self._access.require(principal, Operation.DELETE, _GROUP, group)
            await self._groups.delete_group(group)

    def check_coordinator(
        self, resource_type: ResourceType, name: str, *, principal: Principal = ANONYMOUS
    ) -> None:
        """Raise an error if the principal may not find the coordinator of a group or transaction.

        Raises:
            NotAuthorized
        """
        self._access.require(principal, Operation.DESCRIBE, resource_type, name)

    # ── offsets, for administrators ───────────────────────────────────────────────────────────────

    async def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, tuple[int, str]],
        *,
        principal: Principal = ANONYMOUS,
    ) -> None:
        """Commit (offset, metadata) by partition for a group without members, durably.

        Raises:
            GroupNotEmpty, UnknownTopic, UnknownPartition, InvalidArgument, NotAuthorized
        """
        with self._audit.act(
            principal, "group.commit", _GROUP, group, topics=names(sorted({topic for topic, _ in offsets}))
        ) as act:
            self._access.require(principal, Operation.READ, _GROUP, group)
            check_group_name(group)
            for topic, partition in offsets:
                self._access.require(principal, Operation.READ, _TOPIC, topic)
                self._topics.get(topic).partition(partition)
            values = {key: OffsetAndMetadata(*value) for key, value in offsets.items()}
            check_start_offsets(values)
            if self._groups.moves_on(group, values):
                act.discard()
            await self._groups.commit(group, values)

    def fetch_offsets(
        self, group: str, topics: Sequence[str] = (), *, principal: Principal = ANONYMOUS
    ) -> list[CommittedOffset]:
        """Return the committed offsets of some topics, or (empty) of all that the principal may
        describe, by topic and partition.

        Raises:
            NotAuthorized
        """
        self._access.require(principal, Operation.DESCRIBE, _GROUP, group)
        for topic in topics:
            self._access.require(principal, Operation.DESCRIBE, _TOPIC, topic)
        committed = self._visible_offsets(principal, group)
        return [
            CommittedOffset(topic, partition, value.offset, value.metadata)
            for (topic, partition), value in sorted(committed.items())
            if not topics or topic in topics
        ]

    async def reset(
        self,
        group: str,
        topic: str,
        at: str,
        value: int = -1,
        partitions: Sequence[int] = (),
        *,
        principal: Principal = ANONYMOUS,
    ) -> list[tuple[str, int, int]]:
        """Set a group's offsets of a topic to a start position. An offset outside of the log
        becomes its start or end.

        Raises:
            GroupNotEmpty: it has members; stop them first. UnknownTopic, UnknownPartition,
                InvalidArgument, NotAuthorized
        """
        with self._audit.act(principal, "group.reset", _GROUP, group, topics=(safe(topic),)):
            self._access.require(principal, Operation.READ, _GROUP, group)
            check_group_name(group)
            self._access.require(principal, Operation.READ, _TOPIC, topic)
            found = self._topics.get(topic)
            offsets: dict[TopicPartition, OffsetAndMetadata] = {}
            for index in partitions or range(len(found.partitions)):
                partition = found.partition(index)
                offset, _ = await locate(partition, StartPosition(at, value))
                inside = min(max(offset, partition.start_offset), partition.visible_end)
                offsets[topic, index] = OffsetAndMetadata(inside)
            await self._set_offsets(group, offsets)
            return [(name, index, committed.offset) for (name, index), committed in offsets.items()]

    async def _set_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if not self._groups.share.owns(group):
            await self._groups.commit(group, offsets)
            return
        moved = await self._groups.share.move(
            group, {key: committed.offset for key, committed in offsets.items()}
        )
        for error in moved.values():
            if error is not None:
                raise error

    def _visible_offsets(self, principal: Principal, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of topics that the principal may describe."""
        committed = self._groups.fetch_offsets(group)
        visible = self._access.allowed(principal, Operation.DESCRIBE, _TOPIC, {key[0] for key in committed})
        return {key: value for key, value in committed.items() if key[0] in visible}

    # ── offsets, as requests of the Kafka protocol name them ──────────────────────────────────────

    async def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        committer: Committer,
        *,
        principal: Principal = ANONYMOUS,
    ) -> dict[TopicPartition, SparrowError | None]:
        """Commit what can be committed, durably. Return an error or None for each partition.

        Raises:
            NotAuthorized: the principal may not use the group at all.
            DiskFull, StorageFailed: nothing was committed. And what `GroupRegistry.check_commit`
                raises.
        """
        self._access.require(principal, Operation.READ, _GROUP, group)
        results = {
            partition: self._commit_error(principal, partition, value) for partition, value in offsets.items()
        }
        good = {partition: value for partition, value in offsets.items() if results[partition] is None}
        if good and committer.is_no_member and not self._groups.moves_on(group, good):
            topics = names(sorted({topic for topic, _ in good}))
            with self._audit.act(principal, "group.commit", _GROUP, group, topics=topics):
                await self._groups.commit(group, good, committer)
        elif good:
            await self._groups.commit(group, good, committer)
        return results

    def _commit_error(
        self, principal: Principal, partition: TopicPartition, value: OffsetAndMetadata
    ) -> SparrowError | None:
        try:
            self._access.require(principal, Operation.READ, _TOPIC, partition[0])
            self._groups.check_partition(partition)
            check_metadata(partition, value)
        except SparrowError as error:
            return error
        return None

    async def fetch(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None,
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
        require_stable: bool = False,
        principal: Principal = ANONYMOUS,
    ) -> dict[TopicPartition, OffsetAndMetadata | SparrowError | None]:
        """Return the committed offset, None or an error for each partition. With `partitions` None,
        return all committed offsets of topics that the principal may describe.

        Raises:
            NotAuthorized, UnknownMember, StaleMemberEpoch
        """
        self._access.require(principal, Operation.DESCRIBE, _GROUP, group)
        self._groups.check_fetch(group, member_id, member_epoch)
        await self._groups.commits_settled()
        committed = self._groups.fetch_offsets(group)
        pending = self._groups.pending(group) if require_stable else ()
        wanted = sorted({*committed, *pending}) if partitions is None else partitions
        topics = {topic for topic, _ in wanted}
        denied: Mapping[str, SparrowError] = {}
        if partitions is None:
            seen = self._access.allowed(principal, Operation.DESCRIBE, _TOPIC, topics)
            wanted = [partition for partition in wanted if partition[0] in seen]
        else:
            denied = self._access.refusals(principal, Operation.DESCRIBE, _TOPIC, topics)
        found: dict[TopicPartition, OffsetAndMetadata | SparrowError | None] = {}
        for partition in wanted:
            topic, index = partition
            if topic in denied:
                found[partition] = denied[topic]
            elif partition in pending:
                found[partition] = UnstableOffset(
                    f"A transaction that is not decided has committed offsets of {topic!r}, partition "
                    f"{index}, for group {group!r}; ask again."
                )
            else:
                found[partition] = committed.get(partition)
        return found

    async def delete_offsets(
        self, group: str, partitions: Collection[TopicPartition], *, principal: Principal = ANONYMOUS
    ) -> dict[TopicPartition, SparrowError | None]:
        """Delete offsets of topics that no member reads. Return an error or None for each
        partition.

        Raises:
            UnknownGroup, GroupNotEmpty, NotAuthorized DiskFull, StorageFailed
        """
        with self._audit.act(
            principal,
            "group.delete_offsets",
            _GROUP,
            group,
            topics=names(sorted({topic for topic, _ in partitions})),
        ) as act:
            self._access.require(principal, Operation.DELETE, _GROUP, group)
            read = self._groups.subscribed_topics(group, {topic for topic, _ in partitions})
            results = {
                partition: self._deletion_error(principal, group, partition, read) for partition in partitions
            }
            await self._groups.delete_offsets(group, [p for p in partitions if results[p] is None])
            act.items((f"{topic}-{index}", each) for (topic, index), each in results.items())
            return results

    def _deletion_error(
        self, principal: Principal, group: str, partition: TopicPartition, read: Collection[str]
    ) -> SparrowError | None:
        topic = partition[0]
        try:
            self._access.require(principal, Operation.READ, _TOPIC, topic)
            self._groups.check_partition(partition)
        except SparrowError as error:
            return error
        if topic in read:
            return GroupSubscribedToTopic(
                f"Members of group {group!r} read {topic!r}; stop them before its offsets are deleted."
            )
        return None
