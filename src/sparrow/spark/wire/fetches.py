"""Pending fetches: sent ahead, answered in order, and sent again on another connection when one is
lost.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from sparrow.base.errors import ConnectionLost, InvalidArgument, ProtocolError, TimedOut, from_code
from sparrow.protocol.native.messages import Fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.protocol.native.messages import Fetched
    from sparrow.spark.wire.connection import Connection
    from sparrow.spark.wire.target import Target

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FetchWanted:
    """A fetch from one partition."""

    topic: str
    topic_id: str = ""
    """Id that the topic must have; "": any topic of the name."""
    partition: int = 0
    offset: int = 0
    max_bytes: int = 1 << 20
    """Limit of the response in bytes; at least one batch comes."""
    is_committed: bool = True
    """Read only records before the last stable offset, with the aborted transactions among them."""
    wait_ms: int = 0
    """Time that the broker waits for the first record; at most 5000."""


@dataclass(frozen=True, slots=True)
class FetchedChunk:
    """A response: whole batches, the first of which may begin before the wanted offset.

    `data` is the memory that the frame was received into; it is reused as soon as no view of it is
    left.
    """

    data: memoryview
    next_offset: int
    """Offset at which to continue."""
    start_offset: int
    end_offset: int
    stable_offset: int
    aborted: Sequence[tuple[int, int]]
    """(producer id, first offset) of aborted transactions whose records must be dropped."""


class RetrySession(Protocol):
    """The part of a session that fetches use; see `Session`."""

    target: Target

    def connection(self) -> Connection: ...

    def repeat(
        self, attempt: Callable[[], T], what: str, *, connect: Callable[[], object] | None = None
    ) -> T: ...


class FetchAhead:
    """Several fetches of one session. Responses come in the order of `send`."""

    def __init__(self, session: RetrySession) -> None:
        self._session = session
        self._wanted: deque[tuple[int, FetchWanted]] = deque()
        """Unanswered fetches with their refs, in order."""
        self._connection: Connection | None = None
        """The connection on which they were sent."""
        self._sent = 0
        """Number of them, from the first on, that were sent there."""
        self._next_ref = 0
        self.is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Return the number of unanswered fetches."""
        return len(self._wanted)

    def send(self, wanted: FetchWanted) -> None:
        """Send a fetch; a connection that is lost meanwhile is handled by `receive`.

        Raises:
            ConnectionLost: no broker can be reached.
        """
        self._next_ref += 1
        self._wanted.append((self._next_ref, wanted))
        connection = self._connection
        if connection is None or (connection.is_usable and self._sent == len(self._wanted) - 1):
            connection = connection or self._session.connection()
            with suppress(ConnectionLost):
                self._ask(connection)

    def receive(self) -> FetchedChunk:
        """Return the response to the oldest unanswered fetch, which is answered then, also by an
        error.

        Raises:
            UnknownTopic, UnknownTopicId, UnknownPartition, OffsetOutOfRange, NotAuthorized: as the
            broker answered.
            ConnectionLost, TimedOut: the last of several attempts failed.
        """
        if not self._wanted:
            raise InvalidArgument("nothing was asked for; send a FetchWanted first")
        wanted = self._wanted[0][1]
        place = f"reading {wanted.topic}-{wanted.partition} at offset {wanted.offset}"
        try:
            return self._session.repeat(self._receive, place, connect=self._connect)
        finally:
            self._wanted.popleft()
            self._sent = max(0, self._sent - 1)

    def close(self) -> None:
        """Give up all fetches. Their responses would be in the way of others, so the connection is
        also given up.
        """
        self.is_closed = True
        if self._wanted and self._connection is not None:
            self._connection.close()
        self._wanted.clear()

    def _receive(self) -> FetchedChunk:
        if not self._is_asked:
            self._ask(self._session.connection())
        connection = self._connection
        assert connection is not None
        limit_s = self._session.target.call_timeout_s + self._wanted[0][1].wait_ms / 1000
        while not connection.fetched:
            try:
                connection.receive(time.monotonic() + limit_s)
            except TimedOut:
                raise TimedOut(f"the broker at {connection.address} sent nothing for {limit_s:g} s") from None
        head, batches = connection.fetched.popleft()
        if head.ref != self._wanted[0][0]:
            raise ProtocolError(
                f"the peer at {connection.address} answered fetch {head.ref} where "
                f"{self._wanted[0][0]} was due"
            )
        if head.failure is not None:
            # those behind it are also sent again, so that the order stays
            if head.failure.retriable:
                connection.close()
                connection.fetched.clear()
            raise from_code(head.failure.code, head.failure.text)
        return _chunk(head, batches)

    @property
    def _is_asked(self) -> bool:
        """Return True if the oldest fetch was sent on a connection where its response may come, or
        has come.
        """
        connection = self._connection
        return (
            connection is not None
            and bool(self._sent)
            and (not connection.is_over or bool(connection.fetched))
        )

    def _connect(self) -> None:
        if not self._is_asked:
            self._session.connection()

    def _ask(self, connection: Connection) -> None:
        """Send the fetches that were not sent on this connection."""
        if connection is not self._connection:
            self._connection, self._sent = connection, 0
            connection.fetched.clear()
        while self._sent < len(self._wanted):
            self._sent += 1
            self._send(connection, *self._wanted[self._sent - 1])

    def _send(self, connection: Connection, ref: int, wanted: FetchWanted) -> None:
        head = Fetch(
            ref,
            wanted.topic,
            wanted.topic_id,
            wanted.partition,
            wanted.offset,
            wanted.max_bytes,
            "read_committed" if wanted.is_committed else "read_uncommitted",
            wanted.wait_ms,
        )
        connection.send(head, deadline=time.monotonic() + self._session.target.call_timeout_s)


def _chunk(head: Fetched, batches: memoryview) -> FetchedChunk:
    return FetchedChunk(
        batches, head.next_offset, head.start_offset, head.end_offset, head.stable_offset, head.aborted
    )
