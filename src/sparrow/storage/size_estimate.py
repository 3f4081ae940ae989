"""Estimates of the bytes between two offsets of a segment, by the sparse index alone.

An index entry is the last offset of a batch and the position of that batch. Between two entries the
bytes are assumed to be spread evenly over the offsets; the ends of a segment are exact. So an
estimate is wrong by at most an entry's distance at either end: the index's interval and a batch. No
record is read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrow.storage.index import SegmentIndex


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The visible part of a segment."""

    index: SegmentIndex
    size_bytes: int
    end: int
    """The first offset behind it."""


def estimate_position(extent: LogExtent, offset: int) -> int:
    """Estimate how many bytes of the segment lie before `offset`."""
    index = extent.index
    base = index.base_offset
    if offset <= base:
        return 0
    if offset >= extent.end:
        return extent.size_bytes
    number = bisect_right(index.offsets, offset - base)
    low, low_at = (index.offsets[number - 1], index.positions[number - 1]) if number else (0, 0)
    high, high_at = (
        (index.offsets[number], index.positions[number])
        if number < len(index.positions)
        else (extent.end - base, extent.size_bytes)
    )
    return low_at + (high_at - low_at) * (offset - base - low) // max(high - low, 1)


def estimate_offset(extent: LogExtent, start: int, max_bytes: int) -> int:
    """Estimate the offset that is `max_bytes` behind `start`.

    The result is the end of the last batch in the index that fits, at least the first such end
    behind `start`; the segment's end if all of it fits.
    """
    index = extent.index
    base, positions = index.base_offset, index.positions
    begin = positions[found - 1] if (found := bisect_right(index.offsets, start - base)) else 0
    if extent.size_bytes - begin <= max_bytes:
        return extent.end
    # The batch of entry i ends before the batch of entry i + 1 begins.
    fitting = bisect_right(positions, begin + max_bytes) - 2
    number = max(fitting, bisect_left(index.offsets, start - base))
    return base + index.offsets[number] + 1 if number < len(positions) else extent.end
