"""Limits that the listeners of several protocols have in common, each declared once."""

from __future__ import annotations

from dataclasses import dataclass

from sparrow.base.settings import duration, integer, option, size

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """Limits of every listener. Sizes in bytes, times in milliseconds."""

    receive_budget_bytes: int = option(
        "receive_budget",
        size(1 << 20, 1 << 40),
        256 << 20,
        "Memory for frames that are being received, all connections together.",
    )
    send_budget_bytes: int = option(
        "send_budget",
        size(16 << 20, 1 << 40),
        256 << 20,
        "Memory for records that clients were sent and have not taken, all connections of all "
        "listeners together.",
    )
    idle_timeout_ms: int = option(
        "idle_timeout",
        duration(1000, _DAY_MS),
        60_000,
        "A connection silent for so long is closed.",
        show="60s",
    )
    max_connections: int = option(
        "max_connections",
        integer(1, 1_000_000),
        10_000,
        "Connections at a time at each listener; more are refused.",
    )
    write_high_water_bytes: int = 64 << 10
    """Unsent bytes above which a connection counts as not reading."""
    sweep_interval_ms: int = 1_000
    """Interval between checks of the timeouts of all connections."""
