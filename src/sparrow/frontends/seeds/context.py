"""The context and the interface of a listener for a seed system."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from sparrow.frontends.seeds.topics import ensure_topic
from sparrow.frontends.transport.connection_limit import ConnectionLimit
from sparrow.frontends.transport.send_budget import SendBudget

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker
    from sparrow.frontends.publisher import Publisher
    from sparrow.frontends.seeds.settings import SeedSettings


class SeedListener(Protocol):
    """The connections of one port."""

    @property
    def connections(self) -> int:
        """The number of open connections."""
        ...

    def connect(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection."""
        ...

    async def drain(self, timeout_s: float) -> None:
        """Accept nothing new, finish what was received, close all connections. Takes at most about
        `timeout_s`.
        """
        ...


SEND_BUDGET_BYTES: Final = 256 << 20
"""Memory for responses if no shared budget is given."""


@runtime_checkable
class AcceptingListener(Protocol):
    """A listener that accepts its connections itself."""

    async def listen(self, host: str, port: int) -> int:
        """Listen, and return the port. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class SeedContext:
    """The broker, limits and budgets that every listener needs."""

    broker: Broker
    publisher: Publisher
    settings: SeedSettings
    logger: logging.Logger
    connection_limit: ConnectionLimit = field(default_factory=ConnectionLimit)
    send_budget: SendBudget = field(default_factory=lambda: SendBudget(SEND_BUDGET_BYTES))

    async def ensure_topic(self, name: str) -> bool:
        """Create a topic at its first use; see `topics.ensure_topic`."""
        return await ensure_topic(self.broker, name, self.settings.max_message_bytes)


ListenerFactory = Callable[[SeedContext], SeedListener]
