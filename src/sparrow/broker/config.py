"""How a broker behaves as a whole: one frozen object, filled by the composition root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Times in milliseconds, sizes in bytes."""

    node_id: int = 1
    """The number of this broker among those that clients are told of (Kafka: node.id)."""
    default_partitions: int = 4
    """What a topic gets when nobody says how many."""
    auto_create_topics: bool = True
    """Whether publishing to or subscribing to a topic that does not exist creates it."""
    max_partitions_per_topic: int = 10_000
    max_partitions: int = 200_000
    """Of all topics together: each takes about a kilobyte of memory, so a flood of new topics ends here."""
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """Configuration values that topics of this broker have unless they set their own."""
    checkpoint_bytes: int = 64 << 20
    """After so many bytes appended a log writes a checkpoint: what recovery after a crash scans at most, about."""
    retention_check_interval_ms: int = 30_000
    tick_interval_ms: int = 500
    """How often groups look at their clocks."""
    producer_expiration_ms: int = 86_400_000
    """An idempotent producer that was silent for so long is forgotten (Kafka: producer.id.expiration.ms)."""
    idempotency_window_ms: int = 86_400_000
    """How long it is known what became of a publish with an idempotency key."""
    idempotency_max_keys: int = 1_000_000
    """Of all principals together; each takes about 200 bytes of the meta store."""
    offsets_retention_ms: int = 7 * 86_400_000
    """Offsets of a group without members are forgotten after this (Kafka: offsets.retention.minutes)."""
    transaction_max_timeout_ms: int = 900_000
    """The longest time-out that a transactional producer may ask for (Kafka: transaction.max.timeout.ms)."""
    transactional_id_expiration_ms: int = 7 * 86_400_000
    """A transactional id that nobody uses is forgotten after this (Kafka: transactional.id.expiration.ms)."""
    group_initial_rebalance_delay_ms: int = 100
    """How long a classic group that begins waits for more members (Kafka: group.initial.rebalance.delay.ms)."""
    group_min_session_timeout_ms: int = 1_000
    """(Kafka: group.min.session.timeout.ms)"""
    group_max_session_timeout_ms: int = 1_800_000
    """(Kafka: group.max.session.timeout.ms)"""
    group_max_members: int = 10_000
    """Of one classic group (Kafka: group.max.size)."""
    consumer_group_session_timeout_ms: int = 45_000
    """Of consumer groups (KIP-848) that do not set their own (Kafka: group.consumer.session.timeout.ms)."""
    consumer_group_heartbeat_interval_ms: int = 5_000
    """Likewise (Kafka: group.consumer.heartbeat.interval.ms)."""
    share_group_session_timeout_ms: int = 45_000
    """Of share groups (KIP-932) that do not set their own (Kafka: group.share.session.timeout.ms)."""
    share_group_heartbeat_interval_ms: int = 5_000
    """Likewise (Kafka: group.share.heartbeat.interval.ms)."""
    share_group_record_lock_duration_ms: int = 30_000
    """Likewise: how long an acquired record is kept from others (Kafka: group.share.record.lock.duration.ms)."""
    share_group_delivery_count_limit: int = 5
    """Likewise (Kafka: group.share.delivery.count.limit)."""
    share_group_partition_max_record_locks: int = 2_000
    """Likewise (Kafka: group.share.partition.max.record.locks)."""
    share_group_max_members: int = 200
    """Of one share group (Kafka: group.share.max.size)."""
    share_group_max_groups: int = 2_000
    """Share groups stay until they are deleted, each about 20 kilobytes, so a flood of names ends here (Kafka 4.0: group.share.max.groups)."""
    group_migration_policy: str = "bidirectional"
    """Whether groups with members change between the classic and the consumer protocol: "disabled", "upgrade", "downgrade" or
    "bidirectional" (Kafka: group.consumer.migration.policy)."""
    recovery_threads: int = 4
    super_users: frozenset[str] = frozenset()
    """Principals ("User:admin") who may do everything, whatever the access rules say."""
    allow_unnamed_resources: bool = True
    """Whether everybody may use what no access rule names (Kafka: allow.everyone.if.no.acl.found)."""
