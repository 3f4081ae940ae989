"""The HTTP door: listens at once, loads its libraries when the first client connects, sweeps the clocks of its connections, and drains.

FastAPI and uvicorn take some 0.5 s and 40 MB, which a broker that nobody asks by HTTP does not pay. Until they are there (a thread loads
them), connections wait unread; then each gets its protocol, and what it sent meanwhile is read. Nothing runs per connection while it is idle: one timer
serves all.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sparrow.base.errors import NotAuthenticated
from sparrow.frontends.budget import ReceiveBudget
from sparrow.frontends.gathering import GatheringPublisher
from sparrow.frontends.http.identity import Authenticator, identify
from sparrow.frontends.http.limits import HttpLimits
from sparrow.frontends.http.outgoing import Outgoing
from sparrow.frontends.http.rendering import Renderings
from sparrow.frontends.once import OncePublisher
from sparrow.frontends.places import Places
from sparrow.frontends.tls import tls_options

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.broker.quotas.rules import QuotaKind
    from sparrow.frontends.http.serving import Serving

BACKLOG = 1024
DRAIN_POLL_S = 0.01
CLOSE_S = 1.0
"""How long what was cancelled at the end of a drain may take to end."""

Result = TypeVar("Result")
Observer = Callable[[str, str, int, float], None]
"""Route (its template), method, status, seconds."""


class HttpFrontend:
    """Serves HTTP. Loop thread only.

    Args:
        logins: says who a client is, from its credentials.
        limits: see `HttpLimits`.
        places: what all doors share; None: this one shares nothing.
        logger: gets bugs with their traceback, and who was not let in.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        logins: Authenticator,
        limits: HttpLimits | None = None,
        places: Places | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self.broker = broker
        self.logins = logins
        self.limits = limits or HttpLimits()
        self.logger = logger or logging.getLogger("sparrow.http")
        self.publisher = GatheringPublisher(broker)
        self.once = OncePublisher(broker, self.publisher)
        self.renderings = Renderings()
        self.budget = ReceiveBudget(self.limits.receive_budget_bytes)
        self.outgoing = Outgoing(self.limits.pages_bytes)
        self.has_place = (places or Places()).of(lambda: self.connections)
        """Whether there is room for one more connection."""
        self.observer: Observer | None = None
        self.at_sweep: list[Callable[[float], None]] = []
        """Called about once a second with the monotonic time."""
        self.at_close: list[Callable[[], Awaitable[None]]] = []
        """Awaited at the end of the drain."""
        self.host = ""
        self.is_draining = False
        self.stopping: asyncio.Future[None]
        """Done from the beginning of the drain: who waits for something ends then."""
        self._is_loopback = False
        self._serving: Serving | None = None
        self._loading: asyncio.Task[Any] | None = None
        self._newcomers: set[_Newcomer] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._working: set[asyncio.Future[Any]] = set()
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """How many are connected, WebSockets included."""
        served = 0 if self._serving is None else self._serving.connections
        return served + len(self._newcomers)

    @property
    def is_loaded(self) -> bool:
        """Whether a first client has connected and the libraries are there."""
        return self._serving is not None

    async def start(
        self, host: str | None = None, port: int = 0, *, tls: ssl.SSLContext | None = None
    ) -> int:
        """Listen; the port (the one that the system chose if 0 was asked for).

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
        """Stop: accept nobody, end what waits, finish what was begun, close. Takes at most about `timeout_s`."""
        if self._server is None:
            return
        self.is_draining = True
        deadline = asyncio.get_running_loop().time() + timeout_s
        if not self.stopping.done():
            self.stopping.set_result(None)
        self._server.close()
        for newcomer in list(self._newcomers):
            newcomer.abort()
        if self._serving is not None:
            self._serving.shut_down()
            await self._wait_until_gone(deadline)
            await self._serving.end(CLOSE_S)
        await self._end()

    async def identify(self, credentials: Mapping[str, str], peer: str) -> Principal:
        """Who shows these credentials ({"token": …}, {"user": …, "password": …} or nothing), from the address `peer`.

        Raises:
            NotAuthenticated: wrong ones (after a while, so that guessing is slow), or none where they are needed.
        """
        try:
            return await identify(self.logins, credentials, peer)
        except NotAuthenticated as error:
            await self.refuse_login(error, peer, is_guess=bool(credentials))
            raise

    async def refuse_login(self, error: NotAuthenticated, peer: str, *, is_guess: bool) -> None:
        """Note who is not let in; for wrong credentials wait, so that guessing is slow."""
        if is_guess:
            self.logger.warning("%s is not let in: %s", peer, error.text)
            await asyncio.sleep(self.limits.failed_login_delay_ms / 1000)

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """The result of blocking work. It runs to its end though the caller goes away, and the drain waits for it."""
        working = asyncio.get_running_loop().run_in_executor(None, work)
        self._working.add(working)
        working.add_done_callback(self._working.discard)
        return await asyncio.shield(working)

    async def hold_back(self, kind: QuotaKind, principal: Principal, size_bytes: int) -> None:
        """Count bytes that came in or go out; wait for as long as a quota says (a minute at most: nobody waits longer for an answer), or until the
        broker shuts down."""
        throttle_ms = self.count(kind, principal, size_bytes)
        if throttle_ms:
            await asyncio.wait([self.stopping], timeout=min(throttle_ms, self.limits.max_wait_ms) / 1000)

    def count(self, kind: QuotaKind, principal: Principal, size_bytes: int) -> int:
        """Count bytes that came in or go out; for how many milliseconds a quota holds the client back from now on."""
        return self.broker.quotas.record(kind, principal, "", size_bytes)

    def spawn(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that belongs to no request; it is cancelled at the end of the drain."""
        task = asyncio.get_running_loop().create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def sweep(self) -> None:
        """Look at the clocks of all connections."""
        now = asyncio.get_running_loop().time()
        if self._serving is not None:
            self._serving.sweep(now, formatdate(time.time(), usegmt=True).encode())
        for look in self.at_sweep:
            try:
                look(self.broker.clock.monotonic())
            except Exception:
                self.logger.exception("a bug in what is done once a second")

    @property
    def checks_host(self) -> bool:
        """Whether a request must name this machine: nobody else can connect, and nobody has to log in."""
        return self._is_loopback and not self.needs_login

    @property
    def needs_login(self) -> bool:
        """Whether who shows no credentials is refused."""
        return self.logins.is_required

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _connected(self) -> asyncio.Protocol:
        if self._serving is not None:
            return self._serving.protocol()
        return _Newcomer(self)

    def admit(self, newcomer: _Newcomer) -> bool:
        """Whether a client may wait until the libraries are loaded; it hears of it by `_Newcomer.serve`."""
        if self.is_draining or len(self._newcomers) >= self.limits.max_connections or not self.has_place():
            return False
        self._newcomers.add(newcomer)
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load())
        return True

    def dismiss(self, newcomer: _Newcomer) -> None:
        """A client that waited is gone."""
        self._newcomers.discard(newcomer)

    async def _load(self) -> None:
        try:
            self._serving = await asyncio.to_thread(_serving, self)
            self.sweep()
        except Exception:
            self.logger.exception("the libraries of the HTTP door cannot be loaded")
            for newcomer in list(self._newcomers):
                newcomer.abort()
        else:
            for newcomer in list(self._newcomers):
                newcomer.serve(self._serving.protocol())
            self._newcomers.clear()
        finally:
            self._loading = None

    def _sweep_later(self) -> None:
        interval_s = self.limits.sweep_interval_ms / 1000
        self._sweeping = asyncio.get_running_loop().call_later(interval_s, self._sweep_again)

    def _sweep_again(self) -> None:
        self.sweep()
        self._sweep_later()

    async def _wait_until_gone(self, deadline: float) -> None:
        assert self._serving is not None
        loop = asyncio.get_running_loop()
        while loop.time() < deadline and self._serving.is_busy:  # noqa: ASYNC110 - rare
            await asyncio.sleep(DRAIN_POLL_S)

    async def _end(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._loading is not None:
            await asyncio.wait([self._loading])
        if self._working:
            await asyncio.wait(set(self._working))
        for close in self.at_close:
            await close()
        for task in self._tasks:
            task.cancel()
        await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CLOSE_S)
        if self._server is not None:
            await self._server.wait_closed()


class _Newcomer(asyncio.Protocol):
    """A client that came before the libraries: not read from until they are loaded, but for a first piece: uvloop reads on after a pause that
    was asked for in `connection_made`."""

    def __init__(self, door: HttpFrontend) -> None:
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._door.admit(self):
            self._transport.pause_reading()
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._early += data
        if self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        self._transport = None
        self._door.dismiss(self)

    def serve(self, protocol: asyncio.Protocol) -> None:
        """Hand the connection to who serves it."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if not transport.is_closing():
            transport.resume_reading()
            if self._early:
                protocol.data_received(self._early)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _serving(door: HttpFrontend) -> Serving:
    from sparrow.frontends.http.app import build
    from sparrow.frontends.http.gate import Gate, allowing_origins
    from sparrow.frontends.http.serving import Serving

    return Serving(allowing_origins(Gate(build(door), door), door.limits.cors_origins), door)


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
