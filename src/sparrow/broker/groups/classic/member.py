"""A member of a classic group, and the choice of a protocol. Pure: no I/O, no clock."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sparrow.broker.groups.classic.protocol import JoinRequest

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the order of preference."""


class ClassicMember(Struct):
    """One member. Tickets name waiting requests; times are monotonic seconds.

    `is_new`: its first JoinGroup is not answered yet. It is forgotten when that takes too long, so
    that retries of an impatient client do not pile up members (KAFKA-7610).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join_ticket: object | None = None
    sync_ticket: object | None = None
    session_ends_at: float = 0.0

    def metadata(self, protocol: str) -> bytes:
        """Return its metadata for a protocol, empty if it does not know the protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    @property
    def protocol_names(self) -> set[str]:
        """Return the protocols that it knows."""
        return {name for name, _ in self.protocols}

    def take(self, request: JoinRequest) -> None:
        """Take over the values of the member's newest request."""
        self.protocols = request.protocols
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.client_id = request.client_id
        self.client_host = request.client_host

    def renew_session(self, now: float) -> None:
        """Begin the session again, after a request or a response."""
        self.session_ends_at = now + self.session_timeout_ms / 1000

    @property
    def overdue_at(self) -> float | None:
        """Return the time at which its session ends unless it sends something before; None while it
        has a waiting request.
        """
        is_waiting = self.join_ticket is not None or self.sync_ticket is not None
        return None if is_waiting and not self.is_new else self.session_ends_at

    def is_overdue(self, now: float) -> bool:
        """Return True if its session is over."""
        at = self.overdue_at
        return at is not None and at <= now


def common_protocols(members: Collection[ClassicMember]) -> set[str]:
    """Return the names of protocols that all members know."""
    known = [member.protocol_names for member in members]
    return set.intersection(*known) if known else set()


def elect_protocol(members: Collection[ClassicMember], leader: ClassicMember) -> str:
    """Return the protocol with most votes: each member votes for its favourite among those that all
    know. The leader decides a tie.

    At least one protocol must be common to all.
    """
    candidates = common_protocols(members)
    votes = Counter(_favourite(member.protocols, candidates) for member in members)
    ranked = (name for name, _ in leader.protocols if name in candidates)
    return max(ranked, key=lambda name: votes[name])


def _favourite(protocols: Iterable[tuple[str, bytes]], candidates: set[str]) -> str:
    return next(name for name, _ in protocols if name in candidates)
