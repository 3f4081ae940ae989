"""The segments of one log in a row, and the start and end of the log. No file is touched here.

The list is replaced, never changed, so that a thread may walk along the one it took. Belongs to the
event loop.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from typing import TYPE_CHECKING

from sparrow.storage.compaction import Candidate
from sparrow.storage.retention import SegmentInfo

if TYPE_CHECKING:
    from sparrow.storage.segment import Segment


class SegmentRow:
    """The segments of one log, oldest first; the last one is active."""

    __slots__ = ("end", "segments", "start")

    def __init__(self, segments: list[Segment], start: int, end: int) -> None:
        self.segments = segments
        self.start = start
        self.end = end

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    def number_of(self, offset: int) -> int:
        """Return the number of the segment that contains `offset`, or would."""
        segments = self.segments
        if not segments or offset >= segments[-1].base_offset:
            return max(len(segments) - 1, 0)
        return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)

    # ── changes ──

    def add(self, segment: Segment) -> None:
        """Add `segment` as the active one."""
        self.segments = [*self.segments, segment]

    def drop_oldest(self, count: int, start: int) -> list[Segment]:
        """Move the log's start to `start` and remove its first `count` segments. Return them."""
        gone, self.segments = self.segments[:count], self.segments[count:]
        self.start = max(self.start, start)
        return _retired(gone)

    def replace(self, group: list[Segment], segment: Segment) -> None:
        """Put `segment` in the place of the neighbours in `group`."""
        first = self.segments.index(group[0])
        self.segments = [*self.segments[:first], segment, *self.segments[first + len(group) :]]
        _retired(group)

    # ── what the rules of housekeeping look at ──

    def infos(self) -> list[SegmentInfo]:
        """Return the properties of all segments for retention."""
        ends = [*(segment.base_offset for segment in self.segments[1:]), self.end]
        return [
            SegmentInfo(
                each.base_offset,
                end,
                each.size,
                each.max_timestamp if each.max_timestamp >= 0 else each.created_ms,
            )
            for each, end in zip(self.segments, ends, strict=True)
        ]

    def candidates(self, settled: int) -> list[Candidate]:
        """Return the closed segments before offset `settled`, for compaction."""
        return [
            Candidate(
                each.base_offset,
                following.base_offset,
                each.size,
                each.max_timestamp,
                each.first_timestamp if each.first_timestamp >= 0 else each.max_timestamp,
            )
            for each, following in itertools.pairwise(self.segments)
            if following.base_offset <= settled
        ]


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _retired(segments: list[Segment]) -> list[Segment]:
    for segment in segments:
        segment.retire()
    return segments
