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


class KafkaFrontend(KafkaContext):
    """Serves Kafka's protocol on one or several listeners. Loop thread only. See `KafkaContext` for
    the arguments.
    """

    _loading: asyncio.Future[None] | None = None

    @cached_property
    def begin(self) -> Callable[[Any, bytes | memoryview], Any]:  # type: ignore[override]
        """The function that begins a request."""
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
        """Return a new connection. The first one loads the codec, in a thread: that takes a tenth
        of a second and some megabytes, which a broker without Kafka clients does not need.
        """
        if self._loading is None:
            self._loading = self.loop.run_in_executor(None, _preload)
            self._loading.add_done_callback(self._loaded)
        return KafkaConnection(self, listener)

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
