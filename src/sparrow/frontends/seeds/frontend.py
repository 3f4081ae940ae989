"""The doors for the clients of other small brokers: one module for each system, one port (or two) for each, all off unless switched on.

A door is a function from a context to the protocol factory of its port; it knows nothing of listening and draining, which is here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from sparrow.frontends.places import Places
from sparrow.frontends.publishing import Publisher

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker
    from sparrow.frontends.seeds.settings import SeedSettings

BACKLOG: Final = 1024


class Door(Protocol):
    """One port's connections."""

    @property
    def connections(self) -> int:
        """How many are connected."""
        ...

    def connect(self) -> asyncio.BaseProtocol:
        """The protocol of a connection that has come in."""
        ...

    async def drain(self, timeout_s: float) -> None:
        """Take nothing new, finish what was taken, close all connections; takes at most about `timeout_s`."""
        ...


@runtime_checkable
class OwnListener(Protocol):
    """A door that accepts its connections itself."""

    async def listen(self, host: str, port: int) -> int:
        """Listen; the port. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What every door works with."""

    broker: Broker
    publisher: Publisher
    settings: SeedSettings
    logger: logging.Logger
    places: Places = field(default_factory=Places)


Opener = Callable[[Context], Door]


class SeedFrontend:
    """Listens for the clients of the seed systems that are switched on. Loop thread only."""

    def __init__(
        self,
        broker: Broker,
        settings: SeedSettings,
        *,
        places: Places | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self._settings = settings
        self._context = Context(
            broker,
            Publisher(broker),
            settings,
            logger or logging.getLogger("sparrow.seeds"),
            places or Places(),
        )
        self._doors: list[Door] = []
        self._servers: list[asyncio.Server] = []

    async def start(self) -> Mapping[str, int]:
        """Listen; door → port.

        Raises:
            OSError: an address cannot be listened on; `filename` is the name of the door. Call `drain` all the same.
        """
        ports: dict[str, int] = {}
        for name, port in self._settings.ports.items():
            door = opener_of(name)(self._context)
            self._doors.append(door)
            self._context.broker.measures.door(name, partial(getattr, door, "connections"))
            ports[name] = await self._listen(name, door, port)
        return ports

    async def _listen(self, name: str, door: Door, port: int) -> int:
        loop = asyncio.get_running_loop()
        try:
            if isinstance(door, OwnListener):
                return await door.listen(self._settings.host, port)
            server = await loop.create_server(door.connect, self._settings.host, port, backlog=BACKLOG)
        except OSError as error:
            error.filename = name
            raise
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def drain(self, timeout_s: float) -> None:
        """Stop; takes at most about `timeout_s`."""
        for server in self._servers:
            server.close()
        async with asyncio.TaskGroup() as draining:
            for door in self._doors:
                draining.create_task(door.drain(timeout_s))
        for server in self._servers:
            await server.wait_closed()


def opener_of(name: str) -> Opener:
    """The door of that name; its module is loaded now."""
    if name == "diy_message_broker":
        from sparrow.frontends.seeds import diy

        return diy.open_door
    if name == "messagebroker":
        from sparrow.frontends.seeds import messagebroker

        return messagebroker.open_door
    if name == "mbus":
        from sparrow.frontends.seeds import mbus

        return mbus.open_producer_door
    if name == "mbus_consumer":
        from sparrow.frontends.seeds import mbus

        return mbus.open_consumer_door
    if name == "msbq":
        from sparrow.frontends.seeds import msbq

        return msbq.open_door
    from sparrow.frontends.seeds import syncbrok

    return syncbrok.open_door
