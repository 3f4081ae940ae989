"""Whether a connection is alive: decided from a few counters at each sweep, without a timer per connection.

Signs of life are bytes that came, bytes that the peer took, and our own decision not to read (who is made to wait is not
silent). An unfinished frame must progress: within `stall_timeout_ms` at least a twentieth of its announced size must come
(at least 1 KiB, or the rest), so that nobody keeps a share of the receive budget by sending a byte now and then.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrow.frontends.native.limits import NativeLimits

_PROGRESS_SHARE = 20
_MIN_PROGRESS_BYTES = 1024


class Verdict(Enum):
    ALIVE = "alive"
    SILENT = "silent"
    """It was heard of before, but nothing came since the last sweep."""
    NO_HELLO = "no hello"
    IDLE = "idle"
    STALLED = "stalled"


@dataclass(slots=True)
class Observation:
    """A connection as a sweep finds it."""

    is_open: bool
    """WELCOME was sent."""
    received_bytes: int
    """Since the connection was made."""
    unsent_bytes: int
    is_held: bool
    """We do not read from it, for a reason that is not the peer's."""
    frame_bytes: int
    """Announced size of an unfinished frame, 0 without one."""


class Liveness:
    """The memory between two sweeps. Times are monotonic seconds."""

    __slots__ = ("_frame_mark", "_frame_since", "_heard_at", "_opened_at", "_received_bytes", "_unsent_bytes")

    def __init__(self, now: float) -> None:
        self._opened_at = self._heard_at = self._frame_since = now
        self._received_bytes = self._unsent_bytes = self._frame_mark = 0

    def check(self, now: float, seen: Observation, limits: NativeLimits) -> Verdict:
        """The verdict; a connection that is not ALIVE or SILENT is to be closed."""
        spoke = self._hear(now, seen)
        if not seen.is_open and now - self._opened_at > limits.hello_timeout_ms / 1000:
            return Verdict.NO_HELLO
        if self._is_stalled(now, seen, limits.stall_timeout_ms / 1000):
            return Verdict.STALLED
        if limits.idle_timeout_ms and now - self._heard_at > limits.idle_timeout_ms / 1000:
            return Verdict.IDLE
        return Verdict.ALIVE if spoke else Verdict.SILENT

    def _hear(self, now: float, seen: Observation) -> bool:
        spoke = (
            seen.is_held
            or seen.received_bytes != self._received_bytes
            or seen.unsent_bytes < self._unsent_bytes
        )
        if spoke:
            self._heard_at = now
        self._received_bytes = seen.received_bytes
        self._unsent_bytes = seen.unsent_bytes
        return spoke

    def _is_stalled(self, now: float, seen: Observation, timeout_s: float) -> bool:
        progress = max(_MIN_PROGRESS_BYTES, seen.frame_bytes // _PROGRESS_SHARE)
        if not seen.frame_bytes or seen.is_held or seen.received_bytes - self._frame_mark >= progress:
            self._frame_mark = seen.received_bytes
            self._frame_since = now
            return False
        return now - self._frame_since > timeout_s
