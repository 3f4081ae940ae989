"""uvicorn inside our loop: its HTTP protocol, with what a door that faces strangers needs beside it.

uvicorn parses (httptools) and runs the application; `Guarded` adds limits to it:

- the size of the head, how many requests may wait behind each other (pipelining), how many clients are connected;
- clocks, looked at by one sweep for all connections: for the head, the body, the pause between requests, an answer that the client does not take;
- errors below HTTP's level as problem details, after the answers that are due before them;
- an end that the client can read: when an answer ends the connection while the client still sends, the socket is shut down for writing and what comes is
  dropped for a moment, as a close would reset the connection and the answer would be lost (RFC 9112, section 9.6);
- every request of a connection hears that the client is gone, not only the last.
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
from sparrow.frontends.http.identity import CERTIFICATE
from sparrow.frontends.http.problems import (
    HeadTooLarge,
    MalformedRequest,
    MethodNotAllowed,
    TooSlow,
    UnsupportedMediaType,
    whole_answer,
)
from sparrow.frontends.http.sockets.protocol import SocketProtocol
from sparrow.frontends.places import NO_ROOM
from sparrow.frontends.tls import certificate_principal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from sparrow.frontends.http.frontend import HttpFrontend

EXCHANGE: Final = "exchange"
"""The key in the state of a request under which its exchange is: uvicorn's request and answer."""
GONE: Final = "gone"
"""The key under which a handler leaves a future that is to be done when the client is gone."""
LINGER_S: Final = 2.0
"""How long what a client still sends is dropped before the connection is closed."""
END_POLL_S: Final = 0.005
MAX_REFUSED: Final = 100
"""Refused connections that may still read why; more are closed without a word."""
LAST_WORDS_S: Final = 0.5
"""The same behind TLS, which ends in both directions at once."""


