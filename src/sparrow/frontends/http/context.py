"""The state and the services that the parts of the HTTP frontend share: limits, budgets, logins,
quotas and background work. Parts depend on this module and never on the frontend, which listens
and drains.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sparrow.base.errors import NotAuthenticated, Overloaded
from sparrow.frontends.coalescer import Coalescer
from sparrow.frontends.http import before_login
from sparrow.frontends.http.identity import LISTENER, Authenticator, identify
from sparrow.frontends.http.limits import HttpLimits
from sparrow.frontends.http.render_cache import RenderCache
from sparrow.frontends.http.web_sessions import WebSessions
from sparrow.frontends.idempotent_publisher import IdempotentPublisher
from sparrow.frontends.transport.context import OpenConnection, TransportContext
from sparrow.frontends.transport.liveness import Deadlines
from sparrow.frontends.transport.receive_budget import ReceiveBudget
from sparrow.protocol.detection import WireProtocol
from sparrow.protocol.http.codec import CommonHeaders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.broker.quotas.rules import QuotaKind
    from sparrow.frontends.transport.connection_limit import ConnectionLimit
    from sparrow.frontends.transport.send_budget import SendBudget

CLOSING_S = 2.0
"""Time for a client to read the last response, and to complete the closing handshake."""
COMMON_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
]
"""Headers of every response: its type is not guessed, it is not shown inside another page, and it
is not cached.
"""

Result = TypeVar("Result")
Observer = Callable[[str, str, int, float], None]
"""Called with route (its template), method, status and seconds."""


class HttpPeer(OpenConnection, Protocol):
    """A connection of HTTP or a WebSocket, as the frontend sees it."""

    def drain(self) -> None:
        """End the connection when everything that is due is sent."""
        ...

    def cancel(self) -> None:
        """End what is being done for the client; it has a moment to read why."""
        ...


class HttpContext(TransportContext[HttpPeer]):
    """The context of one HTTP frontend. Loop thread only.

    Args:
        logins: authenticates clients by their credentials.
        limits: see `HttpLimits`.
        connection_limit: connection limits that all frontends share; None: this one shares none.
        send_budget: memory of responses that all listeners share; None: this one has its own.
        logger: gets bugs with their traceback, and refused logins.
    """

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
        self.limits = limits = limits or HttpLimits()
        self.head_deadlines = _deadlines(limits, limits.head_timeout_ms)
        super().__init__(
            broker,
            LISTENER,
            limits,
            protocol=WireProtocol.HTTP,
            deadlines=_deadlines(limits, limits.body_timeout_ms),
            send_budget=send_budget,
            connection_limit=connection_limit,
            logger=logger,
        )
        self.logins = logins
        self.publisher = Coalescer(broker)
        self.once = IdempotentPublisher(broker, self.publisher)
        self.render_cache = RenderCache()
        self.web_sessions = WebSessions(broker.clock, broker.sessions)
        self.login_budget = ReceiveBudget(before_login.BUDGET_BYTES)
        self.common_headers = CommonHeaders(COMMON_HEADERS)
        self.observer: Observer | None = None
        self.at_sweep: list[Callable[[float], None]] = [self.render_cache.sweep]
        """Called about once a second with the monotonic time."""
        self.at_close: list[Callable[[], Awaitable[None]]] = []
        """Awaited at the end of the drain."""
        self.host = ""
        self.is_loopback = False
        """True if only this machine can connect."""
        self.stopping: asyncio.Future[None] = self.loop.create_future()
        """Completed when the drain begins, to end requests that wait."""
        self._thread_work: set[asyncio.Future[Any]] = set()

    @property
    def is_busy(self) -> bool:
        """Return True if a client is connected or something is being done for one."""
        return bool(self.open_connections or self._tasks)

    def sweep(self) -> None:
        """Check the deadlines of all connections, and do the other periodic work."""
        self.common_headers.set_date(formatdate(time.time(), usegmt=True))
        super().sweep()
        now = self.broker.clock.monotonic()
        for look in self.at_sweep:
            try:
                look(now)
            except Exception:
                self.logger.exception("a bug in a periodic task")

    async def identify(self, credentials: Mapping[str, str], peer: str) -> Principal:
        """Return the principal of credentials ({"token": …}, {"user": …, "password": …} or nothing)
        shown from the address `peer`.

        Raises:
            NotAuthenticated: the credentials are wrong (raised after a delay, so that guessing is
                slow), or missing where they are required.
        """
        try:
            return await identify(self.logins, credentials, peer)
        except (NotAuthenticated, Overloaded) as error:
            await self.refuse_login(error, peer, credentials, is_guess=bool(credentials))
            raise

    async def refuse_login(
        self,
        error: NotAuthenticated | Overloaded,
        peer: str,
        credentials: Mapping[str, str],
        *,
        is_guess: bool,
    ) -> None:
        """Record a refused login (`LoginLimits` counts it and logs a summary). Delay after wrong
        credentials, so that guessing is slow.
        """
        mechanism = "password" if "user" in credentials else "token" if credentials else "none"
        self.broker.audit.login_refused(
            LISTENER, peer, error, claims=credentials.get("user", ""), mechanism=mechanism
        )
        if is_guess:
            self.logger.debug("login of %s refused: %s", peer, error.text)
            await asyncio.sleep(self.limits.failed_login_delay_ms / 1000)

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Return the result of blocking work. It runs to its end even if the caller is cancelled,
        and the drain waits for it.
        """
        future = asyncio.get_running_loop().run_in_executor(None, work)
        self._thread_work.add(future)
        future.add_done_callback(self._thread_work.discard)
        return await asyncio.shield(future)

    async def throttle(self, kind: QuotaKind, principal: Principal, size_bytes: int) -> None:
        """Count received or sent bytes. Wait for as long as a quota demands (at most
        `max_wait_ms`), or until the broker shuts down.
        """
        throttle_ms = self.count(kind, principal, size_bytes)
        if throttle_ms:
            await asyncio.wait([self.stopping], timeout=min(throttle_ms, self.limits.max_wait_ms) / 1000)

    def count(self, kind: QuotaKind, principal: Principal, size_bytes: int) -> int:
        """Count received or sent bytes. Return how long the client must be throttled, in ms."""
        return self.broker.quotas.record(kind, principal, "", size_bytes)

    @property
    def checks_host(self) -> bool:
        """Return True if the Host header must name this machine: only this machine can connect, and
        no login is required.
        """
        return self.is_loopback and not self.needs_login

    @property
    def needs_login(self) -> bool:
        """Return True if clients without credentials are refused."""
        return self.logins.is_required


def _deadlines(limits: HttpLimits, message_ms: int) -> Deadlines:
    return Deadlines(
        stall_s=message_ms / 1000,
        idle_s=limits.idle_timeout_ms / 1000,
        unread_s=limits.stall_timeout_ms / 1000,
        closing_s=CLOSING_S,
        is_whole_message=True,
    )
