"""When an endpoint counts as failing, and when it is tried again. Pure; time is passed in.

    CLOSED ── so many failures, one after the other ──▶ OPEN ── its time comes ──▶ a probe: one record
       ▲                                                 ▲                           │      │
       │                                                 └── failed; twice the wait ─┘      │
       └──────────────────────────────── accepted ──────────────────────────────────────────┘

A success of anything that was under way closes it, too. A failure of what was under way before it opened does not make the wait longer.
"""

from __future__ import annotations

from typing import Final

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0


class Breaker:
    """Times are monotonic seconds."""

    def __init__(self, open_after: int) -> None:
        self._open_after = open_after
        self._wait_s = FIRST_WAIT_S
        self.failures = 0
        """One after the other, up to now."""
        self.probe_at_s: float | None = None
        """When the next probe may be sent; None: it is closed."""

    @property
    def is_open(self) -> bool:
        return self.probe_at_s is not None

    def succeeded(self) -> bool:
        """A delivery was accepted; whether that closed it."""
        was_open = self.is_open
        self.failures = 0
        self.probe_at_s = None
        self._wait_s = FIRST_WAIT_S
        return was_open

    def failed(self, now_s: float, *, is_probe: bool) -> bool:
        """A delivery was not accepted; whether that opened it."""
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
