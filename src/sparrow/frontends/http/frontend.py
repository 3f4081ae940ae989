"""The HTTP frontend: listens at once, loads its libraries when the first client connects, checks
the timeouts of its connections, and drains.

Its libraries and routes cost about 0.25 s, which a broker without HTTP clients does not pay. Until
a thread has loaded them, connections wait unread; then each gets its protocol, and what it sent
meanwhile is read. An idle connection runs nothing: one timer serves all.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, cast

from sparrow.base.errors import Overloaded
from sparrow.frontends.http.context import HttpContext
from sparrow.frontends.transport.admission import host_of
from sparrow.frontends.transport.tls import tls_options

if TYPE_CHECKING:
    import ssl

    from sparrow.broker.broker import Broker
    from sparrow.frontends.http.connection import HttpServer
    from sparrow.frontends.http.identity import Authenticator
    from sparrow.frontends.http.limits import HttpLimits
    from sparrow.frontends.transport.admission import ConnectionSlot
    from sparrow.frontends.transport.connection_limit import ConnectionLimit
    from sparrow.frontends.transport.send_budget import SendBudget

BACKLOG = 1024
DRAIN_POLL_S = 0.01
CLOSE_S = 1.0
"""Time for cancelled tasks to end, at the end of a drain."""


class HttpFrontend(HttpContext):
    """The HTTP frontend. Loop thread only. See `HttpContext` for the arguments."""

    def __init__(
        self,
        broker: Broker,
        *,
        logins: Authenticator,
        limits: HttpLimits | None = None,
        connection_limit: ConnectionLimit | None = None,
        send_budget: SendBudget | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        super().__init__(
            broker,
            logins=logins,
            limits=limits,
            connection_limit=connection_limit,
            send_budget=send_budget,
            logger=logger,
        )
        self._http_server: HttpServer | None = None
        self._load_task: asyncio.Task[Any] | None = None
        self._waiting_connections: set[_WaitingConnection] = set()
        self._server: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """Return the number of connections, WebSockets included."""
        served = 0 if self._http_server is None else self._http_server.connections
        return served + len(self._waiting_connections)

    @property
    def is_loaded(self) -> bool:
        """Return True if the libraries are loaded, which the first client starts."""
        return self._http_server is not None

    async def start(
        self, host: str | None = None, port: int = 0, *, tls: ssl.SSLContext | None = None
    ) -> int:
        """Listen. Return the port (the one that the system chose for port 0).

        Raises:
            OSError: the address cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        self.stopping = loop.create_future()
        self.host = host or ""
        self._server = await loop.create_server(
            self._connected, host, port, backlog=BACKLOG, **tls_options(tls)
        )
        addresses = [sock.getsockname() for sock in self._server.sockets]
        self._is_loopback = all(_is_loopback(str(address[0])) for address in addresses)
        self._sweep_later()
        return cast("int", addresses[0][1])

    async def drain(self, timeout_s: float) -> None:
        """Stop accepting, end waiting requests, finish the others, and close. Takes at most about
        `timeout_s`.
        """
        if self._server is None:
            return
        self.is_draining = True
        deadline = asyncio.get_running_loop().time() + timeout_s
        if not self.stopping.done():
            self.stopping.set_result(None)
        self._server.close()
        for waiting_connection in list(self._waiting_connections):
            waiting_connection.abort()
        if self._http_server is not None:
            self._http_server.shut_down()
            await self._wait_until_gone(deadline)
            await self._http_server.end(CLOSE_S)
        await self._end()

    def sweep(self) -> None:
        """Check the timeouts of all connections."""
        now = asyncio.get_running_loop().time()
        if self._http_server is not None:
            self._http_server.sweep(now, formatdate(time.time(), usegmt=True).encode())
        for look in self.at_sweep:
            try:
                look(self.broker.clock.monotonic())
            except Exception:
                self.logger.exception("a bug in a periodic task")

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _connected(self) -> asyncio.Protocol:
        if self._http_server is not None:
            return self._http_server.protocol()
        return _WaitingConnection(self)

    def admit(self, waiting_connection: _WaitingConnection) -> bool:
        """Return True if a client may wait until the libraries are loaded; then
        `_WaitingConnection.serve` is called.
        """
        if self.is_draining:
            return False
        try:
            waiting_connection.slot = self.admission.admit(waiting_connection.host, waiting_connection.abort)
        except Overloaded:  # counted, and logged in a summary
            return False
        self._waiting_connections.add(waiting_connection)
        if self._load_task is None:
            self._load_task = asyncio.get_running_loop().create_task(self._load())
        return True

    def dismiss(self, waiting_connection: _WaitingConnection) -> None:
        """Remove a waiting client that has disconnected."""
        self._waiting_connections.discard(waiting_connection)
        waiting_connection.release_slot()

    async def _load(self) -> None:
        try:
            self._http_server = await asyncio.to_thread(_build_server, self)
            self.sweep()
        except Exception:
            self.logger.exception("the libraries of the HTTP frontend cannot be loaded")
            for waiting_connection in list(self._waiting_connections):
                waiting_connection.abort()
        else:
            for waiting_connection in list(self._waiting_connections):
                waiting_connection.serve(self._http_server.protocol())
            self._waiting_connections.clear()
        finally:
            self._load_task = None

    def _sweep_later(self) -> None:
        interval_s = self.limits.sweep_interval_ms / 1000
        self._sweep_timer = asyncio.get_running_loop().call_later(interval_s, self._sweep_again)

    def _sweep_again(self) -> None:
        self.sweep()
        self._sweep_later()

    async def _wait_until_gone(self, deadline: float) -> None:
        assert self._http_server is not None
        loop = asyncio.get_running_loop()
        while loop.time() < deadline and self._http_server.is_busy:  # noqa: ASYNC110 - rare
            await asyncio.sleep(DRAIN_POLL_S)

    async def _end(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self._load_task is not None:
            await asyncio.wait([self._load_task])
        if self._thread_work:
            await asyncio.wait(set(self._thread_work))
        for close in self.at_close:
            await close()
        for task in self._tasks:
            task.cancel()
        await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CLOSE_S)
        if self._server is not None:
            await self._server.wait_closed()


class _WaitingConnection(asyncio.Protocol):
    """A connection that was accepted before the libraries were loaded. It is not read from until
    then, except for a first chunk: uvloop reads on after a pause in `connection_made`.
    """

    def __init__(self, frontend: HttpFrontend) -> None:
        self._frontend = frontend
        self._transport: asyncio.Transport | None = None
        self._early = b""
        self.host = ""
        self.slot: ConnectionSlot | None = None

    def release_slot(self) -> None:
        """Release the slot: another protocol takes its own, or the client has disconnected."""
        if self.slot is not None:
            self.slot.release()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.host = host_of(transport)
        if self._frontend.admit(self):
            self._transport.pause_reading()
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._early += data
        if self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        self._transport = None
        self._frontend.dismiss(self)

    def serve(self, protocol: asyncio.Protocol) -> None:
        """Hand the connection to its real protocol."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.release_slot()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if not transport.is_closing():
            transport.resume_reading()
            if self._early:
                protocol.data_received(self._early)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _build_server(frontend: HttpFrontend) -> HttpServer:
    from sparrow.frontends.http.app import build
    from sparrow.frontends.http.connection import HttpServer
    from sparrow.frontends.http.gate import Gate, allowing_origins

    return HttpServer(
        allowing_origins(Gate(build(frontend), frontend), frontend.limits.cors_origins), frontend
    )


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
