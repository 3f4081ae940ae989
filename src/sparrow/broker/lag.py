"""How far a group is behind: committed offsets beside the ends of the partitions."""

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
    from sparrow.broker.groups.share.queues import Progress
    from sparrow.broker.reader import Key
    from sparrow.broker.topics import Topics


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group: `lag` counts the records from the committed offset (of a share group: from the start offset) to the end."""

    topic: str
    partition: int
    offset: int
    end_offset: int
    lag: int
    metadata: str


@dataclass(frozen=True, slots=True)
class GroupReport:
    """A group with its members and how far it is."""

    group: str
    state: GroupState
    epoch: int
    members: tuple[MemberDescription, ...]
    offsets: tuple[PartitionLag, ...]
    type: GroupType


def report(
    description: GroupDescription, committed: dict[Key, OffsetAndMetadata], topics: Topics
) -> GroupReport:
    """Put both together; offsets of partitions that are gone are left out."""
    lags = (_lag(key, committed[key], topics) for key in sorted(committed))
    return GroupReport(
        description.group,
        description.state,
        description.epoch,
        description.members,
        tuple(lag for lag in lags if lag is not None),
        description.type,
    )


def lags_of_share(progress: Mapping[Key, Progress]) -> tuple[PartitionLag, ...]:
    """How far a share group is: the offset is the one before which all is finished, the lag what is not finished behind it."""
    return tuple(
        PartitionLag(topic, number, each.start_offset, each.end_offset, each.lag, "")
        for (topic, number), each in sorted(progress.items())
    )


def _lag(key: Key, committed: OffsetAndMetadata, topics: Topics) -> PartitionLag | None:
    name, index = key
    topic = topics.find(name)
    if topic is None or index >= len(topic.partitions):
        return None
    partition = topic.partitions[index]
    end = partition.visible_end
    # Records that retention took away are nothing to catch up with.
    behind = end - max(committed.offset, partition.start_offset)
    return PartitionLag(name, index, committed.offset, end, max(0, behind), committed.metadata)
