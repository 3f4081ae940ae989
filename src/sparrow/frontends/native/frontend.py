"""The native frontend: it listens, and drains its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.frontends.native.connection import NativeConnection
from sparrow.frontends.native.context import NativeContext
from sparrow.frontends.transport.connection import LAST_WORDS_S, PauseReason

if TYPE_CHECKING:
    import socket
    import ssl

SHARE_OF_DRAIN_FOR_CLIENTS: Final = 0.75
"""The share of the drain time that clients have to say goodbye. The rest is for pending
confirmations.
"""
GRACE_OF_IDLE_S: Final = 0.25
"""Time for a client without channels and pending responses to say goodbye. A blocking client reads
our goodbye only when it sends its next request.
"""


class NativeFrontend(NativeContext):
    """Serves the native protocol. Loop thread only. See `NativeContext` for the arguments."""

    async def start(
        self,
        host: str | None = None,
        port: int = 0,
        *,
        sock: socket.socket | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> int:
        """Listen, and return the port (the one that the system chose for port 0).

        Raises:
            OSError: the address cannot be listened on.
        """
        return await self.listen(lambda: NativeConnection(self), host, port, sock=sock, tls=tls)

    async def drain(self, timeout_s: float) -> None:
        """Stop: accept no connections, say goodbye to clients, finish confirmations, close. Takes
        at most about `timeout_s`.
        """
        started = self.loop.time()
        self.stop()
        for connection in list(self.open_connections):
            connection.drain()
        self.broker.records.watches.interrupt()
        await self.wait_until_gone(min(timeout_s * SHARE_OF_DRAIN_FOR_CLIENTS, GRACE_OF_IDLE_S))
        for connection in list(self.open_connections):
            if connection.is_idle:
                connection.close_after_flush()
        await self.wait_until_gone(started + timeout_s * SHARE_OF_DRAIN_FOR_CLIENTS - self.loop.time())
        for connection in self.open_connections:
            connection.pause_reading(PauseReason.DRAIN)
        await self.wait_until(
            lambda: all(each.is_settled for each in self.open_connections), started + timeout_s
        )
        for connection in list(self.open_connections):
            connection.close_after_flush()
        await self.wait_until_gone(min(LAST_WORDS_S, timeout_s))
        await self.end()
