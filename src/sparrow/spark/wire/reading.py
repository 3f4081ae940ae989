"""Fetches that are under way: asked for ahead, answered in order, asked for again on another connection when one is lost."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from sparrow.base.errors import ConnectionLost, InvalidArgument, ProtocolError, TimedOut, from_code
from sparrow.protocol.native.messages import Fetch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.protocol.native.messages import Fetched
    from sparrow.spark.wire.line import Line
    from sparrow.spark.wire.link import Link


@dataclass(frozen=True, slots=True)
class FetchWanted:
    """What is wanted of one partition."""

    topic: str
    topic_id: str = ""
    """The topic must be this one, not another of its name; "": any."""
    partition: int = 0
    offset: int = 0
    max_bytes: int = 1 << 20
    """At most so much, but one batch at least."""
    is_committed: bool = True
    """Only records before the last stable offset, with the aborted transactions among them."""
    wait_ms: int = 0
    """How long the broker waits for the first record; at most 5000."""


@dataclass(frozen=True, slots=True)
class FetchedChunk:
    """What the partition gave: whole batches, the first of which may begin before the wanted offset.

    `data` is the memory that the frame was received into; it is used again as soon as no view of it is left.
    """

    data: memoryview
    next_offset: int
    """Where to read on."""
    start_offset: int
    end_offset: int
    stable_offset: int
    aborted: Sequence[tuple[int, int]]
    """(producer id, first offset) of aborted transactions whose records are to be dropped."""


class FetchAhead:
    """Several fetches of one link. Answers come in the order of `send`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._wanted: deque[tuple[int, FetchWanted]] = deque()
        """Unanswered, with their refs, in order."""
        self._line: Line | None = None
        """Where they were asked."""
        self._sent = 0
        """How many of them, from the first on, were asked there."""
        self._next_ref = 0
        self.is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """How many are unanswered."""
        return len(self._wanted)

    def send(self, wanted: FetchWanted) -> None:
        """Ask; a connection that is lost meanwhile is `receive`'s affair.

        Raises:
            ConnectionLost: no broker can be reached.
        """
        self._next_ref += 1
        self._wanted.append((self._next_ref, wanted))
        line = self._line
        if line is None or (line.is_usable and self._sent == len(self._wanted) - 1):
            line = line or self._link.line()
            with suppress(ConnectionLost):
                self._ask(line)

    def receive(self) -> FetchedChunk:
        """The answer to the oldest that is unanswered; it is answered then, be it by an error.

        Raises:
            UnknownTopic, UnknownTopicId, UnknownPartition, OffsetOutOfRange, NotAuthorized: what the broker says.
            ConnectionLost, TimedOut: tried again and again.
        """
        if not self._wanted:
            raise InvalidArgument("nothing was asked for; send a FetchWanted first")
        wanted = self._wanted[0][1]
        place = f"reading {wanted.topic}-{wanted.partition} at offset {wanted.offset}"
        try:
            return self._link.repeat(self._receive, place, connect=self._connect)
        finally:
            self._wanted.popleft()
            self._sent = max(0, self._sent - 1)

    def close(self) -> None:
        """Want nothing more. What is still under way would be in the way of others, so that its connection is given up."""
        self.is_closed = True
        if self._wanted and self._line is not None:
            self._line.close()
        self._wanted.clear()

    def _receive(self) -> FetchedChunk:
        if not self._is_asked:
            self._ask(self._link.line())
        line = self._line
        assert line is not None
        limit_s = self._link.target.call_timeout_s + self._wanted[0][1].wait_ms / 1000
        while not line.fetched:
            try:
                line.receive(time.monotonic() + limit_s)
            except TimedOut:
                raise TimedOut(f"the broker at {line.address} sent nothing for {limit_s:g} s") from None
        head, batches = line.fetched.popleft()
        if head.ref != self._wanted[0][0]:
            raise ProtocolError(
                f"the peer at {line.address} answered fetch {head.ref} where {self._wanted[0][0]} was due"
            )
        if head.failure is not None:
            if head.failure.retriable:  # those behind it are asked again, too, so that the order stays
                line.close()
                line.fetched.clear()
            raise from_code(head.failure.code, head.failure.text)
        return _chunk(head, batches)

    @property
    def _is_asked(self) -> bool:
        """Whether the oldest is asked on a connection where its answer may come, or has come."""
        line = self._line
        return line is not None and bool(self._sent) and (not line.is_over or bool(line.fetched))

    def _connect(self) -> None:
        if not self._is_asked:
            self._link.line()

    def _ask(self, line: Line) -> None:
        """Ask there for what was not asked there."""
        if line is not self._line:
            self._line, self._sent = line, 0
            line.fetched.clear()
        while self._sent < len(self._wanted):
            self._sent += 1
            self._send(line, *self._wanted[self._sent - 1])

    def _send(self, line: Line, ref: int, wanted: FetchWanted) -> None:
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
        line.send(head, deadline=time.monotonic() + self._link.target.call_timeout_s)


def _chunk(head: Fetched, batches: memoryview) -> FetchedChunk:
    return FetchedChunk(
        batches, head.next_offset, head.start_offset, head.end_offset, head.stable_offset, head.aborted
    )
