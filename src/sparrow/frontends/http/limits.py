"""Limits of the HTTP frontend, each with its unit."""

from __future__ import annotations

from dataclasses import dataclass

from sparrow.base.settings import WORDS, choice, duration, integer, option, size
from sparrow.frontends.listener_limits import ListenerLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits(ListenerLimits):
    """Options of the frontend. The limits of heads and pipelining are those of other servers, or
    higher. `max_connections` counts HTTP and WebSocket together; more are refused with 503.
    `receive_budget_bytes` is for bodies above `small_body_bytes`. Above `write_high_water_bytes`
    nothing is read or leased for the client.
    """

    max_head_bytes: int = option(
        "http.max_head",
        size(1 << 10, 1 << 20),
        64 << 10,
        "Largest head of a request: its request line and headers. Before the login it is 16 KiB at most.",
    )
    max_unauthenticated_head_bytes: int = 16 << 10
    """The same before the login."""
    max_headers: int = option("http.max_headers", integer(1, 100_000), 1_000, "Most headers of a request.")
    max_body_bytes: int = option(
        "http.max_body",
        size(1 << 10, 1 << 30),
        16 << 20,
        "Largest body of a request, and largest message of a WebSocket.",
    )
    max_messages: int = 10_000
    """Messages of one request, published or read."""
    max_pipelined: int = option(
        "http.max_pipelined",
        integer(1, 100_000),
        100,
        "Most requests that wait on one connection.",
    )
    head_timeout_ms: int = option(
        "http.head_timeout",
        duration(100, 3_600_000),
        30_000,
        "Maximum time for a client to send the head of a request.",
    )
    body_timeout_ms: int = option(
        "http.body_timeout",
        duration(100, 3_600_000),
        30_000,
        "Maximum time for a client to send the body of a request, and for the wait for its memory.",
    )
    idle_timeout_ms: int = option(
        "http.idle_timeout",
        duration(100, 3_600_000),
        75_000,
        "Time that a connection stays open without a request.",
    )
    stall_timeout_ms: int = 30_000
    """Time that a client may read nothing of a response."""
    small_body_bytes: int = 64 << 10
    max_wait_ms: int = 60_000
    """Longest wait of a request for messages."""
    failed_login_delay_ms: int = 500
    """Delay of the response to a wrong password or token, so that guessing is slow."""
    cors_origins: tuple[str, ...] = option(
        "http.cors_origins",
        WORDS,
        (),
        "Origins whose web pages may use the HTTP listener, such as https://app.example.org; * for all.",
    )
    console: str = option(
        "http.console",
        choice("on", "read-only", "off"),
        "on",
        "The web console at /ui/; read-only: a page that this listener serves may change nothing.",
    )
