"""What is to happen when: times and items, 16 bytes each.

A queue has a timer per delayed or leased record, or range of them: up to millions, most of them for a time far away. All are kept
in order from the beginning, at the cost of two binary searches when one is added, so that nothing has to be taken apart or sorted
when its time comes near: no call takes longer because of how many timers there are, or how they are spread. Rejected: a heap
(130 bytes per entry), and buckets of coarser and coarser time, whose refinement is work in bursts, just when records are due.

A timer is not cancelled: its owner looks, when it fires, whether the item still waits for it.

Pure: the clock is the caller's and may jump in either direction.
"""

from __future__ import annotations

from typing import Final

from sparrow.broker.queues.pairs import SortedPairs

DUE_AT_ONCE: Final = 10_000
"""How many timers fire in one call unless told otherwise: about two milliseconds of work."""


class Timers:
    """Items (signed 64-bit integers) that wait for their times (ms of any clock). The same item may wait several times."""

    __slots__ = ("_length", "_pairs")

    def __init__(self) -> None:
        self._pairs = SortedPairs()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, time_ms: int, item: int) -> None:
        """Have the item fire at a time; one in the past fires with the next `pop_due`."""
        self._pairs.add(time_ms, item)
        self._length += 1

    def pop_due(self, now_ms: int, limit: int = DUE_AT_ONCE) -> list[tuple[int, int]]:
        """Take out what is due: (time, item), in order of time, those of equal times in the order in which they were added.

        At most `limit`; where that many come, `next_time()` tells whether more are due.
        """
        due = self._pairs.pop_until(now_ms, limit)
        self._length -= len(due)
        return due

    def next_time(self) -> int | None:
        """When the next timer is due, which may be in the past; None when there is none."""
        return self._pairs.first_key()
