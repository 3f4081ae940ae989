"""Incremental fetch sessions (KIP-227): the client names what changed, the broker remembers the rest.

A session holds the partitions that a client fetches. Its epoch counts the requests, so that both notice when they disagree. An
incremental answer has only the partitions with records, errors, or moved offsets. Partitions that gave records go to the end of
the order, so that a full answer does not starve the others.

Pure: the time (monotonic seconds) comes in.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

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

Key = tuple["uuid.UUID | str", int]
"""Topic id (versions from 13) or name, and partition."""


@dataclass(slots=True)
class SessionPartition:
    """A partition of a session: what is asked of it, and what the client knows of it."""

    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    high_watermark: int = -1
    log_start_offset: int = -1
    last_stable_offset: int = -1


@dataclass(slots=True)
class Session:
    """What one client fetches. The order of `partitions` is the order in which they are read."""

    id: int
    uses_ids: bool
    epoch: int = 1
    used_at: float = 0.0
    partitions: dict[Key, SessionPartition] = field(default_factory=dict)
    owner: Principal = ANONYMOUS
    """To others it does not exist: numbers can be guessed, and a session names topics."""

    def moved_back(self, key: Key) -> None:
        """A partition gave records: others go first next time."""
        self.partitions[key] = self.partitions.pop(key)


class FetchSessions:
    """The sessions of one door, of which there are at most `slots`, with at most `max_partitions` together."""

    def __init__(self, slots: int, max_partitions: int = _MAX_INT) -> None:
        self._slots = slots
        self._max_partitions = max_partitions
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def create(
        self,
        partitions: dict[Key, SessionPartition],
        now: float,
        *,
        uses_ids: bool,
        owner: Principal = ANONYMOUS,
    ) -> int:
        """A new session; its id, or 0 when there is no room: the client goes on with full requests."""
        if len(self._sessions) >= self._slots and not self._evict(now):
            return NO_SESSION
        while not self.has_room(len(partitions)):
            if not self._evict(now):
                return NO_SESSION
        session_id = secrets.randbelow(_MAX_INT - 1) + 1
        while session_id in self._sessions:
            session_id = secrets.randbelow(_MAX_INT - 1) + 1
        self._sessions[session_id] = Session(
            session_id, uses_ids, used_at=now, partitions=partitions, owner=owner
        )
        return session_id

    def has_room(self, new: int) -> bool:
        """Whether the sessions may have so many partitions more."""
        return sum(len(each.partitions) for each in self._sessions.values()) + new <= self._max_partitions

    def find(self, session_id: int) -> Session | None:
        """The session, or None."""
        return self._sessions.get(session_id)

    def advance(self, session: Session, now: float) -> None:
        """The session's next request is under way. It becomes the one used last."""
        session.epoch = session.epoch + 1 if session.epoch < _MAX_INT else 1
        session.used_at = now
        self._sessions[session.id] = self._sessions.pop(session.id)

    def close(self, session_id: int) -> None:
        """Forget a session; one that is unknown is no error."""
        self._sessions.pop(session_id, None)

    def _evict(self, now: float) -> bool:
        """Drop the session that was used least recently, if that is long ago."""
        session = next(iter(self._sessions.values()), None)
        if session is None or now - session.used_at < EVICTABLE_AFTER_S:
            return False
        del self._sessions[session.id]
        return True
