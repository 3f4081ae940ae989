"""The frontends of a server: created from the configuration, opened in order, drained together."""

from __future__ import annotations

import asyncio
import errno
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct, field

from sparrow.base.errors import InvalidConfig
from sparrow.frontends.transport.admission import AddressLimits
from sparrow.frontends.transport.connection_limit import ConnectionLimit
from sparrow.frontends.transport.send_budget import SendBudget
from sparrow.server.config import kafka_listeners, seed_ports
from sparrow.server.files import connection_room
from sparrow.server.listeners import OFF
from sparrow.server.memory_return import MemoryReturn
from sparrow.server.ready import bootstrap_of, http_url_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sparrow.broker.broker import Broker
    from sparrow.frontends.kafka.frontend import KafkaFrontend
    from sparrow.server.access import ServerAccess
    from sparrow.server.config import ServerConfig
    from sparrow.server.listeners import ListenerDeclaration
    from sparrow.server.logins import Logins

T = TypeVar("T")
OR_OFF = ", 0 for a free one, or off"


class Frontend(Protocol):
    """The part of a frontend that the server uses."""

    async def drain(self, timeout_s: float) -> None: ...


class ListenAddresses(Struct):
    """The addresses that the frontends listen on; see `Ready`."""

    native_port: int = 0
    kafka: str = ""
    http: str = ""
    seeds: dict[str, str] = field(default_factory=dict)


class Frontends:
    """The frontends of one running broker."""

    def __init__(self, config: ServerConfig, broker: Broker, access: ServerAccess, logins: Logins) -> None:
        self._config = config
        self._broker = broker
        self._access = access
        self._logins = logins
        self._made: list[Frontend] = []
        self._connection_limit = connection_limit_of(config)
        self._send_budget = SendBudget(config.listeners.send_budget_bytes)
        broker.measures.send_budget = self._send_budget.used_bytes
        self._memory_return = MemoryReturn(lambda: self._connection_limit.connections)

    async def open(self) -> ListenAddresses:
        """Open all frontends that are switched on. Call `drain` afterwards, also when this raises.

        Raises:
            InvalidConfig: the server cannot listen on an address.
        """
        addresses = ListenAddresses(await self._open_native())
        ports = self._broker.listener_ports
        ports["native"] = addresses.native_port
        listeners = kafka_listeners(self._config)
        if listeners:
            addresses.kafka = await self._open_kafka(listeners)
            ports["kafka"] = int(addresses.kafka.rpartition(":")[2])
        await self._open_webhooks()
        if self._config.http_port != OFF:
            addresses.http = await self._open_http()
            ports["http"] = int(addresses.http.rpartition(":")[2].rstrip("/"))
        if seed_ports(self._config):
            addresses.seeds = await self._open_seeds()
        self._memory_return.start()
        return addresses

    async def drain(self, timeout_s: float) -> None:
        """Accept no more connections, finish what was promised, and notify the clients, within
        about `timeout_s`. A second call has no effect.
        """
        await self._memory_return.stop()
        made, self._made = self._made, []
        async with asyncio.TaskGroup() as draining:
            for frontend in made:
                draining.create_task(frontend.drain(timeout_s))

    async def _open_native(self) -> int:
        from sparrow.frontends.native.frontend import NativeFrontend

        frontend = NativeFrontend(
            self._broker,
            authenticator=self._logins,
            limits=self._config.native,
            connection_limit=self._connection_limit,
            send_budget=self._send_budget,
            logger=logging.getLogger("sparrow.native"),
        )
        self._made.append(frontend)
        host, port = self._config.native_host, self._config.native_port
        starting = frontend.start(host, port, tls=self._access.native_tls)
        return await _listening(starting, f"{host}:{port}", "native", free=", or 0 for a free one")

    async def _open_kafka(self, listeners: tuple[ListenerDeclaration, ...]) -> str:
        from sparrow.frontends.kafka.frontend import KafkaFrontend

        frontend = KafkaFrontend(
            self._broker,
            limits=self._config.kafka,
            logins=self._logins,
            connection_limit=self._connection_limit,
            send_budget=self._send_budget,
        )
        self._made.append(frontend)
        ports = [await listen_for_kafka(frontend, each, self._access) for each in listeners]
        return bootstrap_of(listeners[0].host, ports[0])

    async def _open_webhooks(self) -> None:
        from sparrow.frontends.webhook.frontend import WebhookFrontend

        frontend = WebhookFrontend(self._broker, settings=self._config.webhooks)
        self._made.append(frontend)
        await frontend.start()

    async def _open_http(self) -> str:
        from sparrow.frontends.http.frontend import HttpFrontend

        frontend = HttpFrontend(
            self._broker,
            logins=self._logins.requiring(is_required=self._access.http_login),
            limits=self._config.http,
            connection_limit=self._connection_limit,
            send_budget=self._send_budget,
        )
        self._made.append(frontend)
        host, port, tls = self._config.http_host, self._config.http_port, self._access.http_tls
        bound = await _listening(frontend.start(host, port, tls=tls), f"{host}:{port} for HTTP", "http")
        return http_url_of(host, bound, has_tls=tls is not None)

    async def _open_seeds(self) -> dict[str, str]:
        from sparrow.frontends.seeds.frontend import SeedFrontend

        settings = replace(self._config.seeds, host=self._config.seeds_host, ports=seed_ports(self._config))
        frontends = SeedFrontend(
            self._broker, settings, connection_limit=self._connection_limit, send_budget=self._send_budget
        )
        self._made.append(frontends)
        host = self._config.seeds_host
        try:
            ports = await frontends.start()
        except OSError as error:
            raise InvalidConfig(
                f"cannot listen on {host} for clients of {error.filename}: "
                f"{error.strerror or error}; give another"
                f" seeds.{error.filename}.port (docs/configuration.md){OR_OFF}"
            ) from None
        return {name: bootstrap_of(host, port) for name, port in ports.items()}


