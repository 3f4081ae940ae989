"""All open WebSockets of the frontend, with what they share: rendered records, memory, and one
sweep of their timeouts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.render_cache import RenderCache

MAX_PINGS_PER_SWEEP: Final = 500
"""Pings of one sweep; when many sockets fall silent together, the others follow in later sweeps."""


class OpenSocket(Protocol):
    """An open WebSocket, as the sweep sees it."""

    def sweep(self, now: float, *, may_ping: bool) -> bool:
        """Check the timeouts. Return True if a ping was sent."""
        ...


class Sockets:
    """The open WebSockets. Loop thread only, except the constructor."""

    def __init__(self, frontend: HttpContext, render_cache: RenderCache) -> None:
        self.frontend = frontend
        self.render_cache = render_cache
        self.budget = frontend.budget
        self.max_bytes = frontend.limits.max_body_bytes
        self.small_bytes = frontend.limits.small_body_bytes
        self.message_timeout_s = frontend.limits.body_timeout_ms / 1000
        self._open: set[OpenSocket] = set()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, socket: OpenSocket) -> None:
        """Add an open socket."""
        self._open.add(socket)

    def discard(self, socket: OpenSocket) -> None:
        """Remove a closed socket."""
        self._open.discard(socket)

    def sweep(self, _: float = 0.0) -> None:
        """Check the timeouts of all sockets."""
        now = asyncio.get_running_loop().time()
        pings = 0
        for socket in list(self._open):
            pings += socket.sweep(now, may_ping=pings < MAX_PINGS_PER_SWEEP)
