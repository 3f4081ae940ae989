"""What doors may ask for about consumer groups (KIP-848): each verb checks who asks, as Kafka does for the same request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import NotAuthorized
from sparrow.broker.access.authz import ANONYMOUS, Authorizer, Operation, Principal, ResourceType, require

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.groups.consumer.description import ConsumerDescription
    from sparrow.broker.groups.consumer.member import Heartbeat, HeartbeatAnswer
    from sparrow.broker.groups.groups import Groups

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP


class ConsumerGroupVerbs:
    """The verbs. Loop thread only."""

    def __init__(self, groups: Groups, authorizer: Callable[[], Authorizer]) -> None:
        self._groups = groups
        self._authorizer = authorizer

    async def heartbeat(
        self, group: str, beat: Heartbeat, *, principal: Principal = ANONYMOUS
    ) -> HeartbeatAnswer:
        """See `ConsumerGroups.heartbeat`. A topic that the principal may not see fails it as a whole.

        Raises:
            NotAuthorized too
        """
        authorizer = self._authorizer()
        require(authorizer, principal, Operation.READ, _GROUP, group)
        for topic in beat.topics or ():
            require(authorizer, principal, Operation.DESCRIBE, _TOPIC, topic)

        def may_see(topic: str) -> bool:
            return authorizer.allows(principal, Operation.DESCRIBE, _TOPIC, topic)

        return await self._groups.consumer.heartbeat(group, beat, may_see)

    def heartbeat_interval_ms(self, group: str) -> int:
        """How long members of a group are to wait between heartbeats."""
        return self._groups.consumer.heartbeat_interval_ms(group)

    def describe(self, group: str, *, principal: Principal = ANONYMOUS) -> ConsumerDescription:
        """A consumer group; nothing of it is told to those who may not see all of its topics.

        Raises:
            UnknownGroup: there is none, or it is of another kind.
            NotAuthorized
        """
        authorizer = self._authorizer()
        require(authorizer, principal, Operation.DESCRIBE, _GROUP, group)
        described = self._groups.consumer.describe_consumer(group)
        if not all(
            authorizer.allows(principal, Operation.DESCRIBE, _TOPIC, topic) for topic in described.topics
        ):
            raise NotAuthorized(
                f"Group {group!r} reads topics that {principal} is not allowed to describe.", _TOPIC.value
            )
        return described
