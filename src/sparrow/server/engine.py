"""The broker of a server: its stores in the data directory, its rules from the configuration."""

from __future__ import annotations

import logging
import os
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sparrow.server.data_directory import directory_warnings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.base.clock import Clock
    from sparrow.broker.broker import Broker
    from sparrow.meta.store import MetaStore
    from sparrow.server.config import ServerConfig
    from sparrow.storage.store import LogStore

log = logging.getLogger("sparrow.server")

META_FILE = "meta.db"


class Stores(NamedTuple):
    """Stores of the data of a broker, and the clock of its times (None: the machine's)."""

    logs: LogStore
    meta: MetaStore
    clock: Clock | None = None


if TYPE_CHECKING:
    OpenStores = Callable[[ServerConfig, AsyncExitStack], Awaitable[Stores]]
    """Opens the stores of a broker; the exit stack closes them."""


async def open_local_stores(config: ServerConfig, opening: AsyncExitStack) -> Stores:
    """Open the stores in the data directory. The log store is first: it creates the directory and
    holds its lock.
    """
    from sparrow.meta.sqlite import SqliteMetaStore
    from sparrow.storage.filesystem import LocalFileSystem
    from sparrow.storage.local import LocalLogStore

    for warning in directory_warnings(config.data_dir, config.data_mode):
        log.warning(warning)
    logs = LocalLogStore(config.data_dir, fs=LocalFileSystem(config.data_mode), options=config.storage)
    opening.push_async_callback(logs.close)
    meta = SqliteMetaStore(os.path.join(config.data_dir, META_FILE))
    opening.push_async_callback(meta.close)
    return Stores(logs, meta)


async def start_broker(
    config: ServerConfig, open_stores: OpenStores = open_local_stores, *, has_logins: bool = False
) -> Broker:
    """Return a broker on its stores; a failure on the way closes them again.

    Args:
        has_logins: clients can log in by a token or a certificate, or users are configured.
    """
    from sparrow.broker.broker import Broker

    async with AsyncExitStack() as opening:
        logs, meta, clock = await open_stores(config, opening)
        rules = replace(config.broker, has_logins=has_logins)
        broker = Broker(config=rules, clock=clock, log_store=logs, meta_store=meta)
        await broker.start()
        opening.pop_all()  # from here on the broker closes its stores
    return broker
