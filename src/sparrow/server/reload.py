"""Reloading of the configuration: what can be replaced while the broker runs, and what takes a
restart.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from sparrow.base.settings import options_of
from sparrow.model.broker import ReloadedConfig
from sparrow.server.config import ServerConfig
from sparrow.server.logs import set_level

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.server.access import PreparedAccess, ServerAccess

log = logging.getLogger("sparrow.server")

RELOADED: Final = (
    "tokens",
    "tokens_file",
    "tls.certificate",
    "tls.key",
    "tls.client_ca",
    "tls.client_crl",
    "log.level",
)
"""Keys of the options whose values and files are reloaded."""


class ConfigLoader:
    """Reloads the configuration of a running server. Loop thread only.

    Args:
        config: the configuration at the start.
        read: reads the configuration again, blocking; raises InvalidConfig.
        access: the owner of tokens and certificates.
    """

    def __init__(self, config: ServerConfig, read: Callable[[], ServerConfig], access: ServerAccess) -> None:
        self._started_with = config
        self._read = read
        self._access = access

    async def load(self) -> ReloadedConfig:
        """Replace everything that can be replaced, or nothing.

        Raises:
            InvalidConfig: a value or a file cannot be used.
        """
        config, prepared = await asyncio.to_thread(self._prepare)
        self._access.replace(prepared)
        set_level(config.log_level)
        done = ReloadedConfig(self._loaded(config), self._changed(config))
        log.info("configuration loaded again", extra={"loaded": list(done.loaded)})
        if done.needs_restart:
            log.warning("changed options hold after a restart: %s", ", ".join(done.needs_restart))
        return done

    def _prepare(self) -> tuple[ServerConfig, PreparedAccess]:
        config = self._read()
        return config, self._access.prepare(config)

    def _loaded(self, config: ServerConfig) -> list[str]:
        """Return the keys of the reloadable options that are set."""
        return [
            each.key for each in options_of(ServerConfig) if each.key in RELOADED and each.value_in(config)
        ]

    def _changed(self, config: ServerConfig) -> list[str]:
        before = self._started_with
        return [
            each.key
            for each in options_of(ServerConfig)
            if each.key not in RELOADED and each.value_in(config) != each.value_in(before)
        ]
