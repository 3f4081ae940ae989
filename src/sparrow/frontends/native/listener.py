"""The pump of one connection: socket ⇄ state machine. It decides nothing about payloads.

Reading stops while any `Hold` is set, each for its own reason. Writing gathers: whatever is sent within one turn of the loop
leaves in one `writelines`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, cast

from sparrow.protocol.native.connection import Connection, Event, Role, State

if TYPE_CHECKING:
    from sparrow.frontends.budget import ReceiveBudget
    from sparrow.frontends.native.limits import NativeLimits


LAST_WORDS_S: Final = 0.5
"""How long a peer behind TLS has to read why its connection ends."""


class Hold:
    """Why a connection is not read from: bits. Plain integers, as they are looked at for each batch."""

    NONE: Final = 0
    WRITE: Final = 1
    """The peer does not take what we send."""
    WINDOW: Final = 2
    """More is unconfirmed than the window allows."""
    WORK: Final = 4
    """Too many calls wait."""
    BUDGET: Final = 8
    """No room for the frame that is announced."""
    DRAIN: Final = 16
    """Nothing more is taken."""
    QUOTA: Final = 32
    """The client published more than its quota allows."""
    SETTLE: Final = 64
    """More settlements are not on stable storage than the limit allows."""
    BY_US: Final = WINDOW | WORK | BUDGET | DRAIN | QUOTA | SETTLE
    """Reasons that the peer cannot change."""


class Handler(Protocol):
    """What stands behind a pump; called on the loop."""

    def opened(self) -> None: ...
    def handle(self, event: Event) -> None: ...
    def before_flush(self) -> None: ...
    def writable(self) -> None: ...
    def lost(self) -> None: ...
    def failed(self, error: Exception) -> None: ...


class Pump(asyncio.Protocol):
    """Feeds one `Connection`."""

    __slots__ = (
        "_budget",
        "_flush_scheduled",
        "_holds",
        "_is_ending",
        "_limits",
        "_loop",
        "_reserved_bytes",
        "_wanted_bytes",
        "connection",
        "handler",
        "received_bytes",
        "transport",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: NativeLimits, budget: ReceiveBudget) -> None:
        self.connection = Connection(
            Role.BROKER, max_frame_bytes=limits.max_frame_bytes, max_channels=limits.max_channels
        )
        self.handler: Handler
        self.transport: asyncio.Transport | None = None
        self.received_bytes = 0
        self._loop = loop
        self._limits = limits
        self._budget = budget
        self._holds: int = Hold.NONE
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
        self.received_bytes += len(data)
        connection = self.connection
        connection.receive_data(data)
        try:
            for event in connection.events():
                self.handler.handle(event)
        except Exception as error:  # noqa: BLE001 - a bug ends this connection, not the broker
            self.handler.failed(error)
        if connection.bytes_wanted != self._wanted_bytes:
            self._reserve(connection.bytes_wanted)
        self.flush()

    def eof_received(self) -> bool:
        self.connection.receive_eof()
        for event in self.connection.events():
            self.handler.handle(event)
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        self.transport = None
        self._reserve(0)
        self.connection.receive_eof()
        self.handler.lost()

    def pause_writing(self) -> None:
        self.hold(Hold.WRITE)

    def resume_writing(self) -> None:
        self.unhold(Hold.WRITE)
        self.handler.writable()

    # ── called by the session ─────────────────────────────────────────────────────────────────────

    @property
    def can_write(self) -> bool:
        return not self._holds & Hold.WRITE and self.transport is not None

    @property
    def is_held_by_us(self) -> bool:
        """Not read from for a reason that the peer cannot change."""
        return bool(self._holds & Hold.BY_US)

    @property
    def unsent_bytes(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport else 0

    def hold(self, reason: int) -> None:
        """Stop reading."""
        if not self._holds and self.transport is not None:
            self.transport.pause_reading()
        self._holds |= reason

    def unhold(self, reason: int) -> None:
        """Read again, unless there is another reason not to."""
        if self._holds & reason:
            self._holds &= ~reason
            if not self._holds and self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    def flush_soon(self) -> None:
        """Write what is queued at the end of this turn of the loop."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is queued; end the connection when nothing may follow."""
        self._flush_scheduled = False
        if self.transport is None or self._is_ending:
            return
        self.handler.before_flush()
        pieces = self.connection.data_to_send()
        if pieces and not self.transport.is_closing():
            self.transport.writelines(pieces)
        if self.connection.state is State.CLOSED:
            if self.connection.goodbye_received:
                self.close()
            else:
                self.end()

    @property
    def is_ending(self) -> bool:
        return self._is_ending or self.transport is None

    def end(self) -> None:
        """Say nothing more and wait for the peer to close. Closing at once would reset the connection while the peer still
        sends, and it would never read our last words. What it sends is ignored; the sweep sets a limit to the wait."""
        if self.transport is None or self._is_ending:
            return
        self._is_ending = True
        was_held = self._holds
        self._reserve(0)
        if self.transport.is_closing():
            return
        if was_held:
            self._holds = Hold.NONE
            self.transport.resume_reading()
        if not self.transport.can_write_eof():  # TLS ends in both directions at once: let the peer read first
            self._loop.call_later(LAST_WORDS_S, self.close)
            return
        try:
            self.transport.write_eof()
        except OSError:  # the peer is gone already
            self.transport.abort()

    def close(self) -> None:
        """Close the socket when all is sent."""
        if self.transport is not None:
            self._is_ending = True
            self._reserve(0)
            self.transport.close()

    def abort(self) -> None:
        """Close the socket now."""
        if self.transport is not None:
            self.transport.abort()

    # ── the receive budget ────────────────────────────────────────────────────────────────────────

    def _reserve(self, size_bytes: int) -> None:
        """Exchange the reservation for one of the frame that is announced now."""
        if self._holds & Hold.BUDGET:
            self._budget.withdraw(self._granted)
            self._holds &= ~Hold.BUDGET
        if self._reserved_bytes:
            self._budget.release(self._reserved_bytes)
            self._reserved_bytes = 0
        self._wanted_bytes = size_bytes
        if not size_bytes:
            return
        if self._budget.reserve(size_bytes, self._granted):
            self._reserved_bytes = size_bytes
        else:
            self.hold(Hold.BUDGET)

    def _granted(self) -> None:
        self._reserved_bytes = self._wanted_bytes
        self.unhold(Hold.BUDGET)
