"""How many deliveries an endpoint gets per second: a token bucket. Pure; time is passed in."""

from __future__ import annotations

from typing import Final

_BURST_S: Final = 0.1
"""After a pause so much time's deliveries may come at once; at least one."""


class Pace:
    """Times are monotonic seconds. `rate` 0: no limit."""

    def __init__(self, rate: float, now_s: float) -> None:
        self.rate = rate
        self._burst = max(1.0, rate * _BURST_S)
        self._tokens = self._burst
        self._at_s = now_s

    def allowance(self, now_s: float, most: int) -> int:
        """How many deliveries may begin now, at most `most`."""
        if not self.rate:
            return most
        self._refill(now_s)
        return min(most, int(self._tokens + 1e-9))

    def take(self, now_s: float) -> None:
        """One begins."""
        if self.rate:
            self._refill(now_s)
            self._tokens -= 1

    def wait_s(self, now_s: float) -> float:
        """Until one may begin; 0: now."""
        if not self.rate:
            return 0.0
        self._refill(now_s)
        return max(0.0, (1 - self._tokens) / self.rate)

    def _refill(self, now_s: float) -> None:
        elapsed_s = max(0.0, now_s - self._at_s)
        self._at_s = now_s
        self._tokens = min(self._burst, self._tokens + elapsed_s * self.rate)
