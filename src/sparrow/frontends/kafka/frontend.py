"""The Kafka frontend as a whole: its listeners and connections, start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sparrow.base.errors import Overloaded
from sparrow.broker.access.login_limits import LimitedUsers
from sparrow.frontends.kafka.apis import APIS
from sparrow.frontends.kafka.connection import Connection
from sparrow.frontends.kafka.fetch_sessions import FetchSessions
from sparrow.frontends.kafka.frame_receiver import SCRATCH_BYTES
from sparrow.frontends.kafka.limits import KafkaLimits
from sparrow.frontends.kafka.sasl import MECHANISMS
from sparrow.frontends.kafka.share_members import ShareMembers
from sparrow.frontends.transport.connection_limit import ConnectionLimit
from sparrow.frontends.transport.receive_budget import ReceiveBudget
from sparrow.frontends.transport.send_budget import SendBudget
from sparrow.frontends.transport.tls import tls_options
from sparrow.frontends.transport.wrong_port import WrongPortReplies
from sparrow.protocol.detection import WireProtocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from sparrow.broker.broker import Broker
    from sparrow.broker.measures import FrontendMeasures
    from sparrow.frontends.kafka.dispatch import Begun
    from sparrow.frontends.kafka.sasl import SaslAuthenticator

log = logging.getLogger("sparrow.kafka")

BACKLOG = 1024
LOCALHOST = "localhost"


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on, and the address that clients are given for later connections.

    Args:
        host: an address or name of this machine; "localhost" listens on its IPv4 and IPv6 loopback,
            "" on all addresses.
        advertised_host: the host in Metadata; "" means the address at which the client connected,
            which is right unless something between translates addresses. Loopback is named
            "localhost".
        advertised_port: -1 means the port that is listened on.
        sasl: True if clients must authenticate.
        mechanisms: the allowed SASL mechanisms.
    """

    name: str
    host: str
    port: int
    advertised_host: str = ""
    advertised_port: int = -1
    tls: ssl.SSLContext | None = None
    sasl: bool = False
    mechanisms: tuple[str, ...] = MECHANISMS


class _Times(dict[int, "Callable[[float], None]"]):
    """Functions that record the latency of requests, by API key."""

    def __init__(self, measures: FrontendMeasures) -> None:
        super().__init__()
        self._measures = measures

    def __missing__(self, api_key: int) -> Callable[[float], None]:
        observe = self[api_key] = self._measures.times_of(APIS[api_key].name).observe
        return observe


