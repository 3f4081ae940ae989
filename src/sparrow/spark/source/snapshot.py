"""The readable offsets of topics, as the broker reported them at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}"


class Extent(NamedTuple):
    """The offsets of a partition that can be read: from `start` to before `end`."""

    start: int
    end: int


@dataclass(frozen=True)
class TopicState:
    id: str
    """Id of the topic; another id with the same name is another topic."""
    partitions: Mapping[int, Extent]


Snapshot = Mapping[str, TopicState]
"""Topics by name; topics that do not exist are not in it."""


def extents(snapshot: Snapshot) -> dict[TopicPartition, Extent]:
    return {
        TopicPartition(topic, partition): extent
        for topic, state in sorted(snapshot.items())
        for partition, extent in sorted(state.partitions.items())
    }


def ids(snapshot: Snapshot) -> dict[str, str]:
    return {topic: state.id for topic, state in snapshot.items()}
