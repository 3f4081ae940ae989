"""Limits of audit events that clients can cause at will: refusals, refused logins, failed acts.

Events are counted in windows of a minute, with a limit for each source and one for all. Those left
out are counted and reported once, at the end of the window. A window remembers at most `total`
sources, so that memory is bounded.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from sparrow.base.clock import Clock

WINDOW_S: Final = 60.0
PER_SOURCE: Final = 20
TOTAL: Final = 1_000


class AuditSource(NamedTuple):
    """Origin of events that share a limit."""

    action: str
    principal: str
    address: str
    listener: str


class LeftOut(NamedTuple):
    """Number of events of one window that were left out."""

    events: int
    sources: int
    """The number of known sources; those that came after `TOTAL` events count as one."""
    most: AuditSource
    most_count: int


_OTHERS: Final = AuditSource("", "others", "", "")


class EventLimiter:
    """Limits of audit events, as the module describes. Loop thread only.

    Args:
        clock: its monotonic time makes the windows.
        per_source: the limit of events of one source in a window.
        total: the limit of events in a window.
    """

    def __init__(self, clock: Clock, per_source: int = PER_SOURCE, total: int = TOTAL) -> None:
        self._clock = clock
        self._per_source = per_source
        self._total = total
        self._begun_at = float("-inf")
        self._admitted: Counter[AuditSource] = Counter()
        self._admitted_count = 0
        self._left_out: Counter[AuditSource] = Counter()

    @property
    def remembered(self) -> int:
        """The number of sources that are kept."""
        return len(self._admitted) + len(self._left_out)

    @property
    def is_over(self) -> bool:
        """Return True if the window has ended; `close` it before the next event."""
        return self._clock.monotonic() - self._begun_at >= WINDOW_S

    def admit(self, source: AuditSource) -> bool:
        """Return True if an event of a source is sent; False if it is left out, and counted."""
        if self.is_over:
            self.close()
            self._begun_at = self._clock.monotonic()
        if self._admitted[source] < self._per_source and self._admitted_count < self._total:
            self._admitted[source] += 1
            self._admitted_count += 1
            return True
        known = source in self._left_out or len(self._left_out) < self._total
        self._left_out[source if known else _OTHERS] += 1
        return False

    def close(self) -> LeftOut | None:
        """End the window; return the number of events it left out, None if none."""
        left_out, self._left_out = self._left_out, Counter()
        self._admitted.clear()
        self._admitted_count = 0
        self._begun_at = float("-inf")
        if not left_out:
            return None
        (most, most_count), *_ = left_out.most_common(1)
        return LeftOut(left_out.total(), len(left_out), most, most_count)
