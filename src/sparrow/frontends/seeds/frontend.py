"""Listeners for the clients of other small brokers: one module for each system, with one or two
ports, all off by default.

Each listener is a `Port`; this module opens them and drains them together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

from sparrow.frontends.publisher import Publisher
from sparrow.frontends.seeds.context import SEND_BUDGET_BYTES, SeedContext
from sparrow.frontends.transport.connection_limit import ConnectionLimit
from sparrow.frontends.transport.send_budget import SendBudget

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker
    from sparrow.frontends.seeds.context import ListenerFactory, Port
    from sparrow.frontends.seeds.settings import SeedSettings


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
        self._ports: list[Port] = []

    async def start(self) -> Mapping[str, int]:
        """Listen, and return the port of each listener by name.

        Raises:
            OSError: an address cannot be listened on; `filename` is the name of the listener. Call
                `drain` nevertheless.
        """
        bound: dict[str, int] = {}
        for name, number in self._settings.ports.items():
            port = listener_factory(name)(self._context)
            self._ports.append(port)
            try:
                bound[name] = await port.open(self._settings.host, number)
            except OSError as error:
                error.filename = name
                raise
        return bound

    async def drain(self, timeout_s: float) -> None:
        """Stop. Takes at most about `timeout_s`."""
        async with asyncio.TaskGroup() as draining:
            for port in self._ports:
                draining.create_task(port.drain(timeout_s))


_FACTORIES: Final[Mapping[str, str]] = {
    "diy_message_broker": "diy:open_listener",
    "messagebroker": "messagebroker:open_listener",
    "mbus": "mbus:open_producer_listener",
    "mbus_consumer": "mbus:open_consumer_listener",
    "msbq": "msbq:open_listener",
    "syncbrok": "syncbrok:open_listener",
}
"""The function that creates each listener, by "module:function"."""


def listener_factory(name: str) -> ListenerFactory:
    """Import the module of a listener and return the function that creates it."""
    module, _, function = _FACTORIES[name].partition(":")
    factory: ListenerFactory = getattr(import_module(f"sparrow.frontends.seeds.{module}"), function)
    return factory
