"""One WebSocket connection (RFC 6455), with limits; the library `websockets` is the codec.

- A message has at most `max_body_bytes`, before the login 16 KiB. One that arrives in several
  pieces reserves that from the shared memory, and must be complete within `body_timeout_ms`.
- The client is not read from while its session is full, or while it does not read its responses.
- Silent sockets get a ping; those that stay silent or do not log in in time are closed.

An idle socket has no task, queue or timer: ten thousand of them cost little more than their TCP
connections.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from websockets.frames import Close, Opcode
from websockets.protocol import Protocol, Side, State

from sparrow.frontends.http import before_login
from sparrow.frontends.http.sockets.handshake import LOG
from sparrow.frontends.http.sockets.session import SocketSession
from sparrow.frontends.http.sockets.sockets import CLOSE_S
from sparrow.frontends.transport.connection import Connection, PauseReason
from sparrow.frontends.transport.liveness import Verdict

if TYPE_CHECKING:
    from websockets.frames import Frame

    from sparrow.broker.access.authz import Principal
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.sockets.sockets import Sockets
    from sparrow.frontends.transport.liveness import Deadlines

PING_AFTER_S: Final = 30.0
_NORMAL_CLOSE: Final = frozenset({1000, 1005})
"""Codes of an orderly close by the client; 1005 is a close without a code."""
_UNSUPPORTED_DATA: Final = 1003
_NOT_TEXT: Final = 1007
_POLICY_VIOLATION: Final = 1008
_SHORT_BYTES: Final = 125
_MEDIUM_BYTES: Final = 0xFFFF


class SocketPause(PauseReason):
    """The reason of this protocol to pause reading."""

    WORK: Final = 8
    """The session is full."""


class SocketConnection(Connection["HttpContext"], asyncio.Protocol):
    """A WebSocket connection; see the module's text. Loop thread only.

    Args:
        certified: the principal of the client's certificate.
    """

    __slots__ = (
        "_codec",
        "_fragments",
        "_heard_at",
        "_is_pinged",
        "_pending_bytes",
        "_session",
        "_sockets",
        "certified",
    )

    def __init__(self, context: HttpContext, sockets: Sockets, *, certified: Principal | None) -> None:
        super().__init__(context)
        self._sockets = sockets
        self._codec = Protocol(Side.SERVER, state=State.OPEN, max_size=before_login.MAX_BYTES, logger=LOG)
        self._session: SocketSession
        self._fragments: bytearray | None = None
        """The received part of a message in several frames."""
        self._pending_bytes = 0
        """Received bytes of a frame that is not complete."""
        self._heard_at = context.now()
        self._is_pinged = False
        self.certified = certified

    def begin(self, principal: Principal | None, early_data: bytes) -> None:
        """Begin, after the handshake. `early_data` came behind it."""
        self._session = SocketSession(
            self.context,
            self,
            principal=principal,
            peer=self.host,
            certified=self.certified,
        )
        if principal is not None:
            self.authenticated()
        if early_data:
            self.data_received(early_data)

    # ── called by the core ────────────────────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        self._is_pinged = False
        if self._has_ended:
            return
        self.received_bytes += len(data)
        self._pending_bytes += len(data)
        self._codec.receive_data(data)
        for event in self._codec.events_received():
            self._take(cast("Frame", event))
        self.flush()
        self.look()

    def flush(self) -> None:
        super().flush()
        pieces = self._codec.data_to_send()
        if pieces:
            self.write([piece for piece in pieces if piece])
            if not pieces[-1]:  # the codec has nothing more to send
                self._session.lost(in_order=False)
                self.end()

    def writable(self) -> None:
        self._session.writable()
        self.look()

    def lost(self) -> None:
        self._session.lost(in_order=False)

    @property
    def deadlines(self) -> Deadlines:
        return self._sockets.deadlines

    @property
    def unfinished_bytes(self) -> int:
        return self._pending_bytes + (0 if self._fragments is None else 1 + len(self._fragments))

    def overdue(self, verdict: Verdict) -> None:
        if verdict is Verdict.STALLED:
            self.close_with(_POLICY_VIOLATION, "a message was not complete in time")
        elif verdict is Verdict.NOT_KNOWN:
            self.close_with(_POLICY_VIOLATION, "log in first")
        elif verdict is not Verdict.IDLE or self._is_pinged:
            self.abort()

    def alive(self) -> None:
        self._heard_at = self.context.now()

    def sweep(self, now: float) -> None:
        super().sweep(now)
        if self.is_leaving or self._is_pinged or now - self._heard_at <= PING_AFTER_S:
            return
        if self._sockets.may_ping(now):
            self._is_pinged = True
            self._codec.send_ping(b"")
            self.flush()

    def drain(self) -> None:
        """End the session when its replies are sent."""
        self._session.drain()

    def cancel(self) -> None:
        """Do nothing: pending work for the client ends with the session."""

    # ── frames in ─────────────────────────────────────────────────────────────────────────────────

    def authenticated(self) -> None:
        """Give the client its own slot and accept large messages, after its login."""
        self.is_known = True
        if self.slot is not None:
            self.slot.settle()
        self._codec.max_message_size = self.context.limits.max_body_bytes

    def _take(self, frame: Frame) -> None:
        size = len(frame.data)
        extended = 0 if size <= _SHORT_BYTES else 2 if size <= _MEDIUM_BYTES else 8
        self._pending_bytes = max(0, self._pending_bytes - size - extended - 6)
        if self.is_leaving:
            return
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self._collect(frame)
        elif frame.opcode is Opcode.CLOSE:
            self._session.lost(in_order=Close.parse(frame.data).code in _NORMAL_CLOSE)

    def _collect(self, frame: Frame) -> None:
        if frame.opcode is Opcode.BINARY:
            self.close_with(_UNSUPPORTED_DATA, "frames of this protocol are text")
            return
        if frame.opcode is Opcode.TEXT and frame.fin:
            self._receive(frame.data)
            return
        if self._fragments is None:
            self._fragments = bytearray()
        self._fragments += frame.data
        if frame.fin:
            whole, self._fragments = self._fragments, None
            self._receive(whole)

    def _receive(self, data: bytes | bytearray | memoryview) -> None:
        self.message_completed()
        try:
            text = str(data, "utf-8")
        except UnicodeDecodeError:
            self.close_with(_NOT_TEXT, "a text frame that is not UTF-8")
            return
        self._session.receive(text)

    def look(self) -> None:
        """Pause or resume reading, and reserve the largest size for a message that arrives in
        pieces.
        """
        limits = self.context.limits
        is_large = self.unfinished_bytes > limits.small_body_bytes
        self.reserve_input(limits.max_body_bytes if is_large else 0)
        if self._session.is_full:
            self.pause_reading(SocketPause.WORK)
        else:
            self.resume_reading(SocketPause.WORK)

    # ── frames out ────────────────────────────────────────────────────────────────────────────────

    def _unsent_bytes(self) -> int:
        return self.unsent_bytes + self._session.buffered_bytes

    def send(self, frame: bytes) -> None:
        """Send a text frame; do nothing on a connection that is being closed."""
        if not self.is_leaving and frame and self._codec.state is State.OPEN:
            self._codec.send_text(frame)
            self.flush()

    def close_with(self, code: int, reason: str) -> None:
        """Close the WebSocket; the connection ends when the client has replied, or after
        `CLOSE_S`.
        """
        if self.is_leaving:
            return
        self._codec.send_close(code, reason)
        self.flush()
        self.leave()
        self.context.loop.call_later(CLOSE_S, self.abort)
        self._session.lost(in_order=False)
