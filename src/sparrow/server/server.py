"""A running broker with its doors, put together in the order in which the parts depend on each other.

Start: the data directory, the broker, what the configuration declares, the doors, the word that it is ready.
Stop: the doors drain (accept nobody, finish what was promised, tell the clients), then the broker closes its data. The stop is
bounded in time; what it would cut short is not acknowledged, so nothing that was promised depends on it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidConfig
from sparrow.broker.access.acls import AclFilter
from sparrow.broker.access.authz import SYSTEM
from sparrow.server.access import Access
from sparrow.server.bootstrap.apply import apply
from sparrow.server.config import kafka_listeners, seed_ports
from sparrow.server.listeners import OFF
from sparrow.server.ready import (
    Ready,
    banner,
    bootstrap_of,
    http_url_of,
    remove_ready_file,
    url_of,
    write_ready_file,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from sparrow.broker.broker import Broker
    from sparrow.frontends.http import HttpFrontend
    from sparrow.frontends.kafka import KafkaFrontend
    from sparrow.frontends.native import NativeFrontend
    from sparrow.frontends.seeds import SeedFrontend
    from sparrow.frontends.webhook import WebhookFrontend
    from sparrow.server.config import ServerConfig
    from sparrow.server.listeners import ListenerDeclaration
    from sparrow.server.logins import Logins

log = logging.getLogger("sparrow.server")

META_FILE = "meta.db"
CLOSE_TIMEOUT_S = 20.0
"""How long the broker may take to sync and close its logs once nobody is connected."""


class Server:
    """One broker and its doors. Call everything on one event loop.

    Raises (from the constructor):
        InvalidConfig: a public address without authentication, or a file of tokens, users or certificates that cannot be used.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self._access = Access(config)
        self._broker: Broker | None = None
        self._native: NativeFrontend | None = None
        self._kafka: KafkaFrontend | None = None
        self._http: HttpFrontend | None = None
        self._webhook: WebhookFrontend | None = None
        self._seeds: SeedFrontend | None = None
        self.ready: Ready | None = None

    async def start(self) -> Ready:
        """Everything up, or nothing: when it raises, what was started is closed again.

        Raises:
            DataDirectoryError: the data directory is in use, unreadable or of a newer format.
            InvalidConfig: the address cannot be listened on, or what is declared is impossible.
        """
        try:
            return await self._start()
        except BaseException:
            await self.stop(0)
            raise

    async def _start(self) -> Ready:
        config = self.config
        self._broker = await _start_broker(config)
        await apply(self._broker, config)
        logins = await self._access.open(self._broker)
        self._native = _make_native_door(config, self._broker, logins)
        port = await _listen(self._native, config.native_host, config.native_port, self._access.native_tls)
        listeners = kafka_listeners(config)
        kafka = ""
        if listeners:
            self._kafka = _make_kafka_door(config, self._broker, logins)
            ports = [await _listen_for_kafka(self._kafka, each, self._access) for each in listeners]
            kafka = bootstrap_of(listeners[0].host, ports[0])
        self._webhook = _make_webhook_door(config, self._broker)
        await self._webhook.start()
        http = await self._start_http(config, self._broker, logins) if config.http_port != OFF else ""
        seeds = await self._start_seeds(config, self._broker) if seed_ports(config) else {}
        has_tls = self._access.native_tls is not None
        self.ready = _ready(config, port, kafka, http=http, seeds=seeds, has_tls=has_tls)
        if config.ready_file:
            write_ready_file(config.ready_file, self.ready)
        return self.ready

    async def _start_http(self, config: ServerConfig, broker: Broker, logins: Logins) -> str:
        tls = self._access.http_tls
        self._http = _make_http_door(config, broker, logins.requiring(is_required=self._access.http_login))
        port = await _listen_for_http(self._http, config.http_host, config.http_port, tls)
        return http_url_of(config.http_host, port, has_tls=tls is not None)

    async def _start_seeds(self, config: ServerConfig, broker: Broker) -> dict[str, str]:
        self._seeds = _make_seed_doors(config, broker)
        ports = await _listen_for_seeds(self._seeds, config.seeds_host)
        return {name: bootstrap_of(config.seeds_host, port) for name, port in ports.items()}

    def banner(self) -> str:
        """What to tell a person after the start."""
        assert self.ready is not None
        assert self._broker is not None
        topics = len(self._broker.topics)
        return banner(
            self.ready,
            topics=topics,
            free_bytes=_free_bytes(self.ready.data_dir),
            access=self._access.describe(self._broker),
        )

    async def stop(self, drain_timeout_s: float | None = None) -> None:
        """Drain the doors, close the broker. May be called at any time, also twice.

        Raises:
            StorageFailed, TimeoutError: the data could not be closed cleanly; the next start recovers it.
        """
        timeout_s = self.config.drain_timeout_ms / 1000 if drain_timeout_s is None else drain_timeout_s
        doors = [self._native, self._kafka, self._http, self._webhook, self._seeds]
        self._native = self._kafka = self._http = self._webhook = self._seeds = None
        broker, self._broker = self._broker, None
        try:
            async with asyncio.TaskGroup() as draining:
                for door in doors:
                    if door is not None:
                        draining.create_task(door.drain(timeout_s))
        finally:
            try:
                if broker is not None:
                    await asyncio.wait_for(broker.close(), CLOSE_TIMEOUT_S)
            finally:
                if self.ready is not None and self.config.ready_file:
                    remove_ready_file(self.config.ready_file)


