"""The memory that a door gives to frames that are being received, shared by its connections.

A connection whose frame does not end with the chunk it began in reserves the announced size; where there is no room it is not
read from until there is. Grants are in order of asking, so nobody starves, and a frame larger than the whole budget is granted
when nothing else is held, so nothing waits for ever. Whoever holds a reservation waits for nothing but its peer's bytes, and each
door bounds that wait: no deadlock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ReceiveBudget:
    """Bytes that all connections share. Loop thread only."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.held_bytes = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._waiting)

    def reserve(self, size_bytes: int, granted: Callable[[], None]) -> bool:
        """True if the bytes are reserved now. Else `granted` is called once, later, when they are."""
        if not self._waiting and self._has_room(size_bytes):
            self.held_bytes += size_bytes
            return True
        self._waiting.append((size_bytes, granted))
        return False

    def withdraw(self, granted: Callable[[], None]) -> None:
        """Forget a reservation that was not granted yet."""
        self._waiting = deque(entry for entry in self._waiting if entry[1] != granted)
        self._grant()

    def release(self, size_bytes: int) -> None:
        """Give reserved bytes back."""
        self.held_bytes -= size_bytes
        if self._waiting:
            self._grant()

    def _has_room(self, size_bytes: int) -> bool:
        return self.held_bytes + size_bytes <= self.total_bytes or self.held_bytes == 0

    def _grant(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            size_bytes, granted = self._waiting.popleft()
            self.held_bytes += size_bytes
            granted()
