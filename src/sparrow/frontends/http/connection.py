"""HTTP connections: uvicorn's HTTP protocol in the broker's loop, with the limits that a public
listener needs.

uvicorn parses (httptools) and runs the application. `Connection` adds:

- limits on the size of the head, the number of pipelined requests and the number of connections;
- timeouts for the head, the body, the pause between requests and a response that the client does
  not read; one sweep checks them for all connections;
- problem details for errors below the level of HTTP, sent after the responses that are due before
  them;
- an end that the client can read: if a response ends the connection while the client is still
  sending, the socket is shut down for writing and incoming bytes are dropped for a moment. An
  immediate close would reset the connection and lose the response (RFC 9112, section 9.6);
- a notification of every request of a connection, not only the last one, when the client
  disconnects.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from sparrow.base.errors import Draining, Overloaded, SparrowError
from sparrow.broker.access.sessions import Guard
from sparrow.frontends.http.before_login import LOGIN, MAX_PIPELINED, BeforeLogin
from sparrow.frontends.http.before_login import NO_ROOM as NO_LOGIN_ROOM
from sparrow.frontends.http.context import EXCHANGE, GONE
from sparrow.frontends.http.default_headers import DEFAULT_HEADERS
from sparrow.frontends.http.identity import CERTIFICATE
from sparrow.frontends.http.problems import TooSlow, response_parts
from sparrow.frontends.http.sockets.protocol import SocketProtocol
from sparrow.frontends.transport.admission import SLOT, host_of
from sparrow.frontends.transport.tls import certificate_principal
from sparrow.protocol.http.errors import (
    HeadTooLarge,
    MalformedRequest,
    MethodNotAllowed,
    UnsupportedMediaType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from sparrow.frontends.http.asgi import App
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.transport.admission import ConnectionSlot
    from sparrow.frontends.transport.send_budget import Backlog, SendBudget

LINGER_S: Final = 2.0
"""Time during which incoming bytes are dropped before the connection is closed."""
END_POLL_S: Final = 0.005
MAX_REFUSED: Final = 100
"""Rejected connections that may still read the reason; beyond it they are closed without one."""
_LINE_BYTES: Final = 16
"""Bytes of the request line beside the target: method, version, spaces."""
_HEADER_BYTES: Final = 4
"""Bytes of a header beside name and value."""
TLS_LINGER_S: Final = 0.5
"""`LINGER_S` for TLS, which ends in both directions at once."""


class HttpServer:
    """State that all HTTP connections share. Loop thread only, except the constructor.

    Args:
        app: the application.
        frontend: the frontend that accepts the connections.
    """

    def __init__(self, app: App, frontend: HttpContext) -> None:
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        self._frontend = frontend
        self._config = Config(
            cast("Any", app),
            http=Connection,
            ws=SocketProtocol,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            ws_per_message_deflate=False,
            ws_max_size=frontend.limits.max_body_bytes,
        )
        self._config.load()
        self._state = ServerState()
        self._state.default_headers = list(DEFAULT_HEADERS)
        self._refused: set[Connection] = set()

    @property
    def connections(self) -> int:
        return len(self._state.connections)

    @property
    def is_busy(self) -> bool:
        """Return True if a client is connected or a request is being handled."""
        return bool(self._state.connections or self._state.tasks)

    def protocol(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return Connection(self._config, self._state, {}, None, frontend=self._frontend, refused=self._refused)

    def sweep(self, now: float, date: bytes) -> None:
        """Check the timeouts of all connections. `date` is the Date header of responses from now
        on.
        """
        self._state.default_headers = [(b"date", date), *DEFAULT_HEADERS]
        for connection in list(self._state.connections):
            if isinstance(connection, Connection):
                connection.sweep(now)

    def shut_down(self) -> None:
        """Close idle connections; the others end with their responses."""
        for connection in list(self._state.connections):
            connection.shutdown()

    async def end(self, timeout_s: float) -> None:
        """Cancel the remaining requests; clients have a moment to read why."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        for task in set(self._state.tasks):
            task.cancel()
        while self.is_busy and loop.time() < deadline:  # noqa: ASYNC110 - rare
            await asyncio.sleep(END_POLL_S)
        for connection in [*self._state.connections, *self._refused]:
            connection.transport.abort()
        await asyncio.sleep(0)


