"""The limits of the Kafka frontend, as one frozen object."""

from __future__ import annotations

from dataclasses import dataclass

from sparrow.base.settings import duration, integer, option
from sparrow.frontends.listener_limits import ListenerLimits

_YEAR_MS = 365 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLimits(ListenerLimits):
    """Sizes in bytes, times in milliseconds. Kafka's names of the same limits in brackets;
    `receive_budget_bytes` is queued.max.request.bytes there.
    """

    max_request_bytes: int = 100 << 20
    """(socket.request.max.bytes)"""
    max_unauthenticated_request_bytes: int = 16 << 10
    """(sasl.server.max.receive.size, which is 512 KiB for Kerberos; the mechanisms here need
    less)
    """
    unauthenticated_write_high_water_bytes: int = 64 << 10
    """As `write_high_water_bytes`, before the login."""
    login_budget_bytes: int = 64 << 20
    """As `receive_budget_bytes`, for connections that have not logged in, so that they do not delay
    those that have.
    """
    login_timeout_ms: int = 30_000
    """Limit from the beginning of the connection until the login is complete."""
    failed_authentication_delay_ms: int = 100
    """(connection.failed.authentication.delay.ms)"""
    max_session_ms: int = option(
        "kafka.max_session",
        duration(0, _YEAR_MS),
        0,
        "Time for which a SASL login is valid before the client must log in again; 0: as long as the "
        "connection.",
    )
    """(connections.max.reauth.ms)"""
    max_waiting_requests: int = 64
    """Requests of one connection that were received and not begun; beyond it the connection is not
    read from.
    """
    max_waiting_bytes: int = 128 << 10
    """Bytes of such requests; a larger request is received when it can begin."""
    max_unanswered_produces: int = 256
    """Produce requests of one connection whose records wait for the disk."""
    write_high_water_bytes: int = 4 << 20
    """Unsent bytes beyond which a connection's requests wait."""
    idle_timeout_ms: int = 600_000
    """A connection may be idle, or take nothing of its responses, for this long
    (connections.max.idle.ms).
    """
    stall_timeout_ms: int = 30_000
    """An unfinished request may be without progress, which is a twentieth of its size, for this
    long.
    """
    max_fetch_bytes: int = 55 << 20
    """(fetch.max.bytes)"""
    max_fetch_sessions: int = 1_000
    """(max.incremental.fetch.session.cache.slots)"""
    max_fetch_session_partitions: int = 2_000_000
    """All sessions together, about 200 bytes per partition; beyond it clients fetch without a
    session.
    """
    max_share_sessions: int = 2_000
    """(group.share.max.share.sessions)"""
    max_share_session_partitions: int = 1_000_000
    """All share sessions together, about 100 bytes per partition; beyond it no session is
    opened.
    """
    max_replication_factor: int = option(
        "kafka.max_replication_factor",
        integer(1, 32_767),
        1,
        "Largest replication factor that a new topic may ask for; there is one replica nevertheless.",
    )
    """More than 1 is for programs and test suites that insist on it."""
