"""A running broker with its frontends, started and stopped in the order in which they depend on
each other.

Start: the data directory, the broker, what the configuration declares, the frontends, the ready
file. Stop: the frontends drain (accept no connection, finish what was promised, notify the
clients), then the broker closes its data. The stop is bounded in time. Work that it cuts short is
not acknowledged, so no promise depends on it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from sparrow.base.settings import options_of
from sparrow.base.version import VERSION
from sparrow.broker.access.authz import SYSTEM
from sparrow.model.server import OptionDescription
from sparrow.server.access import ServerAccess
from sparrow.server.bootstrap.apply import apply
from sparrow.server.engine import open_local_stores, start_broker
from sparrow.server.frontends import Frontends
from sparrow.server.ready import Ready, banner, remove_ready_file, url_of, write_ready_file
from sparrow.server.reload import ConfigLoader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from sparrow.base.settings import Option
    from sparrow.broker.broker import Broker, StandbyNode
    from sparrow.broker.metrics.table import Metric
    from sparrow.model.broker import ReloadedConfig
    from sparrow.server.config import ServerConfig
    from sparrow.server.engine import OpenStores
    from sparrow.server.frontends import ListenAddresses

MAX_SHOWN = 1_000
"""Characters of a value that are shown."""
CLOSE_TIMEOUT_S = 20.0
"""Time in which the broker syncs and closes its logs after the last client has left."""


class Server:
    """One broker and its frontends. Call all methods on one event loop.

    Args:
        config: the configuration of the server.
        open_stores: opens the stores; default: those of the data directory.
        read_again: reads the configuration again for `reload`; without it only the files that the
            configuration names are read again.
        data: the place of the data for people; "": the data directory.
        before_listening: awaited when the broker is started, before the listeners are opened.
        sources: where the value of each option comes from, by its name.

    Raises (from the constructor):
        InvalidConfig: a public address without authentication, or a file of tokens, users or
            certificates that cannot be used.
    """

    def __init__(
        self,
        config: ServerConfig,
        open_stores: OpenStores = open_local_stores,
        read_again: Callable[[], ServerConfig] | None = None,
        *,
        data: str = "",
        before_listening: Callable[[], Awaitable[None]] | None = None,
        sources: Mapping[str, str] | None = None,
    ) -> None:
        self.config = config
        self._data = data
        self._before_listening = before_listening
        self._sources = sources or {}
        self._read_again = read_again or (lambda: config)
        self._open_stores = open_stores
        self._access = ServerAccess(config)
        self._broker: Broker | None = None
        self._frontends: Frontends | None = None
        self.ready: Ready | None = None

    async def start(self) -> Ready:
        """Start everything, or nothing: a start that fails closes what was started.

        Raises:
            DataDirectoryError: the data directory is in use, unreadable or of a newer format.
            InvalidConfig: the server cannot listen on an address, or a declaration is impossible.
        """
        try:
            return await self._start()
        except BaseException:
            await self.stop(0)
            raise

    async def _start(self) -> Ready:
        config = self.config
        self._broker = await start_broker(config, self._open_stores, has_logins=self._access.has_logins)
        await apply(self._broker, config)
        logins = await self._access.open(self._broker)
        self._broker.reload.work = ConfigLoader(config, self._read_again, self._access).load
        self._broker.server.describe_options = self._describe_options
        logging.getLogger("sparrow").addHandler(self._broker.server.log)
        if self._before_listening is not None:
            await self._before_listening()
        self._frontends = Frontends(config, self._broker, self._access, logins)
        addresses = await self._frontends.open()
        self.ready = _ready(config, addresses, self._data, has_tls=self._access.native_tls is not None)
        if config.ready_file:
            write_ready_file(config.ready_file, self.ready)
        return self.ready

    def _describe_options(self) -> list[OptionDescription]:
        found = []
        for each in options_of(type(self.config)):
            value = each.value_in(self.config)
            is_default = value == each.default
            shown = each.show if is_default else "(hidden)" if each.secret else _shown(each, value)
            source = self._sources.get(each.name, "default" if is_default else "given")
            found.append(OptionDescription(each.key, shown, each.show, source, each.help))
        return found

    async def reload(self) -> ReloadedConfig:
        """Load certificates, tokens and log level again. Connections stay, except those whose login
        is no longer valid.

        Raises:
            InvalidConfig: something cannot be used; nothing has changed.
        """
        assert self._broker is not None
        return await self._broker.reload(principal=SYSTEM)

    def set_standbys(self, standbys: Sequence[StandbyNode]) -> None:
        """Tell Kafka clients which brokers take over when this one is gone."""
        if self._broker is not None:
            self._broker.standbys = standbys

    def add_warnings(self, warnings: Sequence[str]) -> None:
        """Show risks of this installation at /readyz."""
        if self._broker is not None:
            self._broker.warnings = warnings

    def add_metrics(self, values: Callable[[], Mapping[Metric, float]]) -> None:
        """Show the values of these metrics with those of the broker."""
        assert self._broker is not None
        self._broker.metrics.extra = values

    def banner(self) -> str:
        """Return the lines to print after the start."""
        assert self.ready is not None
        assert self._broker is not None
        topics = self._broker.statistics(principal=SYSTEM)["topics"]
        return banner(
            self.ready,
            topics=topics,
            free_bytes=None if self._data else _free_bytes(self.ready.data_dir),
            access=self._access.describe(self._broker),
        )

    async def stop(self, drain_timeout_s: float | None = None) -> None:
        """Drain the frontends and close the broker. May be called at any time, and twice.

        Raises:
            StorageFailed, TimeoutError: the data could not be closed cleanly; the next start
                recovers it.
        """
        timeout_s = self.config.drain_timeout_ms / 1000 if drain_timeout_s is None else drain_timeout_s
        frontends, self._frontends = self._frontends, None
        broker, self._broker = self._broker, None
        if broker is not None:
            logging.getLogger("sparrow").removeHandler(broker.server.log)
        try:
            if frontends is not None:
                await frontends.drain(timeout_s)
        finally:
            try:
                if broker is not None:
                    await asyncio.wait_for(broker.close(), CLOSE_TIMEOUT_S)
            finally:
                if self.ready is not None and self.config.ready_file:
                    remove_ready_file(self.config.ready_file)


def _ready(config: ServerConfig, addresses: ListenAddresses, data: str, *, has_tls: bool) -> Ready:
    host, port = config.native_host, addresses.native_port
    return Ready(
        os.getpid(),
        VERSION,
        url_of(host, port, has_tls=has_tls),
        host,
        port,
        data or os.path.abspath(config.data_dir),
        addresses.kafka,
        addresses.http,
        addresses.seeds,
    )


def _shown(option: Option, value: object) -> str:
    if isinstance(value, tuple | list | dict) and not all(isinstance(each, str) for each in value):
        return f"{len(value)} declared"
    return option.kind.show(value)[:MAX_SHOWN]


def _free_bytes(path: str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
