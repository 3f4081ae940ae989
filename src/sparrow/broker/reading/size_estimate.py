"""Estimated sizes of parts of a topic, by the logs' sparse indexes: for readers that cut a topic
into parts of about equal size.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.topics.registry import Topic

MAX_ESTIMATES: Final = 10_000
"""Limit of the ranges or points of one call."""
_AT_ONCE: Final = 64
"""Ranges or points that are processed before the loop may do something else."""


async def estimate_sizes(topic: Topic, ranges: Sequence[tuple[int, int, int]]) -> list[int]:
    """Estimate how many bytes lie in ranges of offsets, each (partition, first, behind the last).

    Raises:
        UnknownPartition
        InvalidArgument: there are too many.
    """
    _check(ranges)
    sizes = []
    for count, (partition, start, end) in enumerate(ranges, 1):
        sizes.append(await (await topic.partition(partition).opened()).estimate_size(start, end))
        if count % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return sizes


async def estimate_offsets(topic: Topic, points: Sequence[tuple[int, int, int]]) -> list[int]:
    """Estimate the offset that lies `max_bytes` behind each point (partition, offset, max_bytes);
    see `PartitionLog.estimate_offset`.

    Raises:
        UnknownPartition, OffsetOutOfRange
        InvalidArgument: there are too many.
    """
    _check(points)
    offsets = []
    for count, (partition, start, max_bytes) in enumerate(points, 1):
        offsets.append(await (await topic.partition(partition).opened()).estimate_offset(start, max_bytes))
        if count % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return offsets


def _check(points: Sequence[tuple[int, int, int]]) -> None:
    if len(points) > MAX_ESTIMATES:
        raise InvalidArgument(
            f"{len(points)} ranges are too many to estimate in one call; ask for at most {MAX_ESTIMATES}"
        )
    if any(start < 0 or last < 0 for _, start, last in points):
        raise InvalidArgument("offsets and sizes begin at 0; a negative one was asked for")
