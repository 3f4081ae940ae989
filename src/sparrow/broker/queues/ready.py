"""What may be leased now: ranges of records by priority and source.

Order of delivery: the highest priority first; within it the sources take turns, a range each; within a source the lowest offset
first, so that a record that came back is in front of the newer ones.

Ranges take 16 bytes, as long as they are. Pushing and popping cost the same whether one range lies there or a million.

Pure. Not thread-safe.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Container, Iterator
from typing import Final

from sparrow.broker.queues.pairs import SortedPairs

LEVELS: Final = 10
"""Priorities 0 … 9; 9 goes first."""


class ReadyRanges:
    """Half-open ranges of offsets at a level (0 … 9) of a source (a small integer). Ranges of a source must not overlap."""

    __slots__ = ("_held", "_length", "_levels")

    def __init__(self) -> None:
        self._levels: list[OrderedDict[int, _Line]] = [OrderedDict() for _ in range(LEVELS)]
        """Per level: the sources that hold something, in the order of their turns."""
        self._held = 0
        """One bit for each level that holds something."""
        self._length = 0

    def __len__(self) -> int:
        """How many records may be leased."""
        return self._length

    def push(self, level: int, source: int, first: int, end: int) -> None:
        """Add the records `first` … `end - 1`; they take their place by offset. An empty range changes nothing.

        A source that held nothing at the level is the last to have its turn there.
        """
        if first >= end:
            return
        lines = self._levels[level]
        line = lines.get(source)
        if line is None:
            line = lines[source] = _Line()
            self._held |= 1 << level
        line.put(first, end)
        self._length += end - first

    def pop(self, limit: int, sources: Container[int] | None = None) -> tuple[int, int, int, int] | None:
        """Take out what is to be delivered next: (level, source, first, end), one to `limit` records without a hole.

        Args:
            limit: 1 or more.
            sources: only from these; a step for each source that is passed over.

        Returns:
            None when nothing lies there (of these sources).
        """
        held = self._held
        while held:
            level = held.bit_length() - 1
            for source in self._levels[level]:
                if sources is None or source in sources:
                    first, end = self._take(level, source, limit)
                    return level, source, first, end
            held ^= 1 << level
        return None

    def peek(self) -> Iterator[tuple[int, int, int]]:
        """(level, source, lowest offset) of each level and source that holds something; the highest level first, sources by turn.

        Nothing may be changed meanwhile.
        """
        for level, lines in self._descending():
            for source, line in lines.items():
                for first, _ in line:
                    yield level, source, first
                    break

    def ranges(self) -> Iterator[tuple[int, int, int, int]]:
        """All ranges (level, source, first, end) in the order in which `pop` without a limit takes them. None is taken.

        Nothing may be changed meanwhile.
        """
        for level, lines in self._descending():
            turns = deque((source, iter(line)) for source, line in lines.items())
            while turns:
                source, line = turns.popleft()
                for first, end in line:
                    yield level, source, first, end
                    turns.append((source, line))
                    break

    def clear(self, source: int | None = None) -> None:
        """Forget what one source holds, or all."""
        for level, lines in self._descending():
            for name in list(lines) if source is None else [source]:
                line = lines.pop(name, None)
                self._length -= line.records if line else 0
            if not lines:
                self._held ^= 1 << level

    def _take(self, level: int, source: int, limit: int) -> tuple[int, int]:
        lines = self._levels[level]
        line = lines[source]
        first, end = line.take(limit)
        self._length -= end - first
        if line:
            lines.move_to_end(source)
        else:
            del lines[source]
            if not lines:
                self._held ^= 1 << level
        return first, end

    def _descending(self) -> Iterator[tuple[int, OrderedDict[int, _Line]]]:
        """The levels that hold something, the highest first."""
        for level in range(LEVELS - 1, -1, -1):
            if self._levels[level]:
                yield level, self._levels[level]


class _Line(SortedPairs):
    """The ranges of one source at one level: pairs of first offset and end. Neighbours are joined where they meet in one chunk."""

    __slots__ = ("records",)

    def __init__(self) -> None:
        super().__init__()
        self.records = 0

    def put(self, first: int, end: int) -> None:
        """Enter a range, or lengthen those that it touches."""
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
        """Take out the lowest range, or as much of it as the limit lets."""
        firsts, ends = self._keys[0], self._values[0]
        first, end = firsts[0], ends[0]
        if end - first > limit:
            end = firsts[0] = first + limit
        else:
            self._drop_first(1)
        self.records -= end - first
        return first, end
