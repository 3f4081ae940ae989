"""The broker of a server: its stores in the data directory, its rules from the configuration."""

from __future__ import annotations

import logging
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from sparrow.server.data_directory import directory_warnings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.broker.broker import Broker
    from sparrow.meta.store import MetaStore
    from sparrow.server.config import ServerConfig
    from sparrow.storage.options import StorageOptions
    from sparrow.storage.store import LogStore

    OpenStores = Callable[[ServerConfig, AsyncExitStack], Awaitable[tuple[LogStore, MetaStore]]]
    """Opens the stores of a broker; the exit stack closes them."""

log = logging.getLogger("sparrow.server")

META_FILE = "meta.db"


async def open_local_stores(config: ServerConfig, opening: AsyncExitStack) -> tuple[LogStore, MetaStore]:
    """Open the stores in the data directory. The log store is first: it creates the directory and
    holds its lock.
    """
    from sparrow.meta.sqlite import SqliteMetaStore
    from sparrow.storage.filesystem import LocalFileSystem
    from sparrow.storage.local import LocalLogStore

    for warning in directory_warnings(config.data_dir, config.data_mode):
        log.warning(warning)
    logs = LocalLogStore(
        config.data_dir, fs=LocalFileSystem(config.data_mode), options=storage_options(config)
    )
    opening.push_async_callback(logs.close)
    meta = SqliteMetaStore(os.path.join(config.data_dir, META_FILE))
    opening.push_async_callback(meta.close)
    return logs, meta


def storage_options(config: ServerConfig) -> StorageOptions:
    """Return the storage options of the configuration."""
    from sparrow.storage.options import StorageOptions

    return StorageOptions(flush_interval_ms=config.flush_interval_ms, reserve_bytes=config.reserve_bytes)


async def start_broker(
    config: ServerConfig, open_stores: OpenStores = open_local_stores, *, has_logins: bool = False
) -> Broker:
    """Return a broker on its stores; a failure on the way closes them again.

    Args:
        has_logins: clients can log in by a token or a certificate, or users are configured.
    """
    from sparrow.broker.broker import Broker
    from sparrow.broker.config import BrokerConfig

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
        scrub_bytes_per_s=config.log_scrub_rate,
        super_users=config.super_users,
        allow_unnamed_resources={"allow": True, "deny": False}.get(config.acl_default),
        audit_topic=config.audit_topic,
        has_logins=has_logins,
    )
    async with AsyncExitStack() as opening:
        logs, meta = await open_stores(config, opening)
        broker = Broker(config=rules, log_store=logs, meta_store=meta)
        await broker.start()
        opening.pop_all()  # from here on the broker closes its stores
    return broker
