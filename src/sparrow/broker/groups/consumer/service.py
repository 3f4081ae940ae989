"""Operations on consumer groups (KIP-848), with the same access checks as Kafka's requests have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.broker.access.authz import (
    ANONYMOUS,
    Authorizer,
    Operation,
    Principal,
    ResourceType,
    refusal,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.groups.assembly import BrokerGroups
    from sparrow.broker.groups.consumer.description import ConsumerDescription
    from sparrow.broker.groups.consumer.member import Heartbeat, HeartbeatResponse

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP


class ConsumerGroupService:
    """`broker.consumer_group_service`. Loop thread only."""

    def __init__(self, groups: BrokerGroups, authorizer: Callable[[], Authorizer]) -> None:
        self._groups = groups
        self._authorizer = authorizer

    async def heartbeat(
        self, group: str, beat: Heartbeat, *, principal: Principal = ANONYMOUS
    ) -> HeartbeatResponse:
        """See `ConsumerGroupCoordinator.heartbeat`. A topic that the principal may not see makes it
        fail as a whole. Raises NotAuthorized, too.
        """
        authorizer = self._authorizer()
        require(authorizer, principal, Operation.READ, _GROUP, group)
        for topic in beat.topics or ():
            require(authorizer, principal, Operation.DESCRIBE, _TOPIC, topic)

        def may_see(topic: str) -> bool:
            return authorizer.allows(principal, Operation.DESCRIBE, _TOPIC, topic)

        return await self._groups.consumer.heartbeat(group, beat, may_see)

    def heartbeat_interval_ms(self, group: str) -> int:
        """Return the time between heartbeats of a group's members, in ms."""
        return self._groups.consumer.heartbeat_interval_ms(group)

    def describe(self, group: str, *, principal: Principal = ANONYMOUS) -> ConsumerDescription:
        """Return a consumer group to principals that may see all of its topics.

        Raises:
            UnknownGroup: there is none, or it is of another kind. NotAuthorized
        """
        authorizer = self._authorizer()
        require(authorizer, principal, Operation.DESCRIBE, _GROUP, group)
        described = self._groups.consumer.describe_consumer(group)
        if not all(
            authorizer.allows(principal, Operation.DESCRIBE, _TOPIC, topic) for topic in described.topics
        ):
            text = f"Group {group!r} reads topics that {principal} is not allowed to describe."
            raise refusal(authorizer, principal, Operation.DESCRIBE, _TOPIC, f"those of {group}", text=text)
        return described
