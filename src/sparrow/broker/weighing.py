"""How many bytes lie where in a topic, by the logs' sparse indexes: for readers that cut a topic into parts of about equal size."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.topics import Topic

MAX_PLACES: Final = 10_000
"""Of one call."""
_AT_ONCE: Final = 64
"""Places that are looked at before the loop may do something else."""


async def weigh(topic: Topic, ranges: Sequence[tuple[int, int, int]]) -> list[int]:
    """About how many bytes lie in ranges of offsets, each (partition, first, behind the last).

    Raises:
        UnknownPartition
        InvalidArgument: there are too many.
    """
    _check(ranges)
    weights = []
    for count, (partition, start, end) in enumerate(ranges, 1):
        weights.append(await topic.partition(partition).log.weigh(start, end))
        if count % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return weights


async def reach(topic: Topic, points: Sequence[tuple[int, int, int]]) -> list[int]:
    """How far bytes reach from offsets on: an offset for each (partition, offset, bytes); see `PartitionLog.reach`.

    Raises:
        UnknownPartition, OffsetOutOfRange
        InvalidArgument: there are too many.
    """
    _check(points)
    offsets = []
    for count, (partition, start, max_bytes) in enumerate(points, 1):
        offsets.append(await topic.partition(partition).log.reach(start, max_bytes))
        if count % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return offsets


def _check(places: Sequence[tuple[int, int, int]]) -> None:
    if len(places) > MAX_PLACES:
        raise InvalidArgument(
            f"{len(places)} places are too many to look at in one call; ask for at most {MAX_PLACES}"
        )
    if any(start < 0 or last < 0 for _, start, last in places):
        raise InvalidArgument("offsets and sizes begin at 0; a negative one was asked for")
