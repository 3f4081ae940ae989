"""Zigzag numbers as arrays: how wide they are, and reading them at many places at once. The rules are those of `records.varint`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from sparrow.spark.kernels.contract import Bytes, Int64s

_STEPS: Final = np.array([1 << (7 * width) for width in range(1, 10)], np.uint64)


def widths(numbers: Int64s) -> Int64s:
    """How many bytes each takes."""
    folded = (numbers << 1 ^ numbers >> 63).view(np.uint64)
    return 1 + np.searchsorted(_STEPS, folded, side="right")


class Cursor:
    """Places in `data`, one in each of many records, which read on together.

    A record in which something was wrong is marked in `is_bad`; what is read of it from then on means nothing, but lies within the data.
    """

    def __init__(self, data: Bytes, at: Int64s, end: Int64s) -> None:
        self.data = data
        self.at = at
        self.end = end
        self.is_bad: npt.NDArray[np.bool_] = np.zeros(len(at), np.bool_)

    def varint(self) -> Int64s:
        """A 32-bit number of each."""
        return self._number(5, 32)

    def varlong(self) -> Int64s:
        """A 64-bit number of each."""
        return self._number(10, 64)

    def length(self) -> Int64s:
        """A length of each, -1 for null, and stand where what it measures begins."""
        lengths = self.varint()
        self.is_bad |= (lengths < -1) | (lengths > self.end - self.at)
        return np.where(self.is_bad, -1, lengths)

    def skip(self, lengths: Int64s) -> None:
        """Go on behind what was measured."""
        self.at = self.at + np.maximum(lengths, 0)

    def _number(self, max_bytes: int, bits: int) -> Int64s:
        folded = np.zeros(len(self.at), np.uint64)
        is_open = np.ones(len(self.at), np.bool_)
        at = self.at
        last = len(self.data) - 1
        for place in range(max_bytes):
            byte = self.data[np.minimum(at, last)].astype(np.uint64)
            self.is_bad |= is_open & (at >= self.end)
            if bits == 64 and place == max_bytes - 1:
                self.is_bad |= is_open & (byte > 1)
            folded |= np.where(is_open, (byte & np.uint64(0x7F)) << np.uint64(7 * place), np.uint64(0))
            at = at + is_open
            is_open &= byte > 0x7F
            if not is_open.any():
                break
        self.at = at
        self.is_bad |= is_open
        if bits == 32:
            self.is_bad |= folded >> np.uint64(32) != 0
        unfolded = (folded >> np.uint64(1)).view(np.int64) ^ -(folded & np.uint64(1)).view(np.int64)
        return np.where(self.is_bad, 0, unfolded)
