"""The Kafka frontend: it listens, loads its codec, and drains its connections."""

from __future__ import annotations

import socket
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sparrow.frontends.kafka.connection import KafkaConnection
from sparrow.frontends.kafka.context import LOCALHOST, KafkaContext, Listener

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

LOAD_DELAY_S = 0.5
"""Time after the start at which the codec is loaded if no client has connected yet: loading it
takes a tenth of a second of processor time, which the other listeners have first.
"""


class KafkaFrontend(KafkaContext):
    """Serves Kafka's protocol on one or several listeners. Loop thread only. See `KafkaContext` for
    the arguments.
    """

    _load_timer: asyncio.TimerHandle | None = None
    """Set until the codec is loaded."""

    @cached_property
    def begin(self) -> Callable[[Any, bytes | memoryview], Any]:  # type: ignore[override]
        """The function that begins a request. Loading the codec takes a tenth of a second: this
        happens after the start, not before it.
        """
        from sparrow.frontends.kafka.dispatch import begin

        return begin

    async def start(self, listener: Listener) -> int:
        """Listen on one more address. Return the port (the one that the system chose if 0 was
        given).

        Raises:
            OSError: the address cannot be listened on.
        """
        if not self.ports:
            self.is_loaded = False
            self._load_timer = self.loop.call_later(LOAD_DELAY_S, self._load)
        port = listener.port
        for host in _hosts(listener.host):
            try:
                port = await self.listen(lambda: self._accept(listener), host, port, tls=listener.tls)
            except OSError:
                if host != "::1" or not self.ports:
                    raise
                self.logger.info(
                    "listener %s: this machine has no IPv6 loopback, or its port is taken", listener.name
                )
                continue
            self.ports[listener.name] = port
        return port

    async def drain(self, timeout_s: float) -> None:
        """Stop: refuse new connections, answer pending requests, close. Takes at most about
        `timeout_s`.
        """
        if not self.draining.done():
            self.draining.set_result(None)
        if self._load_timer is not None:
            self._load_timer.cancel()
        self.share_members.drain()
        self.stop()
        for connection in list(self.open_connections):
            connection.finish()
        await self.wait_until_gone(timeout_s)
        for connection in list(self.open_connections):
            connection.abort()
        await self.share_members.settled()
        await self.end()

    def _accept(self, listener: Listener) -> KafkaConnection:
        self._load()
        return KafkaConnection(self, listener)

    def _load(self) -> None:
        """Load the codec in a thread, once."""
        if self._load_timer is not None:
            self._load_timer.cancel()
            self._load_timer = None
            self.loop.run_in_executor(None, _preload).add_done_callback(self._loaded)

    def _loaded(self, loading: asyncio.Future[None]) -> None:
        """Begin the requests that waited for the codec."""
        self.is_loaded = True
        if not loading.cancelled() and (error := loading.exception()) is not None:
            self.logger.error("the codec could not be loaded beforehand", exc_info=error)
        for connection in list(self.open_connections):
            connection.resume()


def _preload() -> None:
    from sparrow.frontends.kafka.dispatch import preload

    preload()


def _hosts(host: str) -> list[str | None]:
    """Return the addresses to bind: for "localhost" both loopbacks, whatever the machine's hosts
    file says.
    """
    if host == LOCALHOST:
        return ["127.0.0.1", "::1"] if socket.has_ipv6 else ["127.0.0.1"]
    return [host or None]
