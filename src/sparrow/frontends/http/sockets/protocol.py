"""One WebSocket connection: bytes to frames and back (RFC 6455), within limits; the library `websockets` is the codec.

It takes the place of uvicorn's own class, which keeps a task, a queue and timers for each socket: ten thousand that are idle should cost little more than their TCP connections.

- A message has at most `max_body_bytes`. One that does not come in one piece reserves that from the memory that all share, and must be whole within `body_timeout_ms`.
- The client is not read from while its session is full, or while it takes none of the answers that it is owed.
- One sweep for all sockets sends pings to those that are silent, and closes those that stay so, or do not say who they are in time.
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
from sparrow.frontends.http.problems import BUG, whole_answer
from sparrow.frontends.http.sockets.handshake import Handshake, response_of, scope_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from uvicorn.config import Config
    from uvicorn.server import ServerState
    from websockets.frames import Frame
    from websockets.http11 import Response

    from sparrow.frontends.http.sockets.session import Session
    from sparrow.frontends.http.sockets.sockets import Sockets

WRITE_HIGH_WATER_BYTES: Final = 64 << 10
"""Above it nothing is read or leased for the client."""
MAX_UNSENT_BYTES: Final = 1 << 20
"""Above it the client is not read from: it takes none of its answers."""
PING_AFTER_S: Final = 30.0
SILENT_S: Final = 60.0
"""How long a client may be silent before the connection counts as lost."""
HELLO_S: Final = 10.0
CLOSE_S: Final = 2.0
"""How long the client may take to answer a goodbye."""

_NORMAL_CLOSE: Final = frozenset({1000, 1005})
"""The client is done: it said so, or closed without a code."""
_SWITCHING_PROTOCOLS: Final = 101
_UNSUPPORTED_DATA: Final = 1003
_NOT_TEXT: Final = 1007
_POLICY_VIOLATION: Final = 1008
_log: Final = logging.getLogger("sparrow.http.sockets")
_codec_log: Final = _log.getChild("codec")
_codec_log.setLevel(logging.ERROR)  # it tells of each connection that comes and goes


class SocketProtocol(asyncio.Protocol):
    """See the module's text. Loop thread only. The constructor is that of uvicorn's protocols."""

    __slots__ = (
        "_connections",
        "_fragments",
        "_handshake",
        "_heard_at",
        "_incomplete_since",
        "_is_binary",
        "_is_leaving",
        "_is_pinged",
        "_is_reading",
        "_loop",
        "_opened_at",
        "_opening",
        "_reservation",
        "_session",
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
        self._opening: _Opening | None = _Opening(config.loaded_app, server_state.tasks, app_state)
        self._wire = ServerProtocol(max_size=config.ws_max_size, logger=_codec_log)
        self.transport: asyncio.Transport
        self.can_write = True
        self._sockets: Sockets | None = None
        self._session: Session | None = None
        self._handshake: Handshake | None = None
        self._fragments: bytearray | None = None
        """The message that is coming in several frames."""
        self._is_binary = False
        self._is_reading = True
        self._is_leaving = False
        self._reservation: _Reservation | None = None
        self._incomplete_since = 0.0
        """Since when a message is coming; 0: none is."""
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
        self.can_write = False
        self._is_leaving = True
        if self._sockets is not None:
            self._sockets.discard(self)
        if self._reservation is not None:
            self._reservation.give_back()
        if self._handshake is not None:
            self._handshake.end()
        if self._session is not None:
            self._session.lost(in_order=False)

    def shutdown(self) -> None:
        """The broker shuts down."""
        if self._session is not None:
            self._session.drain()
        elif self._handshake is None:
            self.transport.close()

    # ── the handshake ─────────────────────────────────────────────────────────────────────────────

    def _begin(self, request: Request) -> None:
        opening = self._opening
        if opening is None:
            return
        opening.response = self._wire.accept(request)
        if opening.response.status_code != _SWITCHING_PROTOCOLS:
            self.refuse(opening.response)
            return
        self._handshake = Handshake(self)
        task = self._loop.create_task(self._shake_hands(opening, scope_of(self, request, opening.state)))
        opening.tasks.add(task)
        task.add_done_callback(opening.tasks.discard)

    async def _shake_hands(self, opening: _Opening, scope: dict[str, Any]) -> None:
        handshake = self._handshake
        assert handshake is not None
        try:
            await opening.app(scope, handshake.receive, handshake.send)
        except Exception:  # noqa: BLE001 - it is logged, the client learns of it, the broker lives
            _log.exception("a bug in what opens a WebSocket")
            self.refuse(response_of(*whole_answer(InternalError(BUG), scope["path"])))
        finally:
            self._handshake = None
            if self._session is None:
                self.transport.close()

    def accept(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Agree to the socket; `open` follows."""
        opening = self._opening
        if opening is None or opening.response is None or self.transport.is_closing():
            return
        for name, value in headers:
            opening.response.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._wire.send_response(opening.response)
        self._opening = None
        self._flush()

    def refuse(self, response: Response) -> None:
        """Do not open the socket."""
        if self._opening is not None:
            self._opening = None
            self._is_leaving = True
            self._wire.send_response(response)
            self._flush()

    def open(self, session: Session, sockets: Sockets) -> None:
        """From here on frames are the session's."""
        if self.transport.is_closing():
            session.lost(in_order=False)
            return
        self._session = session
        self._sockets = sockets
        sockets.add(self)
        self.look()

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
        """A message that does not come at once reserves what it may become, and has a limited time."""
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
            self._reservation = _Reservation(self._sockets, self.look)

    def look(self) -> None:
        """Read from the client, or do not."""
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

    def send(self, frame: bytes) -> None:
        """Send a text frame; nothing on a connection that is being closed."""
        if not self._is_leaving and frame and self._wire.state is State.OPEN:
            self._wire.send_text(frame)
            self._flush()

    def close(self, code: int, reason: str) -> None:
        """Say goodbye; the connection ends when the client has answered, or did not for a while."""
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
        """The codec is done. Where it is because of what the client sent, the client may be sending still, and would not see why if the connection was closed at once."""
        if self._wire.parser_exc is None or self._wire.state is State.CLOSED:
            self.transport.close()
        elif not self._is_leaving:
            self._is_leaving = True
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self._loop.call_later(CLOSE_S, self.transport.abort)
            if self._session is not None:
                self._session.lost(in_order=False)

    # ── clocks ────────────────────────────────────────────────────────────────────────────────────

    def sweep(self, now: float, *, may_ping: bool) -> bool:
        """Look at the clocks; whether a ping was sent."""
        if self._is_leaving or self._session is None or self._sockets is None:
            return False
        silent_s = now - self._heard_at
        if self._is_overdue(now):
            self.close(_POLICY_VIOLATION, "a message did not come whole in time")
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
        """Whether the client has taken nothing for long of what waits for it."""
        unsent = 0 if self.can_write else self.transport.get_write_buffer_size()
        if not unsent or unsent != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since = unsent, now
        return now - self._unsent_since > SILENT_S

    def _is_overdue(self, now: float) -> bool:
        if not self._incomplete_since or self._sockets is None:
            return False
        if not self._is_reading:  # it is us who do not read
            self._incomplete_since = now
            return False
        return now - self._incomplete_since > self._sockets.message_timeout_s


class _Opening:
    """What only the handshake needs."""

    __slots__ = ("app", "response", "state", "tasks")

    def __init__(self, app: Any, tasks: set[asyncio.Task[None]], state: dict[str, Any]) -> None:
        self.app = app
        self.tasks = tasks
        self.state = state
        self.response: Response | None = None


class _Reservation:
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
        """It is not needed any more."""
        if self.is_granted:
            self._sockets.budget.release(self._sockets.max_bytes)
        else:
            self._sockets.budget.withdraw(self._grant)
