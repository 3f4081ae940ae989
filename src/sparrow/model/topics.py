"""Topics, their partitions, configuration and offsets."""

from __future__ import annotations

from sparrow.model.result import Result


class PartitionDescription(Result, frozen=True):
    """A partition; its records have the offsets `start_offset` to `end_offset` - 1. Both are -1 if
    its log is damaged.
    """

    partition: int
    start_offset: int
    end_offset: int
    bytes: int


class ConfigEntry(Result, frozen=True):
    """One setting of a topic: its value, its default, and where the value was set (`source`:
    "topic", "broker" or "default").
    """

    name: str
    value: str
    default: str = ""
    source: str = ""
    unit: str = ""
    help: str = ""


class TopicListing(Result, frozen=True):
    """A topic in a list of HTTP."""

    name: str
    id: str
    partition_count: int


class TopicOverview(TopicListing, frozen=True):
    """A topic with its size, and what was counted since the broker started."""

    messages: int = 0
    """Offsets from its start to its end; compaction leaves holes."""
    bytes: int = 0
    messages_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    """Read by offset; deliveries of queues are counted there."""


class TopicDescription(TopicListing, frozen=True):
    """A topic. Lists of topics leave out expensive fields: `config`, and sometimes `partitions`."""

    partitions: list[PartitionDescription] = []
    config: list[ConfigEntry] = []


class PartitionOffset(Result, frozen=True, array_like=True):
    """An offset of a partition; `timestamp` (ms) is -1 unless a time was asked for."""

    partition: int
    offset: int
    timestamp: int = -1


class RemovedBatch(Result, frozen=True):
    """A batch whose records were removed."""

    base_offset: int
    last_offset: int
    record_count: int
    """Number of records by its header."""
    size_bytes: int
    reason: str
    """The reason why its records could not be read; "" if they could."""


class OncePublished(Result, frozen=True):
    """The position of a message that was published once for a text."""

    partition: int
    offset: int
    timestamp_ms: int
    is_repeat: bool
    """True if an earlier publish with the same text stored it, and this one stored nothing."""
