"""What doors may ask for about share groups (KIP-932): each verb checks who asks, as Kafka does for the same request."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from sparrow.base.errors import NotAuthorized, SparrowError
from sparrow.broker.access.authz import ANONYMOUS, Authorizer, Operation, Principal, ResourceType, require

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.groups.consumer.member import HeartbeatAnswer
    from sparrow.broker.groups.groups import Groups
    from sparrow.broker.groups.native.assignor import Partition
    from sparrow.broker.groups.share.description import ShareDescription
    from sparrow.broker.groups.share.member import ShareHeartbeat
    from sparrow.broker.groups.share.queues import Progress
    from sparrow.broker.groups.share.settings import ShareSettings

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP


class ShareGroupVerbs:
    """The verbs. Loop thread only."""

    def __init__(self, groups: Groups, authorizer: Callable[[], Authorizer]) -> None:
        self._groups = groups
        self._authorizer = authorizer

    async def heartbeat(
        self, group: str, beat: ShareHeartbeat, *, principal: Principal = ANONYMOUS
    ) -> HeartbeatAnswer:
        """See `ShareGroups.heartbeat`. A topic that the principal may not see fails it as a whole.

        Raises:
            NotAuthorized too
        """
        authorizer = self._authorizer()
        require(authorizer, principal, Operation.READ, _GROUP, group)
        for topic in beat.topics or ():
            require(authorizer, principal, Operation.DESCRIBE, _TOPIC, topic)
        return await self._groups.share.heartbeat(group, beat)

    def settings(self, group: str) -> ShareSettings:
        """What holds for a group, whether it exists or not."""
        return self._groups.share.settings(group)

    def describe(self, group: str, *, principal: Principal = ANONYMOUS) -> ShareDescription:
        """A share group; nothing of it is told to those who may not see all topics that its members have partitions of.

        Raises:
            UnknownGroup: there is none, or it is of another kind.
            NotAuthorized
        """
        authorizer = self._authorizer()
        require(authorizer, principal, Operation.DESCRIBE, _GROUP, group)
        described = self._groups.share.describe_share(group)
        if not all(
            authorizer.allows(principal, Operation.DESCRIBE, _TOPIC, topic) for topic in described.topics
        ):
            raise NotAuthorized(
                f"Group {group!r} reads topics that {principal} is not allowed to describe.", _TOPIC.value
            )
        return described

    # ── how far groups are ────────────────────────────────────────────────────────────────────────

    async def progress(self, group: str, *, principal: Principal = ANONYMOUS) -> dict[Partition, Progress]:
        """How far a group is, in the topics that the principal may describe; empty for one that does not exist.

        Raises:
            NotAuthorized: not this group at all.
        """
        require(self._authorizer(), principal, Operation.DESCRIBE, _GROUP, group)
        found = await self._groups.share.progress(group)
        seen = {topic for topic in {topic for topic, _ in found} if self.may_see(topic, principal=principal)}
        return {partition: each for partition, each in found.items() if partition[0] in seen}

    def may_see(self, topic: str, *, principal: Principal = ANONYMOUS) -> bool:
        """Whether the principal may describe a topic."""
        return self._authorizer().allows(principal, Operation.DESCRIBE, _TOPIC, topic)

    async def move(
        self, group: str, offsets: Mapping[Partition, int], *, principal: Principal = ANONYMOUS
    ) -> dict[Partition, SparrowError | None]:
        """See `ShareGroups.move`; an error or None for each partition.

        Raises:
            NotAuthorized: not this group at all; what `ShareGroups.move` raises.
        """
        require(self._authorizer(), principal, Operation.READ, _GROUP, group)
        refused = self._unreadable({topic for topic, _ in offsets}, principal)
        readable = {key: offset for key, offset in offsets.items() if key[0] not in refused}
        results: dict[Partition, SparrowError | None] = {
            key: refused[key[0]] for key in offsets if key[0] in refused
        }
        return results | await self._groups.share.move(group, readable)

    async def drop_topics(
        self, group: str, topics: Collection[str], *, principal: Principal = ANONYMOUS
    ) -> dict[str, SparrowError | None]:
        """See `ShareGroups.drop_topic`; an error or None for each topic.

        Raises:
            NotAuthorized: not this group at all.
            UnknownGroup, GroupNotEmpty, DiskFull, StorageFailed
        """
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
        return results

    def _unreadable(self, topics: Collection[str], principal: Principal) -> dict[str, NotAuthorized]:
        refused: dict[str, NotAuthorized] = {}
        for topic in topics:
            try:
                require(self._authorizer(), principal, Operation.READ, _TOPIC, topic)
            except NotAuthorized as error:
                refused[topic] = error
        return refused
