"""A token bucket: limits the deliveries per second of a queue or of an endpoint. Pure; time is
passed in.
"""

from __future__ import annotations

from typing import Final

_BURST_S: Final = 0.1
"""The bucket holds the tokens of this time, and at least one: this many deliveries may start at
once after a pause.
"""


class TokenBucket:
    """A token bucket. Times are monotonic seconds. `rate` 0: no limit."""

    def __init__(self, rate: float, now_s: float) -> None:
        self.rate = rate
        self._burst = max(1.0, rate * _BURST_S)
        self._tokens = self._burst
        self._at_s = now_s

    def allowance(self, now_s: float, limit: int) -> int:
        """Return how many deliveries may start now, at most `limit`."""
        if not self.rate:
            return limit
        self._refill(now_s)
        return min(limit, int(self._tokens + 1e-9))

    def take(self, now_s: float, count: int = 1) -> None:
        """Take tokens: as many deliveries start."""
        if self.rate:
            self._refill(now_s)
            self._tokens -= count

    def wait_s(self, now_s: float) -> float:
        """Return how long until a delivery may start; 0: now."""
        if not self.rate:
            return 0.0
        self._refill(now_s)
        return max(0.0, (1 - self._tokens) / self.rate)

    def _refill(self, now_s: float) -> None:
        elapsed_s = max(0.0, now_s - self._at_s)
        self._at_s = now_s
        self._tokens = min(self._burst, self._tokens + elapsed_s * self.rate)
