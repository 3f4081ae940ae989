"""The clock is an argument.

Rules that depend on time take a `Clock`, so that a test turns the hands itself (`ManualClock`). Two times exist and are
never mixed: *wall* time (milliseconds since the epoch; what record timestamps and retention use; may jump) and *monotonic*
time (seconds; what time-outs and leases use; never goes back).
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from. Both methods are cheap and may be called from any thread."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00:00Z."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that stands still until told otherwise; for tests."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic = 0.0

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        if seconds < 0:
            raise ValueError("time passes forward; use jump_wall for a wall clock that is set back")
        self._monotonic += seconds
        self._wall_ms += round(seconds * 1000)

    def jump_wall(self, milliseconds: int) -> None:
        """Set the wall clock forth or back, as an administrator or NTP does."""
        self._wall_ms += milliseconds
