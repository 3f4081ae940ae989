"""A token bucket with a queue of waiters, the best rank first."""

from __future__ import annotations

import asyncio
import itertools
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import Overloaded

if TYPE_CHECKING:
    from sparrow.base.clock import Clock

WORST_RANK: Final = 2
"""Ranks are 0 (first) to 2. The queue has room for more waiters of a better rank."""
MIDDLE_RANK: Final = 1
"""In this rank the last waiter is first: filling the queue beforehand gains nothing."""
_LEAST_SLEEP_S: Final = 0.005
_ROUNDING: Final = 1e-9
TOO_MANY: Final = "too many logins are waiting; try again later"


class TokenQueue:
    """Grant tokens at a rate. Loop thread only.

    Args:
        clock: its monotonic time refills the bucket.
        rate: tokens per second; 0: only those that are given back.
        burst: tokens that the bucket holds; it is full at first.
        max_waiting: waiters of the worst rank; two and three times as many of the better ones.
    """

    __slots__ = (
        "_clock",
        "_heap",
        "_max_waiting",
        "_numbers",
        "_rate",
        "_refilled_at",
        "_timer",
        "_tokens",
        "burst",
        "waiting",
    )

    def __init__(self, clock: Clock, rate: float, burst: float, max_waiting: int) -> None:
        self.burst = burst
        self.waiting = 0
        self._clock = clock
        self._rate = rate
        self._max_waiting = max_waiting
        self._tokens = burst
        self._refilled_at = clock.monotonic()
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def take_now(self) -> bool:
        """Take a token if there is one."""
        self._refill()
        if self._tokens < 1 - _ROUNDING:
            return False
        self._tokens -= 1
        return True

    async def take(self, rank: int = 0) -> None:
        """Take a token, after all waiters with a better rank, or that wait longer with the same
        (rank 1: shorter).

        Raises:
            Overloaded: too many wait.
        """
        if self.take_now():
            return
        if self.waiting >= self._max_waiting * (1 + WORST_RANK - rank):
            raise Overloaded(TOO_MANY)
        granted = asyncio.get_running_loop().create_future()
        number = next(self._numbers)
        heappush(self._heap, (rank, -number if rank == MIDDLE_RANK else number, granted))
        self.waiting += 1
        self._wake_later()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.give_back()
            raise
        finally:
            self.waiting -= 1
            self._forget_cancelled()

    def give_back(self) -> None:
        """Return a token that was taken."""
        self._tokens = min(self.burst, self._tokens + 1)
        self.wake()

    def wake(self) -> None:
        """Grant the available tokens."""
        while self._heap and self.take_now():
            granted = heappop(self._heap)[2]
            if granted.done():  # its waiter was cancelled
                self._tokens += 1
            else:
                granted.set_result(None)
        self._wake_later()

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self.burst, self._tokens + (now - self._refilled_at) * self._rate)
        self._refilled_at = now

    def _wake_later(self) -> None:
        if self._timer is None and self._heap and self._rate:
            delay_s = max(_LEAST_SLEEP_S, (1 - self._tokens) / self._rate)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake_by_timer)

    def _wake_by_timer(self) -> None:
        self._timer = None
        self.wake()

    def _forget_cancelled(self) -> None:
        """Keep the heap about as small as the number of waiters, although waiters come and go."""
        if len(self._heap) > 2 * self.waiting + 16:
            self._heap = [each for each in self._heap if not each[2].done()]
            heapify(self._heap)
