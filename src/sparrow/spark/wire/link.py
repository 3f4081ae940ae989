"""What drivers and tasks ask a broker: calls, fetches, channels; blocking, over one connection at a time.

A link connects again by itself where that changes nothing: before something is asked for the first time, and for what may be asked twice:
fetches, which the broker remembers nothing of, and calls that only look or say the same again (`REPEATABLE`). Such attempts are
bounded (`Target.retries`, with backoff); then one error says what was tried. Everything else fails as `ConnectionLost`, and its caller
knows what may have happened. A channel ends with the connection it was opened on.

Who has begun something that would be lost is patient: it waits for a broker that is away until `Link.patience_s` are over, however many attempts that takes. Who
asks for the first time is not, because the address may be wrong.

A broker that shuts down says so; what it owes is still taken, and the next question goes to a new connection.
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
    from_code,
)
from sparrow.client.retry import Backoff
from sparrow.protocol.native.messages import Close, Closed, Error, Head, Request
from sparrow.spark.wire.line import Line, open_line
from sparrow.spark.wire.reading import FetchAhead, FetchedChunk, FetchWanted

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
"""Verbs that may be asked again when it is not known whether they were carried out."""
PATIENCE_S: Final = 60.0
"""How long who is patient waits for a broker that is away: long enough for one that is started again."""
BACKOFF_INITIAL_S: Final = 0.5
BACKOFF_MAX_S: Final = 4.0
SILENT_S: Final = 15.0
"""After so long a silence a connection is tried by a ping before something is asked."""
PING_TIMEOUT_S: Final = 2.0


class Link:
    """A way to one broker. One thread at a time; not to be used on both sides of a fork."""

    def __init__(self, target: Target, line: Line) -> None:
        self.target = target
        self.patience_s = 0.0
        """How long a broker that is away is waited for, at least."""
        self._line: Line | None = line
        self._next_ref = 0
        self._next_channel = 0
        self._ahead: FetchAhead | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def max_batch_bytes(self) -> int:
        """The largest batch that the broker takes.

        Raises:
            as `line`
        """
        return self.line().max_batch_bytes

    def close(self) -> None:
        """Say goodbye and give the socket back. The link may be used again: it connects anew."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def drop(self) -> None:
        """Give the socket back and say nothing, as on the other side of a fork."""
        line, self._line = self._line, None
        if line is not None:
            line.drop()

    def line(self) -> Line:
        """The connection, made anew if it is over as far as can be seen; one that was silent for long is tried first.

        Raises:
            ConnectionLost: no broker can be reached, `Target.retries` times more and as long as patience lasts.
            NotAuthenticated, UnsupportedVersion, ProtocolError, InvalidArgument: trying again is of no use.
        """
        line = self._line
        if line is not None:
            if _is_good(line):
                return line
            self.close()
        self._line = connect_line(self.target, self.patience_s)
        return self._line

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────

    def call(
        self,
        verb: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        is_repeatable: bool | None = None,
    ) -> Any:
        """One REQUEST and its answer.

        Args:
            timeout_s: how long the broker may take; `Target.call_timeout_s` where it is None.
            is_repeatable: it may be asked again after a lost connection; None: if the verb is in `REPEATABLE`.

        Raises:
            ConnectionLost, TimedOut: no answer; what is not repeatable may have been done.
            SparrowError: what the broker answered.
        """
        may_repeat = verb in REPEATABLE if is_repeatable is None else is_repeatable
        return self.repeat(
            lambda: self._call(verb, dict(arguments or {}), timeout_s), verb, may_repeat=may_repeat
        )

    def _call(self, verb: str, arguments: dict[str, Any], timeout_s: float | None) -> Any:
        line = self.line()
        self._next_ref += 1
        ref = self._next_ref
        limit_s = timeout_s or self.target.call_timeout_s
        deadline = time.monotonic() + limit_s
        line.send(Request(ref, verb, arguments), deadline=deadline)
        while ref not in line.responses:
            self._receive(line, deadline, verb, limit_s)
        response = line.responses.pop(ref)
        if response.failure is not None:
            raise from_code(response.failure.code, response.failure.text)
        return response.result

    def _receive(self, line: Line, deadline: float, what: str, limit_s: float) -> None:
        try:
            line.receive(deadline)
        except TimedOut:
            raise TimedOut(
                f"the broker at {line.address} did not answer {what} within {limit_s:g} s; whether it was done is not known"
            ) from None

    def repeat(
        self,
        attempt: Callable[[], T],
        what: str,
        *,
        may_repeat: bool = True,
        connect: Callable[[], object] | None = None,
    ) -> T:
        """The result of `attempt`, tried again while the broker or the network cannot just now.

        Args:
            connect: what makes sure before each attempt that there is a connection; `line` where it is None. It has attempts of its own.

        Raises:
            SparrowError: what the last attempt ended with; after several, with how often it was tried.
        """
        backoff = Backoff(BACKOFF_INITIAL_S, BACKOFF_MAX_S)
        tries, deadline = 0, 0.0
        while True:
            (connect or self.line)()
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
        """Batches of one partition from an offset on; an empty chunk where there are none.

        Raises:
            UnknownTopic, UnknownTopicId, UnknownPartition, OffsetOutOfRange, NotAuthorized: what the broker says.
            ConnectionLost, TimedOut: again and again.
        """
        with self.fetch_ahead() as ahead:
            ahead.send(wanted)
            return ahead.receive()

    def fetch_ahead(self) -> FetchAhead:
        """Several fetches under way, answered in order; one such reader of a link at a time.

        Raises:
            InvalidArgument: there is another that was not closed.
        """
        if self._ahead is not None and not self._ahead.is_closed:
            raise InvalidArgument("this link has fetches under way; close that reader, or use another link")
        self._ahead = FetchAhead(self)
        return self._ahead

    @property
    def is_clean(self) -> bool:
        """Whether nothing is owed to it, so that somebody else may use it."""
        line = self._line
        return (
            line is not None
            and line.is_usable
            and not line.channels
            and (self._ahead is None or self._ahead.is_closed)
        )

    # ── channels ──────────────────────────────────────────────────────────────────────────────────

    def open_channel(self, head: Head, *, timeout_s: float | None = None) -> Channel:
        """Send the frame that opens a channel, and wait for its answer (`Channel.opened`).

        Raises:
            ConnectionLost, TimedOut: no answer.
            SparrowError: what the broker answered.
        """
        line = self.line()
        self._next_channel += 1
        return Channel(line, self._next_channel, head, timeout_s or self.target.call_timeout_s)


