"""Listeners for the clients of other small brokers: one module for each system, with one or two
ports, all off by default.

A listener only provides the protocol of its connections; this module listens and drains.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from sparrow.frontends.publisher import Publisher
from sparrow.frontends.seeds.context import SEND_BUDGET_BYTES, AcceptingListener, SeedContext
from sparrow.frontends.transport.connection_limit import ConnectionLimit
from sparrow.frontends.transport.send_budget import SendBudget

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker
    from sparrow.frontends.seeds.context import ListenerFactory, SeedListener
    from sparrow.frontends.seeds.settings import SeedSettings

BACKLOG: Final = 1024


class SeedFrontend:
    """Listens for the clients of the enabled seed systems. Loop thread only."""

    def __init__(
        self,
        broker: Broker,
        settings: SeedSettings,
        *,
        connection_limit: ConnectionLimit | None = None,
        send_budget: SendBudget | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self._settings = settings
        self._context = SeedContext(
            broker,
            Publisher(broker),
            settings,
            logger or logging.getLogger("sparrow.seeds"),
            connection_limit or ConnectionLimit(),
            send_budget or SendBudget(SEND_BUDGET_BYTES),
        )
        self._listeners: list[SeedListener] = []
        self._servers: list[asyncio.Server] = []

    async def start(self) -> Mapping[str, int]:
        """Listen, and return the port of each listener by name.

        Raises:
            OSError: an address cannot be listened on; `filename` is the name of the listener. Call
                `drain` all the same.
        """
        ports: dict[str, int] = {}
        for name, port in self._settings.ports.items():
            listener = listener_factory(name)(self._context)
            self._listeners.append(listener)
            self._context.broker.measures.frontend(name, partial(getattr, listener, "connections"))
            ports[name] = await self._listen(name, listener, port)
        return ports

    async def _listen(self, name: str, listener: SeedListener, port: int) -> int:
        loop = asyncio.get_running_loop()
        try:
            if isinstance(listener, AcceptingListener):
                return await listener.listen(self._settings.host, port)
            server = await loop.create_server(listener.connect, self._settings.host, port, backlog=BACKLOG)
        except OSError as error:
            error.filename = name
            raise
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def drain(self, timeout_s: float) -> None:
        """Stop. Takes at most about `timeout_s`."""
        for server in self._servers:
            server.close()
        async with asyncio.TaskGroup() as draining:
            for listener in self._listeners:
                draining.create_task(listener.drain(timeout_s))
        for server in self._servers:
            await server.wait_closed()


def listener_factory(name: str) -> ListenerFactory:
    """Import the module of a listener and return the function that creates it."""
    if name == "diy_message_broker":
        from sparrow.frontends.seeds import diy

        return diy.open_listener
    if name == "messagebroker":
        from sparrow.frontends.seeds import messagebroker

        return messagebroker.open_listener
    if name == "mbus":
        from sparrow.frontends.seeds import mbus

        return mbus.open_producer_listener
    if name == "mbus_consumer":
        from sparrow.frontends.seeds import mbus

        return mbus.open_consumer_listener
    if name == "msbq":
        from sparrow.frontends.seeds import msbq

        return msbq.open_listener
    from sparrow.frontends.seeds import syncbrok

    return syncbrok.open_listener
