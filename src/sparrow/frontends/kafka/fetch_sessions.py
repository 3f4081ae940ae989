"""Incremental fetch sessions (KIP-227): the client sends only changes, the broker remembers the
rest.

A session holds the partitions that a client fetches. Its epoch counts the requests, so that both
sides notice when they disagree. An incremental response contains only partitions with records,
errors, or moved offsets. Partitions that returned records move to the end of the order, so that a
full response does not starve the others.

Pure: the time (monotonic seconds) is passed in.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from sparrow.broker.access.authz import ANONYMOUS

if TYPE_CHECKING:
    import uuid

    from sparrow.broker.access.authz import Principal

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
FIRST_EPOCH: Final = 0
_MAX_INT: Final = (1 << 31) - 1
EVICTABLE_AFTER_S: Final = 120.0
"""(min.incremental.fetch.session.eviction.ms)"""

TopicIdPartition = tuple["uuid.UUID | str", int]
"""Topic id (from version 13) or name, and partition."""


class SessionPartition(Struct):
    """A partition of a session: the request of the client, and the offsets that the client
    knows.
    """

    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    high_watermark: int = -1
    log_start_offset: int = -1
    last_stable_offset: int = -1


class FetchSession(Struct):
    """The partitions that one client fetches, in the order in which they are read."""

    id: int
    uses_ids: bool
    epoch: int = 1
    used_at: float = 0.0
    partitions: dict[TopicIdPartition, SessionPartition] = field(default_factory=dict)
    owner: Principal = ANONYMOUS
    """For other principals the session does not exist: ids can be guessed, and a session names
    topics.
    """

    def move_to_end(self, key: TopicIdPartition) -> None:
        """Move a partition that returned records to the end, so that others are read first next
        time.
        """
        self.partitions[key] = self.partitions.pop(key)


class FetchSessions:
    """The fetch sessions of one frontend: at most `slots`, with at most `max_partitions`
    together.
    """

    def __init__(self, slots: int, max_partitions: int = _MAX_INT) -> None:
        self._slots = slots
        self._max_partitions = max_partitions
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def create(
        self,
        partitions: dict[TopicIdPartition, SessionPartition],
        now: float,
        *,
        uses_ids: bool,
        owner: Principal = ANONYMOUS,
    ) -> int:
        """Create a session and return its id, or 0 if there is no room; the client then continues
        with full requests.
        """
        if len(self._sessions) >= self._slots and not self._evict(now):
            return NO_SESSION
        while not self.has_room(len(partitions)):
            if not self._evict(now):
                return NO_SESSION
        session_id = secrets.randbelow(_MAX_INT - 1) + 1
        while session_id in self._sessions:
            session_id = secrets.randbelow(_MAX_INT - 1) + 1
        self._sessions[session_id] = FetchSession(
            session_id, uses_ids, used_at=now, partitions=partitions, owner=owner
        )
        return session_id

    def has_room(self, new: int) -> bool:
        """Return True if the sessions may have `new` more partitions."""
        return sum(len(each.partitions) for each in self._sessions.values()) + new <= self._max_partitions

    def find(self, session_id: int) -> FetchSession | None:
        """Return the session, or None."""
        return self._sessions.get(session_id)

    def advance(self, session: FetchSession, now: float) -> None:
        """Begin the session's next request and mark it as used last."""
        session.epoch = session.epoch + 1 if session.epoch < _MAX_INT else 1
        session.used_at = now
        self._sessions[session.id] = self._sessions.pop(session.id)

    def close(self, session_id: int) -> None:
        """Remove a session; an unknown one is no error."""
        self._sessions.pop(session_id, None)

    def _evict(self, now: float) -> bool:
        """Remove the least recently used session if it is old enough. Return False if none was
        removed.
        """
        session = next(iter(self._sessions.values()), None)
        if session is None or now - session.used_at < EVICTABLE_AFTER_S:
            return False
        del self._sessions[session.id]
        return True
