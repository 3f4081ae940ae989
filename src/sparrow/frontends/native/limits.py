"""What the door allows: one frozen object of limits, and the budget that all connections share.

The budget bounds the memory of frames that are being received. A connection whose frame does not end with the chunk it began
in reserves the announced size; where there is no room it is not read from until there is. Grants are in order of asking, so
nobody starves, and a frame larger than the whole budget is granted when nothing else is held, so nothing waits for ever.
Whoever holds a reservation waits for nothing but its peer's bytes, and `liveness` bounds that wait: no deadlock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrow.protocol.native import frames
from sparrow.protocol.native.connection import MAX_CHANNELS

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class NativeLimits:
    """Sizes in bytes, times in milliseconds."""

    max_connections: int = 10_000
    max_channels: int = MAX_CHANNELS
    """Per connection."""
    max_frame_bytes: int = frames.MAX_FRAME_BYTES
    receive_budget_bytes: int = 256 << 20
    """For the unfinished frames of all connections together."""
    window_bytes: int = 8 << 20
    """Unconfirmed batches of one producer channel."""
    connection_window_bytes: int = 64 << 20
    """Unconfirmed batches of all producer channels of one connection."""
    max_deliver_bytes: int = 4 << 20
    """Upper bound of what a client may ask for in one DELIVER or as the answer to one PULL."""
    write_high_water_bytes: int = 1 << 20
    """Unsent bytes above which a connection gets no deliveries and is not read from."""
    max_concurrent_calls: int = 32
    """REQUESTs of one connection that are worked on at the same time; the others wait."""
    max_waiting_work: int = 256
    """Calls and commits of one connection that wait; above it the connection is not read from."""
    hello_timeout_ms: int = 10_000
    idle_timeout_ms: int = 60_000
    """0: never."""
    stall_timeout_ms: int = 30_000
    """How long an unfinished frame may go without progress, which is a twentieth of its size."""
    closing_timeout_ms: int = 5_000
    """How long a closed connection may take to send what is queued."""
    sweep_interval_ms: int = 1_000
    """How often the clocks of all connections are looked at."""


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
