"""Lag of groups: committed offsets compared with the ends of the partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.broker.groups.description import (
        GroupDescription,
        GroupState,
        GroupType,
        MemberDescription,
    )
    from sparrow.broker.groups.offsets import OffsetAndMetadata
    from sparrow.broker.groups.share.queues import GroupProgress
    from sparrow.broker.topics.registry import TopicRegistry
    from sparrow.records.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group: `lag` counts the records from the committed offset (of a share
    group: from the start offset) to the end.
    """

    topic: str
    partition: int
    offset: int
    end_offset: int
    lag: int
    metadata: str


@dataclass(frozen=True, slots=True)
class GroupReport:
    """A group with its members and its lag."""

    group: str
    state: GroupState
    epoch: int
    members: tuple[MemberDescription, ...]
    offsets: tuple[PartitionLag, ...]
    type: GroupType


def report(
    description: GroupDescription, committed: dict[TopicPartition, OffsetAndMetadata], topics: TopicRegistry
) -> GroupReport:
    """Return the report of a group; offsets of deleted partitions are left out."""
    lags = (_lag(key, committed[key], topics) for key in sorted(committed))
    return GroupReport(
        description.group,
        description.state,
        description.epoch,
        description.members,
        tuple(lag for lag in lags if lag is not None),
        description.type,
    )


def lags_of_share(progress: Mapping[TopicPartition, GroupProgress]) -> tuple[PartitionLag, ...]:
    """Return the lag of a share group: the offset is the one before which all records are finished,
    the lag is the number of unfinished records behind it.
    """
    return tuple(
        PartitionLag(topic, number, each.start_offset, each.end_offset, each.lag, "")
        for (topic, number), each in sorted(progress.items())
    )


def _lag(key: TopicPartition, committed: OffsetAndMetadata, topics: TopicRegistry) -> PartitionLag | None:
    name, index = key
    topic = topics.find(name)
    if topic is None or index >= len(topic.partitions):
        return None
    partition = topic.partitions[index]
    if partition.failure is not None:  # closed: the lag is unknown
        return PartitionLag(name, index, committed.offset, -1, 0, committed.metadata)
    end = partition.visible_end
    # Records that retention deleted are not counted.
    behind = end - max(committed.offset, partition.start_offset)
    return PartitionLag(name, index, committed.offset, end, max(0, behind), committed.metadata)
