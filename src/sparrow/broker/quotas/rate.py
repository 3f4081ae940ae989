"""A rate over a sliding window, and how long a client that exceeded a limit must be throttled.
Pure; time is passed in.

As Kafka measures (quota.window.num 11, quota.window.size.seconds 1): amounts are summed in samples
of a second, and the last eleven count. The window begins at the oldest sample, and counts as at
least ten seconds long, so that a burst after a pause is measured over ten seconds and not over the
moment that it took.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SAMPLES: Final = 11
SAMPLE_MS: Final = 1000
MIN_WINDOW_SAMPLES: Final = SAMPLES - 1
MAX_THROTTLE_MS: Final = (1 << 31) - 1
"""The longest delay that a client gets."""


class WindowedRate:
    """Amount per second. Times are monotonic milliseconds that never go back."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque(maxlen=SAMPLES)
        """[begin, time of the last amount, sum], oldest first."""

    def record(self, amount: float, now_ms: float) -> None:
        """Count an amount; a negative one subtracts what was counted and did not happen."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= SAMPLE_MS:
            samples.append([now_ms, now_ms, amount])
        else:
            samples[-1][1] = now_ms
            samples[-1][2] += amount

    def per_second(self, now_ms: float) -> float:
        """Return the current rate."""
        window_ms = self.window_ms(now_ms)
        return sum(sample[2] for sample in self._samples) * 1000 / window_ms

    def window_ms(self, now_ms: float) -> float:
        """Return the length in ms of the window that the rate is measured over."""
        samples = self._samples
        while samples and now_ms - samples[0][1] >= SAMPLES * SAMPLE_MS:
            samples.popleft()
        elapsed_ms = now_ms - samples[0][0] if samples else 0.0
        missing = MIN_WINDOW_SAMPLES - int(elapsed_ms // SAMPLE_MS)
        return elapsed_ms + max(0, missing) * SAMPLE_MS

    def throttle_ms(self, limit_per_second: float, now_ms: float) -> int:
        """Return how long in ms nothing may be counted until the rate is down at the limit; 0 if it
        is not above.
        """
        rate = self.per_second(now_ms)
        if rate <= limit_per_second:
            return 0
        wait_ms = (rate - limit_per_second) / limit_per_second * self.window_ms(now_ms)
        return min(round(wait_ms), MAX_THROTTLE_MS)

    def is_idle(self, now_ms: float) -> bool:
        """Return True if the window has no amounts any more."""
        return not self._samples or now_ms - self._samples[-1][1] >= SAMPLES * SAMPLE_MS