class Serving:
    """What all connections share. Loop thread only, but for the constructor.

    Args:
        app: the application.
        door: whose connections they are.
    """

    def __init__(self, app: ASGIApp, door: HttpFrontend) -> None:
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        self._door = door
        self._config = Config(
            cast("Any", app),
            http=Guarded,
            ws=SocketProtocol,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            ws_per_message_deflate=False,
            ws_max_size=door.limits.max_body_bytes,
        )
        self._config.load()
        self._state = ServerState()
        self._refused: set[Guarded] = set()

    @property
    def connections(self) -> int:
        return len(self._state.connections)

    @property
    def is_busy(self) -> bool:
        """Whether a client is connected or a request being answered."""
        return bool(self._state.connections or self._state.tasks)

    def protocol(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        return Guarded(self._config, self._state, {}, None, door=self._door, refused=self._refused)

    def sweep(self, now: float, date: bytes) -> None:
        """Look at the clocks of all connections; `date` is that of answers from now on."""
        self._state.default_headers = [(b"date", date)]
        for connection in list(self._state.connections):
            if isinstance(connection, Guarded):
                connection.sweep(now)

    def shut_down(self) -> None:
        """Close connections that have nothing to do; the others end with their answers."""
        for connection in list(self._state.connections):
            connection.shutdown()

    async def end(self, timeout_s: float) -> None:
        """Cut short what is left; clients have a moment to read why."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        for task in set(self._state.tasks):
            task.cancel()
        while self.is_busy and loop.time() < deadline:  # noqa: ASYNC110 - rare
            await asyncio.sleep(END_POLL_S)
        for connection in [*self._state.connections, *self._refused]:
            connection.transport.abort()
        await asyncio.sleep(0)


class Ending:
    """A transport whose `close` lets the client read what was said. Everything else is the transport's own."""

    __slots__ = ("_is_ended", "_needs_patience", "_transport", "write")

    def __init__(self, transport: asyncio.Transport, needs_patience: Callable[[], bool]) -> None:
        self._transport = transport
        self._needs_patience = needs_patience
        self._is_ended = False
        self.write = transport.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._is_ended or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing():
            return
        if not self._needs_patience():
            self._transport.close()
            return
        self._is_ended = True
        self._transport.resume_reading()
        if not self._transport.can_write_eof():
            asyncio.get_running_loop().call_later(LAST_WORDS_S, self._transport.close)
            return
        try:
            self._transport.write_eof()
        except OSError:  # the client is gone already
            self._transport.abort()


class Guarded(HttpToolsProtocol):
    """See the module's text."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        door: HttpFrontend,
        refused: set[Guarded],
    ) -> None:
        super().__init__(config, server_state, app_state, _loop or asyncio.get_running_loop())
        self._door = door
        self._refused = refused
        """Connections that may not be served, until they have read why."""
        self._limits = door.limits
        self._since = self.loop.time()
        """Since when the connection is in the state in which it is."""
        self._head_bytes = 0
        self._is_in_head = False
        self._is_fresh = True
        """Nothing came yet."""
        self._last_words = b""
        self._is_deaf = False
        """What comes is dropped: the connection ends with the answers that are due."""
        self._is_ending = False
        self._is_declined = False
        """The request offers another protocol, which is not taken."""
        self._running: RequestResponseCycle | None = None
        self._unsent_bytes = 0
        self._stalled_since = 0.0

    # ── called by the transport ───────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        refusal = self._maybe_refusal()
        super().connection_made(cast("Any", Ending(transport, self._needs_patience)))
        certified = certificate_principal(transport)
        if certified is not None:
            self.app_state[CERTIFICATE] = certified
        if refusal is not None:
            self._turn_away(refusal)

    def _maybe_refusal(self) -> SparrowError | None:
        if self._door.is_draining:
            return Draining("The broker is shutting down; connect again later.")
        if not self._door.has_place():
            return Overloaded(NO_ROOM)
        if len(self.connections) < self._limits.max_connections:
            return None
        return Overloaded(
            f"{self._limits.max_connections} clients are connected, which is the limit (max_connections); try again later."
        )

    def _turn_away(self, refusal: SparrowError) -> None:
        """Say why and end; where many are told already, without a word."""
        self.connections.discard(self)
        if len(self._refused) >= MAX_REFUSED:
            self.transport.abort()
            return
        self._refused.add(self)
        self._refuse(refusal)
        self.loop.call_later(LINGER_S, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        self._is_fresh = False
        if self._is_in_head:
            self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(_why(error))
        else:
            if self._is_in_head and self._head_bytes > self._limits.max_head_bytes:
                self._refuse(self._head_too_large())

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_deaf = self._is_ending = True
        self._refused.discard(self)
        if self._running is not None:
            _tell_gone(self._running)
        self.pipeline.clear()
        super().connection_lost(exc)

    # ── called by the parser ──────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        self._since = self.loop.time()
        self._is_in_head = True
        self._head_bytes = 0
        if len(self.pipeline) >= self._limits.max_pipelined:
            raise Overloaded(
                f"{self._limits.max_pipelined} requests of this connection wait already; read some answers first"
            )
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        if self._head_bytes > self._limits.max_head_bytes:
            raise self._head_too_large()
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > self._limits.max_head_bytes:
            raise self._head_too_large()
        if self._is_in_head:  # a trailer, which is behind the body, is no header (RFC 9110, section 6.5.1)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._since = self.loop.time()
        if self.parser.get_method() == b"CONNECT":
            raise MethodNotAllowed("this is no proxy: CONNECT is not served")
        self._check_head()
        self._is_declined = self.parser.should_upgrade() and not self._should_upgrade()
        if not self._is_declined:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._is_declined:
            super().on_message_complete()

    def _check_head(self) -> None:
        """
        Raises:
            MalformedRequest, UnsupportedMediaType
        """
        version = self.parser.get_http_version()
        if version not in {"1.0", "1.1"}:
            raise MalformedRequest(f"HTTP/{version} is not spoken here; HTTP/1.1 is")
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1 or (not hosts and version == "1.1"):
            raise MalformedRequest("a request of HTTP/1.1 has one Host header (RFC 9112, section 3.2)")
        for name, value in self.headers:
            if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                raise UnsupportedMediaType(
                    f"the body is transferred as {value.decode('latin-1')!r}; of such codings there is only 'chunked' here"
                )

    # ── the exchanges ─────────────────────────────────────────────────────────────────────────────

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cycle.scope["state"][EXCHANGE] = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self._running = None
        if self.transport.is_closing():
            return
        self._since = self.loop.time()
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self._last_words:
            self._say_last_words()

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
            and not any(map(_tells_of_body, self.headers))
        )

    def _upgrade(self, rest: bytes) -> None:
        """The head of a request that offers another protocol is complete; `rest` follows it."""
        if self._is_declined:
            self._read_again(rest)
        elif self._running is not None:
            self._refuse(MalformedRequest("a WebSocket is opened on a connection of its own"))
        else:
            ending = cast("Ending", self.transport)
            self.transport = ending._transport  # noqa: SLF001 - a WebSocket ends by its own rules
            self.handle_websocket_upgrade()

    def _read_again(self, rest: bytes) -> None:
        """A client may offer HTTP/2 with any request (Java's does); it is served as if it had not. The parser would take the request for one without a body,
        so another one reads it, without the offer."""
        lines = [
            b"%b %b HTTP/%b\r\n"
            % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        ]
        lines += [b"%b: %b\r\n" % header for header in _without_offer(self.headers)]
        self._is_declined = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.data_received(b"".join((*lines, b"\r\n", rest)))

    # ── clocks ────────────────────────────────────────────────────────────────────────────────────

    def sweep(self, now: float) -> None:
        """Look at the clocks."""
        self._look_at_stall(now)
        if self._is_ending:
            self._look_at_end(now)
        elif not self._is_deaf:
            self._look_at_request(now)

    def _look_at_request(self, now: float) -> None:
        waited_ms = (now - self._since) * 1000
        limits = self._limits
        if self._is_in_head or self._is_fresh or self._body_is_due():
            if self.flow.read_paused:  # it is us who do not read
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
        """End a connection whose client takes nothing of what it asked for."""
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent != self._unsent_bytes:
            self._unsent_bytes = unsent
            self._stalled_since = now
        elif (now - self._stalled_since) * 1000 > self._limits.stall_timeout_ms:
            self.transport.abort()

    def _too_slow(self) -> None:
        if self._is_fresh:
            self.transport.close()
            return
        what = "the head of a request" if self._is_in_head else "the body of the request"
        self._refuse(
            TooSlow(
                f"{what} did not arrive within {self._limits.body_timeout_ms} ms (http.body_timeout); send it faster, or in smaller parts"
            )
        )

    def _body_is_due(self) -> bool:
        return self._latest is not None and self._latest.more_body

    @property
    def _latest(self) -> RequestResponseCycle | None:
        """The exchange of the request that came last."""
        return self.cycle

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────

    def _needs_patience(self) -> bool:
        """Whether the client may still be sending when the connection ends."""
        self._since = self.loop.time()
        is_cut = self._is_deaf or self._is_in_head or self._body_is_due()
        self._is_deaf = self._is_ending = True
        return is_cut

    def _head_too_large(self) -> HeadTooLarge:
        return HeadTooLarge(
            f"request line and headers are more than {self._limits.max_head_bytes} bytes; send less, such as fewer headers"
        )

    def _refuse(self, error: SparrowError) -> None:
        """Say why, once what was asked before is answered, and end."""
        broken = self._latest
        if broken is not None and broken.more_body and not broken.response_complete:
            self._give_up(broken)
            if broken.response_started:
                self._is_deaf = True
                self.transport.close()
                return
        self._last_words = _rendered(error, self.server_state.default_headers)
        if self._running is None or self._running.response_complete:
            self._say_last_words()
        else:
            self._is_deaf = True

    def _give_up(self, broken: RequestResponseCycle) -> None:
        """The rest of a request will not come."""
        _tell_gone(broken)
        if self._running is broken:
            self._running = None
        for entry in [each for each in self.pipeline if each[0] is broken]:
            self.pipeline.remove(entry)

    def _say_last_words(self) -> None:
        self._is_deaf = True
        if not self.transport.is_closing():
            self.transport.write(self._last_words)
            self.transport.close()


def _tells_of_body(header: tuple[bytes, bytes]) -> bool:
    """Java's WebSocket says `Content-Length: 0`."""
    name, value = header
    return name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")


def _without_offer(headers: list[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """The headers of a request, as if it had offered no other protocol."""
    for name, value in headers:
        if name == b"connection":
            words = [word.strip() for word in value.split(b",")]
            kept = [word for word in words if word.lower() not in {b"upgrade", b"http2-settings"}]
            yield name, b", ".join(kept)
        elif name not in {b"upgrade", b"http2-settings"}:
            yield name, value


def _tell_gone(exchange: RequestResponseCycle) -> None:
    """There is nobody any more who could be answered."""
    if exchange.response_complete:
        return
    exchange.disconnected = True
    exchange.message_event.set()
    gone: asyncio.Future[None] | None = exchange.scope["state"].get(GONE)
    if gone is not None and not gone.done():
        gone.set_result(None)


def _rendered(error: SparrowError, headers: list[tuple[bytes, bytes]]) -> bytes:
    status, own_headers, body = whole_answer(error)
    lines = [b"%s: %s\r\n" % header for header in (*headers, *own_headers, (b"connection", b"close"))]
    return b"".join((STATUS_LINE[status], *lines, b"\r\n", body))


def _why(error: httptools.HttpParserError) -> SparrowError:
    """The error that one of our callbacks raised, or what the parser says."""
    with suppress(AttributeError):
        context = error.__context__
        if isinstance(context, SparrowError):
            return context
    return MalformedRequest(f"this is no request of HTTP/1.1: {error}")
