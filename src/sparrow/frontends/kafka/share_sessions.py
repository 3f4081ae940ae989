"""Share sessions (KIP-932): what a member of a share group fetches, and by which connection.

A member has one session with a broker. Its epoch counts the requests, fetches and acknowledgements alike, so that both notice when they
disagree; the member then opens it anew with epoch 0. Epoch -1 closes it. A session goes with its connection: what the member held is
released then, so nobody waits for somebody who is gone.

To anybody but its owner a session does not exist. Pure: no sockets, no time; connections are only compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sparrow.broker.access.authz import ANONYMOUS

if TYPE_CHECKING:
    import uuid

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.queues.consumer import QueueConsumer

FINAL_EPOCH: Final = -1
FIRST_EPOCH: Final = 0
_MAX_EPOCH: Final = (1 << 31) - 1

Key = tuple["uuid.UUID", int]
"""Topic id and partition."""
Member = tuple[str, str]
"""Group and member id."""


class ShareSessionError(Exception):
    """A request does not fit the session that it names; the text is for the client."""


class SessionNotFound(ShareSessionError):
    """The member has no session; it opens one with epoch 0."""


class InvalidSessionEpoch(ShareSessionError):
    """Requests were lost or came twice; the member opens the session anew with epoch 0."""


class SessionLimitReached(ShareSessionError):
    """There are as many sessions, or partitions in sessions, as there may be."""


class MemberTaken(ShareSessionError):
    """Somebody else is this member."""


@dataclass(slots=True, eq=False)
class ShareSession:
    """What one member fetches. `partitions` is a set in the order in which they were named."""

    group: str
    member_id: str
    owner: Principal
    connection: object
    epoch: int = FIRST_EPOCH
    """What the next request has to say."""
    partitions: dict[Key, None] = field(default_factory=dict)
    consumer: QueueConsumer | None = None
    """Through which records are acquired; None until the first fetch. Another session of the member takes it over."""
    is_open: bool = True

    @property
    def member(self) -> Member:
        return self.group, self.member_id


class ShareSessions:
    """The sessions of one door.

    Args:
        slots: how many there may be (group.share.max.share.sessions).
        max_partitions: how many partitions they may have together.
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
        """Of all sessions together."""
        return self._partitions

    def open(
        self,
        member: Member,
        partitions: Iterable[Key],
        connection: object,
        owner: Principal = ANONYMOUS,
    ) -> ShareSession:
        """A new session in the place of the one that the member may have; what it holds stays acquired.

        Raises:
            SessionLimitReached, MemberTaken
        """
        before = self._sessions.get(member)
        if before is not None and before.owner != owner:
            raise MemberTaken(f"Somebody else is member {member[1]!r} of group {member[0]!r}.")
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
        """The member's session.

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
        """The session, for its next request, which says `epoch`.

        Raises:
            SessionNotFound, InvalidSessionEpoch
        """
        session = self.find(member, owner)
        if session.epoch != epoch:
            raise InvalidSessionEpoch(
                f"The share session is at epoch {session.epoch}, not {epoch}; epoch 0 opens it anew.",
            )
        session.epoch = epoch + 1 if epoch < _MAX_EPOCH else FIRST_EPOCH + 1
        return session

    def update(self, session: ShareSession, added: Iterable[Key], forgotten: Iterable[Key]) -> None:
        """Fetch these partitions, too, and those no longer.

        Raises:
            SessionLimitReached: nothing was changed.
        """
        new = dict.fromkeys(key for key in added if key not in session.partitions)
        if new and self._partitions + len(new) > self._max_partitions:
            raise SessionLimitReached(
                f"Share sessions may have {self._max_partitions} partitions together; {len(new)} more are too many.",
            )
        before = len(session.partitions)
        session.partitions.update(new)
        for key in forgotten:
            session.partitions.pop(key, None)
        self._partitions += len(session.partitions) - before

    def close(self, session: ShareSession) -> None:
        """Forget a session; one that is closed already is no error."""
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
        """A connection is gone: its sessions are, too; returns them."""
        gone = list(self._by_connection.get(connection, ()))
        for session in gone:
            self.close(session)
        return gone
