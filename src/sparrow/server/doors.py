"""The doors of a server: each made from the configuration, opened in order, drained together."""

from __future__ import annotations

import asyncio
import errno
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from sparrow.base.errors import InvalidConfig
from sparrow.frontends.places import Places
from sparrow.server.config import kafka_listeners, seed_ports
from sparrow.server.files import connection_room
from sparrow.server.listeners import OFF
from sparrow.server.ready import bootstrap_of, http_url_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sparrow.broker.broker import Broker
    from sparrow.frontends.http import HttpFrontend
    from sparrow.frontends.kafka import KafkaFrontend
    from sparrow.frontends.native import NativeFrontend
    from sparrow.frontends.seeds import SeedFrontend
    from sparrow.frontends.webhook import WebhookFrontend
    from sparrow.server.access import Access
    from sparrow.server.config import ServerConfig
    from sparrow.server.listeners import ListenerDeclaration
    from sparrow.server.logins import Logins

T = TypeVar("T")
OR_OFF = ", 0 for a free one, or off"


class Door(Protocol):
    """What all of them can."""

    async def drain(self, timeout_s: float) -> None: ...


@dataclass(slots=True)
class Addresses:
    """Where the doors listen; see `Ready`."""

    native_port: int = 0
    kafka: str = ""
    http: str = ""
    seeds: dict[str, str] = field(default_factory=dict)


class Doors:
    """Of one running broker."""

    def __init__(self, config: ServerConfig, broker: Broker, access: Access, logins: Logins) -> None:
        self._config = config
        self._broker = broker
        self._access = access
        self._logins = logins
        self._made: list[Door] = []
        self._places = Places(connection_room(config))

    async def open(self) -> Addresses:
        """Open all that are switched on. Call `drain` afterwards, also when it raises.

        Raises:
            InvalidConfig: an address cannot be listened on.
        """
        addresses = Addresses(await self._open_native())
        listeners = kafka_listeners(self._config)
        if listeners:
            addresses.kafka = await self._open_kafka(listeners)
        await self._open_webhooks()
        if self._config.http_port != OFF:
            addresses.http = await self._open_http()
        if seed_ports(self._config):
            addresses.seeds = await self._open_seeds()
        return addresses

    async def drain(self, timeout_s: float) -> None:
        """Accept nobody, finish what was promised, tell the clients; at most about `timeout_s`. Again: no effect."""
        made, self._made = self._made, []
        async with asyncio.TaskGroup() as draining:
            for door in made:
                draining.create_task(door.drain(timeout_s))

    async def _open_native(self) -> int:
        door = _native_door(self._config, self._broker, self._logins, self._places)
        self._made.append(door)
        host, port = self._config.native_host, self._config.native_port
        starting = door.start(host, port, tls=self._access.native_tls)
        return await _listening(starting, f"{host}:{port}", "native", free=", or 0 for a free one")

    async def _open_kafka(self, listeners: tuple[ListenerDeclaration, ...]) -> str:
        door = _kafka_door(self._config, self._broker, self._logins, self._places)
        self._made.append(door)
        ports = [await _listen_for_kafka(door, each, self._access) for each in listeners]
        return bootstrap_of(listeners[0].host, ports[0])

    async def _open_webhooks(self) -> None:
        door = _webhook_door(self._config, self._broker)
        self._made.append(door)
        await door.start()

    async def _open_http(self) -> str:
        logins = self._logins.requiring(is_required=self._access.http_login)
        door = _http_door(self._config, self._broker, logins, self._places)
        self._made.append(door)
        host, port, tls = self._config.http_host, self._config.http_port, self._access.http_tls
        bound = await _listening(door.start(host, port, tls=tls), f"{host}:{port} for HTTP", "http")
        return http_url_of(host, bound, has_tls=tls is not None)

    async def _open_seeds(self) -> dict[str, str]:
        doors = _seed_doors(self._config, self._broker, self._places)
        self._made.append(doors)
        host = self._config.seeds_host
        try:
            ports = await doors.start()
        except OSError as error:
            raise InvalidConfig(
                f"cannot listen on {host} for clients of {error.filename}: {error.strerror or error}; give another"
                f" seeds.{error.filename}.port (docs/configuration.md){OR_OFF}"
            ) from None
        return {name: bootstrap_of(host, port) for name, port in ports.items()}


