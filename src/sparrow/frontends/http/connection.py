"""One HTTP connection: requests from the codec go to the gate, one after the other, and their
responses to the socket.

Pipelined requests wait in order. The client is not read from while one waits, nor while a body
comes that nobody asks for; before the login, nothing is read behind the first request. An error
below the level of requests is answered after the responses that are due before it, and ends the
connection. A body above a small size reserves its whole length, one of unknown length the largest
allowed length.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import Draining, Overloaded, SparrowError
from sparrow.broker.access.sessions import Guard
from sparrow.frontends.http.before_login import NO_ROOM, BeforeLogin
from sparrow.frontends.http.problems import TooSlow, check_size
from sparrow.frontends.http.request import ClientGone, Request
from sparrow.frontends.http.responses import (
    ReservedResponse,
    Response,
    StreamResponse,
    problem_response,
)
from sparrow.frontends.transport.connection import Connection, PauseReason
from sparrow.frontends.transport.liveness import Verdict
from sparrow.frontends.transport.tls import certificate_principal
from sparrow.protocol.http.codec import BodyPart, HttpCodec, RequestEnd
from sparrow.protocol.http.errors import MalformedRequest
from sparrow.protocol.http.heads import RequestHead

if TYPE_CHECKING:
    from sparrow.broker.access.authz import Principal
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.gate import Gate
    from sparrow.frontends.http.sockets.sockets import Sockets
    from sparrow.frontends.transport.liveness import Deadlines


_PIPELINED_SOCKET: Final = "a WebSocket needs a connection of its own; open a new one"


class HttpPause(PauseReason):
    """The reason of this protocol to pause reading."""

    WORK: Final = 8
    """A request is handled and another one waits, or its body is not asked for yet."""


class HttpConnection(Connection["HttpContext"], asyncio.Protocol):
    """One connection; see the module's text. Loop thread only.

    Args:
        gate: responds to the requests.
        sockets: serves WebSockets.
    """

    __slots__ = (
        "_before_login",
        "_changed",
        "_codec",
        "_gate",
        "_is_body_wanted",
        "_refusal",
        "_requests",
        "_sockets",
        "_task",
        "certified",
    )

    def __init__(self, context: HttpContext, gate: Gate, sockets: Sockets) -> None:
        super().__init__(context)
        limits = context.limits
        self._gate = gate
        self._sockets = sockets
        self._before_login = BeforeLogin(context.login_budget)
        self._codec = HttpCodec(
            context.common_headers,
            max_head_bytes=min(limits.max_head_bytes, limits.max_unauthenticated_head_bytes),
            max_headers=limits.max_headers,
            max_pipelined=limits.max_pipelined,
        )
        self._codec.limit_note = ", which is the limit before the login"
        self._requests: deque[Request] = deque()
        """Requests without a complete response; the first one is being handled by `_task`."""
        self._task: asyncio.Task[None] | None = None
        self._refusal: SparrowError | None = None
        """The error that ends the connection, after the responses that are due before it."""
        self._is_body_wanted = False
        """True while a handler waits for the body of its request."""
        self._changed: asyncio.Future[None] | None = None
        """Done when more of the body has come, or will not come."""
        self.certified: Principal | None = None

    # ── called by the core ────────────────────────────────────────────────────────────────────────

    def opened(self) -> None:
        assert self.transport is not None
        self.certified = certificate_principal(self.transport)
        self.guard.hold(self.certified)
        if self.certified is not None or not self.context.needs_login:
            self._login()

    def refused(self, why: SparrowError) -> None:
        self._refuse(why)

    def data_received(self, data: bytes) -> None:
        if self.is_leaving:
            return
        if not self.received_bytes:
            found = self.context.wrong_port.reply(data, self.host)
            if found is not None:
                self._refuse(MalformedRequest(found[0]))
                return
        self.received_bytes += len(data)
        if self.is_known or self._before_login.hold(len(data)):
            self._codec.receive_data(data)
            self._read()
        else:
            self._refuse(Overloaded(NO_ROOM))

    def lost(self) -> None:
        self._before_login.release()
        for request in self._requests:
            request.give_up()
        self._notify()

    def granted(self) -> None:
        super().granted()
        self._notify()

    @property
    def deadlines(self) -> Deadlines:
        is_in_body = self._codec.is_in_body
        return self.context.deadlines if is_in_body else self.context.head_deadlines

    @property
    def is_secure(self) -> bool:
        """Return True if the connection is encrypted."""
        return self.transport is not None and self.transport.get_extra_info("ssl_object") is not None

    @property
    def unfinished_bytes(self) -> int:
        is_due = not self.received_bytes or self._codec.is_in_head or self._codec.is_in_body
        return int(is_due and self._refusal is None)

    @property
    def has_work(self) -> bool:
        return bool(self._requests)

    def overdue(self, verdict: Verdict) -> None:
        if verdict is Verdict.UNREAD:
            self.abort()
        elif verdict is not Verdict.STALLED or not self.received_bytes:
            self.close()
        elif self._codec.is_in_body:
            self._refuse(
                TooSlow(
                    f"the body of the request did not arrive within {self.context.limits.body_timeout_ms} ms "
                    "(http.body_timeout); send it faster, or in smaller parts"
                )
            )
        else:
            self._refuse(
                TooSlow(
                    f"the head of a request did not arrive within {self.context.limits.head_timeout_ms} ms "
                    "(http.head_timeout); send it faster"
                )
            )

    def drain(self) -> None:
        """Serve no request after those that have begun."""
        self._codec.close_when_done()
        if self._codec.must_close:
            self.close()

    def cancel(self) -> None:
        """Cancel the request that is being handled; its client has a moment to read why."""
        if self._task is not None:
            self._task.cancel()

    # ── requests in ───────────────────────────────────────────────────────────────────────────────

    def _read(self) -> None:
        """Take the events of the received bytes."""
        for event in self._codec.events():
            if isinstance(event, RequestHead):
                self._liveness.message_completed()
                if self.is_known and self.slot is not None:
                    self.slot.settle()
                request = Request(event, self)
                self._requests.append(request)
                if self._requests[0] is request:
                    self._task = self.context.spawn(self._serve(request))
                elif event.upgrade == b"websocket":
                    self._refuse(
                        MalformedRequest("a WebSocket needs a connection of its own; open a new one")
                    )
                    return
            elif isinstance(event, BodyPart):
                self._requests[-1].add(event.data)
                self._notify()
            elif isinstance(event, RequestEnd):
                self._requests[-1].is_complete = True
                self._liveness.message_completed()
                self._notify()
                if not self.is_known:
                    break
            else:
                self._refuse(event)
                return
        self._look()

    def _look(self) -> None:
        """Pause or resume reading."""
        is_ahead = len(self._requests) > 1 or (bool(self._requests) and self._codec.is_in_head)
        if is_ahead or (self._codec.is_in_body and not self._is_body_wanted):
            self.pause_reading(HttpPause.WORK)
        else:
            self.resume_reading(HttpPause.WORK)

    def authenticated(self, request: Request) -> None:
        """Note that the client of a request has logged in."""
        if request.principal.login is not None:
            request.guard = Guard(self.context.broker.sessions, self.login_is_over)
            request.guard.hold(request.principal)
        if not self.is_known:
            self._login()
            self._read()

    def _login(self) -> None:
        self.is_known = True
        self._before_login.release()
        self._codec.max_head_bytes = self.context.limits.max_head_bytes
        self._codec.limit_note = ""
        if self.slot is not None and self.received_bytes:
            self.slot.settle()

    async def read_body(self, request: Request) -> None:
        """Wait until the body of the request is complete, within the limits.

        Raises:
            BodyTooLarge, Overloaded, ClientGone
        """
        limits, announced_bytes = self.context.limits, request.head.content_length
        self._codec.send_continue()
        self._flush()
        self._is_body_wanted = True
        self._look()
        try:
            while True:
                if request.is_gone:
                    raise ClientGone
                check_size(request.body_bytes, limits.max_body_bytes)
                size_bytes = max(announced_bytes, request.body_bytes)
                if size_bytes > limits.small_body_bytes and not self._reserved_bytes:
                    await self._reserve(announced_bytes if announced_bytes > 0 else limits.max_body_bytes)
                elif request.is_complete:
                    return
                else:
                    await self._change()
        finally:
            self._is_body_wanted = False

    async def _reserve(self, size_bytes: int) -> None:
        """Wait for receive memory."""
        self.reserve_input(size_bytes)
        try:
            async with asyncio.timeout(self.context.limits.body_timeout_ms / 1000):
                while self._pause_reasons & PauseReason.BUDGET:
                    await self._change()
        except TimeoutError:
            self.reserve_input(0)
            raise Overloaded("the memory for bodies (receive_budget) is full; try again later") from None

    async def _change(self) -> None:
        self._changed = self.context.loop.create_future()
        await self._changed

    def _notify(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    # ── responses out ─────────────────────────────────────────────────────────────────────────────

    async def _serve(self, request: Request) -> None:
        started = perf_counter()
        status = 0
        try:
            if request.head.upgrade == b"websocket":
                response = await self._open_socket(request)
            elif self._gate.cross_origin is None:
                response = await self._gate.respond(request)
            else:
                response = await self._gate.cross_origin.respond(request, self._gate.respond)
            if response is not None:
                status = response.status
                await self._send(request, response)
        finally:
            if request.guard is not None:
                request.guard.close()
            self._finish(request)
        if self.context.observer is not None:
            self.context.observer(request.route_path, request.head.method, status, perf_counter() - started)

    async def _send(self, request: Request, response: Response) -> None:
        try:
            if request.is_gone:
                return
            if isinstance(response, StreamResponse):
                await self._stream(request, response)
                return
            self._codec.respond(response.status, response.headers, response.body)
            self._flush()
            if isinstance(response, ReservedResponse):
                response.sent(len(response.body))
                await self.until_writable()
        finally:
            response.finish()

    async def _stream(self, request: Request, response: StreamResponse) -> None:
        self._codec.start_response(response.status, response.headers)
        self._flush()
        if request.head.method != "HEAD":
            async for chunk in response.chunks():
                self._codec.send_part(chunk)
                self._flush()
                response.sent(len(chunk))
                del chunk  # it is free when the socket has taken it
                await self.until_writable()
                # A read that finds data does not wait: let other tasks run.
                await asyncio.sleep(0)
                if request.is_gone:
                    return
        if not request.is_gone:
            self._codec.end_response()
            self._flush()

    def _flush(self) -> None:
        pieces = self._codec.data_to_send()
        if pieces:
            self.write(pieces)

    def _finish(self, request: Request) -> None:
        """Go on after a request, unless it was given up."""
        self.reserve_input(0)
        self._before_login.release()
        if self.is_lost or request is not self._front:
            return
        self._requests.popleft()
        self._task = None
        if self._codec.has_begun_response:  # it is cut off, so that the client sees that it is incomplete
            self.close()
        else:
            self._go_on()

    @property
    def _front(self) -> Request | None:
        return self._requests[0] if self._requests else None

    def _go_on(self) -> None:
        """Serve the next request, or end the connection."""
        if self._codec.must_close:
            self._leave()
        elif self._requests:
            self._task = self.context.spawn(self._serve(self._requests[0]))
            self._look()
        elif self._refusal is not None:
            self._send_refusal(self._refusal)
        else:
            self._read()

    def _refuse(self, error: SparrowError) -> None:
        """Send an error after the responses that are due, and end the connection. The request whose
        rest will not come is given up.
        """
        if self._refusal is not None:
            return
        self._refusal = error
        self._codec.refuse()
        latest = self._requests[-1] if self._requests else None
        if latest is not None and not latest.is_complete:
            latest.give_up()
            self._notify()
            self._requests.pop()
            if not self._requests and self._codec.has_begun_response:
                self.close()
                return
        if not self._requests:
            self._send_refusal(error)

    def _send_refusal(self, error: SparrowError) -> None:
        response = problem_response(error)
        self._codec.respond(response.status, response.headers, response.body)
        self._flush()
        self._leave()

    def _leave(self) -> None:
        """End the connection after its last response. Behind TLS it is closed at once if nothing
        more can be on its way.
        """
        is_clean = self._refusal is None and not self._codec.is_in_body
        if is_clean and self.transport is not None and not self.transport.can_write_eof():
            self.close()
        else:
            self.end()

    # ── WebSockets ────────────────────────────────────────────────────────────────────────────────

    async def _open_socket(self, request: Request) -> Response | None:
        """Hand the connection over to a WebSocket, or return the response that refuses it. The
        library for them is loaded with the first one.
        """
        from sparrow.frontends.http.sockets.connection import SocketConnection
        from sparrow.frontends.http.sockets.handshake import shake_hands

        headers = shake_hands(request.head)
        if isinstance(headers, Response):
            return headers
        try:
            principal = await self._gate.admit_socket(request)
        except SparrowError as error:
            return problem_response(error, request.path)
        except asyncio.CancelledError:
            if not self.context.is_stopping:
                raise
            return problem_response(Draining("The broker is shutting down; connect again later."))
        if not request.is_gone:
            early_data = self._codec.switch_protocols(headers)
            self._flush()
            socket = SocketConnection(self.context, self._sockets, certified=self.certified)
            self.hand_over(socket)
            socket.begin(principal, early_data)
        return None
