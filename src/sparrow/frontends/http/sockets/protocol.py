"""One WebSocket connection (RFC 6455), with limits; the library `websockets` is the codec.

It replaces uvicorn's own class, which keeps a task, a queue and timers for each socket: ten
thousand idle sockets should cost little more than their TCP connections.

- A message has at most `max_body_bytes`, before the login 16 KiB. One that arrives in several
  pieces reserves that from the shared memory, and must be complete within `body_timeout_ms`.
- The client is not read from while its session is full, or while it does not read its responses.
- One sweep for all sockets sends pings to silent ones, and closes those that stay silent or do not
  log in in time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, cast

from websockets.frames import Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from sparrow.base.errors import InternalError
from sparrow.frontends.http import before_login
from sparrow.frontends.http.default_headers import DEFAULT_HEADERS
from sparrow.frontends.http.problems import BUG, response_parts
from sparrow.frontends.http.sockets.handshake import Handshake, response_of, scope_of
from sparrow.frontends.transport.admission import SLOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from uvicorn.config import Config
    from uvicorn.server import ServerState
    from websockets.frames import Frame
    from websockets.http11 import Response

    from sparrow.frontends.http.sockets.session import SocketSession
    from sparrow.frontends.http.sockets.sockets import Sockets
    from sparrow.frontends.transport.admission import ConnectionSlot
    from sparrow.frontends.transport.send_budget import Backlog

WRITE_HIGH_WATER_BYTES: Final = 64 << 10
"""Above it nothing is read or leased for the client."""
MAX_UNSENT_BYTES: Final = 1 << 20
"""Above it the client is not read from, as it does not read its responses."""
PING_AFTER_S: Final = 30.0
SILENT_S: Final = 60.0
"""Time without bytes from the client after which the connection counts as lost."""
HELLO_S: Final = 10.0
CLOSE_S: Final = 2.0
"""Time for the client to complete the closing handshake."""

_NORMAL_CLOSE: Final = frozenset({1000, 1005})
"""Codes of an orderly close by the client; 1005 is a close without a code."""
_SWITCHING_PROTOCOLS: Final = 101
_UNSUPPORTED_DATA: Final = 1003
_NOT_TEXT: Final = 1007
_POLICY_VIOLATION: Final = 1008
_log: Final = logging.getLogger("sparrow.http.sockets")
_codec_log: Final = _log.getChild("codec")
_codec_log.setLevel(logging.ERROR)  # it logs every connection


class SocketProtocol(asyncio.Protocol):
    """A WebSocket connection; see the module's text. Loop thread only. The constructor is that of
    uvicorn's protocols.
    """

    __slots__ = (
        "_backlog",
        "_connections",
        "_fragments",
        "_handshake",
        "_handshake_state",
        "_heard_at",
        "_incomplete_since",
        "_is_binary",
        "_is_leaving",
        "_is_pinged",
        "_is_reading",
        "_loop",
        "_opened_at",
        "_reservation",
        "_session",
        "_slot",
        "_sockets",
        "_unsent_bytes",
        "_unsent_since",
        "_wire",
        "can_write",
        "transport",
    )

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._loop = _loop or asyncio.get_running_loop()
        self._connections = cast("set[Any]", server_state.connections)
        self._handshake_state: _HandshakeState | None = _HandshakeState(
            config.loaded_app, server_state.tasks, app_state
        )
        self._wire = ServerProtocol(max_size=before_login.MAX_BYTES, logger=_codec_log)
        self.transport: asyncio.Transport
        self.can_write = True
        self._backlog: Backlog | None = None
        self._sockets: Sockets | None = None
        self._session: SocketSession | None = None
        self._slot: ConnectionSlot | None = app_state.get(SLOT)
        self._handshake: Handshake | None = None
        self._fragments: bytearray | None = None
        """The received part of a message in several frames."""
        self._is_binary = False
        self._is_reading = True
        self._is_leaving = False
        self._reservation: _MessageReservation | None = None
        self._incomplete_since = 0.0
        """Time at which the current message began; 0 without one."""
        self._heard_at = self._opened_at = self._loop.time()
        self._is_pinged = False
        self._unsent_bytes = 0
        self._unsent_since = 0.0

    # ── called by the transport ───────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._is_pinged = False
        self._wire.receive_data(data)
        for event in self._wire.events_received():
            if isinstance(event, Request):
                self._begin(event)
            elif not self._is_leaving:
                self._take(cast("Frame", event))
        self._flush()
        self._look_at_memory()
        self.look()

    def pause_writing(self) -> None:
        self.can_write = False

    def resume_writing(self) -> None:
        self.can_write = True
        if self._session is not None:
            self._session.writable()
        self.look()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        self._connections.discard(self)
        if self._slot is not None:
            self._slot.release()
        self.can_write = False
        self._is_leaving = True
        if self._backlog is not None:
            self._backlog.close()
        if self._sockets is not None:
            self._sockets.discard(self)
        if self._reservation is not None:
            self._reservation.give_back()
        if self._handshake is not None:
            self._handshake.end()
        if self._session is not None:
            self._session.lost(in_order=False)

    def shutdown(self) -> None:
        """Drain the session, or close a connection without one, when the broker shuts down."""
        if self._session is not None:
            self._session.drain()
        elif self._handshake is None:
            self.transport.close()

    # ── the handshake ─────────────────────────────────────────────────────────────────────────────

    def _begin(self, request: Request) -> None:
        state = self._handshake_state
        if state is None:
            return
        state.response = self._wire.accept(request)
        if state.response.status_code != _SWITCHING_PROTOCOLS:
            self.refuse(state.response)
            return
        self._handshake = Handshake(self)
        task = self._loop.create_task(self._shake_hands(state, scope_of(self, request, state.state)))
        state.tasks.add(task)
        task.add_done_callback(state.tasks.discard)

    async def _shake_hands(self, state: _HandshakeState, scope: dict[str, Any]) -> None:
        handshake = self._handshake
        assert handshake is not None
        try:
            await state.app(scope, handshake.receive, handshake.send)
        except Exception:  # noqa: BLE001 - it is logged, the client learns of it, the broker lives
            _log.exception("a bug in the handshake of a WebSocket")
            self.refuse(response_of(*response_parts(InternalError(BUG), scope["path"])))
        finally:
            self._handshake = None
            if self._session is None:
                self.transport.close()

    def accept(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Accept the socket; `open` follows."""
        state = self._handshake_state
        if state is None or state.response is None or self.transport.is_closing():
            return
        for name, value in headers:
            state.response.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._respond(state.response)
        self._handshake_state = None

    def refuse(self, response: Response) -> None:
        """Refuse the socket."""
        if self._handshake_state is not None:
            self._handshake_state = None
            self._is_leaving = True
            self._respond(response)

    def _respond(self, response: Response) -> None:
        for name, value in DEFAULT_HEADERS:
            response.headers[name.decode()] = value.decode()
        self._wire.send_response(response)
        self._flush()

    def open(self, session: SocketSession, sockets: Sockets) -> None:
        """Pass all frames from now on to the session."""
        if self.transport.is_closing():
            session.lost(in_order=False)
            return
        self._session = session
        self._sockets = sockets
        if session.is_known:
            self.authenticated()
        sockets.add(self)
        self.look()

    def authenticated(self) -> None:
        """Give the client its own slot and accept large messages, after its login."""
        if self._slot is not None:
            self._slot.settle()
        if self._sockets is not None:
            self._wire.max_message_size = self._sockets.max_bytes

    # ── frames in ─────────────────────────────────────────────────────────────────────────────────

    def _take(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self._collect(frame)
        elif frame.opcode is Opcode.CLOSE and self._session is not None:
            close = self._wire.close_rcvd
            self._session.lost(in_order=close is not None and close.code in _NORMAL_CLOSE)
            self._is_leaving = True

    def _collect(self, frame: Frame) -> None:
        if frame.opcode is Opcode.BINARY:
            self.close(_UNSUPPORTED_DATA, "frames of this protocol are text")
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
        self._incomplete_since = 0.0
        try:
            text = str(data, "utf-8")
        except UnicodeDecodeError:
            self.close(_NOT_TEXT, "a text frame that is not UTF-8")
            return
        if self._session is not None:
            self._session.receive(text)

    def _look_at_memory(self) -> None:
        """Reserve the largest size for a message that arrives in pieces, and note when it began."""
        fragments = self._fragments
        pending_bytes = len(self._wire.reader.buffer) + len(fragments or b"")
        if not pending_bytes and fragments is None:
            self._incomplete_since = 0.0
        elif not self._incomplete_since:
            self._incomplete_since = self._heard_at
        if self._sockets is None or self._is_leaving:
            return
        if pending_bytes <= self._sockets.small_bytes:
            if self._reservation is not None:
                self._reservation.give_back()
                self._reservation = None
        elif self._reservation is None:
            self._reservation = _MessageReservation(self._sockets, self.look)

    def look(self) -> None:
        """Pause or resume reading from the client."""
        wanted = self._is_leaving or self._may_read()
        if wanted != self._is_reading and not self.transport.is_closing():
            self._is_reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def _may_read(self) -> bool:
        if self._session is None or self._session.is_full:
            return False
        if self._reservation is not None and not self._reservation.is_granted:
            return False
        return self.can_write or self.transport.get_write_buffer_size() <= MAX_UNSENT_BYTES

    # ── frames out ────────────────────────────────────────────────────────────────────────────────

    @property
    def backlog(self) -> Backlog:
        """Return the account of the records that were sent and that the client has not read."""
        if self._backlog is None:
            assert self._sockets is not None
            budget = self._sockets.frontend.send_budget
            self._backlog = budget.backlog(self._not_taken_bytes, lambda _: self.transport.abort())
        return self._backlog

    def _not_taken_bytes(self) -> int:
        buffered_bytes = 0 if self._session is None else self._session.buffered_bytes
        return self.transport.get_write_buffer_size() + buffered_bytes

    def send(self, frame: bytes) -> None:
        """Send a text frame; do nothing on a connection that is being closed."""
        if not self._is_leaving and frame and self._wire.state is State.OPEN:
            self._wire.send_text(frame)
            self._flush()

    def close(self, code: int, reason: str) -> None:
        """Close the WebSocket; the connection ends when the client has replied, or after
        `CLOSE_S`.
        """
        if self._is_leaving:
            return
        self._is_leaving = True
        self._wire.send_close(code, reason)
        self._flush()
        self._loop.call_later(CLOSE_S, self.transport.abort)
        self.look()
        if self._session is not None:
            self._session.lost(in_order=False)

    def _flush(self) -> None:
        data = b"".join(self._wire.data_to_send())
        if data and not self.transport.is_closing():
            self.transport.write(data)
        if self._wire.eof_sent:
            self._end()

    def _end(self) -> None:
        """End the connection when the codec is done. If the client violated the protocol, it may
        still be sending, and would not see the reason if the connection was closed at once.
        """
        if self._wire.parser_exc is None or self._wire.state is State.CLOSED:
            self.transport.close()
        elif not self._is_leaving:
            self._is_leaving = True
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self._loop.call_later(CLOSE_S, self.transport.abort)
            if self._session is not None:
                self._session.lost(in_order=False)

    # ── timeouts ──────────────────────────────────────────────────────────────────────────────────

    def sweep(self, now: float, *, may_ping: bool) -> bool:
        """Check the timeouts. Return True if a ping was sent."""
        if self._is_leaving or self._session is None or self._sockets is None:
            return False
        silent_s = now - self._heard_at
        if self._is_overdue(now):
            self.close(_POLICY_VIOLATION, "a message was not complete in time")
        elif not self._session.is_known and now - self._opened_at > HELLO_S:
            self.close(_POLICY_VIOLATION, "log in first")
        elif (silent_s > SILENT_S and self._is_pinged and self._is_reading) or self._is_stalled(now):
            self.transport.abort()
        elif silent_s > PING_AFTER_S and may_ping and not self._is_pinged:
            self._is_pinged = True
            self._wire.send_ping(b"")
            self._flush()
            return True
        return False

    def _is_stalled(self, now: float) -> bool:
        """Return True if the client has read nothing for `SILENT_S`."""
        unsent = 0 if self.can_write else self.transport.get_write_buffer_size()
        if not unsent or unsent != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since = unsent, now
        return now - self._unsent_since > SILENT_S

    def _is_overdue(self, now: float) -> bool:
        if not self._incomplete_since or self._sockets is None:
            return False
        if not self._is_reading:  # the broker paused reading
            self._incomplete_since = now
            return False
        return now - self._incomplete_since > self._sockets.message_timeout_s


class _HandshakeState:
    """State of a connection during the handshake."""

    __slots__ = ("app", "response", "state", "tasks")

    def __init__(self, app: Any, tasks: set[asyncio.Task[None]], state: dict[str, Any]) -> None:
        self.app = app
        self.tasks = tasks
        self.state = state
        self.response: Response | None = None


class _MessageReservation:
    """Memory for one large message, granted now or later."""

    __slots__ = ("_granted", "_sockets", "is_granted")

    def __init__(self, sockets: Sockets, granted: Callable[[], None]) -> None:
        self._sockets = sockets
        self._granted = granted
        self.is_granted = sockets.budget.reserve(sockets.max_bytes, self._grant)

    def _grant(self) -> None:
        self.is_granted = True
        self._granted()

    def give_back(self) -> None:
        """Release the memory."""
        if self.is_granted:
            self._sockets.budget.release(self._sockets.max_bytes)
        else:
            self._sockets.budget.withdraw(self._grant)