def _native_door(config: ServerConfig, broker: Broker, logins: Logins, places: Places) -> NativeFrontend:
    from sparrow.frontends.native import NativeFrontend, NativeLimits

    limits = NativeLimits(
        max_frame_bytes=config.max_frame_bytes,
        max_connections=config.max_connections,
        receive_budget_bytes=config.receive_budget_bytes,
        idle_timeout_ms=config.idle_timeout_ms,
    )
    logger = logging.getLogger("sparrow.native")
    return NativeFrontend(broker, authenticator=logins, limits=limits, places=places, logger=logger)


def _kafka_door(config: ServerConfig, broker: Broker, logins: Logins, places: Places) -> KafkaFrontend:
    from sparrow.frontends.kafka import KafkaFrontend, KafkaLimits

    limits = KafkaLimits(
        max_connections=config.max_connections,
        receive_budget_bytes=config.receive_budget_bytes,
        max_session_ms=config.kafka_max_session_ms,
        max_replication_factor=config.kafka_max_replication_factor,
    )
    return KafkaFrontend(broker, limits=limits, logins=logins, places=places)


def _http_door(config: ServerConfig, broker: Broker, logins: Logins, places: Places) -> HttpFrontend:
    from sparrow.frontends.http import HttpFrontend, HttpLimits

    limits = HttpLimits(
        max_connections=config.max_connections,
        max_body_bytes=config.http_max_body_bytes,
        body_timeout_ms=config.http_body_timeout_ms,
        receive_budget_bytes=config.receive_budget_bytes,
        cors_origins=config.http_cors_origins,
        idempotency_window_ms=config.http_idempotency_window_ms,
    )
    return HttpFrontend(broker, logins=logins, limits=limits, places=places)


def _webhook_door(config: ServerConfig, broker: Broker) -> WebhookFrontend:
    from sparrow.frontends.webhook import WebhookFrontend, WebhookSettings

    settings = WebhookSettings(
        allow=config.webhooks_allow,
        max_connections=config.webhooks_max_connections,
        ca_path=config.webhooks_ca,
    )
    return WebhookFrontend(broker, settings=settings)


def _seed_doors(config: ServerConfig, broker: Broker, places: Places) -> SeedFrontend:
    from sparrow.frontends.seeds import SeedFrontend, SeedSettings

    settings = SeedSettings(
        host=config.seeds_host,
        ports=seed_ports(config),
        max_connections=config.max_connections,
        idle_timeout_ms=config.idle_timeout_ms,
        ack_timeout_ms=config.seeds_messagebroker_ack_timeout_ms,
        ack_delay_ms=config.seeds_messagebroker_ack_delay_ms,
        redeliveries=config.seeds_messagebroker_redeliveries,
        stall_timeout_ms=config.seeds_msbq_stall_timeout_ms,
        private_endpoints=config.seeds_syncbrok_private_endpoints,
    )
    return SeedFrontend(broker, settings, places=places)


async def _listen_for_kafka(door: KafkaFrontend, declared: ListenerDeclaration, access: Access) -> int:
    from sparrow.frontends.kafka import Listener

    listener = Listener(
        declared.name,
        declared.host,
        declared.port,
        declared.advertised_host,
        declared.advertised_port,
        tls=access.kafka_tls(declared),
        sasl=access.kafka_sasl(declared),
    )
    where = f"{declared.host}:{declared.port} for Kafka clients ({declared.name})"
    return await _listening(door.start(listener), where, "kafka", user=" (a Kafka broker?)")


async def _listening(
    starting: Awaitable[T], where: str, option: str, *, user: str = "", free: str = OR_OFF
) -> T:
    """What `starting` gives.

    Raises:
        InvalidConfig: it cannot listen; says why, and what to set instead.
    """
    try:
        return await starting
    except OSError as error:
        advice = {
            errno.EADDRINUSE: f"another program uses it{user}: stop that, or give another {option}.port{free}",
            errno.EADDRNOTAVAIL: f"this machine has no such address; {option}.host is one of its own, or 0.0.0.0 for all",
            errno.EACCES: f"ports below 1024 need privileges; give another {option}.port",
        }.get(error.errno or 0, f"give another {option}.host or {option}.port")
        raise InvalidConfig(f"cannot listen on {where}: {error.strerror or error}; {advice}") from None
