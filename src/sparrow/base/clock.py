"""Clocks, which are passed as arguments.

Rules that depend on time take a `Clock`, so that a test sets the time itself (`ManualClock`). Two
times exist and are never mixed: *wall* time (milliseconds since the epoch; used for record
timestamps and retention; may jump) and *monotonic* time (seconds; used for time-outs and leases;
never goes back).
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time. Both methods are cheap and may be called from any thread."""

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970-01-01T00:00:00Z."""
        ...

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary point; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)


class ManualClock:
    """A clock that only `advance` moves; for tests."""

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
            raise ValueError(f"time passes forward, not by {seconds} s")
        self._monotonic += seconds
        self._wall_ms += round(seconds * 1000)
