"""The position of a stream, as the JSON that Spark keeps in its checkpoint.

    {"orders": {"0": 23, "1": 40}, "$ids": {"orders": "5f0c…"}}

Without "$ids" it is what Spark's Kafka source keeps, and can be used for `startingOffsets` there
and here; a checkpoint of that source can be continued. The ids distinguish a topic that was deleted
and created again from the one that was read before; no topic's name has a "$".

The end of a stream's first batch also says in "$start" where that batch began. Spark does not keep
that: for a first batch that was planned and not finished it asks a new reader for it, and the end
of a topic has moved by then.

Spark compares offsets by their text, so they are always written in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparrow.base.errors import InvalidArgument
from sparrow.spark.source.snapshot import TopicPartition

_IDS, _START = "$ids", "$start"


@dataclass(frozen=True)
class StreamOffset:
    """The next offset to read of each partition, and the ids of the topics as far as they are
    known.
    """

    next: Mapping[TopicPartition, int]
    ids: Mapping[str, str] = field(default_factory=dict)
    start: Mapping[TopicPartition, int] | None = None
    """Start of the batch that ends here; None: the end of the one before."""

    def is_at(self, other: StreamOffset) -> bool:
        """Return True if the same offsets are read next."""
        return self.next == other.next and self.ids == other.ids

    def to_json(self) -> dict[str, Any]:
        """Return the text of plain maps, sorted."""
        found = _by_topic(self.next)
        named = {topic: self.ids[topic] for topic in found if topic in self.ids}
        if named:
            found[_IDS] = named
        if self.start is not None:
            found[_START] = _by_topic(self.start)
        return found

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> StreamOffset:
        """Parse the text of `to_json`, or of Spark's Kafka source.

        Raises:
            InvalidArgument: it is neither.
        """
        try:
            ids = {str(topic): str(id_) for topic, id_ in given.get(_IDS, {}).items()}
            return cls(_by_partition(given), ids, _by_partition(given[_START]) if _START in given else None)
        except (AttributeError, TypeError, ValueError):
            raise InvalidArgument(
                f"the checkpoint has an offset that is not of a topic: {str(given)[:200]}; this "
                "query had another source before, so give it a new checkpointLocation"
            ) from None


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _by_partition(given: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in given.items()
        if not topic.startswith("$")
        for partition, offset in partitions.items()
    }