async def _start_broker(config: ServerConfig) -> Broker:
    """A broker over the data directory; whatever fails on the way gives the directory back."""
    from sparrow.broker.broker import Broker
    from sparrow.broker.config import BrokerConfig
    from sparrow.meta.sqlite import SqliteMetaStore
    from sparrow.storage.local import LocalLogStore
    from sparrow.storage.options import StorageOptions

    storage = StorageOptions(flush_interval_ms=config.flush_interval_ms, reserve_bytes=config.reserve_bytes)
    rules = BrokerConfig(
        node_id=config.kafka_node_id,
        default_partitions=config.default_partitions,
        max_partitions=config.max_partitions,
        auto_create_topics=config.auto_create_topics,
        topic_defaults=config.topic_defaults,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_max_members=config.group_max_members,
        consumer_group_heartbeat_interval_ms=config.group_heartbeat_interval_ms,
        share_group_session_timeout_ms=config.group_session_timeout_ms,
        share_group_heartbeat_interval_ms=config.group_heartbeat_interval_ms,
        share_group_record_lock_duration_ms=config.share_record_lock_duration_ms,
        share_group_delivery_count_limit=config.share_delivery_count_limit,
        share_group_partition_max_record_locks=config.share_max_record_locks,
        share_group_max_members=config.share_max_members,
        share_group_max_groups=config.share_max_groups,
        consumer_group_session_timeout_ms=config.group_session_timeout_ms,
        group_migration_policy=config.group_migration,
        offsets_retention_ms=config.offsets_retention_ms,
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        producer_expiration_ms=config.producer_expiration_ms,
        super_users=config.super_users,
        allow_unnamed_resources=config.acl_default == "allow",
    )
    async with AsyncExitStack() as opening:
        logs = LocalLogStore(config.data_dir, options=storage)
        opening.push_async_callback(logs.close)
        meta = SqliteMetaStore(os.path.join(config.data_dir, META_FILE))
        opening.push_async_callback(meta.close)
        broker = Broker(config=rules, log_store=logs, meta_store=meta)
        await broker.start()
        opening.pop_all()  # from here on the broker closes its stores
    if (
        config.acl_default == "deny"
        and not config.super_users
        and not broker.acls.describe(AclFilter(), principal=SYSTEM)
    ):
        log.warning(
            "acl.default is deny, and there are neither super_users nor access rules: nobody may do anything. Name a super user"
            " who can make rules"
        )
    return broker


def _make_native_door(config: ServerConfig, broker: Broker, logins: Logins) -> NativeFrontend:
    from sparrow.frontends.native import NativeFrontend, NativeLimits

    limits = NativeLimits(
        max_frame_bytes=config.max_frame_bytes,
        max_connections=config.max_connections,
        receive_budget_bytes=config.receive_budget_bytes,
        idle_timeout_ms=config.idle_timeout_ms,
    )
    return NativeFrontend(
        broker, authenticator=logins, limits=limits, logger=logging.getLogger("sparrow.native")
    )


def _make_kafka_door(config: ServerConfig, broker: Broker, logins: Logins) -> KafkaFrontend:
    from sparrow.frontends.kafka import KafkaFrontend, KafkaLimits

    limits = KafkaLimits(
        max_connections=config.max_connections,
        receive_budget_bytes=config.receive_budget_bytes,
        max_session_ms=config.kafka_max_session_ms,
        max_replication_factor=config.kafka_max_replication_factor,
    )
    return KafkaFrontend(broker, limits=limits, logins=logins)


