"""Descriptions of topics and their partitions."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrow.broker.configs.topic import ConfigEntry

NO_TOPIC_ID = uuid.UUID(int=0)
"""The id of a topic that does not exist."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Description of one partition; offsets are -1 if it is closed (`LogDamaged`)."""

    partition: int
    start_offset: int
    end_offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """Description of one topic. Lists of topics leave `partitions` and `config` empty."""

    name: str
    id: uuid.UUID
    partition_count: int
    partitions: list[PartitionInfo] = field(default_factory=list)
    config: list[ConfigEntry] = field(default_factory=list)

    is_internal: bool = False
    """True for Kafka's internal topics and the audit topic."""
