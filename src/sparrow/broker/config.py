"""How a broker behaves as a whole: one frozen object, filled by the composition root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Times in milliseconds, sizes in bytes."""

    default_partitions: int = 4
    """What a topic gets when nobody says how many."""
    auto_create_topics: bool = True
    """Whether publishing to or subscribing to a topic that does not exist creates it."""
    max_partitions_per_topic: int = 10_000
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """Configuration values that topics of this broker have unless they set their own."""
    checkpoint_bytes: int = 64 << 20
    """After so many bytes appended a log writes a checkpoint: what recovery after a crash scans at most, about."""
    retention_check_interval_ms: int = 30_000
    tick_interval_ms: int = 500
    """How often groups look at their clocks."""
    producer_expiration_ms: int = 86_400_000
    """An idempotent producer that was silent for so long is forgotten (Kafka: producer.id.expiration.ms)."""
    offsets_retention_ms: int = 7 * 86_400_000
    """Offsets of a group without members are forgotten after this (Kafka: offsets.retention.minutes)."""
    recovery_threads: int = 4
