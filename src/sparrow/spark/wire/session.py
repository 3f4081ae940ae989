"""Requests of drivers and tasks to a broker: calls, fetches, channels; blocking, over one
connection at a time.

A session connects again by itself where that changes nothing: before the first request, and for
requests that may be repeated: fetches, of which the broker remembers nothing, and calls that only
look or have the same effect again (`REPEATABLE`). Such attempts are bounded (`Target.retries`, with
backoff); then one error says what was tried. Everything else fails as `ConnectionLost`, and its
caller knows what may have happened. A channel ends with the connection it was opened on.

A caller that has begun something that would be lost is patient: it waits for a broker that is away
until `Session.patience_s` are over, however many attempts that takes. The first request is not
patient, because the address may be wrong.

A broker that shuts down says so; outstanding responses are still received, and the next request
goes to a new connection.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from sparrow.base.errors import (
    ConnectionLost,
    Draining,
    InvalidArgument,
    SparrowError,
    TimedOut,
    Unavailable,
    UsedAfterFork,
    from_code,
)
from sparrow.base.forks import used_after_fork, watch
from sparrow.base.retry import Backoff
from sparrow.client.port_probe import explain, may_be_wrong_port
from sparrow.protocol.native.messages import Close, Closed, Error, Head, Request
from sparrow.spark.wire.connection import Connection, open_connection
from sparrow.spark.wire.fetches import FetchAhead, FetchedChunk, FetchWanted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparrow.protocol.native.connection import Received
    from sparrow.protocol.native.frames import Buffer
    from sparrow.spark.wire.target import Target

T = TypeVar("T")

REPEATABLE: Final = frozenset(
    {
        "broker.describe",
        "group.commit",
        "group.describe",
        "group.list",
        "group.offsets",
        "pipeline.list",
        "pipeline.report",
        "topic.describe",
        "topic.ensure",
        "topic.list",
        "topic.offsets",
        "topic.reach",
        "topic.watch",
        "topic.weigh",
    }
)
"""Verbs that may be sent again when it is not known whether they were carried out."""
PATIENCE_S: Final = 60.0
"""Time that a patient caller waits for a broker that is away: long enough for a restart."""
BACKOFF_INITIAL_S: Final = 0.5
BACKOFF_MAX_S: Final = 4.0
SILENT_S: Final = 15.0
"""Silence after which a connection is tried by a ping before the next request."""
PING_TIMEOUT_S: Final = 2.0


class Session:
    """A session with one broker, over changing connections. One thread at a time; in a forked
    process every use raises UsedAfterFork.
    """

    def __init__(self, target: Target, connection: Connection) -> None:
        self.target = target
        self.patience_s = 0.0
        """Least time to wait for a broker that is away."""
        self._connection: Connection | None = connection
        self._next_ref = 0
        self._next_channel = 0
        self._ahead: FetchAhead | None = None
        self._forked: SparrowError | None = None
        watch(self)

    def forked(self, parent: int) -> None:
        """Fail every further use in a child process: see `sparrow.base.forks`. It does not connect
        again, as its user would not know.
        """
        self._forked = used_after_fork(f"the connection to {self.target.address}", parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def max_batch_bytes(self) -> int:
        """Return the largest batch that the broker takes.

        Raises:
            SparrowError: as `connection`.
        """
        return self.connection().max_batch_bytes

    def close(self) -> None:
        """Say goodbye and close the socket. The session may be used again: it connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def drop(self) -> None:
        """Close the socket without a goodbye, as on the other side of a fork."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop()

    def connection(self) -> Connection:
        """Return the connection, a new one if the old one has ended as far as can be seen; one that
        was silent for long is tried first.

        Raises:
            ConnectionLost: no broker can be reached, `Target.retries` times more and as long as
                patience lasts. NotAuthenticated, UnsupportedVersion, ProtocolError,
                InvalidArgument: trying again is of no use.
            UsedAfterFork: this is a child of the process that connected.
        """
        if self._forked is not None:
            raise UsedAfterFork(self._forked.text)
        connection = self._connection
        if connection is not None:
            if _is_good(connection):
                return connection
            self.close()
        self._connection = connect_once(self.target, self.patience_s)
        return self._connection

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────

    def call(
        self,
        verb: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        is_repeatable: bool | None = None,
    ) -> Any:
        """Send one REQUEST and return its response.

        Args:
            timeout_s: time that the broker may take; None: `Target.call_timeout_s`.
            is_repeatable: it may be sent again after a lost connection; None: if the verb is in
                `REPEATABLE`.

        Raises:
            ConnectionLost, TimedOut: no response; what is not repeatable may have been done.
            SparrowError: the error that the broker answered.
        """
        may_repeat = verb in REPEATABLE if is_repeatable is None else is_repeatable
        return self.repeat(
            lambda: self._call(verb, dict(arguments or {}), timeout_s), verb, may_repeat=may_repeat
        )

    def _call(self, verb: str, arguments: dict[str, Any], timeout_s: float | None) -> Any:
        connection = self.connection()
        self._next_ref += 1
        ref = self._next_ref
        limit_s = timeout_s or self.target.call_timeout_s
        deadline = time.monotonic() + limit_s
        connection.send(Request(ref, verb, arguments), deadline=deadline)
        while ref not in connection.responses:
            self._receive(connection, deadline, verb, limit_s)
        response = connection.responses.pop(ref)
        if response.failure is not None:
            raise from_code(response.failure.code, response.failure.text)
        return response.result

    def _receive(self, connection: Connection, deadline: float, what: str, limit_s: float) -> None:
        try:
            connection.receive(deadline)
        except TimedOut:
            raise TimedOut(
                f"the broker at {connection.address} did not answer {what} within {limit_s:g} s; whether "
                "it was done is not known"
            ) from None

    def repeat(
        self,
        attempt: Callable[[], T],
        what: str,
        *,
        may_repeat: bool = True,
        connect: Callable[[], object] | None = None,
    ) -> T:
        """Return the result of `attempt`, tried again while the broker or the network fails for
        now.

        Args:
            connect: ensures before each attempt that there is a connection; None: `connection`. It
                has its own attempts.

        Raises:
            SparrowError: the error of the last attempt; after several, with their number.
        """
        backoff = Backoff(BACKOFF_INITIAL_S, BACKOFF_MAX_S)
        tries, deadline = 0, 0.0
        while True:
            (connect or self.connection)()
            try:
                return attempt()
            except SparrowError as error:
                tries += 1
                if not may_repeat or not _may_pass(error):
                    raise
                deadline = deadline or time.monotonic() + self.patience_s
                is_away = isinstance(error, ConnectionLost | Draining)
                if tries > self.target.retries and not (is_away and time.monotonic() < deadline):
                    raise _given_up(error, what, tries) from None
            _rest(backoff)

    # ── fetches ───────────────────────────────────────────────────────────────────────────────────

    def fetch(self, wanted: FetchWanted) -> FetchedChunk:
        """Return batches of one partition from an offset on; an empty chunk where there are none.

        Raises:
            UnknownTopic, UnknownTopicId, UnknownPartition, OffsetOutOfRange, NotAuthorized: as the
            broker answered.
            ConnectionLost, TimedOut: the last of several attempts failed.
        """
        with self.fetch_ahead() as ahead:
            ahead.send(wanted)
            return ahead.receive()

    def fetch_ahead(self) -> FetchAhead:
        """Return a reader with several fetches under way, answered in order; one such reader of a
        session at a time.

        Raises:
            InvalidArgument: there is another that was not closed.
        """
        if self._ahead is not None and not self._ahead.is_closed:
            raise InvalidArgument(
                "this session has fetches under way; close that reader, or use another session"
            )
        self._ahead = FetchAhead(self)
        return self._ahead

    @property
    def is_clean(self) -> bool:
        """Return True if no response is outstanding, so that the session may be used for something
        else.
        """
        connection = self._connection
        return (
            connection is not None
            and connection.is_usable
            and not connection.channels
            and (self._ahead is None or self._ahead.is_closed)
        )

    # ── channels ──────────────────────────────────────────────────────────────────────────────────

    def open_channel(self, head: Head, *, timeout_s: float | None = None) -> Channel:
        """Send the frame that opens a channel, and wait for its response (`Channel.opened`).

        Raises:
            ConnectionLost, TimedOut: no response.
            SparrowError: the error that the broker answered.
        """
        connection = self.connection()
        self._next_channel += 1
        return Channel(connection, self._next_channel, head, timeout_s or self.target.call_timeout_s)


class Channel:
    """A channel of one connection, open from its creation. It ends with that connection."""

    def __init__(self, connection: Connection, number: int, head: Head, timeout_s: float) -> None:
        self.connection = connection
        self.number = number
        self._timeout_s = timeout_s
        self._arrived: deque[Received] = deque()
        connection.channels[number] = self._arrived
        self._is_over = False
        try:
            connection.send(head, number, deadline=time.monotonic() + timeout_s)
            self.opened: Head = self.receive().head
        except BaseException:
            self._end()
            raise

    def send(self, head: Head, batches: Buffer | Sequence[Buffer] | None = None) -> None:
        """Send a frame; waits while the broker does not take it.

        Raises:
            ConnectionLost, TimedOut: the connection is over.
        """
        self.connection.send(head, self.number, batches, deadline=time.monotonic() + self._timeout_s)

    def receive(self, timeout_s: float | None = None) -> Received:
        """Return the next frame on the channel.

        Raises:
            ConnectionLost, TimedOut: the connection is over.
            SparrowError: the error with which the broker ended the channel.
        """
        limit_s = timeout_s or self._timeout_s
        deadline = time.monotonic() + limit_s
        while not self._arrived:
            self.connection.receive(deadline)
        return self._next()

    def maybe_receive(self) -> Received | None:
        """Return the next frame if it is here already. Raises as `receive`."""
        if not self._arrived:
            self.connection.take_in()
        return self._next() if self._arrived else None

    def close(self) -> list[Received]:
        """Close the channel and return the frames that came before the broker's end. Raises as
        `receive`.
        """
        if self._is_over or self.connection.is_forked:
            return []
        try:
            self.send(Close())
            arrived = []
            while not isinstance((received := self.receive()).head, Closed):
                arrived.append(received)
            return arrived
        finally:
            self._end()

    def _next(self) -> Received:
        received = self._arrived.popleft()
        if isinstance(received.head, Error):
            self._end()
            raise from_code(received.head.code, received.head.text)
        return received

    def _end(self) -> None:
        self._is_over = True
        self.connection.channels.pop(self.number, None)


def connect(target: Target, *, patience_s: float = 0.0) -> Session:
    """Connect to a broker.

    Raises:
        ConnectionLost: it cannot be reached, `target.retries` times more and as long as patience
            lasts; names the address and what to check. NotAuthenticated, UnsupportedVersion,
            ProtocolError, InvalidArgument: trying again is of no use.
    """
    session = Session(target, connect_once(target, patience_s))
    session.patience_s = patience_s
    return session


def connect_once(target: Target, patience_s: float = 0.0) -> Connection:
    """Open a connection as `connect`, without a session."""
    backoff = Backoff(BACKOFF_INITIAL_S, BACKOFF_MAX_S)
    tries, deadline = 0, time.monotonic() + patience_s
    while True:
        try:
            return open_connection(target)
        except Unavailable as error:
            tries += 1
            if tries > target.retries and time.monotonic() >= deadline:
                failure = explain(target.address, error) if may_be_wrong_port(error) else error
                if failure is not error:
                    raise failure from None
                text = error.text if tries == 1 else f"{error.text} (tried {tries} times)"
                raise ConnectionLost(text) from None
        _rest(backoff)


def _rest(backoff: Backoff) -> None:
    """Return the delay, half of which is certain: a broker that restarts needs a while, and
    attempts are few.
    """
    time.sleep(backoff.ceiling_s / 2 + backoff.next_delay_s() / 2)


def _is_good(connection: Connection) -> bool:
    """Return True if the connection can be used: it has not ended meanwhile, and is not silent
    because the broker is gone.
    """
    silent_s = time.monotonic() - connection.heard_at
    with suppress(SparrowError):
        connection.take_in()
    return connection.is_usable and (silent_s < SILENT_S or connection.is_alive(PING_TIMEOUT_S))


def _may_pass(error: SparrowError) -> bool:
    """Return True if the same request may succeed soon; a caller that waited long for a response
    does not wait as long again.
    """
    return error.retriable and not isinstance(error, TimedOut)


def _given_up(error: SparrowError, what: str, tries: int) -> SparrowError:
    return type(error)(f"{what} failed {tries} times: {error.text}")
