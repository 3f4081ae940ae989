"""One TCP connection of the native frontend: it moves bytes between the socket and the state
machine, and decides nothing about payloads.

Reading pauses while any `PauseReason` is set; each reason is set and cleared on its own. Writes are
joined: all frames sent within one iteration of the event loop leave in one write.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, cast

from sparrow.base.transport import write_pieces
from sparrow.protocol.detection import WireProtocol, refusal_in
from sparrow.protocol.native.connection import Connection, Event, Role, State

if TYPE_CHECKING:
    from sparrow.frontends.native.limits import NativeLimits
    from sparrow.frontends.transport.receive_budget import ReceiveBudget
    from sparrow.frontends.transport.wrong_port import WrongPortReplies


LAST_WORDS_S: Final = 0.5
"""Time for a peer behind TLS to read why its connection ends, before it is closed."""


class PauseReason:
    """Reasons to pause reading from a connection, as bits. They are plain integers because they are
    checked for each batch.
    """

    NONE: Final = 0
    WRITE: Final = 1
    """The peer does not read what it is sent."""
    WINDOW: Final = 2
    """The unconfirmed bytes exceed the window."""
    WORK: Final = 4
    """Too many requests wait."""
    BUDGET: Final = 8
    """The receive budget has no room for the announced frame."""
    DRAIN: Final = 16
    """The broker shuts down and accepts nothing more."""
    QUOTA: Final = 32
    """The client published more than its quota allows."""
    SETTLE: Final = 64
    """More settlements wait for stable storage than the limit allows."""
    BY_US: Final = WINDOW | WORK | BUDGET | DRAIN | QUOTA | SETTLE
    """Reasons that the peer cannot clear."""


class ConnectionHandler(Protocol):
    """Receives the events of one connection, on the event loop."""

    def opened(self) -> None: ...
    def handle(self, event: Event) -> None: ...
    def before_flush(self) -> None: ...
    def writable(self) -> None: ...
    def lost(self) -> None: ...
    def failed(self, error: Exception) -> None: ...


class NativeConnection(asyncio.Protocol):
    """Connects one socket to one sans-IO `Connection`."""

    __slots__ = (
        "_budget",
        "_flush_scheduled",
        "_is_ending",
        "_limits",
        "_loop",
        "_pause_reasons",
        "_reserved_bytes",
        "_wanted_bytes",
        "_wrong_port",
        "handler",
        "protocol",
        "received_bytes",
        "transport",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: NativeLimits,
        budget: ReceiveBudget,
        wrong_port: WrongPortReplies | None = None,
    ) -> None:
        self._wrong_port = wrong_port
        self.protocol = Connection(
            Role.BROKER, max_frame_bytes=limits.max_frame_bytes, max_channels=limits.max_channels
        )
        self.handler: ConnectionHandler
        self.transport: asyncio.Transport | None = None
        self.received_bytes = 0
        self._loop = loop
        self._limits = limits
        self._budget = budget
        self._pause_reasons: int = PauseReason.NONE
        self._reserved_bytes = 0
        self._wanted_bytes = 0
        self._flush_scheduled = False
        self._is_ending = False

    # ── called by the transport ───────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=self._limits.write_high_water_bytes)
        self.handler.opened()
        self.flush()

    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            return
        if not self.received_bytes and self._rejects_stranger(data):
            return
        self.received_bytes += len(data)
        protocol = self.protocol
        protocol.receive_data(data)
        try:
            for event in protocol.events():
                self.handler.handle(event)
        except Exception as error:  # noqa: BLE001 - a bug ends this connection, not the broker
            self.handler.failed(error)
        if protocol.bytes_wanted != self._wanted_bytes:
            self._reserve(protocol.bytes_wanted)
        self.flush()

    def _rejects_stranger(self, data: bytes) -> bool:
        """Reply to a client that speaks another protocol, and end the connection. Return True if it
        did.
        """
        found = None if self._wrong_port is None else self._wrong_port.reply(data, self._peer())
        if found is None or self.transport is None:
            return False
        # A Kafka client gets no reply that it understands; ours still names the protocol of this
        # port.
        self.transport.write(found[1] or refusal_in(WireProtocol.NATIVE, found[0]))
        self.end()
        return True

    def _peer(self) -> str:
        name = self.transport.get_extra_info("peername") if self.transport is not None else None
        return str(name[0]) if isinstance(name, tuple) else ""

    def eof_received(self) -> bool:
        self.protocol.receive_eof()
        for event in self.protocol.events():
            self.handler.handle(event)
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        self.transport = None
        self._reserve(0)
        self.protocol.receive_eof()
        self.handler.lost()

    def pause_writing(self) -> None:
        self.pause_reading(PauseReason.WRITE)

    def resume_writing(self) -> None:
        self.resume_reading(PauseReason.WRITE)
        self.handler.writable()

    # ── called by the session ─────────────────────────────────────────────────────────────────────

    @property
    def can_write(self) -> bool:
        return not self._pause_reasons & PauseReason.WRITE and self.transport is not None

    @property
    def is_paused_by_us(self) -> bool:
        """True if reading is paused for a reason that the peer cannot clear."""
        return bool(self._pause_reasons & PauseReason.BY_US)

    @property
    def unsent_bytes(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport else 0

    def pause_reading(self, reason: int) -> None:
        """Pause reading for this reason."""
        if not self._pause_reasons and self.transport is not None:
            self.transport.pause_reading()
        self._pause_reasons |= reason

    def resume_reading(self, reason: int) -> None:
        """Clear a reason; read again if no other reason is left."""
        if self._pause_reasons & reason:
            self._pause_reasons &= ~reason
            if not self._pause_reasons and self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    def flush_soon(self) -> None:
        """Write queued frames at the end of this iteration of the event loop."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write queued frames; end the connection if the protocol allows no more."""
        self._flush_scheduled = False
        if self.transport is None or self._is_ending:
            return
        self.handler.before_flush()
        pieces = self.protocol.data_to_send()
        if pieces and not self.transport.is_closing():
            write_pieces(self.transport, pieces)
        if self.protocol.state is State.CLOSED:
            if self.protocol.goodbye_received:
                self.close()
            else:
                self.end()

    @property
    def is_ending(self) -> bool:
        return self._is_ending or self.transport is None

    def end(self) -> None:
        """Send nothing more and wait for the peer to close. Closing at once would reset the
        connection while the peer still sends, and the peer would never read the last frame.
        Received bytes are ignored; the sweep limits the wait.
        """
        if self.transport is None or self._is_ending:
            return
        self._is_ending = True
        was_paused = self._pause_reasons
        self._reserve(0)
        if self.transport.is_closing():
            return
        if was_paused:
            self._pause_reasons = PauseReason.NONE
            self.transport.resume_reading()
        # TLS ends in both directions at once: let the peer read first.
        if not self.transport.can_write_eof():
            self._loop.call_later(LAST_WORDS_S, self.close)
            return
        try:
            self.transport.write_eof()
        except OSError:  # the peer is gone already
            self.transport.abort()

    def close(self) -> None:
        """Close the socket when all written bytes are sent."""
        if self.transport is not None:
            self._is_ending = True
            self._reserve(0)
            self.transport.close()

    def abort(self) -> None:
        """Close the socket now; unsent bytes are lost."""
        if self.transport is not None:
            self.transport.abort()

    # ── the receive budget ────────────────────────────────────────────────────────────────────────

    def _reserve(self, size_bytes: int) -> None:
        """Replace the current memory reservation by one for the frame that is announced now."""
        if self._pause_reasons & PauseReason.BUDGET:
            self._budget.withdraw(self._granted)
            self._pause_reasons &= ~PauseReason.BUDGET
        if self._reserved_bytes:
            self._budget.release(self._reserved_bytes)
            self._reserved_bytes = 0
        self._wanted_bytes = size_bytes
        if not size_bytes:
            return
        if self._budget.reserve(size_bytes, self._granted):
            self._reserved_bytes = size_bytes
        else:
            self.pause_reading(PauseReason.BUDGET)

    def _granted(self) -> None:
        self._reserved_bytes = self._wanted_bytes
        self.resume_reading(PauseReason.BUDGET)
