"""The open and aborted transactions of one partition, as its readers see them.

A reader of committed records stops at the *last stable offset*, the first offset of the oldest open
transaction, and drops the records of aborted transactions, whose producers and first offsets it
gets (KIP-98). The index is a fold over the log: a transaction begins with the first transactional
batch of its producer and ends with a marker.

Aborted transactions are kept, in the order of their markers, as long as the log has a record of
them. Each remembers the last stable offset as its marker left it: nothing that ends later begins
before that, so a look-up that has reached its end offset may stop.

Pure.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from typing import Final

from msgspec import Struct


class AbortedTransaction(Struct, frozen=True):
    """An aborted transaction: its producer, and the offset of its first record."""

    producer_id: int
    first_offset: int


class AbortedRange(Struct, frozen=True):
    """An aborted transaction with the offset of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


_COLUMNS: Final = 4


class TransactionIndex:
    """Open and aborted transactions of one partition."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """The first offset of each producer's open transaction, oldest first."""
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._stable_offsets = array("q")

    def __bool__(self) -> bool:
        return bool(self.open) or bool(self._last_offsets)

    def begin(self, producer_id: int, offset: int) -> None:
        """Note a transactional batch of the producer at `offset`."""
        if producer_id not in self.open:
            self.open[producer_id] = offset

    def end(self, producer_id: int, offset: int, *, committed: bool) -> None:
        """Note the producer's marker at `offset`. One that ends nothing (no record came before it)
        has no effect.
        """
        first = self.open.pop(producer_id, None)
        if first is None or committed:
            return
        self._producer_ids.append(producer_id)
        self._first_offsets.append(first)
        self._last_offsets.append(offset)
        self._stable_offsets.append(self.last_stable(offset + 1))

    def last_stable(self, end: int) -> int:
        """Return the offset before which every transaction is decided; `end` if none is open."""
        return next(iter(self.open.values())) if self.open else end

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return aborted transactions with records in the offsets [start, end), by first offset."""
        return [AbortedTransaction(each.producer_id, each.first_offset) for each in self.ranges(start, end)]

    def ranges(self, start: int, end: int) -> list[AbortedRange]:
        """Return the same transactions with their ends."""
        if not self._last_offsets:
            return []
        found = []
        for number in range(bisect_left(self._last_offsets, start), len(self._last_offsets)):
            if self._first_offsets[number] < end:
                found.append(
                    AbortedRange(
                        self._producer_ids[number], self._first_offsets[number], self._last_offsets[number]
                    )
                )
            if self._stable_offsets[number] >= end:
                break
        return sorted(found, key=lambda each: each.first_offset)

    def forget_before(self, start: int) -> None:
        """Forget transactions that ended before `start`, the new start of the log."""
        gone = bisect_left(self._last_offsets, start)
        if gone:
            for column in self._columns():
                del column[:gone]

    def _columns(self) -> tuple[array[int], array[int], array[int], array[int]]:
        return self._producer_ids, self._first_offsets, self._last_offsets, self._stable_offsets

    # ── as bytes ──────────────────────────────────────────────────────────────────────────────────

    def dump_aborted(self) -> bytes:
        """Return the aborted transactions as bytes: producer ids, first, last and stable offsets,
        each column i64 little-endian.
        """
        return b"".join(_little_endian(column).tobytes() for column in self._columns())

    def load_aborted(self, data: bytes) -> None:
        """Load the transactions that `dump_aborted` wrote.

        Raises:
            ValueError: the bytes are cut.
        """
        if len(data) % (8 * _COLUMNS):
            raise ValueError(f"{len(data)} bytes are no columns of aborted transactions")
        size = len(data) // _COLUMNS
        for number, column in enumerate(self._columns()):
            found = array("q", data[number * size : (number + 1) * size])
            column[:] = _little_endian(found)


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return column
    swapped = array("q", column)
    swapped.byteswap()
    return swapped
