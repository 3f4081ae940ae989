"""What the door allows: one frozen object of limits."""

from __future__ import annotations

from dataclasses import dataclass

from sparrow.protocol.native import frames
from sparrow.protocol.native.connection import MAX_CHANNELS


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
    max_fetch_bytes: int = 4 << 20
    """Upper bound of what a client may ask for in one FETCH."""
    write_high_water_bytes: int = 1 << 20
    """Unsent bytes above which a connection gets no deliveries and is not read from."""
    max_concurrent_calls: int = 32
    """REQUESTs of one connection that are worked on at the same time; the others wait."""
    max_waiting_work: int = 256
    """Calls and commits of one connection that wait; above it the connection is not read from."""
    max_unsettled_ranges: int = 20_000
    """Ranges of SETTLEs of one connection that are not on stable storage yet; above it the connection is not read from."""
    hello_timeout_ms: int = 10_000
    failed_authentication_delay_ms: int = 100
    """How long the answer to a wrong login waits."""
    idle_timeout_ms: int = 60_000
    """0: never."""
    stall_timeout_ms: int = 30_000
    """How long an unfinished frame may go without progress, which is a twentieth of its size."""
    closing_timeout_ms: int = 5_000
    """How long a closed connection may take to send what is queued."""
    sweep_interval_ms: int = 1_000
    """How often the clocks of all connections are looked at."""
