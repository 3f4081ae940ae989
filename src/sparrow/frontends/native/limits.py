"""Limits of the native frontend."""

from __future__ import annotations

from dataclasses import dataclass

from sparrow.base.settings import option, size
from sparrow.frontends.listener_limits import ListenerLimits
from sparrow.protocol.native import frames
from sparrow.protocol.native.connection import MAX_CHANNELS


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeLimits(ListenerLimits):
    """Limits of the native frontend. Sizes in bytes, times in milliseconds. `idle_timeout_ms` 0: no
    timeout.
    """

    max_channels: int = MAX_CHANNELS
    """Limit per connection."""
    max_frame_bytes: int = option(
        "max_frame",
        size(64 << 10, 1 << 30),
        frames.MAX_FRAME_BYTES,
        "Largest frame that a client may send.",
    )
    window_bytes: int = 8 << 20
    """Unconfirmed batches of one producer channel."""
    connection_window_bytes: int = 64 << 20
    """Unconfirmed batches of all producer channels of one connection."""
    max_deliver_bytes: int = 4 << 20
    """Limit of one DELIVER, and of the response to one PULL."""
    max_fetch_bytes: int = 4 << 20
    """Limit of one FETCH."""
    write_high_water_bytes: int = 1 << 20
    """Unsent bytes above which a connection gets no deliveries and is not read from."""
    max_concurrent_calls: int = 32
    """REQUESTs of one connection that run at the same time; further ones wait."""
    max_waiting_work: int = 256
    """Waiting requests and commits of one connection; above it the connection is not read from."""
    max_unsettled_ranges: int = 20_000
    """Ranges of SETTLEs of one connection that wait for stable storage; above it the connection is
    not read from.
    """
    hello_timeout_ms: int = 10_000
    failed_authentication_delay_ms: int = 100
    """Delay before the response to a wrong login."""
    stall_timeout_ms: int = 30_000
    """Time within which an unfinished frame must progress by a twentieth of its size."""
    closing_timeout_ms: int = 5_000
    """Time that a closed connection has to send queued frames."""
