"""The broker of a server: its stores opened in the data directory, its rules taken from the configuration."""

from __future__ import annotations

import logging
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from sparrow.broker.access.acls import AclFilter
from sparrow.broker.access.authz import SYSTEM

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker
    from sparrow.server.config import ServerConfig

log = logging.getLogger("sparrow.server")

META_FILE = "meta.db"


async def start_broker(config: ServerConfig) -> Broker:
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
