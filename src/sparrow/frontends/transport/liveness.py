"""Liveness of a connection, decided from a few counters at each sweep, without a timer per
connection.

A peer is heard if bytes came, if it took bytes, if the broker itself paused reading, or while the
broker works for it. An unfinished message must progress: within `stall_s` at least a twentieth of
its announced size must arrive (at least 1 KiB, or the rest). So no client keeps a share of the
receive budget by sending a byte now and then.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Final

from msgspec import Struct

_PROGRESS_SHARE: Final = 20
_MIN_PROGRESS_BYTES: Final = 1024
NEVER: Final = math.inf


class Deadlines(Struct, frozen=True):
    """The timeouts of all connections of one frontend, in seconds."""

    login_s: float = NEVER
    """From the beginning of the connection until the client is known."""
    stall_s: float = NEVER
    """For the progress of an unfinished message."""
    idle_s: float = NEVER
    """Without a sign of life."""
    unread_s: float = NEVER
    """Without taking any of the bytes that wait to be sent."""
    closing_s: float = 5.0
    """For the peer to take the last bytes, and to close its side, after the broker has ended the
    connection.
    """
    is_whole_message: bool = False
    """True if a message must be complete within `stall_s`, whatever its progress."""


class Verdict(Enum):
    """State of a connection at a sweep. One that is neither ALIVE nor SILENT must be closed."""

    ALIVE = "alive"
    SILENT = "silent"
    """Nothing came since the last sweep, but no timeout has passed."""
    NOT_KNOWN = "no login in time"
    IDLE = "idle"
    STALLED = "stalled"
    UNREAD = "it does not read what it is sent"


class Liveness:
    """The state between two sweeps. Times are monotonic seconds."""

    __slots__ = (
        "_closing_at",
        "_heard_at",
        "_opened_at",
        "_progress_at",
        "_progress_bytes",
        "_received_bytes",
        "_unread_at",
        "_unsent_bytes",
    )

    def __init__(self, now: float) -> None:
        self._opened_at = self._heard_at = self._unread_at = now
        self._progress_at: float | None = None
        """When the unfinished message began or made progress; None: not seen at a sweep yet."""
        self._closing_at: float | None = None
        self._received_bytes = self._unsent_bytes = self._progress_bytes = 0

    def message_completed(self) -> None:
        """Restart the time of `is_whole_message`: another message begins."""
        self._progress_at = None

    def is_late_to_close(self, now: float, deadlines: Deadlines, unsent_bytes: int) -> bool:
        """Return True if an ended connection took nothing and did not close for `closing_s`."""
        if self._closing_at is None or unsent_bytes < self._unsent_bytes:
            self._closing_at = now
        self._unsent_bytes = unsent_bytes
        return now - self._closing_at > deadlines.closing_s

    def check(
        self,
        now: float,
        deadlines: Deadlines,
        *,
        received_bytes: int,
        unsent_bytes: int,
        unfinished_bytes: int = 0,
        is_known: bool = True,
        is_paused: bool = False,
        has_work: bool = False,
    ) -> Verdict:
        """Return the verdict.

        Args:
            received_bytes: total since the connection was made.
            unfinished_bytes: announced size of the unfinished message; 0: none.
            is_known: True if the client has logged in, or needs no login.
            is_paused: True if the broker paused reading, for a reason that the peer cannot clear.
            has_work: True if the broker works for the peer.
        """
        if not unsent_bytes or unsent_bytes != self._unsent_bytes:
            self._unread_at = now
        is_heard = is_paused or received_bytes != self._received_bytes or unsent_bytes < self._unsent_bytes
        if is_heard or has_work:
            self._heard_at = now
        self._received_bytes = received_bytes
        self._unsent_bytes = unsent_bytes
        if not is_known and now - self._opened_at > deadlines.login_s:
            return Verdict.NOT_KNOWN
        if self._is_stalled(now, deadlines, 0 if is_paused else unfinished_bytes):
            return Verdict.STALLED
        if now - self._unread_at > deadlines.unread_s:
            return Verdict.UNREAD
        if now - self._heard_at > deadlines.idle_s:
            return Verdict.IDLE
        return Verdict.ALIVE if is_heard else Verdict.SILENT

    def _is_stalled(self, now: float, deadlines: Deadlines, unfinished_bytes: int) -> bool:
        progress_bytes = max(_MIN_PROGRESS_BYTES, unfinished_bytes // _PROGRESS_SHARE)
        has_progress = (
            not deadlines.is_whole_message and self._received_bytes - self._progress_bytes >= progress_bytes
        )
        if not unfinished_bytes or has_progress or self._progress_at is None:
            self._progress_bytes = self._received_bytes
            self._progress_at = now if unfinished_bytes else None
            return False
        return now - self._progress_at > deadlines.stall_s
