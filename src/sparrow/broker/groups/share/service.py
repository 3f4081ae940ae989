"""Operations on share groups (KIP-932), with the same access checks as Kafka's requests have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from sparrow.base.errors import NotAuthorized, SparrowError
from sparrow.broker.access.authz import (
    ANONYMOUS,
    Authorizer,
    Operation,
    Principal,
    ResourceType,
    refusal,
    require,
)
from sparrow.broker.audit.audit import Audit
from sparrow.broker.audit.event import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.groups.assembly import BrokerGroups
    from sparrow.broker.groups.consumer.member import HeartbeatResponse
    from sparrow.broker.groups.share.description import ShareDescription
    from sparrow.broker.groups.share.member import ShareHeartbeat
    from sparrow.broker.groups.share.queues import GroupProgress
    from sparrow.broker.groups.share.settings import ShareSettings
    from sparrow.records.topic_partition import TopicPartition

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP


class ShareGroupService:
    """`broker.share_group_service`. Loop thread only."""

    def __init__(
        self, groups: BrokerGroups, authorizer: Callable[[], Authorizer], audit: Audit | None = None
    ) -> None:
        self._audit = audit or Audit()
        self._groups = groups
        self._authorizer = authorizer

    async def heartbeat(
        self, group: str, beat: ShareHeartbeat, *, principal: Principal = ANONYMOUS
    ) -> HeartbeatResponse:
        """See `ShareGroupCoordinator.heartbeat`. A topic that the principal may not see makes it
        fail as a whole. Raises NotAuthorized, too.
        """
        authorizer = self._authorizer()
        require(authorizer, principal, Operation.READ, _GROUP, group)
        for topic in beat.topics or ():
            require(authorizer, principal, Operation.DESCRIBE, _TOPIC, topic)
        return await self._groups.share.heartbeat(group, beat)

    def settings(self, group: str) -> ShareSettings:
        """Return the settings of a group, whether it exists or not."""
        return self._groups.share.settings(group)

    def describe(self, group: str, *, principal: Principal = ANONYMOUS) -> ShareDescription:
        """Return a share group to principals that may see all topics of which its members have
        partitions.

        Raises:
            UnknownGroup: there is none, or it is of another kind. NotAuthorized
        """
        authorizer = self._authorizer()
        require(authorizer, principal, Operation.DESCRIBE, _GROUP, group)
        described = self._groups.share.describe_share(group)
        if not all(
            authorizer.allows(principal, Operation.DESCRIBE, _TOPIC, topic) for topic in described.topics
        ):
            text = f"Group {group!r} reads topics that {principal} is not allowed to describe."
            raise refusal(authorizer, principal, Operation.DESCRIBE, _TOPIC, f"those of {group}", text=text)
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
        require(self._authorizer(), principal, Operation.DESCRIBE, _GROUP, group)
        found = await self._groups.share.progress(group)
        seen = {topic for topic in {topic for topic, _ in found} if self.may_see(topic, principal=principal)}
        return {partition: each for partition, each in found.items() if partition[0] in seen}

    def may_see(self, topic: str, *, principal: Principal = ANONYMOUS) -> bool:
        """Return True if the principal may describe a topic."""
        return self._authorizer().allows(principal, Operation.DESCRIBE, _TOPIC, topic)

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
            require(self._authorizer(), principal, Operation.READ, _GROUP, group)
            refused = self._unreadable({topic for topic, _ in offsets}, principal)
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
            require(self._authorizer(), principal, Operation.DELETE, _GROUP, group)
            self._groups.share.get(group)
            self._groups.require_empty(group, "forget its offsets")
            results: dict[str, SparrowError | None] = {}
            refused = self._unreadable(topics, principal)
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

    def _unreadable(self, topics: Collection[str], principal: Principal) -> dict[str, NotAuthorized]:
        refused: dict[str, NotAuthorized] = {}
        for topic in topics:
            try:
                require(self._authorizer(), principal, Operation.READ, _TOPIC, topic)
            except NotAuthorized as error:
                refused[topic] = error
        return refused
