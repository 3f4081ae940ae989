"""Liveness of a connection, decided from a few counters at each sweep, without a timer per
connection.

A connection is alive if bytes came, if the peer read bytes, or if the broker itself paused reading.
An unfinished frame must progress: within `stall_timeout_ms` at least a twentieth of its announced
size must arrive (at least 1 KiB, or the rest). So no client keeps a share of the receive budget by
sending a byte now and then.
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
    """Nothing came since the last sweep, but no timeout has passed."""
    NO_HELLO = "no hello"
    IDLE = "idle"
    STALLED = "stalled"


@dataclass(slots=True)
class Observation:
    """The counters of a connection at a sweep."""

    is_open: bool
    """True after WELCOME was sent."""
    received_bytes: int
    """Total since the connection was made."""
    unsent_bytes: int
    is_paused: bool
    """True if the broker paused reading, for a reason that the peer cannot clear."""
    frame_bytes: int
    """Announced size of the unfinished frame; 0: none."""


class Liveness:
    """The state between two sweeps. Times are monotonic seconds."""

    __slots__ = (
        "_frame_progress_at",
        "_frame_start_bytes",
        "_heard_at",
        "_opened_at",
        "_received_bytes",
        "_unsent_bytes",
    )

    def __init__(self, now: float) -> None:
        self._opened_at = self._heard_at = self._frame_progress_at = now
        self._received_bytes = self._unsent_bytes = self._frame_start_bytes = 0

    def check(self, now: float, observation: Observation, limits: NativeLimits) -> Verdict:
        """Return the verdict. A connection that is neither ALIVE nor SILENT must be closed."""
        spoke = self._hear(now, observation)
        if not observation.is_open and now - self._opened_at > limits.hello_timeout_ms / 1000:
            return Verdict.NO_HELLO
        if self._is_stalled(now, observation, limits.stall_timeout_ms / 1000):
            return Verdict.STALLED
        if limits.idle_timeout_ms and now - self._heard_at > limits.idle_timeout_ms / 1000:
            return Verdict.IDLE
        return Verdict.ALIVE if spoke else Verdict.SILENT

    def _hear(self, now: float, observation: Observation) -> bool:
        spoke = (
            observation.is_paused
            or observation.received_bytes != self._received_bytes
            or observation.unsent_bytes < self._unsent_bytes
        )
        if spoke:
            self._heard_at = now
        self._received_bytes = observation.received_bytes
        self._unsent_bytes = observation.unsent_bytes
        return spoke

    def _is_stalled(self, now: float, observation: Observation, timeout_s: float) -> bool:
        progress = max(_MIN_PROGRESS_BYTES, observation.frame_bytes // _PROGRESS_SHARE)
        if (
            not observation.frame_bytes
            or observation.is_paused
            or observation.received_bytes - self._frame_start_bytes >= progress
        ):
            self._frame_start_bytes = observation.received_bytes
            self._frame_progress_at = now
            return False
        return now - self._frame_progress_at > timeout_s