class LingeringTransport:
    """A transport whose `close` lets the client read the last response. Everything else is the
    transport's own.
    """

    __slots__ = ("_backlog", "_is_ended", "_must_linger", "_transport", "write")

    def __init__(self, transport: asyncio.Transport, must_linger: Callable[[], bool]) -> None:
        self._transport = transport
        self._must_linger = must_linger
        self._is_ended = False
        self._backlog: Backlog | None = None
        self.write = transport.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def backlog_in(self, budget: SendBudget) -> Backlog:
        """Return the account of the records that were sent and that the client has not read."""
        if self._backlog is None:
            transport = self._transport
            self._backlog = budget.backlog(transport.get_write_buffer_size, lambda _: transport.abort())
        return self._backlog

    def lost(self) -> None:
        """Close the account after a disconnect."""
        if self._backlog is not None:
            self._backlog.close()

    def is_closing(self) -> bool:
        return self._is_ended or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing():
            return
        if not self._must_linger():
            self._transport.close()
            return
        self._is_ended = True
        self._transport.resume_reading()
        if not self._transport.can_write_eof():
            asyncio.get_running_loop().call_later(TLS_LINGER_S, self._transport.close)
            return
        try:
            self._transport.write_eof()
        except OSError:  # the client has already disconnected
            self._transport.abort()