class Channel:
    """A channel of one connection, open when it is made. Ends with that connection."""

    def __init__(self, line: Line, number: int, head: Head, timeout_s: float) -> None:
        self.line = line
        self.number = number
        self._timeout_s = timeout_s
        self._arrived: deque[Received] = deque()
        line.channels[number] = self._arrived
        self._is_over = False
        try:
            line.send(head, number, deadline=time.monotonic() + timeout_s)
            self.opened: Head = self.receive().head
        except BaseException:
            self._end()
            raise

    def send(self, head: Head, batches: Buffer | Sequence[Buffer] | None = None) -> None:
        """Send a frame; waits while the broker does not take it.

        Raises:
            ConnectionLost, TimedOut: the connection is over.
        """
        self.line.send(head, self.number, batches, deadline=time.monotonic() + self._timeout_s)

    def receive(self, timeout_s: float | None = None) -> Received:
        """The next frame on the channel.

        Raises:
            ConnectionLost, TimedOut: the connection is over.
            SparrowError: what the broker ended the channel with.
        """
        limit_s = timeout_s or self._timeout_s
        deadline = time.monotonic() + limit_s
        while not self._arrived:
            self.line.receive(deadline)
        return self._next()

    def maybe_receive(self) -> Received | None:
        """The next frame if it is here already. Raises as `receive`."""
        if not self._arrived:
            self.line.take_in()
        return self._next() if self._arrived else None

    def close(self) -> list[Received]:
        """Say that one is done, and wait until the broker is; what came before that. Raises as `receive`."""
        if self._is_over:
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
        self.line.channels.pop(self.number, None)


def connect(target: Target, *, patience_s: float = 0.0) -> Link:
    """Connect to a broker.

    Raises:
        ConnectionLost: it cannot be reached, `target.retries` times more and as long as patience lasts; names the address and what to check.
        NotAuthenticated, UnsupportedVersion, ProtocolError, InvalidArgument: trying again is of no use.
    """
    link = Link(target, connect_line(target, patience_s))
    link.patience_s = patience_s
    return link


def connect_line(target: Target, patience_s: float = 0.0) -> Line:
    """As `connect`, the connection alone."""
    backoff = Backoff(BACKOFF_INITIAL_S, BACKOFF_MAX_S)
    tries, deadline = 0, time.monotonic() + patience_s
    while True:
        try:
            return open_line(target)
        except Unavailable as error:
            tries += 1
            if tries > target.retries and time.monotonic() >= deadline:
                text = error.text if tries == 1 else f"{error.text} (tried {tries} times)"
                raise ConnectionLost(text) from None
        _rest(backoff)


def _rest(backoff: Backoff) -> None:
    """Half of the delay is certain: a broker that restarts needs a while, and attempts are few."""
    time.sleep(backoff.ceiling_s / 2 + backoff.next_delay_s() / 2)


def _is_good(line: Line) -> bool:
    """Whether something may be asked on it: it has not ended meanwhile, and is not silent because the broker is gone."""
    silent_s = time.monotonic() - line.heard_at
    with suppress(SparrowError):
        line.take_in()
    return line.is_usable and (silent_s < SILENT_S or line.is_alive(PING_TIMEOUT_S))


def _may_pass(error: SparrowError) -> bool:
    """Whether the same may succeed soon; who waited long for an answer does not wait as long again."""
    return error.retriable and not isinstance(error, TimedOut)


def _given_up(error: SparrowError, what: str, tries: int) -> SparrowError:
    return type(error)(f"{what} failed {tries} times: {error.text}")
