"""All open sockets of the door, and what they share: rendered records, memory, one sweep of their clocks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparrow.frontends.http.frontend import HttpFrontend
    from sparrow.frontends.http.rendering import Renderings
    from sparrow.frontends.http.sockets.protocol import SocketProtocol

MAX_PINGS_PER_SWEEP: Final = 500
"""Sockets that fell silent together are pinged over some sweeps."""


class Sockets:
    """Loop thread only, but for the constructor."""

    def __init__(self, door: HttpFrontend, renderings: Renderings) -> None:
        self.door = door
        self.renderings = renderings
        self.budget = door.budget
        self.max_bytes = door.limits.max_body_bytes
        self.small_bytes = door.limits.small_body_bytes
        self.message_timeout_s = door.limits.body_timeout_ms / 1000
        self._open: set[SocketProtocol] = set()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, socket: SocketProtocol) -> None:
        """It is open."""
        self._open.add(socket)

    def discard(self, socket: SocketProtocol) -> None:
        """It is gone."""
        self._open.discard(socket)

    def sweep(self, _: float = 0.0) -> None:
        """Look at the clocks of all."""
        now = asyncio.get_running_loop().time()
        pings = 0
        for socket in list(self._open):
            pings += socket.sweep(now, may_ping=pings < MAX_PINGS_PER_SWEEP)