class Connection(HttpToolsProtocol):
    """One HTTP connection; see the module's text."""

    # With uvicorn's attributes a dictionary would be too large to share its keys with others, and
    # would take 2 KiB.
    __slots__ = (
        "_declines_upgrade",
        "_final_response",
        "_frontend",
        "_guard",
        "_head_bytes",
        "_ignores_input",
        "_is_ending",
        "_is_in_head",
        "_is_untouched",
        "_limits",
        "_lingering_transport",
        "_login",
        "_parsed_bytes",
        "_refused",
        "_running",
        "_since",
        "_stalled_since",
        "_unparsed_bytes",
        "_unsent_bytes",
    )

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        frontend: HttpContext,
        refused: set[Connection],
    ) -> None:
        super().__init__(config, server_state, app_state, _loop or asyncio.get_running_loop())
        self._frontend = frontend
        self._refused = refused
        """Rejected connections that have not read the reason yet."""
        self._limits = frontend.limits
        self._since = self.loop.time()
        """Start of the current state of the connection, on the loop's clock."""
        self._login = BeforeLogin(frontend.login_budget, is_known=not frontend.needs_login)
        self.app_state[LOGIN] = self._login
        self._head_bytes = 0
        """Bytes of the current head as far as it is parsed; before the login, also those of earlier
        requests.
        """
        self._unparsed_bytes = 0
        """Bytes received of the current head of which the parser has not reported anything."""
        self._parsed_bytes = 0
        """Bytes of the current chunk that belong to bodies and complete heads."""
        self._is_in_head = False
        self._is_untouched = True
        """True until the first byte arrives."""
        self._final_response = b""
        self._ignores_input = False
        """True if incoming bytes are dropped: the connection ends with the responses that are
        due.
        """
        self._is_ending = False
        self._declines_upgrade = False
        """True if the request offers another protocol that is not accepted."""
        self._running: RequestResponseCycle | None = None
        self._guard = Guard(frontend.broker.sessions, lambda _: self.transport.abort())
        """Guard of the connection's certificate; credentials of a request count for that request
        only.
        """
        self._unsent_bytes = 0
        self._stalled_since = 0.0

    # ── called by the transport ───────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        refusal = self._maybe_refusal(transport)
        self._lingering_transport = LingeringTransport(transport, self._must_linger)
        super().connection_made(cast("Any", self._lingering_transport))
        certified = certificate_principal(transport)
        if certified is not None:
            self.app_state[CERTIFICATE] = certified
            self._login.is_known = True
            self._guard.hold(certified)
        if refusal is not None:
            self._reject(refusal)

    def _maybe_refusal(self, transport: asyncio.Transport) -> SparrowError | None:
        if self._frontend.is_draining:
            return Draining("The broker is shutting down; connect again later.")
        try:
            self.app_state[SLOT] = self._frontend.admission.admit(host_of(transport), transport.abort)
        except Overloaded as refusal:
            return refusal
        return None

    @property
    def _slot(self) -> ConnectionSlot | None:
        return self.app_state.get(SLOT)

    def _reject(self, refusal: SparrowError) -> None:
        """Send the reason and end the connection; close it without a reason if many read one
        already.
        """
        self.connections.discard(self)
        if len(self._refused) >= MAX_REFUSED:
            self.transport.abort()
            return
        self._refused.add(self)
        self._refuse(refusal)
        self.loop.call_later(LINGER_S, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            return
        found = self._frontend.wrong_port.reply(data, self._peer()) if self._is_untouched else None
        self._is_untouched = False
        if found is not None:
            self._refuse(MalformedRequest(found[0]))
            return
        self._parsed_bytes = 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(_error_of(error))
        else:
            if self._is_in_head:
                self._unparsed_bytes += max(0, len(data) - self._parsed_bytes)
                if max(self._head_bytes, self._unparsed_bytes) > self._max_head_bytes:
                    self._refuse(self._head_too_large())

    def _peer(self) -> str:
        name = self.transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else ""

    def connection_lost(self, exc: Exception | None) -> None:
        self._ignores_input = self._is_ending = True
        self._guard.close()
        if self._slot is not None:
            self._slot.release()
        self._login.release()
        self._lingering_transport.lost()
        self._refused.discard(self)
        if self._running is not None:
            _notify_gone(self._running)
        self.pipeline.clear()
        super().connection_lost(exc)

    # ── called by the parser ──────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        self._since = self.loop.time()
        self._is_in_head = True
        self._unparsed_bytes = 0
        if self._login.is_known or self._running is None:
            self._head_bytes = 0
        limits = self._limits
        most = limits.max_pipelined if self._login.is_known else min(MAX_PIPELINED, limits.max_pipelined)
        if len(self.pipeline) >= most:
            raise Overloaded(
                f"{most} requests of this connection are waiting already; read some responses first"
            )
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url) + _LINE_BYTES
        if self._head_bytes > self._max_head_bytes:
            raise self._head_too_large()
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + _HEADER_BYTES
        if self._head_bytes > self._max_head_bytes:
            raise self._head_too_large()
        # A trailer follows the body and is not a header (RFC 9110, section 6.5.1).
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._parsed_bytes += self._head_bytes
        self._since = self.loop.time()
        if self._login.is_known and self._slot is not None:
            self._slot.settle()
        if self.parser.get_method() == b"CONNECT":
            raise MethodNotAllowed("CONNECT is not supported: this is not a proxy")
        self._check_head()
        self._declines_upgrade = self.parser.should_upgrade() and not self._should_upgrade()
        if not self._declines_upgrade:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._parsed_bytes += len(body)
        super().on_body(body)
        if not self._login.is_known:
            self.flow.pause_reading()  # until a handler reads the body
            if not self._login.hold(len(body)):
                raise Overloaded(NO_LOGIN_ROOM)

    def on_message_complete(self) -> None:
        if not self._declines_upgrade:
            super().on_message_complete()

    def _check_head(self) -> None:
        """Check what httptools does not.

        Raises:
            MalformedRequest: wrong version of HTTP or number of Host headers.
            UnsupportedMediaType: a transfer coding other than chunked.
        """
        version = self.parser.get_http_version()
        if version not in {"1.0", "1.1"}:
            raise MalformedRequest(f"HTTP/{version} is not supported; use HTTP/1.1")
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1 or (not hosts and version == "1.1"):
            raise MalformedRequest(
                "a request of HTTP/1.1 must have exactly one Host header (RFC 9112, section 3.2)"
            )
        for name, value in self.headers:
            if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                raise UnsupportedMediaType(
                    f"the transfer coding {value.decode('latin-1')!r} is not supported; use 'chunked'"
                )

    # ── the exchanges ─────────────────────────────────────────────────────────────────────────────

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cycle.scope["state"][EXCHANGE] = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self._running = None
        self._login.release()
        if self.transport.is_closing():
            return
        self._since = self.loop.time()
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self._final_response:
            self._send_final_response()

    def shutdown(self) -> None:
        for exchange in (self._running, *(waiting for waiting, _ in self.pipeline)):
            if exchange is not None:
                exchange.keep_alive = False
        super().shutdown()

    # ── upgrades ──────────────────────────────────────────────────────────────────────────────────

    def _should_upgrade(self) -> bool:
        return bool(
            self.parser.get_method() == b"GET"
            and self.parser.get_http_version() == "1.1"
            and super()._should_upgrade()
            and not any(map(_announces_body, self.headers))
        )

    def _upgrade(self, rest: bytes) -> None:
        """Handle a complete head that offers another protocol; `rest` are the bytes behind it."""
        if self._declines_upgrade:
            self._read_again(rest)
        elif self._running is not None:
            self._refuse(MalformedRequest("a WebSocket needs a connection of its own; open a new one"))
        else:
            lingering = cast("LingeringTransport", self.transport)
            self.transport = lingering._transport  # noqa: SLF001 - a WebSocket ends by its own rules
            self.handle_websocket_upgrade()
            self._guard.close()  # from here on the socket has its own

    def _read_again(self, rest: bytes) -> None:
        """Parse the request again without its offer of another protocol. A client may offer HTTP/2
        with any request (Java's does), and is served as if it had not. The parser would take the
        request for one without a body, so a new parser reads it.
        """
        lines = [
            b"%b %b HTTP/%b\r\n"
            % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        ]
        lines += [b"%b: %b\r\n" % header for header in _without_offer(self.headers)]
        self._declines_upgrade = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.data_received(b"".join((*lines, b"\r\n", rest)))

    # ── timeouts ──────────────────────────────────────────────────────────────────────────────────

    def sweep(self, now: float) -> None:
        """Check the timeouts."""
        self._look_at_stall(now)
        if self._is_ending:
            self._look_at_end(now)
        elif not self._ignores_input:
            self._look_at_request(now)

    def _look_at_request(self, now: float) -> None:
        waited_ms = (now - self._since) * 1000
        limits = self._limits
        if self._is_in_head or self._is_untouched or self._body_is_due():
            if self.flow.read_paused:  # the broker paused reading
                self._since = now
            elif waited_ms > limits.body_timeout_ms:
                self._too_slow()
        elif self._running is None and waited_ms > limits.idle_timeout_ms:
            self.transport.close()

    def _look_at_end(self, now: float) -> None:
        if self._unsent_bytes:
            self._since = now
        elif now - self._since > LINGER_S:
            self.transport.abort()

    def _look_at_stall(self, now: float) -> None:
        """Abort a connection whose client reads nothing of its responses."""
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent != self._unsent_bytes:
            self._unsent_bytes = unsent
            self._stalled_since = now
        elif (now - self._stalled_since) * 1000 > self._limits.stall_timeout_ms:
            self.transport.abort()

    def _too_slow(self) -> None:
        if self._is_untouched:
            self.transport.close()
            return
        what = "the head of a request" if self._is_in_head else "the body of the request"
        self._refuse(
            TooSlow(
                f"{what} did not arrive within {self._limits.body_timeout_ms} ms "
                "(http.body_timeout); send it faster, or in smaller parts"
            )
        )

    def _body_is_due(self) -> bool:
        return self._latest is not None and self._latest.more_body

    @property
    def _latest(self) -> RequestResponseCycle | None:
        """Return the exchange of the latest request."""
        return self.cycle

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────

    def _must_linger(self) -> bool:
        """Return True if the client may still be sending when the connection ends."""
        self._since = self.loop.time()
        is_cut = self._ignores_input or self._is_in_head or self._body_is_due()
        self._ignores_input = self._is_ending = True
        return is_cut

    @property
    def _max_head_bytes(self) -> int:
        limits = self._limits
        if self._login.is_known:
            return limits.max_head_bytes
        return min(limits.max_head_bytes, limits.max_unauthenticated_head_bytes)

    def _head_too_large(self) -> HeadTooLarge:
        before = "" if self._login.is_known else ", which is the limit before the login"
        return HeadTooLarge(
            f"request line and headers are more than {self._max_head_bytes} bytes{before}; send "
            "less, such as fewer headers"
        )

    def _refuse(self, error: SparrowError) -> None:
        """Send the error after the responses that are due, and end the connection."""
        broken = self._latest
        if broken is not None and broken.more_body and not broken.response_complete:
            self._give_up(broken)
            if broken.response_started:
                self._ignores_input = True
                self.transport.close()
                return
        self._final_response = _rendered(error, self.server_state.default_headers)
        if self._running is None or self._running.response_complete:
            self._send_final_response()
        else:
            self._ignores_input = True

    def _give_up(self, broken: RequestResponseCycle) -> None:
        """Give up a request whose rest will not arrive."""
        _notify_gone(broken)
        if self._running is broken:
            self._running = None
        for entry in [each for each in self.pipeline if each[0] is broken]:
            self.pipeline.remove(entry)

    def _send_final_response(self) -> None:
        self._ignores_input = True
        if not self.transport.is_closing():
            self.transport.write(self._final_response)
            self.transport.close()


