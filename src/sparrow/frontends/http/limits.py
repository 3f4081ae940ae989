"""What the HTTP door allows; every limit with its unit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Options of the door. Those of the head and of pipelining are what other servers have, or more."""

    max_connections: int = 10_000
    """HTTP and WebSocket together; more are refused with 503."""
    max_head_bytes: int = 64 << 10
    """Request line and headers of one request."""
    max_body_bytes: int = 16 << 20
    max_messages: int = 10_000
    """Messages of one request, published or read."""
    max_pipelined: int = 100
    """Requests of one connection that wait for their turn."""
    body_timeout_ms: int = 30_000
    """How long a client may take to send the head of a request, and then its body."""
    idle_timeout_ms: int = 75_000
    """How long a connection stays open between requests."""
    stall_timeout_ms: int = 30_000
    """How long a client may take nothing of an answer that waits for it."""
    receive_budget_bytes: int = 256 << 20
    """Memory for bodies above `small_body_bytes`, all requests together."""
    small_body_bytes: int = 64 << 10
    pages_bytes: int = 64 << 20
    """Memory for pages of messages that are being read or that their clients have not taken yet, all together."""
    max_wait_ms: int = 60_000
    """The longest that a request may wait for messages."""
    failed_login_delay_ms: int = 500
    """How long a wrong password or token waits for its answer, so that guessing is slow."""
    idempotency_window_ms: int = 86_400_000
    cors_origins: tuple[str, ...] = ()
    """Origins whose web pages may use the door; "*" for all."""
    sweep_interval_ms: int = 1_000
