"""Timers: times and items, 16 bytes each.

A queue has a timer per delayed or leased record, or range of them: up to millions, most of them far
in the future. All are sorted from the beginning, at the cost of two binary searches when one is
added, so that no call takes longer because of how many timers there are, or how they are spread.
Rejected: a heap (130 bytes per entry), and buckets of coarser and coarser time, whose refinement is
work in bursts, just when records are due.

A timer is not cancelled: its owner checks, when it fires, whether the item still waits for it. So
that timers in the far future do not pile up whose items are long gone, the owner is asked now and
then which are still wanted.

Pure: the clock is the caller's and may jump in either direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparrow.broker.queues.maps.sorted_pairs import SortedPairs

NEVER: Final = 1 << 62
"""Time of a timer that there is not."""
DUE_AT_ONCE: Final = 10_000
"""Default number of timers that fire in one call: about two milliseconds of work."""


_SWEPT_FROM: Final = 16_384
"""With fewer timers sweeping is not worth it."""
_ADDED: Final = 256
_SWEPT: Final = 4
"""Chunks to sweep after each `_ADDED` timers, while there are too many: half a millisecond or
so.
"""


class Timers:
    """Items (signed 64-bit integers) that wait for their times (ms of any clock). The same item may
    wait several times.

    Args:
        is_wanted: returns True if an item still waits for a timer; timers of others may be dropped
            before they fire.
    """

    __slots__ = ("_added", "_is_wanted", "_length", "_pairs", "_swept", "_swept_from", "earliest")

    def __init__(self, is_wanted: Callable[[int], bool] | None = None) -> None:
        self.earliest = NEVER
        """Time of the next timer, which may be in the past; NEVER if there is none."""
        self._pairs = SortedPairs()
        self._length = 0
        self._is_wanted = is_wanted
        self._added = 0
        self._swept = 0
        """The chunk to sweep next."""
        self._swept_from = _SWEPT_FROM

    def __len__(self) -> int:
        return self._length

    def add(self, time_ms: int, item: int) -> None:
        """Have the item fire at a time; one in the past fires with the next `pop_due`."""
        self._pairs.add(time_ms, item)
        self._length += 1
        self._added += 1
        self.earliest = min(self.earliest, time_ms)
        if self._added >= _ADDED:
            self._added = 0
            if self._is_wanted is not None and self._length > self._swept_from:
                self._sweep(self._is_wanted)

    def _sweep(self, is_wanted: Callable[[int], bool]) -> None:
        """Drop unwanted timers of a few chunks. After the last chunk, the next round is due when
        there are twice as many timers as are left.
        """
        for _ in range(_SWEPT):
            if self._swept >= self._pairs.chunks:
                self._swept = 0
                self._swept_from = max(_SWEPT_FROM, 2 * self._length)
                break
            chunks = self._pairs.chunks
            self._length -= self._pairs.sweep(self._swept, is_wanted)
            self._swept += self._pairs.chunks == chunks
        self._note_earliest()

    def _note_earliest(self) -> None:
        first = self._pairs.first_key()
        self.earliest = NEVER if first is None else first

    def pop_due(self, now_ms: int, limit: int = DUE_AT_ONCE) -> list[tuple[int, int]]:
        """Take out what is due: (time, item), by time, those of equal times in the order in which
        they were added.

        At most `limit`; if as many come, `earliest` shows whether more are due.
        """
        if now_ms < self.earliest:
            return []
        due = self._pairs.pop_until(now_ms, limit)
        self._length -= len(due)
        self._note_earliest()
        return due
