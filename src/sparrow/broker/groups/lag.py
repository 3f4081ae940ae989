"""Lag of groups: committed offsets compared with the ends of the partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparrow.model.groups import GroupDescription, GroupPosition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.broker.groups.offsets import OffsetAndMetadata
    from sparrow.broker.groups.share.queues import GroupProgress
    from sparrow.broker.topics.registry import TopicRegistry
    from sparrow.records.topic_partition import TopicPartition


def report(
    description: GroupDescription, committed: dict[TopicPartition, OffsetAndMetadata], topics: TopicRegistry
) -> GroupDescription:
    """Return the report of a group; offsets of deleted partitions are left out."""
    lags = (_lag(key, committed[key], topics) for key in sorted(committed))
    return replace(description, offsets=[lag for lag in lags if lag is not None])


def lags_of_share(progress: Mapping[TopicPartition, GroupProgress]) -> list[GroupPosition]:
    """Return the lag of a share group: the offset is the one before which all records are finished,
    the lag is the number of unfinished records behind it.
    """
    return [
        GroupPosition(topic, number, each.start_offset, each.end_offset, each.lag, "")
        for (topic, number), each in sorted(progress.items())
    ]


def _lag(key: TopicPartition, committed: OffsetAndMetadata, topics: TopicRegistry) -> GroupPosition | None:
    name, index = key
    topic = topics.find(name)
    if topic is None or index >= len(topic.partitions):
        return None
    partition = topic.partitions[index]
    if partition.failure is not None:  # closed: the lag is unknown
        return GroupPosition(name, index, committed.offset, -1, 0, committed.metadata)
    end = partition.visible_end
    # Records that retention deleted are not counted.
    behind = end - max(committed.offset, partition.start_offset)
    return GroupPosition(name, index, committed.offset, end, max(0, behind), committed.metadata)
