"""The shared state of the seeds' listeners: `SeedContext` for all, and a `Port` for each.

Parts depend on this module, and never on the frontend or a connection themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct, field

from sparrow.frontends.seeds.topics import ensure_topic
from sparrow.frontends.transport.connection import PauseReason
from sparrow.frontends.transport.connection_limit import ConnectionLimit
from sparrow.frontends.transport.context import OpenConnection, TransportContext
from sparrow.frontends.transport.liveness import Deadlines
from sparrow.frontends.transport.send_budget import SendBudget

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker
    from sparrow.frontends.publisher import Publisher
    from sparrow.frontends.seeds.settings import SeedSettings

SEND_BUDGET_BYTES: Final = 256 << 20
"""Memory for responses if no shared budget is given."""
RECEIVE_BUDGET_BYTES: Final = 64 << 20
"""Memory of one port for all unfinished messages together."""
WRITE_HIGH_WATER_BYTES: Final = 256 << 10
LAST_WORDS_S: Final = 0.5
"""Time for a peer to read why its connection ends."""
SHARE_OF_DRAIN_FOR_WORK: Final = 0.75
"""The share of the drain time in which received messages may become durable."""
_SWEEP_MS: Final = 1_000
_SWEEPS_PER_TIMEOUT: Final = 4


class SeedPause(PauseReason):
    """Reasons of the seeds to pause reading."""

    WINDOW: Final = 8
    """The unconfirmed bytes exceed the window, or a topic is being created."""
    WORK: Final = 16
    """A request is being handled; the next one waits."""
    COALESCE: Final = 32
    """More bytes are expected in a moment, to be read together."""


class SeedContext(Struct, frozen=True):
    """The broker, limits and budgets that every listener needs."""

    broker: Broker
    publisher: Publisher
    settings: SeedSettings
    logger: logging.Logger
    connection_limit: ConnectionLimit = field(default_factory=ConnectionLimit)
    send_budget: SendBudget = field(default_factory=lambda: SendBudget(SEND_BUDGET_BYTES))


class OpenSeedConnection(OpenConnection, Protocol):
    """A connection, as its port sees it; see `SeedConnection`."""

    def pause_reading(self, reason: int) -> None: ...
    def drained(self) -> None: ...


class UnsettledQueue(Protocol):
    """Messages of a connection that are not confirmed; see `PublishQueue`."""

    @property
    def source(self) -> object: ...
    async def settled(self) -> None: ...


class Port(TransportContext[OpenSeedConnection]):
    """The connections of one port. Loop thread only.

    Args:
        make: creates the protocol of a new connection.
        unread_s: how long a peer may take nothing; default: as long as it may pause in a message.
    """

    def __init__(
        self,
        name: str,
        context: SeedContext,
        make: Callable[[Port], asyncio.BaseProtocol],
        *,
        unread_s: float | None = None,
    ) -> None:
        settings = self.settings = context.settings
        limit_s = settings.idle_timeout_ms / 1000
        super().__init__(
            context.broker,
            name,
            replace(
                settings,
                receive_budget_bytes=RECEIVE_BUDGET_BYTES,
                write_high_water_bytes=WRITE_HIGH_WATER_BYTES,
                sweep_interval_ms=min(_SWEEP_MS, settings.idle_timeout_ms // _SWEEPS_PER_TIMEOUT),
            ),
            deadlines=Deadlines(
                stall_s=limit_s,
                unread_s=limit_s if unread_s is None else unread_s,
                closing_s=LAST_WORDS_S,
                is_whole_message=True,
            ),
            send_budget=context.send_budget,
            connection_limit=context.connection_limit,
            logger=context.logger,
        )
        self.publisher = context.publisher
        self.unsettled: set[UnsettledQueue] = set()
        """Queues with unconfirmed messages; their connections may be lost."""
        self._make = make

    async def ensure_topic(self, name: str) -> bool:
        """Create a topic at its first use; see `topics.ensure_topic`."""
        return await ensure_topic(self.broker, name, self.settings.max_message_bytes)

    async def open(self, host: str, port: int) -> int:
        """Listen, and return the port.

        Raises:
            OSError: the address cannot be listened on.
        """
        return await self.listen(lambda: self._make(self), host, port)

    async def drain(self, timeout_s: float) -> None:
        """Accept nothing new, finish what was received, close all connections. Takes at most about
        `timeout_s`.
        """
        self.stop()
        for connection in self.open_connections:
            connection.pause_reading(PauseReason.DRAIN)
        deadline = self.loop.time() + timeout_s
        await self.wait_until_settled(timeout_s * SHARE_OF_DRAIN_FOR_WORK)
        unsettled = {queue.source for queue in self.unsettled}
        for connection in list(self.open_connections):
            if connection in unsettled:
                connection.turn_away()
            else:
                connection.drained()
        await self.wait_until_gone(max(0.0, deadline - self.loop.time()))
        await self.end(patience_s=0)

    async def wait_until_settled(self, timeout_s: float) -> None:
        """Wait until all publishes are confirmed, at most `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.unsettled:
                    await next(iter(self.unsettled)).settled()
        except TimeoutError:
            self.logger.warning(
                "%s: the messages of %d connections are not durable yet", self.name, len(self.unsettled)
            )


ListenerFactory = Callable[[SeedContext], Port]
