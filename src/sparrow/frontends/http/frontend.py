"""The HTTP frontend: it listens, and drains its connections."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING

from sparrow.frontends.http.connection import HttpConnection
from sparrow.frontends.http.context import CLOSING_S, HttpContext
from sparrow.frontends.http.gate import Gate
from sparrow.frontends.http.sockets.sockets import Sockets

if TYPE_CHECKING:
    import ssl


class HttpFrontend(HttpContext):
    """The HTTP frontend. Loop thread only. See `HttpContext` for the arguments."""

    async def start(
        self, host: str | None = None, port: int = 0, *, tls: ssl.SSLContext | None = None
    ) -> int:
        """Listen. Return the port (the one that the system chose for port 0).

        Raises:
            OSError: the address cannot be listened on.
        """
        gate, sockets = Gate(self), Sockets(self)
        self.host = host or ""
        port = await self.listen(lambda: HttpConnection(self, gate, sockets), host, port, tls=tls)
        sockets_of_port = [each for server in self._servers for each in server.sockets]
        self.is_loopback = all(_is_loopback(each.getsockname()[0]) for each in sockets_of_port)
        self.sweep()
        return port

    async def drain(self, timeout_s: float) -> None:
        """Stop accepting, end waiting requests, finish the others, and close. Takes at most about
        `timeout_s`.
        """
        if self.stopping.done():
            return
        deadline = self.loop.time() + timeout_s
        self.stop()
        self.stopping.set_result(None)
        for connection in list(self.open_connections):
            connection.drain()
        await self.wait_until(lambda: not self.is_busy, deadline)
        for connection in list(self.open_connections):
            connection.cancel()
        await self.wait_until(lambda: not self.is_busy, self.loop.time() + CLOSING_S / 2)
        if self._thread_work:
            await asyncio.wait(set(self._thread_work))
        for close in self.at_close:
            await close()
        await self.end()


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
