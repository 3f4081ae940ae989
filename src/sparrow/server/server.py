"""A running broker with its doors, put together in the order in which the parts depend on each other.

Start: the data directory, the broker, what the configuration declares, the doors, the word that it is ready.
Stop: the doors drain (accept nobody, finish what was promised, tell the clients), then the broker closes its data. The stop is
bounded in time; what it would cut short is not acknowledged, so nothing that was promised depends on it.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from sparrow.server.access import Access
from sparrow.server.bootstrap.apply import apply
from sparrow.server.doors import Doors
from sparrow.server.engine import open_local_stores, start_broker
from sparrow.server.ready import Ready, banner, remove_ready_file, url_of, write_ready_file

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker
    from sparrow.server.config import ServerConfig
    from sparrow.server.doors import Addresses
    from sparrow.server.engine import OpenStores

CLOSE_TIMEOUT_S = 20.0
"""How long the broker may take to sync and close its logs once nobody is connected."""


class Server:
    """One broker and its doors. Call everything on one event loop.

    Args:
        config: what it is to be.
        open_stores: what keeps its data; without it the data directory of the configuration.

    Raises (from the constructor):
        InvalidConfig: a public address without authentication, or a file of tokens, users or certificates that cannot be used.
    """

    def __init__(self, config: ServerConfig, open_stores: OpenStores = open_local_stores) -> None:
        self.config = config
        self._open_stores = open_stores
        self._access = Access(config)
        self._broker: Broker | None = None
        self._doors: Doors | None = None
        self.ready: Ready | None = None

    async def start(self) -> Ready:
        """Everything up, or nothing: when it raises, what was started is closed again.

        Raises:
            DataDirectoryError: the data directory is in use, unreadable or of a newer format.
            InvalidConfig: the address cannot be listened on, or what is declared is impossible.
        """
        try:
            return await self._start()
        except BaseException:
            await self.stop(0)
            raise

    async def _start(self) -> Ready:
        config = self.config
        self._broker = await start_broker(config, self._open_stores)
        await apply(self._broker, config)
        logins = await self._access.open(self._broker)
        self._doors = Doors(config, self._broker, self._access, logins)
        addresses = await self._doors.open()
        self.ready = _ready(config, addresses, has_tls=self._access.native_tls is not None)
        if config.ready_file:
            write_ready_file(config.ready_file, self.ready)
        return self.ready

    def banner(self) -> str:
        """What to tell a person after the start."""
        assert self.ready is not None
        assert self._broker is not None
        topics = len(self._broker.topics)
        return banner(
            self.ready,
            topics=topics,
            free_bytes=_free_bytes(self.ready.data_dir),
            access=self._access.describe(self._broker),
        )

    async def stop(self, drain_timeout_s: float | None = None) -> None:
        """Drain the doors, close the broker. May be called at any time, also twice.

        Raises:
            StorageFailed, TimeoutError: the data could not be closed cleanly; the next start recovers it.
        """
        timeout_s = self.config.drain_timeout_ms / 1000 if drain_timeout_s is None else drain_timeout_s
        doors, self._doors = self._doors, None
        broker, self._broker = self._broker, None
        try:
            if doors is not None:
                await doors.drain(timeout_s)
        finally:
            try:
                if broker is not None:
                    await asyncio.wait_for(broker.close(), CLOSE_TIMEOUT_S)
            finally:
                if self.ready is not None and self.config.ready_file:
                    remove_ready_file(self.config.ready_file)


def _ready(config: ServerConfig, addresses: Addresses, *, has_tls: bool) -> Ready:
    from sparrow.base.version import version

    host, port = config.native_host, addresses.native_port
    return Ready(
        os.getpid(),
        version(),
        url_of(host, port, has_tls=has_tls),
        host,
        port,
        os.path.abspath(config.data_dir),
        addresses.kafka,
        addresses.http,
        addresses.seeds,
    )


def _free_bytes(path: str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