def _announces_body(header: tuple[bytes, bytes]) -> bool:
    """Return True if the header announces a body. Java's WebSocket sends `Content-Length: 0`."""
    name, value = header
    return name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")


def _without_offer(headers: list[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the headers of a request without its offer of another protocol."""
    for name, value in headers:
        if name == b"connection":
            words = [word.strip() for word in value.split(b",")]
            kept = [word for word in words if word.lower() not in {b"upgrade", b"http2-settings"}]
            yield name, b", ".join(kept)
        elif name not in {b"upgrade", b"http2-settings"}:
            yield name, value


def _notify_gone(exchange: RequestResponseCycle) -> None:
    """Tell the handler of an exchange that the client has disconnected."""
    if exchange.response_complete:
        return
    exchange.disconnected = True
    exchange.message_event.set()
    gone: asyncio.Future[None] | None = exchange.scope["state"].get(GONE)
    if gone is not None and not gone.done():
        gone.set_result(None)


def _rendered(error: SparrowError, headers: list[tuple[bytes, bytes]]) -> bytes:
    status, own_headers, body = response_parts(error)
    lines = [b"%s: %s\r\n" % header for header in (*headers, *own_headers, (b"connection", b"close"))]
    return b"".join((STATUS_LINE[status], *lines, b"\r\n", body))


def _error_of(error: httptools.HttpParserError) -> SparrowError:
    """Return the error that one of our callbacks raised, or the parser's own."""
    with suppress(AttributeError):
        context = error.__context__
        if isinstance(context, SparrowError):
            return context
    return MalformedRequest(f"not a valid request of HTTP/1.1: {error}")
