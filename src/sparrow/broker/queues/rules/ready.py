"""Records that may be leased now: ranges by priority and source.

Order of delivery: the highest priority first; within it the sources in rotation, a range each;
within a source the lowest offset first, so that a record that came back is in front of newer ones.

A range takes 16 bytes, whatever its length. Pushing and popping cost the same for one range or a
million.

Pure. Not thread-safe.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Container, Iterator
from typing import Final

from sparrow.broker.queues.maps.sorted_pairs import SortedPairs

LEVELS: Final = 10
"""Number of priorities, 0 … 9; 9 goes first."""


class ReadyRanges:
    """Half-open ranges of offsets at a level (0 … 9) of a source (a small integer). Ranges of a
    source must not overlap.
    """

    __slots__ = ("_levels", "_used_levels", "records")

    def __init__(self) -> None:
        self._levels: list[OrderedDict[int, _SourceQueue]] = [OrderedDict() for _ in range(LEVELS)]
        """For each level, the queues of sources that have ranges, in the order of rotation."""
        self._used_levels = 0
        """One bit for each level that has ranges."""
        self.records = 0
        """Number of records that may be leased."""

    def push(self, level: int, source: int, first: int, end: int) -> None:
        """Add the records `first` … `end - 1`, sorted by offset. An empty range changes nothing.

        A source without ranges at the level joins the end of its rotation.
        """
        if first >= end:
            return
        queues = self._levels[level]
        queue = queues.get(source)
        if queue is None:
            queue = queues[source] = _SourceQueue()
            self._used_levels |= 1 << level
        queue.put(first, end)
        self.records += end - first

    def pop(self, limit: int, sources: Container[int] | None = None) -> tuple[int, int, int, int] | None:
        """Take out what is to be delivered next: (level, source, first, end), one to `limit`
        records without a hole.

        Args:
            limit: 1 or more.
            sources: take only from these; costs a step for each source that is passed over.

        Returns:
            None if there is nothing (of these sources).
        """
        levels = self._used_levels
        while levels:
            level = levels.bit_length() - 1
            for source in self._levels[level]:
                if sources is None or source in sources:
                    return level, source, *self._take(level, source, limit)
            levels ^= 1 << level
        return None

    def peek(self) -> Iterator[tuple[int, int, int]]:
        """Yield (level, source, lowest offset) of each level and source that has ranges; the
        highest level first, sources in rotation.

        Nothing may be changed meanwhile.
        """
        for level, queues in self._descending():
            for source, queue in queues.items():
                for first, _ in queue:
                    yield level, source, first
                    break

    def ranges(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield all ranges (level, source, first, end) in the order in which `pop` without a limit
        takes them, without taking them.

        Nothing may be changed meanwhile.
        """
        for level, queues in self._descending():
            rotation = deque((source, iter(queue)) for source, queue in queues.items())
            while rotation:
                source, queue = rotation.popleft()
                for first, end in queue:
                    yield level, source, first, end
                    rotation.append((source, queue))
                    break

    def clear(self, source: int | None = None) -> None:
        """Forget the ranges of one source, or all."""
        for level, queues in self._descending():
            for name in list(queues) if source is None else [source]:
                queue = queues.pop(name, None)
                self.records -= queue.records if queue else 0
            if not queues:
                self._used_levels ^= 1 << level

    def _take(self, level: int, source: int, limit: int) -> tuple[int, int]:
        queues = self._levels[level]
        queue = queues[source]
        first, end = queue.take(limit)
        self.records -= end - first
        if queue.records:
            queues.move_to_end(source)
        else:
            del queues[source]
            if not queues:
                self._used_levels ^= 1 << level
        return first, end

    def _descending(self) -> Iterator[tuple[int, OrderedDict[int, _SourceQueue]]]:
        """Yield the levels that have ranges, the highest first."""
        for level in range(LEVELS - 1, -1, -1):
            if self._levels[level]:
                yield level, self._levels[level]


class _SourceQueue(SortedPairs):
    """Ranges of one source at one level, as pairs of first offset and end. Neighbours are joined
    where they meet in one chunk.
    """

    __slots__ = ("records",)

    def __init__(self) -> None:
        super().__init__()
        self.records = 0

    def put(self, first: int, end: int) -> None:
        """Add a range, or lengthen those that it touches."""
        self.records += end - first
        chunk = bisect_right(self._starts, first) - 1
        firsts, ends = self._keys[chunk], self._values[chunk]
        at = bisect_left(firsts, first)
        meets_next = at < len(firsts) and firsts[at] == end
        if at and ends[at - 1] == first:
            if meets_next:
                end = ends[at]
                del firsts[at], ends[at]
            ends[at - 1] = end
        elif meets_next:
            firsts[at] = first
        else:
            self._insert(chunk, at, first, end)

    def take(self, limit: int) -> tuple[int, int]:
        """Take out the lowest range, or as much of it as the limit allows."""
        firsts, ends = self._keys[0], self._values[0]
        first, end = firsts[0], ends[0]
        if end - first > limit:
            end = firsts[0] = first + limit
        else:
            self._drop_first(1)
        self.records -= end - first
        return first, end
