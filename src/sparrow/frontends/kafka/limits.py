"""What the door allows: one frozen object."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KafkaLimits:
    """Sizes in bytes, times in milliseconds. Kafka's names of the same limits in brackets."""

    max_connections: int = 10_000
    max_request_bytes: int = 100 << 20
    """(socket.request.max.bytes)"""
    max_unauthenticated_request_bytes: int = 512 << 10
    """(sasl.server.max.receive.size)"""
    unauthenticated_write_high_water_bytes: int = 64 << 10
    """As `write_high_water_bytes`, before the login."""
    login_budget_bytes: int = 64 << 20
    """As `receive_budget_bytes`, for connections that have not logged in: they must not keep those waiting that have."""
    login_timeout_ms: int = 30_000
    """How long a login may take, from the beginning of the connection."""
    failed_authentication_delay_ms: int = 100
    """(connection.failed.authentication.delay.ms)"""
    max_session_ms: int = 0
    """How long a login is good for; 0: as long as the connection (connections.max.reauth.ms)."""
    receive_budget_bytes: int = 256 << 20
    """For the unfinished requests of all connections together (queued.max.request.bytes)."""
    max_waiting_requests: int = 64
    """Requests of one connection that were received and not begun; above it the connection is not read from."""
    max_waiting_bytes: int = 128 << 10
    """Bytes of such requests; a request that is larger is received when its turn has come."""
    max_unanswered_produces: int = 256
    """Produce requests of one connection whose records wait for the disk."""
    write_high_water_bytes: int = 4 << 20
    """Unsent bytes above which a connection's requests wait."""
    send_budget_bytes: int = 256 << 20
    """For the records in unsent answers of all connections together; above it a Fetch gets one batch."""
    idle_timeout_ms: int = 600_000
    """How long a connection may be silent, or take nothing of what it is sent (connections.max.idle.ms)."""
    stall_timeout_ms: int = 30_000
    """How long an unfinished request may go without progress, which is a twentieth of its size; and how long unsent answers may, while
    there are too many of them (`send_budget_bytes`)."""
    max_fetch_bytes: int = 55 << 20
    """(fetch.max.bytes)"""
    max_fetch_sessions: int = 1_000
    """(max.incremental.fetch.session.cache.slots)"""
    max_fetch_session_partitions: int = 2_000_000
    """Of all sessions together, each about 200 bytes; above it clients fetch without a session."""
    max_share_sessions: int = 2_000
    """(group.share.max.share.sessions)"""
    max_share_session_partitions: int = 1_000_000
    """Of all share sessions together, each about 100 bytes; above it no session is opened."""
    max_replication_factor: int = 1
    """What a new topic may ask for. More than 1 is for programs and test suites that insist on it: there is one replica."""
    sweep_interval_ms: int = 1_000