def connection_limit_of(config: ServerConfig) -> ConnectionLimit:
    """Return the limits that all frontends share."""
    return ConnectionLimit(
        connection_room(config),
        addresses=AddressLimits(config.max_connections_per_address, config.max_connections_overrides),
        max_strangers=config.max_connections_before_login,
    )


async def listen_for_kafka(
    frontend: KafkaFrontend, declared: ListenerDeclaration, access: ServerAccess
) -> int:
    """Listen for Kafka clients as declared. Return the port.

    Raises:
        InvalidConfig: the server cannot listen on the address.
    """
    from sparrow.frontends.kafka.context import Listener
    from sparrow.frontends.kafka.sasl import MECHANISMS

    listener = Listener(
        declared.name,
        declared.host,
        declared.port,
        declared.advertised_host,
        declared.advertised_port,
        tls=access.kafka_tls(declared),
        sasl=access.kafka_sasl(declared),
        mechanisms=declared.sasl_mechanisms or MECHANISMS,
    )
    where = f"{declared.host}:{declared.port} for Kafka clients ({declared.name})"
    return await _listening(frontend.start(listener), where, "kafka", user=" (a Kafka broker?)")


async def _listening(
    starting: Awaitable[T], where: str, option: str, *, user: str = "", free: str = OR_OFF
) -> T:
    """Return the result of `starting`.

    Raises:
        InvalidConfig: the listener cannot be opened; says why, and what to set instead.
    """
    try:
        return await starting
    except OSError as error:
        advice = {
            errno.EADDRINUSE: f"another program uses it{user}: stop that, or give another "
            f"{option}.port{free}",
            errno.EADDRNOTAVAIL: f"this machine has no such address; {option}.host is one of its "
            "own, or 0.0.0.0 for all",
            errno.EACCES: f"ports below 1024 need privileges; give another {option}.port",
        }.get(error.errno or 0, f"give another {option}.host or {option}.port")
        raise InvalidConfig(f"cannot listen on {where}: {error.strerror or error}; {advice}") from None
