"""The native door: listens, admits, sweeps the clocks of its connections, and drains.

Nothing runs per connection while it is idle: one timer serves all.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import Draining, Overloaded, SparrowError
from sparrow.frontends.budget import ReceiveBudget
from sparrow.frontends.native.limits import NativeLimits
from sparrow.frontends.native.listener import Pump
from sparrow.frontends.native.session import Authenticator, Session
from sparrow.frontends.places import NO_ROOM, Places
from sparrow.frontends.tls import tls_options

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Coroutine

    from sparrow.broker.broker import Broker

BACKLOG = 1024
SHARE_OF_DRAIN_FOR_CLIENTS = 0.75
"""Of the time to drain: how long clients have to say goodbye. The rest is for confirming what was taken."""
GRACE_OF_IDLE_S = 0.25
"""How long a client that has no channel, and is owed nothing, has to say goodbye: a blocking one reads ours when it asks next."""
DRAIN_POLL_S = 0.01
LAST_WORDS_S = 0.5
MAX_REFUSED = 100
"""Refused connections that may still read why; more are closed without a word."""


class NativeFrontend:
    """Serves the native protocol. Loop thread only.

    Args:
        authenticator: says who a client is, from its HELLO.
        limits: see `NativeLimits`.
        places: what all doors share; None: this one shares nothing.
        logger: gets connections that break the rules, and bugs with their traceback.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        authenticator: Authenticator,
        limits: NativeLimits | None = None,
        places: Places | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self.broker = broker
        self.authenticator = authenticator
        self.limits = limits or NativeLimits()
        self.logger = logger or logging.getLogger(__name__)
        self.budget = ReceiveBudget(self.limits.receive_budget_bytes)
        self.is_draining = False
        self.measures = broker.measures.door("native", lambda: self.connections)
        self._sessions: set[Session] = set()
        self._served: set[Session] = set()
        """Those that were not refused."""
        self._has_place = (places or Places()).of(lambda: len(self._sessions))
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_gone = asyncio.Event()
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """How many are connected, those that are being closed included."""
        return len(self._sessions)

    async def start(
        self,
        host: str | None = None,
        port: int = 0,
        *,
        sock: socket.socket | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> int:
        """Listen; the port (the one that the system chose if 0 was asked for).

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
        """Stop: accept nobody, tell everybody, finish confirmations, close. Takes at most about `timeout_s`."""
        self.is_draining = True
        loop = asyncio.get_running_loop()
        begun = loop.time()
        if self._server is not None:
            self._server.close()
        for session in list(self._sessions):
            session.drain()
        self.broker.watches.interrupt()
        await self._wait_until_gone(min(timeout_s * SHARE_OF_DRAIN_FOR_CLIENTS, GRACE_OF_IDLE_S))
        for session in list(self._sessions):
            if session.is_idle:
                session.close()
        await self._wait_until_gone(begun + timeout_s * SHARE_OF_DRAIN_FOR_CLIENTS - loop.time())
        for session in self._sessions:
            session.stop_reading()
        await self._wait_until_settled(begun + timeout_s)
        for session in list(self._sessions):
            session.close()
        await self._wait_until_gone(min(LAST_WORDS_S, timeout_s))
        for session in list(self._sessions):
            session.abort()
        await self._end()

    def sweep(self) -> None:
        """Look at the clocks of all connections."""
        now = self.broker.clock.monotonic()
        for session in list(self._sessions):
            try:
                session.sweep(now)
            except Exception as error:  # noqa: BLE001 - a bug ends this connection, not the others
                session.failed(error)

    # ── offered to the sessions ───────────────────────────────────────────────────────────────────

    def admit(self, session: Session) -> SparrowError | None:
        """Count a connection in; why not, if it may not be served."""
        has_place = self._has_place()
        self._sessions.add(session)
        if self.is_draining:
            return Draining("The broker is shutting down; connect again later.")
        is_full = len(self._served) >= self.limits.max_connections
        if is_full or not has_place:
            if len(self._sessions) - len(self._served) > MAX_REFUSED:
                session.abort()
            return Overloaded(
                f"{self.limits.max_connections} clients are connected, which is the limit (max_connections); try again later."
                if is_full
                else NO_ROOM
            )
        self._served.add(session)
        return None

    def dismiss(self, session: Session) -> None:
        """Count a connection out."""
        self._sessions.discard(session)
        self._served.discard(session)
        if not self._sessions:
            self._all_gone.set()

    def spawn(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that nobody waits for, such as what belongs to no connection any more."""
        task = asyncio.get_running_loop().create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _connected(self) -> Pump:
        pump = Pump(asyncio.get_running_loop(), self.limits, self.budget)
        pump.handler = Session(self, pump, f"n{next(self._numbers)}")
        return pump

    def _sweep_later(self) -> None:
        interval_s = self.limits.sweep_interval_ms / 1000
        self._sweeping = asyncio.get_running_loop().call_later(interval_s, self._sweep_again)

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
        if self._sweeping is not None:
            self._sweeping.cancel()
        await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=1.0)
        if self._server is not None:
            await self._server.wait_closed()
