"""One TCP connection under every protocol: flow control, memory, deadlines and its end.

A protocol's connection is a subclass with `asyncio.Protocol` or `asyncio.BufferedProtocol` beside
it. It implements the receive path itself, so that no layer is between the socket and its parser;
the core is called when something changes, not for each message.

- **Reading** pauses while any `PauseReason` is set; each is set and cleared on its own. A protocol
  adds reasons of its own.
- **Receive memory**: `reserve_input` replaces the connection's share of the receive budget by one
  for the message that is announced. Without room, reading pauses until it is granted. A connection
  that holds memory waits for nothing but its peer, and the stall timeout limits that wait.
- **Writes** are gathered: what is sent in one iteration of the event loop leaves in one
  `writelines`. `backlog` is the account of records that were sent and not taken yet.
- **Deadlines** are checked by one sweep for all connections (`liveness.py`). An idle connection has
  no task and no timer.
- **The end**: `close` sends what is written; `end` also lets the peer read it: closing a socket
  while the peer still sends resets the connection, and the last words are lost. So it is closed for
  writing only, what arrives is dropped, and the sweep limits the wait. TLS ends in both directions
  at once; there the socket is closed after a moment. `abort` loses what is not sent.

Loop thread only. The transport calls the first group of methods, the `TransportContext` calls
`sweep` and `turn_away`, the protocol all others.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from sparrow.base.transport import write_pieces
from sparrow.broker.access.authz import ANONYMOUS
from sparrow.broker.access.sessions import Guard
from sparrow.frontends.transport.admission import host_of
from sparrow.frontends.transport.liveness import Liveness, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.base.errors import SparrowError
    from sparrow.frontends.transport.admission import ConnectionSlot
    from sparrow.frontends.transport.context import TransportContext
    from sparrow.frontends.transport.liveness import Deadlines
    from sparrow.frontends.transport.send_budget import Backlog
    from sparrow.model.connections import ConnectionDescription

_numbers = itertools.count(1)
LAST_WORDS_S: Final = 0.5
"""Time for a peer behind TLS to read why its connection ends, before it is closed."""


class PauseReason:
    """Reasons to pause reading from a connection, as bits. They are plain integers because they are
    checked for each batch. Protocols add theirs from bit 3 (8) on.
    """

    NONE: Final = 0
    WRITE: Final = 1
    """The peer does not read."""
    BUDGET: Final = 2
    """The receive budget has no room for the announced message."""
    DRAIN: Final = 4
    """The frontend stops and accepts nothing more."""
    BY_US: Final = ~WRITE
    """Reasons that the peer cannot clear."""


Context = TypeVar("Context", bound="TransportContext[Any]")


class Connection(asyncio.BaseProtocol, Generic[Context]):
    """One connection; see the module's text.

    A subclass adds the length of what it receives to `received_bytes`, and sets `is_known` when
    the client has logged in.
    """

    __slots__ = (
        "_backlog",
        "_has_ended",
        "_is_flush_scheduled",
        "_liveness",
        "_pause_reasons",
        "_reserved_bytes",
        "_writable_again",
        "context",
        "guard",
        "host",
        "is_known",
        "is_leaving",
        "number",
        "opened_at",
        "receive_budget",
        "received_bytes",
        "slot",
        "transport",
    )

    uncounted_bytes = 0
    """Announced messages up to this size need no receive memory."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.transport: asyncio.Transport | None = None
        self.host = ""
        """The IP address of the client."""
        self.slot: ConnectionSlot | None = None
        self.guard = Guard(context.broker.sessions, self.login_is_over)
        self.number = next(_numbers)
        """Number of this connection among those of all listeners since the start."""
        self.opened_at = context.now()
        self.is_known = False
        """True if the client has logged in, or needs no login."""
        self.received_bytes = 0
        self.receive_budget = context.receive_budget
        self.is_leaving = False
        """True if the connection ends: what arrives is dropped."""
        self._has_ended = False
        """True if nothing more is written."""
        self._liveness = Liveness(context.now())
        self._pause_reasons: int = PauseReason.NONE
        self._reserved_bytes = 0
        """Bytes of the receive budget; while `PauseReason.BUDGET` is set, not granted yet."""
        self._is_flush_scheduled = False
        self._backlog: Backlog | None = None
        self._writable_again: asyncio.Future[None] | None = None

    # ── overridden by protocols ───────────────────────────────────────────────────────────────────

    def opened(self) -> None:
        """Begin: the connection is admitted."""

    def refused(self, why: SparrowError) -> None:  # noqa: ARG002 - protocols may send it
        """End a connection that is not admitted, with the reason if the protocol can say it."""
        self.turn_away()

    def turn_away(self) -> None:
        """Close at once: the slot is taken away, or there is none."""
        self.abort()

    def writable(self) -> None:
        """Continue to send: the peer reads again."""

    def flush(self) -> None:
        """Write what was gathered; called once for any number of `flush_soon`."""
        self._is_flush_scheduled = False

    def lost(self) -> None:
        """Clean up: the connection is closed."""

    def login_is_over(self, why: str) -> None:
        """End a connection whose login is not valid any more."""
        self.context.logger.info("the connection of %s is closed: %s", self.host, why)
        self.abort()

    def overdue(self, verdict: Verdict) -> None:
        """End a connection that is past a deadline."""
        self.context.logger.info("the connection of %s is closed: %s", self.host, verdict.value)
        self.abort()

    def alive(self) -> None:
        """Note a sign of life; called at most once for each sweep."""

    @property
    def deadlines(self) -> Deadlines:
        """The deadlines that count now; by default those of the context."""
        return self.context.deadlines

    @property
    def unfinished_bytes(self) -> int:
        """The size of the unfinished message as far as it is known; 0: there is none."""
        return 0

    @property
    def has_work(self) -> bool:
        """True while the broker works for the peer, which is not idle then."""
        return False

    # ── called by the transport ───────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=self.context.write_high_water_bytes)
        self.host = host_of(transport)
        refusal = self.context.admit(self)
        if refusal is None:
            self.opened()
        else:
            self.refused(refusal)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        self.reserve_input(0)
        self.transport = None
        self.is_leaving = True
        self.guard.close()
        if self._backlog is not None:
            self._backlog.close()
        self._wake()
        self.lost()
        self.context.dismiss(self)

    def pause_writing(self) -> None:
        self.pause_reading(PauseReason.WRITE)

    def resume_writing(self) -> None:
        self.resume_reading(PauseReason.WRITE)
        self._wake()
        self.writable()

    def describe(self) -> ConnectionDescription:
        """Return what people see of the connection."""
        from sparrow.model.connections import ConnectionDescription

        principal = getattr(self, "principal", None) or getattr(self, "certified", None)
        return ConnectionDescription(
            self.number,
            self.context.name,
            self.host,
            "" if principal is None or principal == ANONYMOUS else str(principal),
            str(getattr(self, "client_name", "")),
            max(0, round((self.context.now() - self.opened_at) * 1000)),
            self.received_bytes,
        )

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    @property
    def is_paused_by_us(self) -> bool:
        """True if reading is paused for a reason that the peer cannot clear."""
        return bool(self._pause_reasons & PauseReason.BY_US)

    def pause_reading(self, reason: int) -> None:
        """Pause reading for this reason. A connection that is leaving is read from to its end."""
        if self.is_leaving:
            return
        if not self._pause_reasons and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
        self._pause_reasons |= reason

    def resume_reading(self, reason: int) -> None:
        """Clear a reason; read again if no other reason is left."""
        if self._pause_reasons & reason:
            self._pause_reasons &= ~reason
            if not self._pause_reasons and self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    def reserve_input(self, size_bytes: int) -> None:
        """Replace the reservation of receive memory by one for a message of this size; 0: none."""
        if size_bytes <= self.uncounted_bytes or self.is_leaving:
            size_bytes = 0
        if size_bytes == self._reserved_bytes:
            return
        if self._pause_reasons & PauseReason.BUDGET:
            self.receive_budget.withdraw(self.granted)
        elif self._reserved_bytes:
            self.receive_budget.release(self._reserved_bytes)
        self._reserved_bytes = size_bytes
        if not size_bytes or self.receive_budget.reserve(size_bytes, self.granted):
            self.resume_reading(PauseReason.BUDGET)
        else:
            self.pause_reading(PauseReason.BUDGET)

    def granted(self) -> None:
        """Read on: the receive budget has room now."""
        self.resume_reading(PauseReason.BUDGET)

    def is_stranger(self, data: bytes | memoryview) -> bool:
        """Reply to a client of another protocol, judged by its first bytes, and end the connection.
        Return False if the client speaks this protocol.
        """
        found = self.context.wrong_port.reply(data, self.host)
        if found is None:
            return False
        if found[1]:
            self.write([found[1]])
        self.end()
        return True

    # ── writing ───────────────────────────────────────────────────────────────────────────────────

    @property
    def can_write(self) -> bool:
        """True if the peer reads its bytes."""
        return not self._pause_reasons & PauseReason.WRITE and self.transport is not None

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes that the socket has not taken."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    @property
    def backlog(self) -> Backlog:
        """The account of the records that were sent and that the client has not taken yet."""
        if self._backlog is None:
            self._backlog = self.context.send_budget.backlog(self._unsent_bytes, self._end_slow_reader)
        return self._backlog

    def _unsent_bytes(self) -> int:
        return self.unsent_bytes

    def _end_slow_reader(self, why: str) -> None:
        self.context.logger.warning("the connection of %s is closed: %s", self.host, why)
        self.abort()

    def write(self, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write pieces in order, unless the connection has ended."""
        if self.transport is not None and not self._has_ended and not self.transport.is_closing():
            write_pieces(self.transport, pieces)

    def flush_soon(self) -> None:
        """Call `flush` at the end of this iteration of the event loop."""
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self.context.loop.call_soon(self.flush)

    async def until_writable(self) -> None:
        """Wait until the peer reads, or the connection is lost."""
        while not self.can_write and self.transport is not None:
            if self._writable_again is None:
                self._writable_again = self.context.loop.create_future()
            await asyncio.shield(self._writable_again)

    def _wake(self) -> None:
        if self._writable_again is not None and not self._writable_again.done():
            self._writable_again.set_result(None)
        self._writable_again = None

    # ── deadlines and the end ─────────────────────────────────────────────────────────────────────

    def message_completed(self) -> None:
        """Note that a message is complete, for protocols that limit the time of whole messages."""
        self._liveness.message_completed()

    def sweep(self, now: float) -> None:
        """End the connection if it is past a deadline. `now` is the context's clock."""
        if self.transport is None:
            return
        deadlines, unsent_bytes = self.deadlines, self.unsent_bytes
        if self._has_ended:
            if self._liveness.is_late_to_close(now, deadlines, unsent_bytes):
                self.abort()
            return
        verdict = self._liveness.check(
            now,
            deadlines,
            received_bytes=self.received_bytes,
            unsent_bytes=unsent_bytes,
            # a peer that does not read is not read from, either: `unread_s` and `idle_s` limit that
            unfinished_bytes=0 if self._pause_reasons & PauseReason.WRITE else self.unfinished_bytes,
            is_known=self.is_known,
            is_paused=self.is_paused_by_us,
            has_work=self.has_work,
        )
        if verdict is Verdict.ALIVE:
            self.alive()
        elif verdict is not Verdict.SILENT:
            self.overdue(verdict)

    @property
    def is_lost(self) -> bool:
        """True if the socket is closed."""
        return self.transport is None

    @property
    def is_ending(self) -> bool:
        """True if nothing more is read or nothing more is written."""
        return self.is_leaving or self.transport is None

    def leave(self) -> None:
        """Drop what arrives from now on, and give back the receive memory. Reading goes on, as the
        last words would be lost if the socket was closed with unread bytes.
        """
        self.reserve_input(0)
        self.is_leaving = True
        if self.is_paused_by_us:
            self.resume_reading(PauseReason.BY_US)

    def hand_over(self, successor: Connection[Any]) -> None:
        """Let another protocol own the socket from now on. It gets the slot and the place in the
        context; it holds the login itself. This connection hears nothing more of the socket.
        """
        assert self.transport is not None
        self.reserve_input(0)
        if self._backlog is not None:
            self._backlog.close()
        self.guard.close()
        transport, before, after = self.transport, self._pause_reasons, successor._pause_reasons
        successor.transport, self.transport = transport, None
        successor.host, successor.received_bytes = self.host, self.received_bytes
        successor.is_known, self.is_leaving = self.is_known, True
        successor._pause_reasons = after = after | (before & PauseReason.WRITE)
        successor.slot, self.slot = self.slot, None
        if successor.slot is not None:
            successor.slot.close = successor.turn_away
        connections = self.context.open_connections
        connections.discard(self)
        connections.add(successor)
        transport.set_protocol(successor)
        if before and not after:
            transport.resume_reading()
        elif after and not before:
            transport.pause_reading()

    def end(self) -> None:
        """Send nothing more, and close the connection when the peer has read everything."""
        if self.transport is None or self._has_ended:
            return
        self.leave()
        self.resume_reading(PauseReason.WRITE)
        self._has_ended = True
        if self.transport.is_closing():
            return
        if not self.transport.can_write_eof():
            self.context.loop.call_later(LAST_WORDS_S, self.close)
            return
        try:
            self.transport.write_eof()
        except OSError:  # the peer is gone already
            self.transport.abort()

    def close(self) -> None:
        """Close the socket when all written bytes are sent; the sweep limits the wait."""
        self.leave()
        self._has_ended = True
        # not twice: asyncio's transport for TLS does not end any more after a second `close`
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()

    def abort(self) -> None:
        """Close the socket now; unsent bytes are lost."""
        self.is_leaving = True
        if self.transport is not None:
            self.transport.abort()
