"""Operations on consumer groups (KIP-848), with the same access checks as Kafka's requests have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType

if TYPE_CHECKING:
    from sparrow.broker.access.access import Access
    from sparrow.broker.groups.consumer.coordinator import ConsumerGroupCoordinator
    from sparrow.broker.groups.consumer.description import ConsumerDescription
    from sparrow.broker.groups.consumer.member import Heartbeat, HeartbeatResponse

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP


class ConsumerGroupService:
    """`broker.groups.consumer`. Loop thread only."""

    def __init__(self, coordinator: ConsumerGroupCoordinator, access: Access) -> None:
        self._coordinator = coordinator
        self._access = access

    async def heartbeat(
        self, group: str, beat: Heartbeat, *, principal: Principal = ANONYMOUS
    ) -> HeartbeatResponse:
        """See `ConsumerGroupCoordinator.heartbeat`. A topic that the principal may not see makes it
        fail as a whole. Raises NotAuthorized, too.
        """
        self._access.require(principal, Operation.READ, _GROUP, group)
        for topic in beat.topics or ():
            self._access.require(principal, Operation.DESCRIBE, _TOPIC, topic)

        def may_see(topic: str) -> bool:
            return self._access.allows(principal, Operation.DESCRIBE, _TOPIC, topic)

        return await self._coordinator.heartbeat(group, beat, may_see)

    def heartbeat_interval_ms(self, group: str) -> int:
        """Return the time between heartbeats of a group's members, in ms."""
        return self._coordinator.heartbeat_interval_ms(group)

    def describe(self, group: str, *, principal: Principal = ANONYMOUS) -> ConsumerDescription:
        """Return a consumer group to principals that may see all of its topics.

        Raises:
            UnknownGroup: there is none, or it is of another kind. NotAuthorized
        """
        self._access.require(principal, Operation.DESCRIBE, _GROUP, group)
        described = self._coordinator.describe_consumer(group)
        self._access.require_topics_of_group(principal, group, described.topics)
        return described
