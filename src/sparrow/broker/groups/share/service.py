"""Operations on share groups (KIP-932), with the same access checks as Kafka's requests have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from sparrow.base.errors import SparrowError
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.audit.event import names

if TYPE_CHECKING:
    from sparrow.broker.access.access import Access
    from sparrow.broker.audit.audit import Audit
    from sparrow.broker.groups.assembly import BrokerGroups
    from sparrow.broker.groups.consumer.member import HeartbeatResponse
    from sparrow.broker.groups.share.description import ShareDescription
    from sparrow.broker.groups.share.member import ShareHeartbeat
    from sparrow.broker.groups.share.queues import GroupProgress
    from sparrow.broker.groups.share.settings import ShareSettings
    from sparrow.records.topic_partition import TopicPartition

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP


class ShareGroupService:
    """`broker.groups.share`. Loop thread only."""

    def __init__(self, groups: BrokerGroups, access: Access, audit: Audit) -> None:
        self._audit = audit
        self._groups = groups
        self._access = access

    async def heartbeat(
        self, group: str, beat: ShareHeartbeat, *, principal: Principal = ANONYMOUS
    ) -> HeartbeatResponse:
        """See `ShareGroupCoordinator.heartbeat`. A topic that the principal may not see makes it
        fail as a whole. Raises NotAuthorized, too.
        """
        self._access.require(principal, Operation.READ, _GROUP, group)
        for topic in beat.topics or ():
            self._access.require(principal, Operation.DESCRIBE, _TOPIC, topic)
        return await self._groups.share.heartbeat(group, beat)

    def require_membership(self, group: str, *, principal: Principal = ANONYMOUS) -> None:
        """Raise NotAuthorized unless the principal may be a member of the group."""
        self._access.require(principal, Operation.READ, _GROUP, group)

    def settings(self, group: str) -> ShareSettings:
        """Return the settings of a group, whether it exists or not."""
        return self._groups.share.settings(group)

    def describe(self, group: str, *, principal: Principal = ANONYMOUS) -> ShareDescription:
        """Return a share group to principals that may see all topics of which its members have
        partitions.

        Raises:
            UnknownGroup: there is none, or it is of another kind. NotAuthorized
        """
        self._access.require(principal, Operation.DESCRIBE, _GROUP, group)
        described = self._groups.share.describe_share(group)
        self._access.require_topics_of_group(principal, group, described.topics)
        return described

    # ── progress ──────────────────────────────────────────────────────────────────────────────────

    async def progress(
        self, group: str, *, principal: Principal = ANONYMOUS
    ) -> dict[TopicPartition, GroupProgress]:
        """Return the progress of a group in the topics that the principal may describe; empty for a
        missing group.

        Raises:
            NotAuthorized: the principal may not use the group at all.
        """
        self._access.require(principal, Operation.DESCRIBE, _GROUP, group)
        found = await self._groups.share.progress(group)
        seen = self._access.allowed(principal, Operation.DESCRIBE, _TOPIC, {topic for topic, _ in found})
        return {partition: each for partition, each in found.items() if partition[0] in seen}

    def is_hidden(self, topic: str, *, principal: Principal = ANONYMOUS) -> bool:
        """Return True if the principal may not describe a topic that it named; this is a
        refusal.
        """
        return self._access.maybe_refusal(principal, Operation.DESCRIBE, _TOPIC, topic) is not None

    async def move(
        self, group: str, offsets: Mapping[TopicPartition, int], *, principal: Principal = ANONYMOUS
    ) -> dict[TopicPartition, SparrowError | None]:
        """See `ShareGroupCoordinator.move`. Return an error or None for each partition.

        Raises:
            NotAuthorized: the principal may not use the group at all. And what
                `ShareGroupCoordinator.move` raises.
        """
        with self._audit.act(
            principal, "group.reset", _GROUP, group, topics=names(sorted({topic for topic, _ in offsets}))
        ) as act:
            self._access.require(principal, Operation.READ, _GROUP, group)
            refused = self._access.refusals(
                principal, Operation.READ, _TOPIC, {topic for topic, _ in offsets}
            )
            readable = {key: offset for key, offset in offsets.items() if key[0] not in refused}
            results: dict[TopicPartition, SparrowError | None] = {
                key: refused[key[0]] for key in offsets if key[0] in refused
            }
            results |= await self._groups.share.move(group, readable)
            act.items((f"{topic}-{index}", each) for (topic, index), each in results.items())
            return results

    async def drop_topics(
        self, group: str, topics: Collection[str], *, principal: Principal = ANONYMOUS
    ) -> dict[str, SparrowError | None]:
        """See `ShareGroupCoordinator.drop_topic`. Return an error or None for each topic.

        Raises:
            NotAuthorized: the principal may not use the group at all. UnknownGroup, GroupNotEmpty,
                DiskFull, StorageFailed
        """
        with self._audit.act(
            principal, "group.delete_offsets", _GROUP, group, topics=names(sorted(topics))
        ) as act:
            self._access.require(principal, Operation.DELETE, _GROUP, group)
            self._groups.share.get(group)
            self._groups.require_empty(group, "forget its offsets")
            results: dict[str, SparrowError | None] = {}
            refused = self._access.refusals(principal, Operation.READ, _TOPIC, topics)
            for topic in topics:
                try:
                    if topic in refused:
                        raise refused[topic]
                    await self._groups.share.drop_topic(group, topic)
                    results[topic] = None
                except SparrowError as error:
                    results[topic] = error
            act.items(results.items())
            return results
