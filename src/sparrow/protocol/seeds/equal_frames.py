"""Search for runs of frames that differ in their content only, without visiting each: a publisher
that sends one message after the other to one topic writes frames of one length whose heads are
equal but for a few bytes.

The bytes at one place of all frames are a slice with a step, so C compares a column at a time: some
30 ns for each frame instead of a microsecond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def count_equal(data: bytes, start: int, size: int, places: Iterable[int]) -> int:
    """Return how many whole frames of `size` bytes follow each other from `start` on whose bytes at
    these places equal those of the first.

    Args:
        places: offsets within a frame, below `size`; the search ends at the first byte that
            differs.
    """
    count = (len(data) - start) // size
    for place in places:
        if count < 2:
            break
        column = data[start + place : start + count * size : size]
        count -= len(column.lstrip(column[:1]))
    return max(count, 0)
