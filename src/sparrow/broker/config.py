"""Configuration of a broker: one frozen object, filled by the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Configuration of a broker. Times are in milliseconds, sizes in bytes."""

    node_id: int = 1
    """The number of this broker in the responses to clients (Kafka: node.id)."""
    default_partitions: int = 4
    """The number of partitions of a topic that is created without one."""
    auto_create_topics: bool = True
    """True if publishing or subscribing to a topic that does not exist creates it."""
    max_partitions_per_topic: int = 10_000
    max_partitions: int = 200_000
    """The limit of partitions of all topics together: each takes about a kilobyte of memory, so
    this stops a flood of new topics.
    """
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """Configuration values that topics of this broker have unless they set their own."""
    checkpoint_bytes: int = 64 << 20
    """The appended bytes after which a log writes a checkpoint: about the most that recovery after
    a crash scans.
    """
    retention_check_interval_ms: int = 30_000
    tick_interval_ms: int = 500
    """The interval at which groups check their clocks."""
    producer_expiration_ms: int = 86_400_000
    """The time after which a silent idempotent producer is forgotten (Kafka:
    producer.id.expiration.ms).
    """
    idempotency_window_ms: int = 86_400_000
    """The time for which the result of a publish with an idempotency key is remembered."""
    idempotency_max_keys: int = 1_000_000
    """The limit of keys of all principals together; each takes about 200 bytes of the meta
    store.
    """
    offsets_retention_ms: int = 7 * 86_400_000
    """The time after which offsets of a group without members are forgotten (Kafka:
    offsets.retention.minutes).
    """
    transaction_max_timeout_ms: int = 900_000
    """The longest time-out that a transactional producer may ask for (Kafka:
    transaction.max.timeout.ms).
    """
    transactional_id_expiration_ms: int = 7 * 86_400_000
    """The time after which an unused transactional id is forgotten (Kafka:
    transactional.id.expiration.ms).
    """
    group_initial_rebalance_delay_ms: int = 100
    """The time that a new classic group waits for more members (Kafka:
    group.initial.rebalance.delay.ms).
    """
    group_min_session_timeout_ms: int = 1_000
    """The least session timeout of a classic member (Kafka: group.min.session.timeout.ms)."""
    group_max_session_timeout_ms: int = 1_800_000
    """The largest session timeout of a classic member (Kafka: group.max.session.timeout.ms)."""
    group_max_members: int = 10_000
    """The limit of members of one classic group (Kafka: group.max.size)."""
    consumer_group_session_timeout_ms: int = 45_000
    """The default session timeout of consumer groups (KIP-848; Kafka:
    group.consumer.session.timeout.ms).
    """
    consumer_group_heartbeat_interval_ms: int = 5_000
    """Their default heartbeat interval (Kafka: group.consumer.heartbeat.interval.ms)."""
    share_group_session_timeout_ms: int = 45_000
    """The default session timeout of share groups (KIP-932; Kafka:
    group.share.session.timeout.ms).
    """
    share_group_heartbeat_interval_ms: int = 5_000
    """Their default heartbeat interval (Kafka: group.share.heartbeat.interval.ms)."""
    share_group_record_lock_duration_ms: int = 30_000
    """Their default for how long an acquired record is kept from other members (Kafka:
    group.share.record.lock.duration.ms).
    """
    share_group_delivery_count_limit: int = 5
    """Their default number of deliveries of a record (Kafka: group.share.delivery.count.limit)."""
    share_group_partition_max_record_locks: int = 2_000
    """Their default number of acquired records in a partition (Kafka:
    group.share.partition.max.record.locks).
    """
    share_group_max_members: int = 200
    """The limit of members of one share group (Kafka: group.share.max.size)."""
    share_group_max_groups: int = 2_000
    """The limit of share groups (Kafka 4.0: group.share.max.groups). They exist until they are
    deleted and take about 20 kilobytes each, so this stops a flood of names.
    """
    group_migration_policy: str = "bidirectional"
    """Selects which groups with members change between the classic and the consumer protocol:
    "disabled", "upgrade", "downgrade" or "bidirectional" (Kafka: group.consumer.migration.policy).
    """
    recovery_threads: int = 4
    scrub_bytes_per_s: int = 0
    """The rate at which closed segments are read to find bit rot; 0: they are not read."""
    super_users: frozenset[str] = frozenset()
    """Principals ("User:admin") who may do everything, independent of the access rules."""
    allow_unnamed_resources: bool | None = None
    """True if all principals may use topics, groups and transactional ids that no access rule names
    (Kafka: allow.everyone.if.no.acl.found). None: only while no login is configured.
    """
    audit_topic: str = ""
    """The internal topic that audit events are written to; "": there is none."""
    has_logins: bool = False
    """True if principals who are no users of the meta store can log in, by a token or a
    certificate.
    """
