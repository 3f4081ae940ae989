"""How far a stream is, as the JSON that Spark keeps in its checkpoint.

    {"orders": {"0": 23, "1": 40}, "$ids": {"orders": "5f0c…"}}

Without "$ids" it is what Spark's Kafka source keeps, and can be taken for `startingOffsets` there and here; a checkpoint of that source can be gone on with.
The ids tell a topic that was deleted and made again from the one that was read before; no topic's name has a "$".

Spark compares offsets by their text, so it is always written in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sparrow.base.errors import InvalidArgument
from sparrow.spark.source.snapshot import TopicPartition

_IDS: Final = "$ids"


@dataclass(frozen=True)
class StreamOffset:
    """The next offset to read of each partition, and the ids of the topics as far as they are known."""

    next: Mapping[TopicPartition, int]
    ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain maps, sorted."""
        found: dict[str, Any] = {}
        for (topic, partition), offset in sorted(self.next.items()):
            found.setdefault(topic, {})[str(partition)] = offset
        named = {topic: self.ids[topic] for topic in found if topic in self.ids}
        return {**found, _IDS: named} if named else found

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> StreamOffset:
        """What `to_json` wrote, or Spark's Kafka source.

        Raises:
            InvalidArgument: it is neither.
        """
        try:
            offsets = {
                TopicPartition(topic, int(partition)): int(offset)
                for topic, partitions in given.items()
                if topic != _IDS
                for partition, offset in partitions.items()
            }
            return cls(offsets, {str(topic): str(id_) for topic, id_ in given.get(_IDS, {}).items()})
        except (AttributeError, TypeError, ValueError):
            raise InvalidArgument(
                f"the checkpoint has an offset that is not of a topic: {str(given)[:200]}; this query had another source before, so give it a new checkpointLocation"
            ) from None
