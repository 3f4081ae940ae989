"""Operations on groups of all kinds: describe them; commit, show, reset and delete their offsets.

Each operation checks the rights of its principal, and is one event of the audit if it changes
something. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.audit.event import names, safe
from sparrow.broker.configs.node import DEAD_LETTER_AUTO_CREATE, DEAD_LETTER_PREFIX
from sparrow.broker.configs.topic import DEAD_LETTERS_ENABLE
from sparrow.broker.groups.description import GroupType
from sparrow.broker.groups.offsets import OffsetAndMetadata
from sparrow.broker.groups.registry import check_start_offsets
from sparrow.broker.groups.share.settings import why_no_dead_letters
from sparrow.broker.lag import GroupReport, lags_of_share, report
from sparrow.broker.names import check_group_name
from sparrow.broker.positions import StartPosition, locate

if TYPE_CHECKING:
    from sparrow.broker.access.access import Access
    from sparrow.broker.audit.audit import Audit
    from sparrow.broker.configs.configs import Configs
    from sparrow.broker.groups.assembly import BrokerGroups
    from sparrow.broker.groups.share.service import ShareGroupService
    from sparrow.broker.topics import Topics
    from sparrow.records.topic_partition import TopicPartition

_TOPIC = ResourceType.TOPIC
_GROUP = ResourceType.GROUP


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset of one partition; `offset` is the next to read."""

    topic: str
    partition: int
    offset: int
    metadata: str


class GroupAdministration:
    """`broker.group_admin`."""

    def __init__(
        self,
        groups: BrokerGroups,
        share_groups: ShareGroupService,
        topics: Topics,
        configs: Configs,
        *,
        access: Access,
        audit: Audit,
    ) -> None:
        self._groups = groups
        self._share_groups = share_groups
        self._topics = topics
        self._configs = configs
        self._access = access
        self._audit = audit

    def describe(self, group: str, *, principal: Principal = ANONYMOUS) -> GroupReport:
        """Return members, committed offsets and lag, without topics that the principal may not
        describe.

        Raises:
            UnknownGroup, NotAuthorized
        """
        self._access.require(principal, Operation.DESCRIBE, _GROUP, group)
        described = self._groups.describe(group)
        members = tuple(
            member.only(lambda topic: self._access.allows(principal, Operation.DESCRIBE, _TOPIC, topic))
            for member in described.members
        )
        committed = self._visible_offsets(principal, group)
        return report(replace(described, members=members), committed, self._topics)

    async def report(self, group: str, *, principal: Principal = ANONYMOUS) -> GroupReport:
        """Return what `describe` returns; a share group has its progress instead of committed
        offsets.

        Raises:
            UnknownGroup, NotAuthorized
        """
        found = self.describe(group, principal=principal)
        if found.type is not GroupType.SHARE:
            return found
        progress = await self._share_groups.progress(group, principal=principal)
        return replace(found, offsets=lags_of_share(progress))

    def _visible_offsets(self, principal: Principal, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of topics that the principal may describe."""
        committed = self._groups.fetch_offsets(group)
        visible = {
            topic
            for topic in {key[0] for key in committed}
            if self._access.allows(principal, Operation.DESCRIBE, _TOPIC, topic)
        }
        return {key: value for key, value in committed.items() if key[0] in visible}

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

    async def delete(self, group: str, *, principal: Principal = ANONYMOUS) -> None:
        """Delete a group and its offsets.

        Raises:
            UnknownGroup, GroupNotEmpty, NotAuthorized
        """
        with self._audit.act(principal, "group.delete", _GROUP, group):
            self._access.require(principal, Operation.DELETE, _GROUP, group)
            await self._groups.delete_group(group)

    def share_dead_letter_refusal(self, topic: str) -> str | None:
        """Return why share groups may not write dead letters to a topic as it is now (KIP-1191), or
        None if they may.
        """
        found = self._topics.find(topic)
        return why_no_dead_letters(
            topic,
            prefix=self._configs.of_node(DEAD_LETTER_PREFIX),
            is_enabled=None if found is None else found.config.value(DEAD_LETTERS_ENABLE).lower() == "true",
            makes_missing=self._configs.of_node(DEAD_LETTER_AUTO_CREATE).lower() == "true",
        )
