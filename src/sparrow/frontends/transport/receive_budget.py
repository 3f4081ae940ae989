"""The memory for frames that a frontend is receiving, shared by its connections.

A connection whose frame does not end within the chunk in which it began reserves the announced
size. If there is no room, the connection is not read from until there is. Grants are in order of
request, so no connection starves. A frame larger than the whole budget is granted when nothing else
is reserved, so no connection waits forever. A connection with a reservation waits for nothing but
bytes from its peer, and each frontend limits that wait: so there is no deadlock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ReceiveBudget:
    """Bytes of receive memory that all connections share. Loop thread only."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.reserved_bytes = 0
        self._waiting: dict[Callable[[], None], int] = {}
        """The requested bytes by callback, in the order of request."""

    @property
    def waiting(self) -> int:
        """Number of requests that wait for room."""
        return len(self._waiting)

    @property
    def is_tight(self) -> bool:
        """Return True if more than half of the memory is reserved or a request waits; then read in
        small pieces.
        """
        return bool(self._waiting) or self.reserved_bytes > self.total_bytes // 2

    def reserve(self, size_bytes: int, granted: Callable[[], None]) -> bool:
        """Return True if the bytes are reserved now. Otherwise `granted` is called once, later,
        when they are.
        """
        if not self._waiting and self._has_room(size_bytes):
            self.reserved_bytes += size_bytes
            return True
        self._waiting[granted] = size_bytes
        return False

    def withdraw(self, granted: Callable[[], None]) -> None:
        """Cancel a request that was not granted yet."""
        self._waiting.pop(granted, None)
        self._grant()

    def release(self, size_bytes: int) -> None:
        """Release reserved bytes and grant waiting requests."""
        self.reserved_bytes -= size_bytes
        if self._waiting:
            self._grant()

    def _has_room(self, size_bytes: int) -> bool:
        return self.reserved_bytes + size_bytes <= self.total_bytes or self.reserved_bytes == 0

    def _grant(self) -> None:
        while self._waiting:
            granted, size_bytes = next(iter(self._waiting.items()))
            if not self._has_room(size_bytes):
                break
            del self._waiting[granted]
            self.reserved_bytes += size_bytes
            granted()
