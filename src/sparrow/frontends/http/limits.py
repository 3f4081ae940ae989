"""Limits of the HTTP frontend, each with its unit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Options of the frontend. The limits of heads and pipelining are those of other servers, or
    higher.
    """

    max_connections: int = 10_000
    """HTTP and WebSocket together; more are refused with 503."""
    max_head_bytes: int = 64 << 10
    """Request line and headers of one request."""
    max_unauthenticated_head_bytes: int = 16 << 10
    """The same before the login, for all requests of a connection that wait for it together."""
    max_body_bytes: int = 16 << 20
    max_messages: int = 10_000
    """Messages of one request, published or read."""
    max_pipelined: int = 100
    """Pipelined requests that wait on one connection."""
    body_timeout_ms: int = 30_000
    """Time for a client to send the head of a request, and again for its body."""
    idle_timeout_ms: int = 75_000
    """Time that a connection stays open between requests."""
    stall_timeout_ms: int = 30_000
    """Time that a client may read nothing of a response."""
    receive_budget_bytes: int = 256 << 20
    """Memory for bodies above `small_body_bytes`, all requests together."""
    small_body_bytes: int = 64 << 10
    send_budget_bytes: int = 256 << 20
    """Memory for messages that are being read or that clients have not read yet, all together."""
    max_wait_ms: int = 60_000
    """Longest wait of a request for messages."""
    failed_login_delay_ms: int = 500
    """Delay of the response to a wrong password or token, so that guessing is slow."""
    idempotency_window_ms: int = 86_400_000
    cors_origins: tuple[str, ...] = ()
    """Origins whose web pages may use the frontend; "*" for all."""
    sweep_interval_ms: int = 1_000
