"""Zigzag numbers as arrays: their widths, and reading them at many positions at once. The rules are
those of `records.varint`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from sparrow.spark.kernels.contract import Bytes, Int64s

_STEPS: Final = np.array([1 << (7 * width) for width in range(1, 10)], np.uint64)


def widths(numbers: Int64s) -> Int64s:
    """Return the number of bytes that each number takes."""
    folded = (numbers << 1 ^ numbers >> 63).view(np.uint64)
    return 1 + np.searchsorted(_STEPS, folded, side="right")


class VarintCursor:
    """Positions in `data`, one in each of many records, which advance together.

    A record with a fault is marked in `is_bad`; values read from it afterwards have no meaning, but
    the positions stay within the data.
    """

    def __init__(self, data: Bytes, at: Int64s, end: Int64s) -> None:
        self.data = data
        self.at = at
        self.end = end
        self.is_bad: npt.NDArray[np.bool_] = np.zeros(len(at), np.bool_)

    def varint(self) -> Int64s:
        """Read a 32-bit number of each record."""
        return self._number(5, 32)

    def varlong(self) -> Int64s:
        """Read a 64-bit number of each record."""
        return self._number(10, 64)

    def length(self) -> Int64s:
        """Read a length of each record, -1 for null, and advance to its content."""
        lengths = self.varint()
        self.is_bad |= (lengths < -1) | (lengths > self.end - self.at)
        return np.where(self.is_bad, -1, lengths)

    def skip(self, lengths: Int64s) -> None:
        """Advance past the content."""
        self.at = self.at + np.maximum(lengths, 0)

    def _number(self, max_bytes: int, bits: int) -> Int64s:
        folded = np.zeros(len(self.at), np.uint64)
        is_open = np.ones(len(self.at), np.bool_)
        at = self.at
        last = len(self.data) - 1
        for index in range(max_bytes):
            byte = self.data[np.minimum(at, last)].astype(np.uint64)
            self.is_bad |= is_open & (at >= self.end)
            if bits == 64 and index == max_bytes - 1:
                self.is_bad |= is_open & (byte > 1)
            folded |= np.where(is_open, (byte & np.uint64(0x7F)) << np.uint64(7 * index), np.uint64(0))
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
