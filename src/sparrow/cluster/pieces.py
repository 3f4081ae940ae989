"""The pieces of a log: runs of batches in payloads of commits, by offset.

Nothing of a piece ever changes; pieces are added at the end, dropped from the start, or replaced by
other runs of the same offsets.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrow.cluster.manifest import LogRun, points_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sparrow.cluster.payloads import CommitPayload


@dataclass(slots=True, eq=False)
class Piece:
    """A run that is part of a log, and the payload that has it.

    Attributes:
        is_damaged: merging found a batch in it that cannot be read.
    """

    run: LogRun
    payload: CommitPayload
    is_damaged: bool = False

    @property
    def base(self) -> int:
        return self.run.base

    @property
    def end(self) -> int:
        return self.run.end


class PieceList:
    """The pieces of one log, in order. Loop thread only, but for `since`."""

    def __init__(self, pieces: Iterable[Piece] = ()) -> None:
        self._pieces = list(pieces)
        self._bases = [piece.base for piece in self._pieces]
        self.size_bytes = sum(piece.run.length for piece in self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)

    def __iter__(self) -> Iterator[Piece]:
        return iter(self._pieces)

    def __getitem__(self, number: int) -> Piece:
        return self._pieces[number]

    @property
    def end(self) -> int:
        """The end of the last piece; 0 without any."""
        return self._pieces[-1].end if self._pieces else 0

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a record in ms; -1 without any."""
        return max((piece.run.max_timestamp for piece in self._pieces), default=-1)

    def number_at(self, offset: int) -> int:
        """Return the number of the piece that contains `offset`, or of the next."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def since(self, offset: int) -> list[Piece]:
        """Return the pieces from the one that contains `offset` on. Thread-safe."""
        return self._pieces[self.number_at(offset) :]

    def after(self, offset: int) -> Iterator[Piece]:
        """Iterate as `since`, without a copy: over pieces that are added meanwhile, too."""
        number, pieces = self.number_at(offset), self._pieces
        while number < len(pieces):
            yield pieces[number]
            number += 1

    def until(self, count: int) -> list[Piece]:
        """Return the first `count` pieces."""
        return self._pieces[:count]

    def bytes_after(self, offset: int) -> int:
        """Return the size of the pieces that end behind `offset`."""
        return sum(piece.run.length for piece in self._pieces if piece.end > offset)

    # ── changes ──

    def append(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._bases.append(piece.base)
        self.size_bytes += piece.run.length

    def drop_first(self, count: int) -> list[Piece]:
        """Remove the first `count` pieces. Return them."""
        gone = self._pieces[:count]
        del self._pieces[:count], self._bases[:count]
        self.size_bytes -= sum(piece.run.length for piece in gone)
        return gone

    def replace(self, runs: Sequence[LogRun], payload: CommitPayload) -> list[Piece]:
        """Put runs in the place of the pieces of the same offsets. Return those pieces.

        Each stretch of neighbouring runs begins and ends where pieces do; pieces between two
        stretches stay.
        """
        gone: list[Piece] = []
        first = 0
        for number, run in enumerate(runs, 1):
            if number == len(runs) or runs[number].base != run.end:
                gone += self._replace_stretch(runs[first:number], payload)
                first = number
        return gone

    def _replace_stretch(self, runs: Sequence[LogRun], payload: CommitPayload) -> list[Piece]:
        first = bisect_left(self._bases, runs[0].base)
        after = bisect_left(self._bases, runs[-1].end)
        gone = self._pieces[first:after]
        self._pieces[first:after] = [Piece(run, payload) for run in runs]
        self._bases[first:after] = [run.base for run in runs]
        self.size_bytes += sum(run.length for run in runs) - sum(piece.run.length for piece in gone)
        return gone

    def clear(self) -> list[Piece]:
        """Remove all pieces. Return them."""
        return self.drop_first(len(self._pieces))

    # ── estimates ──

    def estimate_size(self, start: int, end: int) -> int:
        """Estimate how many bytes lie between two offsets."""
        total = 0
        for piece in self.after(start):
            if piece.base >= end:
                break
            total += _position_of(piece.run, end) - _position_of(piece.run, start)
        return total

    def estimate_offset(self, start: int, max_bytes: int) -> int:
        """Estimate the offset that is `max_bytes` behind `start`; see
        `PartitionLog.estimate_offset`.
        """
        before, found = 0, start
        origin = -1
        for piece in self.after(start):
            for offset, position in [*points_of(piece.run), (piece.end, piece.run.length)]:
                at = before + position
                if offset <= start:
                    origin = at
                    continue
                if origin < 0:
                    origin = before
                if at - origin > max_bytes and found > start:
                    return found
                found = offset
                if at - origin > max_bytes:
                    return found
            before += piece.run.length
        return found


def _position_of(run: LogRun, offset: int) -> int:
    """Estimate how many bytes of a run lie before `offset`."""
    if offset >= run.end:
        return run.length
    low, low_at = run.base, 0
    high, high_at = run.end, run.length
    for base, position in points_of(run):
        if base > offset:
            high, high_at = base, position
            break
        low, low_at = base, position
    if offset <= low:
        return low_at
    return low_at + (high_at - low_at) * (offset - low) // max(high - low, 1)
