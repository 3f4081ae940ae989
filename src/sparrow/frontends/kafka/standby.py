"""The Kafka frontend of a standby: it names the owner of the data, and does nothing else.

ApiVersions, SASL, and what describes users, rules, configurations, quotas and topics is as on the
owner. By Metadata the owner leads all partitions, and is the
controller; the standbys are named, too, as some clients forget every address that they were not
given. FindCoordinator names the owner. All other requests are refused (`redirects.py`).

After a Metadata request for a topic that is missing the connection ends: clients that create topics
by using them would ask for it here for ever.

While nobody owns the data, partitions have no leader and groups no coordinator: clients ask again.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sparrow.frontends.kafka.frontend import KafkaFrontend

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sparrow.broker.broker import Broker
    from sparrow.frontends.kafka.context import OpenKafkaConnection
    from sparrow.frontends.kafka.limits import KafkaLimits
    from sparrow.frontends.kafka.sasl import SaslAuthenticator
    from sparrow.frontends.transport.connection_limit import ConnectionLimit
    from sparrow.frontends.transport.send_budget import SendBudget

NO_NODE = -1


class Owner(Struct, frozen=True):
    """The broker that owns the data. `addresses`: (host, port) of its Kafka listeners, by name."""

    node_id: int
    addresses: Mapping[str, tuple[str, int]]


class StandbyKafkaFrontend(KafkaFrontend):
    """Names the owner. See `KafkaContext` for the other arguments.

    Args:
        own_id: the id of this node.
        refresh: makes `broker` a view of what the owner has now, as far as that can be known.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        own_id: int,
        refresh: Callable[[], Awaitable[None]],
        limits: KafkaLimits,
        logins: SaslAuthenticator,
        connection_limit: ConnectionLimit,
        send_budget: SendBudget,
    ) -> None:
        super().__init__(
            broker, limits=limits, logins=logins, connection_limit=connection_limit, send_budget=send_budget
        )
        self._refresh = refresh
        self._own_id = own_id
        self._owner: Owner | None = None

    @cached_property
    def begin(self) -> Callable[[Any, bytes | memoryview], Any]:  # type: ignore[override]
        from sparrow.frontends.kafka.handlers.standby import begin

        return begin

    async def refresh(self) -> None:
        await self._refresh()

    def follow(self, owner: Owner | None) -> None:
        """Name another owner from now on; None: there is none at the moment."""
        self._owner = owner
        self.leader_id = NO_NODE if owner is None else owner.node_id
        self.node_id = self._own_id if owner is None else owner.node_id

    def advertised(self, connection: OpenKafkaConnection) -> tuple[str, int]:
        """Return the owner's (host, port); those of this broker if there is no owner, or if it has
        no listener of that name.
        """
        found = None if self._owner is None else self._owner.addresses.get(connection.listener.name)
        return super().advertised(connection) if found is None else found
