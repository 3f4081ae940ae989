"""Share sessions (KIP-932): the partitions that a member of a share group fetches, and its
connection.

A member has one session with a broker. Its epoch counts the requests, both fetches and
acknowledgements, so that both sides notice when they disagree; the member then opens a new session
with epoch 0. Epoch -1 closes it. A session ends with its connection: the member's records are
released then, so that they do not wait for a client that is gone.

For principals other than its owner a session does not exist. Pure: no sockets, no time; connections
are only compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from sparrow.broker.access.authz import ANONYMOUS

if TYPE_CHECKING:
    import uuid

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.queues.consumer import QueueConsumer

FINAL_EPOCH: Final = -1
FIRST_EPOCH: Final = 0
_MAX_EPOCH: Final = (1 << 31) - 1

TopicIdPartition = tuple["uuid.UUID", int]
"""Topic id and partition."""
Member = tuple[str, str]
"""Group and member id."""


class ShareSessionError(Exception):
    """A request does not fit its session; the text is for the client."""


class SessionNotFound(ShareSessionError):
    """The member has no session; it opens one with epoch 0."""


class InvalidSessionEpoch(ShareSessionError):
    """Requests were lost or repeated; the member opens a new session with epoch 0."""


class SessionLimitReached(ShareSessionError):
    """The number of sessions, or of partitions in sessions, is at its limit."""


class MemberTaken(ShareSessionError):
    """Another principal uses this member id."""


class ShareSession(Struct, eq=False):
    """The session of one member. `partitions` is an ordered set, in the order of the requests."""

    group: str
    member_id: str
    owner: Principal
    connection: object
    epoch: int = FIRST_EPOCH
    """The epoch of the next request."""
    partitions: dict[TopicIdPartition, None] = field(default_factory=dict)
    consumer: QueueConsumer | None = None
    """The consumer that acquires records; None until the first fetch. A later session of the member
    takes it over.
    """
    is_open: bool = True

    @property
    def member(self) -> Member:
        return self.group, self.member_id


class ShareSessions:
    """The share sessions of one frontend.

    Args:
        slots: the most sessions (group.share.max.share.sessions).
        max_partitions: the most partitions of all sessions together.
    """

    def __init__(self, slots: int, max_partitions: int) -> None:
        self._slots = slots
        self._max_partitions = max_partitions
        self._sessions: dict[Member, ShareSession] = {}
        self._by_connection: dict[object, set[ShareSession]] = {}
        self._partitions = 0

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(list(self._sessions.values()))

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Number of partitions of all sessions together."""
        return self._partitions

    def open(
        self,
        member: Member,
        partitions: Iterable[TopicIdPartition],
        connection: object,
        owner: Principal = ANONYMOUS,
    ) -> ShareSession:
        """Open a session and close the member's previous one, if any; its records stay acquired.

        Raises:
            SessionLimitReached, MemberTaken
        """
        before = self._sessions.get(member)
        if before is not None and before.owner != owner:
            raise MemberTaken(f"Another principal is member {member[1]!r} of group {member[0]!r}.")
        wanted = dict.fromkeys(partitions)
        sessions = len(self._sessions) - (before is not None)
        kept = self._partitions - (len(before.partitions) if before is not None else 0)
        if sessions >= self._slots or kept + len(wanted) > self._max_partitions:
            raise SessionLimitReached(
                f"There are {sessions} share sessions with {kept} partitions; there may be {self._slots} with"
                f" {self._max_partitions} (group.share.max.share.sessions).",
            )
        session = ShareSession(*member, owner, connection, FIRST_EPOCH + 1, wanted)
        if before is not None:
            session.consumer, before.consumer = before.consumer, None
            self.close(before)
        self._sessions[member] = session
        self._by_connection.setdefault(connection, set()).add(session)
        self._partitions += len(wanted)
        return session

    def find(self, member: Member, owner: Principal = ANONYMOUS) -> ShareSession:
        """Return the member's session.

        Raises:
            SessionNotFound
        """
        session = self._sessions.get(member)
        if session is None or session.owner != owner:
            raise SessionNotFound(
                f"Member {member[1]!r} of group {member[0]!r} has no share session; epoch 0 opens one.",
            )
        return session

    def advance(self, member: Member, epoch: int, owner: Principal = ANONYMOUS) -> ShareSession:
        """Return the session for its next request, which has this epoch.

        Raises:
            SessionNotFound, InvalidSessionEpoch
        """
        session = self.find(member, owner)
        if session.epoch != epoch:
            raise InvalidSessionEpoch(
                f"The share session is at epoch {session.epoch}, not {epoch}; epoch 0 opens a new one.",
            )
        session.epoch = epoch + 1 if epoch < _MAX_EPOCH else FIRST_EPOCH + 1
        return session

    def update(
        self, session: ShareSession, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        """Add and remove partitions.

        Raises:
            SessionLimitReached: nothing was changed.
        """
        new = dict.fromkeys(key for key in added if key not in session.partitions)
        if new and self._partitions + len(new) > self._max_partitions:
            raise SessionLimitReached(
                f"Share sessions may have {self._max_partitions} partitions together; {len(new)} "
                "more are too many.",
            )
        before = len(session.partitions)
        session.partitions.update(new)
        for key in forgotten:
            session.partitions.pop(key, None)
        self._partitions += len(session.partitions) - before

    def close(self, session: ShareSession) -> None:
        """Remove a session; closing it again is no error."""
        if not session.is_open:
            return
        session.is_open = False
        if self._sessions.get(session.member) is session:
            del self._sessions[session.member]
        self._partitions -= len(session.partitions)
        mates = self._by_connection.get(session.connection)
        if mates is not None:
            mates.discard(session)
            if not mates:
                del self._by_connection[session.connection]

    def disconnected(self, connection: object) -> list[ShareSession]:
        """Close the sessions of a lost connection and return them."""
        gone = list(self._by_connection.get(connection, ()))
        for session in gone:
            self.close(session)
        return gone