def _make_http_door(config: ServerConfig, broker: Broker, logins: Logins) -> HttpFrontend:
    from sparrow.frontends.http import HttpFrontend, HttpLimits

    limits = HttpLimits(
        max_connections=config.max_connections,
        max_body_bytes=config.http_max_body_bytes,
        body_timeout_ms=config.http_body_timeout_ms,
        receive_budget_bytes=config.receive_budget_bytes,
        cors_origins=config.http_cors_origins,
        idempotency_window_ms=config.http_idempotency_window_ms,
    )
    return HttpFrontend(broker, logins=logins, limits=limits)


async def _listen_for_http(door: HttpFrontend, host: str, port: int, tls: ssl.SSLContext | None) -> int:
    try:
        return await door.start(host, port, tls=tls)
    except OSError as error:
        raise InvalidConfig(
            f"cannot listen on {host}:{port} for HTTP: {error.strerror or error};"
            f" {_HTTP_ADVICE.get(error.errno or 0, 'give another http.host or http.port')}"
        ) from None


_HTTP_ADVICE = {
    errno.EADDRINUSE: "another program uses it: stop that, or give another http.port, 0 for a free one, or off",
    errno.EADDRNOTAVAIL: "this machine has no such address; http.host is one of its own, or 0.0.0.0 for all",
    errno.EACCES: "ports below 1024 need privileges; give another http.port",
}


def _make_webhook_door(config: ServerConfig, broker: Broker) -> WebhookFrontend:
    from sparrow.frontends.webhook import WebhookFrontend, WebhookSettings

    settings = WebhookSettings(
        allow=config.webhooks_allow,
        max_connections=config.webhooks_max_connections,
        ca_path=config.webhooks_ca,
    )
    return WebhookFrontend(broker, settings=settings)


def _make_seed_doors(config: ServerConfig, broker: Broker) -> SeedFrontend:
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
    return SeedFrontend(broker, settings)


async def _listen_for_seeds(doors: SeedFrontend, host: str) -> Mapping[str, int]:
    try:
        return await doors.start()
    except OSError as error:
        raise InvalidConfig(
            f"cannot listen on {host} for clients of {error.filename}: {error.strerror or error}; give another"
            f" seeds.{error.filename}.port (docs/configuration.md), 0 for a free one, or off"
        ) from None


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
    try:
        return await door.start(listener)
    except OSError as error:
        raise InvalidConfig(
            f"cannot listen on {declared.host}:{declared.port} for Kafka clients ({declared.name}): {error.strerror or error};"
            f" {_KAFKA_ADVICE.get(error.errno or 0, 'give another kafka.host or kafka.port')}"
        ) from None


_KAFKA_ADVICE = {
    errno.EADDRINUSE: "another program uses it (a Kafka broker?): stop that, or give another kafka.port, 0 for a free one, or off",
    errno.EADDRNOTAVAIL: "this machine has no such address; kafka.host is one of its own, or 0.0.0.0 for all",
    errno.EACCES: "ports below 1024 need privileges; give another kafka.port",
}
_OTHER_ADVICE = "give another native.host or native.port"
_LISTEN_ADVICE = {
    errno.EADDRINUSE: "another program uses it: stop that, or give another native.port, or 0 for a free one",
    errno.EADDRNOTAVAIL: "this machine has no such address; native.host is one of its own, or 0.0.0.0 for all",
    errno.EACCES: "ports below 1024 need privileges; give another native.port",
}


async def _listen(door: NativeFrontend, host: str, port: int, tls: ssl.SSLContext | None) -> int:
    try:
        return await door.start(host, port, tls=tls)
    except OSError as error:
        raise InvalidConfig(
            f"cannot listen on {host}:{port}: {error.strerror or error}; {_LISTEN_ADVICE.get(error.errno or 0, _OTHER_ADVICE)}"
        ) from None


def _ready(
    config: ServerConfig, port: int, kafka: str, *, http: str, seeds: dict[str, str], has_tls: bool
) -> Ready:
    from sparrow.base.version import version

    host = config.native_host
    data_dir = os.path.abspath(config.data_dir)
    url = url_of(host, port, has_tls=has_tls)
    return Ready(os.getpid(), version(), url, host, port, data_dir, kafka, http, seeds)


def _free_bytes(path: str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