class KafkaFrontend:
    """Serves Kafka's protocol on one or several listeners. Loop thread only.

    Args:
        logins: verifies SASL logins; default: the broker's users.
        connection_limit: the limit that all frontends share; None: this one shares nothing.
        send_budget: memory of responses that all listeners share; None: this one has its own.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        limits: KafkaLimits | None = None,
        logins: SaslAuthenticator | None = None,
        connection_limit: ConnectionLimit | None = None,
        send_budget: SendBudget | None = None,
    ) -> None:
        self.broker = broker
        self.wrong_port = WrongPortReplies(WireProtocol.KAFKA, broker.listener_ports)
        self.logins: SaslAuthenticator = (
            LimitedUsers(broker.users, broker.login_limits) if logins is None else logins
        )
        self.limits = limits or KafkaLimits()
        self.node_id = broker.config.node_id
        self.budget = ReceiveBudget(self.limits.receive_budget_bytes)
        self.login_budget = ReceiveBudget(self.limits.login_budget_bytes)
        self.send_budget = send_budget or SendBudget(self.limits.send_budget_bytes)
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        """The buffer into which all connections read until a frame is known."""
        self.is_loaded = True
        """False while the codec is loaded in a thread; requests wait for it without blocking the
        loop.
        """
        self.draining: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the frontend closes; long polls end then."""
        self.fetch_sessions = FetchSessions(
            self.limits.max_fetch_sessions, self.limits.max_fetch_session_partitions
        )
        self.share_members = ShareMembers(broker, self.limits)
        measures = broker.measures.frontend("kafka", lambda: self.connections)
        self.times = _Times(measures)
        self._connections: set[Connection] = set()
        self.admission = (connection_limit or ConnectionLimit()).admission(
            lambda: len(self._connections), self.limits.max_connections, measures.refusals
        )
        self._all_gone = asyncio.Event()
        self._numbers = itertools.count(1)
        self._servers: list[asyncio.Server] = []
        self._ports: dict[str, int] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    @cached_property
    def begin(self) -> Callable[[Connection, bytes | memoryview], Begun]:
        """The function that begins a request. Loading the codec takes a tenth of a second: this
        happens after the start, not before it.
        """
        from sparrow.frontends.kafka.dispatch import begin

        return begin

    @property
    def connections(self) -> int:
        """Number of connections."""
        return len(self._connections)

    async def start(self, listener: Listener) -> int:
        """Listen on one more address. Return the port (the one that the system chose if 0 was
        given).

        Raises:
            OSError: the address cannot be listened on.
        """
        loop = asyncio.get_running_loop()

        def connected() -> Connection:
            return Connection(self, listener, next(self._numbers))

        port = listener.port
        for host in _hosts(listener.host):
            try:
                server = await loop.create_server(
                    connected, host, port, backlog=BACKLOG, **tls_options(listener.tls)
                )
            except OSError:
                if host != "::1" or not self._servers:
                    raise
                log.info(
                    "listener %s: this machine has no IPv6 loopback, or its port is taken", listener.name
                )
                continue
            self._servers.append(server)
            port = self._ports[listener.name] = server.sockets[0].getsockname()[1]
        if self._sweeping is None:
            self._sweep_later()
            self.is_loaded = False
            loop.run_in_executor(None, _preload).add_done_callback(self._loaded)
        return port

    def advertised(self, connection: Connection) -> tuple[str, int]:
        """Return the (host, port) of this broker for a client of this connection."""
        listener = connection.listener
        port = listener.advertised_port if listener.advertised_port != -1 else self._ports[listener.name]
        if listener.advertised_host:
            return listener.advertised_host, port
        local = connection.local_host.partition("%")[0]
        if listener.host == LOCALHOST and local in {"127.0.0.1", "::1"}:
            return LOCALHOST, port
        return local.removeprefix("::ffff:"), port

    async def drain(self, timeout_s: float) -> None:
        """Stop: refuse new connections, answer pending requests, close. Takes at most about
        `timeout_s`.
        """
        if not self.draining.done():
            self.draining.set_result(None)
        self.share_members.drain()
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.finish()
        if self._connections:
            self._all_gone.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._all_gone.wait()
        for connection in list(self._connections):
            connection.abort()
        await self.share_members.settled()
        if self._sweeping is not None:
            self._sweeping.cancel()
        await asyncio.sleep(0)
        for server in self._servers:
            await server.wait_closed()

    # ── offered to the connections ────────────────────────────────────────────────────────────────

    def admit(self, connection: Connection) -> bool:
        """Count a new connection. Return False if it must be closed."""
        self._connections.add(connection)
        if self.draining.done():
            return False
        try:
            connection.slot = self.admission.admit(connection.peer_host, connection.abort)
        except Overloaded:  # `Admission` counts it, and logs a summary
            return False
        return True

    def dismiss(self, connection: Connection) -> None:
        """Subtract a lost connection."""
        self._connections.discard(connection)
        if connection.slot is not None:
            connection.slot.release()
        self.share_members.disconnected(connection)
        if not self._connections:
            self._all_gone.set()

    def _loaded(self, loading: asyncio.Future[None]) -> None:
        """Begin the requests that waited for the codec."""
        self.is_loaded = True
        if not loading.cancelled() and (error := loading.exception()) is not None:
            log.error("the codec could not be loaded beforehand", exc_info=error)
        for connection in list(self._connections):
            connection.resume()

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(self.limits.sweep_interval_ms / 1000, self._sweep)

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in list(self._connections):
            connection.sweep(now)
        self._sweep_later()


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
