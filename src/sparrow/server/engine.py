"""The broker of a server: its stores opened in the data directory, its rules taken from the configuration."""

from __future__ import annotations

import logging
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from sparrow.broker.access.acls import AclFilter
from sparrow.broker.access.authz import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.broker.broker import Broker
    from sparrow.meta.store import MetaStore
    from sparrow.server.config import ServerConfig
    from sparrow.storage.options import StorageOptions
    from sparrow.storage.store import LogStore

    OpenStores = Callable[[ServerConfig, AsyncExitStack], Awaitable[tuple[LogStore, MetaStore]]]
    """Opens what a broker keeps its data in; closing is left to the stack."""

log = logging.getLogger("sparrow.server")

META_FILE = "meta.db"


async def open_local_stores(config: ServerConfig, opening: AsyncExitStack) -> tuple[LogStore, MetaStore]:
    """Those in the data directory. The log store comes first: it makes the directory and holds its lock."""
    from sparrow.meta.sqlite import SqliteMetaStore
    from sparrow.storage.local import LocalLogStore

    logs = LocalLogStore(config.data_dir, options=storage_options(config))
    opening.push_async_callback(logs.close)
    meta = SqliteMetaStore(os.path.join(config.data_dir, META_FILE))
    opening.push_async_callback(meta.close)
    return logs, meta


def storage_options(config: ServerConfig) -> StorageOptions:
    """What the configuration says of the logs on a disk."""
    from sparrow.storage.options import StorageOptions

    return StorageOptions(flush_interval_ms=config.flush_interval_ms, reserve_bytes=config.reserve_bytes)


async def start_broker(config: ServerConfig, open_stores: OpenStores = open_local_stores) -> Broker:
    """A broker over its stores; whatever fails on the way closes them again."""
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
        super_users=config.super_users,
        allow_unnamed_resources=config.acl_default == "allow",
    )
    async with AsyncExitStack() as opening:
        logs, meta = await open_stores(config, opening)
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
