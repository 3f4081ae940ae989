"""A circuit breaker: when an endpoint counts as failing, and when it is tried again. Pure; time is
passed in.

    CLOSED ── `open_after` failures in a row ──▶ OPEN ── its time comes ──▶ a probe: one record
       ▲                                          ▲                          │      │
       │                                          └─ failed; twice the wait ─┘      │
       └──────────────────────── accepted ──────────────────────────────────────────┘

A success of any earlier request closes it, too. A failure of a request that was sent before it
opened does not extend the wait.
"""

from __future__ import annotations

from typing import Final

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0


class Breaker:
    """A circuit breaker for one endpoint. Times are monotonic seconds."""

    def __init__(self, open_after: int) -> None:
        self._open_after = open_after
        self._wait_s = FIRST_WAIT_S
        self.failures = 0
        """Failures in a row."""
        self.probe_at_s: float | None = None
        """When the next probe may be sent; None: the breaker is closed."""

    @property
    def is_open(self) -> bool:
        return self.probe_at_s is not None

    def succeeded(self) -> bool:
        """Count an accepted delivery. Return True if it closed the breaker."""
        was_open = self.is_open
        self.failures = 0
        self.probe_at_s = None
        self._wait_s = FIRST_WAIT_S
        return was_open

    def failed(self, now_s: float, *, is_probe: bool) -> bool:
        """Count a failed delivery. Return True if it opened the breaker."""
        self.failures += 1
        if self.is_open:
            if is_probe:
                self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)
                self.probe_at_s = now_s + self._wait_s
            return False
        if self.failures < self._open_after:
            return False
        self.probe_at_s = now_s + self._wait_s
        return True
