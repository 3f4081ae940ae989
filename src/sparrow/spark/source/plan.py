"""Assignment of ranges of offsets to tasks.

A task costs Spark some 5 to 10 ms, and a worker reads 100 MB in less than a second. So large ranges
are split until each is about `max_bytes`, or less where cores would be idle, and small neighbours
are read by one task until it has `pack_bytes`. Sizes come from the broker's sparse indexes; to
split a range evenly by bytes, the sizes of cells of equally many offsets are estimated, and the
range is split between cells. `min_tasks` splits further, and then nothing is packed that would go
below it.

A split may be in the middle of a batch, which both sides then fetch and cut to their offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Final

from sparrow.spark.source.snapshot import TopicPartition

_CELLS_PER_PIECE: Final = 8
_MAX_CELLS: Final = 2048
MIN_SPREAD_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of a partition, from `low` to before `high`."""

    topic: str
    topic_id: str
    partition: int
    low: int
    high: int
    size_bytes: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def offsets(self) -> int:
        return self.high - self.low


@dataclass(frozen=True)
class Sizes:
    """Sizes that tasks should have."""

    max_bytes: int = 128 << 20
    pack_bytes: int = 4 << 20
    min_tasks: int = 1
    max_offsets: int = (1 << 63) - 1
    """Largest number of offsets of one task."""
    cores: int = 1
    """Cores over which the ranges are spread, in tasks of at least `MIN_SPREAD_BYTES`. Only the
    driver's are known, which are all in local mode.
    """


Estimate = Callable[[Sequence[OffsetRange]], Sequence[int]]
"""About how many bytes each range has."""


def plan(ranges: Iterable[OffsetRange], estimate: Estimate, sizes: Sizes) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges of each task, in order. Empty ranges are left out."""
    wanted = [each for each in ranges if each.offsets > 0]
    if not wanted:
        return []
    sized = _with_sizes(wanted, estimate)
    pieces = _split(sized, _counts(sized, sizes), estimate)
    pieces = [part for piece in pieces for part in _even(piece, -(-piece.offsets // sizes.max_offsets))]
    packed = _packed(pieces, sizes)
    return packed if len(packed) >= sizes.min_tasks else [(piece,) for piece in pieces]


def _with_sizes(ranges: Sequence[OffsetRange], estimate: Estimate) -> list[OffsetRange]:
    return [
        replace(each, size_bytes=max(1, size)) for each, size in zip(ranges, estimate(ranges), strict=True)
    ]


def _counts(ranges: Sequence[OffsetRange], sizes: Sizes) -> list[int]:
    """Return the number of pieces of each range."""
    total = sum(each.size_bytes for each in ranges)
    max_bytes = min(sizes.max_bytes, max(MIN_SPREAD_BYTES, total // sizes.cores))
    by_bytes = [max(1, round(each.size_bytes / max_bytes)) for each in ranges]
    if sum(by_bytes) >= sizes.min_tasks:
        return by_bytes
    counts = [
        min(each.offsets, max(count, sizes.min_tasks * each.size_bytes // total))
        for each, count in zip(ranges, by_bytes, strict=True)
    ]
    # Pieces that rounding left over go to the ranges with the largest pieces.
    while sum(counts) < sizes.min_tasks:
        able = [n for n, each in enumerate(ranges) if counts[n] < each.offsets]
        if not able:
            break
        counts[max(able, key=lambda n: ranges[n].size_bytes / counts[n])] += 1
    return counts


def _split(ranges: Sequence[OffsetRange], counts: Sequence[int], estimate: Estimate) -> list[OffsetRange]:
    cells: list[OffsetRange] = []
    for each, count in zip(ranges, counts, strict=True):
        if count > 1:
            cells += _even(each, max(count, min(count * _CELLS_PER_PIECE, _MAX_CELLS)))
    sized = iter(_with_sizes(cells, estimate) if cells else [])
    pieces: list[OffsetRange] = []
    for each, count in zip(ranges, counts, strict=True):
        if count == 1:
            pieces.append(each)
        else:
            own: list[OffsetRange] = []
            while not own or own[-1].high < each.high:
                own.append(next(sized))
            pieces += _joined(own, count)
    return pieces


def _even(each: OffsetRange, count: int) -> list[OffsetRange]:
    """Split a range into at most this many pieces of equally many offsets."""
    count = min(count, each.offsets)
    if count <= 1:
        return [each]
    cuts = [each.low + each.offsets * n // count for n in range(count + 1)]
    return [
        replace(each, low=low, high=high, size_bytes=max(1, each.size_bytes * (high - low) // each.offsets))
        for low, high in pairwise(cuts)
    ]


def _joined(cells: Sequence[OffsetRange], count: int) -> list[OffsetRange]:
    """Join cells, in order, to this many pieces of about equally many bytes."""
    ends = list(accumulate(cell.size_bytes for cell in cells))
    pieces, first = [], 0
    for number in range(1, count + 1):
        target = ends[-1] * number / count
        last = first + 1
        # Enough cells must be left for the pieces to come.
        while last < len(cells) - (count - number) and ends[last - 1] < target:
            last += 1
        if number == count:
            last = len(cells)
        size_bytes = ends[last - 1] - (ends[first - 1] if first else 0)
        pieces.append(replace(cells[first], high=cells[last - 1].high, size_bytes=size_bytes))
        first = last
    return pieces


def _packed(pieces: Sequence[OffsetRange], sizes: Sizes) -> list[tuple[OffsetRange, ...]]:
    tasks: list[tuple[OffsetRange, ...]] = []
    task: list[OffsetRange] = []
    size_bytes = offsets = 0
    for piece in pieces:
        size_bytes += piece.size_bytes
        offsets += piece.offsets
        if task and (size_bytes > sizes.pack_bytes or offsets > sizes.max_offsets):
            tasks.append(tuple(task))
            task, size_bytes, offsets = [], piece.size_bytes, piece.offsets
        task.append(piece)
    return [*tasks, tuple(task)]
