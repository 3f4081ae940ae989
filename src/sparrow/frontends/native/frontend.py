"""The native frontend: it listens, admits connections, checks their timeouts, and drains them.

An idle connection has no task and no timer: one timer serves all connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import Draining, Overloaded, SparrowError
from sparrow.frontends.native.connection import NativeConnection
from sparrow.frontends.native.limits import NativeLimits
from sparrow.frontends.native.session import NativeSession
from sparrow.frontends.transport.connection_limit import ConnectionLimit
from sparrow.frontends.transport.receive_budget import ReceiveBudget
from sparrow.frontends.transport.send_budget import SendBudget
from sparrow.frontends.transport.tls import tls_options
from sparrow.frontends.transport.wrong_port import WrongPortReplies
from sparrow.protocol.detection import WireProtocol

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Coroutine

    from sparrow.broker.broker import Broker
    from sparrow.frontends.native.context import Authenticator, ServedSession

BACKLOG = 1024
SHARE_OF_DRAIN_FOR_CLIENTS = 0.75
"""The share of the drain time that clients have to say goodbye. The rest is for pending
confirmations.
"""
GRACE_OF_IDLE_S = 0.25
"""Time for a client without channels and pending responses to say goodbye. A blocking client reads
our goodbye only when it sends its next request.
"""
DRAIN_POLL_S = 0.01
LAST_WORDS_S = 0.5
MAX_REFUSED = 100
"""Refused connections that may still read the reason; further ones are closed at once."""


class NativeFrontend:
    """Serves the native protocol. Loop thread only.

    Args:
        authenticator: maps the credentials of a HELLO to a principal.
        limits: see `NativeLimits`.
        connection_limit: limits that all frontends share; None: this one shares none.
        send_budget: memory of responses that all listeners share; None: this one has its own.
        logger: logs connections that break the protocol, and bugs with their traceback.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        authenticator: Authenticator,
        limits: NativeLimits | None = None,
        connection_limit: ConnectionLimit | None = None,
        send_budget: SendBudget | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self._wrong_port = WrongPortReplies(WireProtocol.NATIVE, broker.listener_ports)
        self.broker = broker
        self.authenticator = authenticator
        self.limits = limits or NativeLimits()
        self.logger = logger or logging.getLogger(__name__)
        self.budget = ReceiveBudget(self.limits.receive_budget_bytes)
        self.send_budget = send_budget or SendBudget(self.limits.send_budget_bytes)
        self.is_draining = False
        self.measures = broker.measures.frontend("native", lambda: self.connections)
        self._sessions: set[ServedSession] = set()
        self._served: set[ServedSession] = set()
        """The sessions that were admitted."""
        self.admission = (connection_limit or ConnectionLimit()).admission(
            lambda: len(self._sessions), self.limits.max_connections, self.measures.refusals
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_gone = asyncio.Event()
        self._session_numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """The number of open connections, including those being closed."""
        return len(self._sessions)

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
        loop = asyncio.get_running_loop()
        if sock is not None:
            self._server = await loop.create_server(
                self._connected, sock=sock, backlog=BACKLOG, **tls_options(tls)
            )
        else:
            self._server = await loop.create_server(
                self._connected, host, port, backlog=BACKLOG, **tls_options(tls)
            )
        self._sweep_later()
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def drain(self, timeout_s: float) -> None:
        """Stop: accept no connections, say goodbye to clients, finish confirmations, close. Takes
        at most about `timeout_s`.
        """
        self.is_draining = True
        loop = asyncio.get_running_loop()
        started = loop.time()
        if self._server is not None:
            self._server.close()
        for session in list(self._sessions):
            session.drain()
        self.broker.records.watches.interrupt()
        await self._wait_until_gone(min(timeout_s * SHARE_OF_DRAIN_FOR_CLIENTS, GRACE_OF_IDLE_S))
        for session in list(self._sessions):
            if session.is_idle:
                session.close()
        await self._wait_until_gone(started + timeout_s * SHARE_OF_DRAIN_FOR_CLIENTS - loop.time())
        for session in self._sessions:
            session.stop_reading()
        await self._wait_until_settled(started + timeout_s)
        for session in list(self._sessions):
            session.close()
        await self._wait_until_gone(min(LAST_WORDS_S, timeout_s))
        for session in list(self._sessions):
            session.abort()
        await self._end()

    def sweep(self) -> None:
        """Check the timeouts of all connections."""
        now = self.broker.clock.monotonic()
        for session in list(self._sessions):
            try:
                session.sweep(now)
            except Exception as error:  # noqa: BLE001 - a bug ends this connection, not the others
                session.failed(error)

    # ── for the sessions ──────────────────────────────────────────────────────────────────────────

    def admit(self, session: ServedSession) -> SparrowError | None:
        """Count a connection in. Return the error if it may not be served."""
        self._sessions.add(session)
        if self.is_draining:
            return Draining("The broker is shutting down; connect again later.")
        try:
            session.slot = self.admission.admit(session.host, session.abort)
        except Overloaded as refusal:
            if len(self._sessions) - len(self._served) > MAX_REFUSED:
                session.abort()
            return refusal
        self._served.add(session)
        return None

    def dismiss(self, session: ServedSession) -> None:
        """Count a connection out."""
        self._sessions.discard(session)
        self._served.discard(session)
        if session.slot is not None:
            session.slot.release()
        if not self._sessions:
            self._all_gone.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in the background, independent of any connection."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ── internals ─────────────────────────────────────────────────────────────────────────────────

    def _connected(self) -> NativeConnection:
        connection = NativeConnection(asyncio.get_running_loop(), self.limits, self.budget, self._wrong_port)
        connection.handler = NativeSession(self, connection, f"n{next(self._session_numbers)}")
        return connection

    def _sweep_later(self) -> None:
        interval_s = self.limits.sweep_interval_ms / 1000
        self._sweep_timer = asyncio.get_running_loop().call_later(interval_s, self._sweep_again)

    def _sweep_again(self) -> None:
        self.sweep()
        self._sweep_later()

    async def _wait_until_gone(self, timeout_s: float) -> None:
        if self._sessions:
            self._all_gone.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._all_gone.wait()

    async def _wait_until_settled(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < deadline and not all(s.is_settled for s in self._sessions):  # noqa: ASYNC110 - rare
            await asyncio.sleep(DRAIN_POLL_S)

    async def _end(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=1.0)
        if self._server is not None:
            await self._server.wait_closed()
