"""The shared state of the Kafka frontend: limits, budgets, sessions, and its listeners.

Parts depend on this module, and never on the frontend or the connection themselves.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from sparrow.broker.access.login_limits import LimitedUsers
from sparrow.frontends.kafka.apis import APIS
from sparrow.frontends.kafka.fetch_sessions import FetchSessions
from sparrow.frontends.kafka.frame_receiver import SCRATCH_BYTES
from sparrow.frontends.kafka.limits import KafkaLimits
from sparrow.frontends.kafka.sasl import MECHANISMS
from sparrow.frontends.kafka.share_members import ShareMembers
from sparrow.frontends.transport.context import OpenConnection, TransportContext
from sparrow.frontends.transport.liveness import Deadlines
from sparrow.frontends.transport.receive_budget import ReceiveBudget
from sparrow.protocol.detection import WireProtocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from sparrow.broker.broker import Broker
    from sparrow.broker.measures import FrontendMeasures
    from sparrow.frontends.kafka.sasl import SaslAuthenticator
    from sparrow.frontends.transport.connection_limit import ConnectionLimit
    from sparrow.frontends.transport.send_budget import SendBudget

LOCALHOST: Final = "localhost"


class Listener(Struct, frozen=True):
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


class OpenKafkaConnection(OpenConnection, Protocol):
    """A connection, as the frontend sees it; see `KafkaConnection`."""

    listener: Listener
    local_host: str

    def finish(self) -> None: ...
    def resume(self) -> None: ...


class KafkaContext(TransportContext[OpenKafkaConnection]):
    """The shared state of all connections. Loop thread only.

    Args:
        logins: verifies SASL logins; default: the broker's users.
        connection_limit: the limit that all frontends share; None: this one shares nothing.
        send_budget: memory of responses that all listeners share; None: this one has its own.
    """

    begin: Callable[[Any, bytes | memoryview], Any]
    """The function that begins a request; see `dispatch.begin`."""

    def __init__(
        self,
        broker: Broker,
        *,
        limits: KafkaLimits | None = None,
        logins: SaslAuthenticator | None = None,
        connection_limit: ConnectionLimit | None = None,
        send_budget: SendBudget | None = None,
    ) -> None:
        self.limits = limits = limits or KafkaLimits()
        super().__init__(
            broker,
            "kafka",
            limits,
            protocol=WireProtocol.KAFKA,
            deadlines=Deadlines(
                login_s=limits.login_timeout_ms / 1000,
                stall_s=limits.stall_timeout_ms / 1000,
                idle_s=limits.idle_timeout_ms / 1000,
                unread_s=limits.idle_timeout_ms / 1000,
            ),
            send_budget=send_budget,
            connection_limit=connection_limit,
        )
        self.logins: SaslAuthenticator = (
            LimitedUsers(broker.users, broker.login_limits) if logins is None else logins
        )
        self.node_id = broker.config.node_id
        """The id of the broker at the address that `advertised` returns."""
        self.leader_id = self.node_id
        """The id of the broker that leads all partitions; -1: there is none at the moment."""
        self.login_budget = ReceiveBudget(limits.login_budget_bytes)
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        """The buffer into which all connections read until a frame is known."""
        self.is_loaded = True
        """False while the codec is loaded in a thread; requests wait for it without blocking the
        loop.
        """
        self.draining: asyncio.Future[None] = self.loop.create_future()
        """Done once the frontend stops; long polls end then."""
        self.fetch_sessions = FetchSessions(limits.max_fetch_sessions, limits.max_fetch_session_partitions)
        self.share_members = ShareMembers(broker, limits)
        self.times = _Times(self.measures)
        self.connection_numbers = itertools.count(1)
        self.ports: dict[str, int] = {}
        """The ports of the listeners, by name."""

    async def refresh(self) -> None:
        """Bring what this broker knows of the cluster up to date; a standby has to."""

    def advertised(self, connection: OpenKafkaConnection) -> tuple[str, int]:
        """Return the (host, port) of this broker for a client of this connection."""
        listener = connection.listener
        port = listener.advertised_port if listener.advertised_port != -1 else self.ports[listener.name]
        if listener.advertised_host:
            return listener.advertised_host, port
        local = connection.local_host.partition("%")[0]
        if listener.host == LOCALHOST and local in {"127.0.0.1", "::1"}:
            return LOCALHOST, port
        return local.removeprefix("::ffff:"), port
