"""The state that all WebSockets of the frontend share: their deadlines, and pings that are spread
over time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.frontends.transport.liveness import Deadlines

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext

MAX_PINGS_PER_SWEEP: Final = 500
"""Pings of one sweep; when many sockets fall silent together, the others follow in later sweeps."""
SILENT_S: Final = 60.0
"""Time without bytes from the client, or for them, after which the connection counts as lost."""
HELLO_S: Final = 10.0
CLOSE_S: Final = 2.0
"""Time for the client to complete the closing handshake."""


class Sockets:
    """The shared state of WebSockets. Loop thread only."""

    def __init__(self, frontend: HttpContext) -> None:
        self.deadlines = Deadlines(
            login_s=HELLO_S,
            stall_s=frontend.limits.body_timeout_ms / 1000,
            idle_s=SILENT_S,
            unread_s=SILENT_S,
            closing_s=CLOSE_S,
            is_whole_message=True,
        )
        self._pings = 0
        self._swept_at = 0.0

    def may_ping(self, now: float) -> bool:
        """Return True if the sweep at this time may send one more ping."""
        if now != self._swept_at:
            self._swept_at, self._pings = now, 0
        self._pings += 1
        return self._pings <= MAX_PINGS_PER_SWEEP
