"""The state and the services that the parts of the HTTP frontend share: limits, budgets, logins,
quotas and background work. Parts depend on this module and never on the frontend, which listens
and drains.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sparrow.base.errors import NotAuthenticated, Overloaded
from sparrow.frontends.coalescer import Coalescer
from sparrow.frontends.http import before_login
from sparrow.frontends.http.identity import LISTENER, Authenticator, identify
from sparrow.frontends.http.limits import HttpLimits
from sparrow.frontends.http.render_cache import RenderCache
from sparrow.frontends.idempotent_publisher import IdempotentPublisher
from sparrow.frontends.transport.connection_limit import ConnectionLimit
from sparrow.frontends.transport.receive_budget import ReceiveBudget
from sparrow.frontends.transport.send_budget import SendBudget
from sparrow.frontends.transport.wrong_port import WrongPortReplies
from sparrow.protocol.detection import WireProtocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.broker.quotas.rules import QuotaKind

EXCHANGE: Final = "exchange"
"""Key in the state of a request for its exchange: uvicorn's request and response."""
GONE: Final = "gone"
"""Key under which a handler leaves a future that is completed when the client disconnects."""

Result = TypeVar("Result")
Observer = Callable[[str, str, int, float], None]
"""Called with route (its template), method, status and seconds."""


class HttpContext:
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
        self.broker = broker
        self.wrong_port = WrongPortReplies(WireProtocol.HTTP, broker.listener_ports)
        self.logins = logins
        self.limits = limits or HttpLimits()
        self.logger = logger or logging.getLogger("sparrow.http")
        self.publisher = Coalescer(broker)
        self.once = IdempotentPublisher(broker, self.publisher)
        self.render_cache = RenderCache()
        self.budget = ReceiveBudget(self.limits.receive_budget_bytes)
        self.login_budget = ReceiveBudget(before_login.BUDGET_BYTES)
        self.send_budget = send_budget or SendBudget(self.limits.send_budget_bytes)
        self.admission = (connection_limit or ConnectionLimit()).admission(
            lambda: self.connections,
            self.limits.max_connections,
            broker.measures.frontend("http", lambda: self.connections).refusals,
        )
        self.observer: Observer | None = None
        self.at_sweep: list[Callable[[float], None]] = []
        """Called about once a second with the monotonic time."""
        self.at_close: list[Callable[[], Awaitable[None]]] = []
        """Awaited at the end of the drain."""
        self.host = ""
        self.is_draining = False
        self.stopping: asyncio.Future[None]
        """Completed when the drain begins, to end requests that wait."""
        self._is_loopback = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread_work: set[asyncio.Future[Any]] = set()

    @property
    def connections(self) -> int:
        """Return the number of connections, WebSockets included."""
        raise NotImplementedError

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

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work that belongs to no request; it is cancelled at the end of the drain."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def checks_host(self) -> bool:
        """Return True if the Host header must name this machine: only this machine can connect, and
        no login is required.
        """
        return self._is_loopback and not self.needs_login

    @property
    def needs_login(self) -> bool:
        """Return True if clients without credentials are refused."""
        return self.logins.is_required
