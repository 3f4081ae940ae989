"""What every request passes before FastAPI: who asks, from which page, how large a body; and what becomes of errors.

Pure ASGI: a middleware of Starlette's `BaseHTTPMiddleware` would cost more than the request. Here and not in the routes, so that none can forget it.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import ClientDisconnect

from sparrow.base.errors import Draining, InternalError, NotAuthenticated, SparrowError
from sparrow.frontends.http.bodies import BoundedBody, ClientGone
from sparrow.frontends.http.identity import (
    CERTIFICATE,
    PRINCIPAL,
    STREAM_SUFFIX,
    credentials_of,
    identify,
    token_in_query,
)
from sparrow.frontends.http.origins import SAFE_METHODS, is_allowed_origin, is_local_name
from sparrow.frontends.http.problems import BUG, OriginRefused, whole_answer
from sparrow.frontends.http.serving import EXCHANGE

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from sparrow.frontends.http.frontend import HttpFrontend

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""What anybody may ask."""


def allowing_origins(app: ASGIApp, origins: tuple[str, ...]) -> ASGIApp:
    """The application with CORS for pages of these origins. Outside of the gate: a browser asks without credentials whether it may ask, and pages are to see why they
    are refused."""
    if not origins:
        return app
    from starlette.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        app, allow_origins=list(origins), allow_methods=["*"], allow_headers=["*"], expose_headers=["*"]
    )


class Gate:
    """Wraps the application.

    Args:
        app: FastAPI's application.
        door: whose limits and logins hold.
    """

    def __init__(self, app: ASGIApp, door: HttpFrontend) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await self._open_socket(scope, receive, send)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        door = self._door
        begun = perf_counter() if door.observer is not None else 0.0
        answer = _Answer(scope, send)
        body = BoundedBody(receive, door.limits, door.budget)
        try:
            headers = dict(scope["headers"])
            method: str = scope["method"]
            if method == "HEAD":
                scope = {**scope, "method": "GET"}
            self._check_origin(headers, method)
            if scope["path"] not in OPEN_PATHS:
                scope["state"][PRINCIPAL] = await self._identify(scope, headers)
            length = headers.get(b"content-length")
            if length is not None:
                await body.announce(int(length))
            await self._app(scope, body, answer.send)
        except (ClientGone, ClientDisconnect):
            pass
        except SparrowError as error:
            await answer.fail(error)
        except asyncio.CancelledError:
            if not door.is_draining:
                raise
            await answer.fail(Draining("The broker is shutting down; ask again later."))
        except Exception:
            door.logger.exception("a bug in what answers %s %s", scope["method"], scope["path"])
            await answer.fail(InternalError(BUG))
        finally:
            body.release()
        if door.observer is not None:
            route = getattr(scope.get("route"), "path", "")
            door.observer(route, method, answer.status, perf_counter() - begun)

    def _check_origin(self, headers: dict[bytes, bytes], method: str) -> None:
        """
        Raises:
            OriginRefused
        """
        host = headers.get(b"host", b"")
        if self._door.checks_host and not is_local_name(host) and not self._is_our_name(host):
            raise OriginRefused(
                f"the request names the host {host.decode('latin-1')!r}; while nobody has to log in, only 127.0.0.1 and localhost are"
                " answered: ask for those, or have your proxy send them as Host"
            )
        origin = headers.get(b"origin")
        if origin is None or method in SAFE_METHODS:
            return
        if not is_allowed_origin(origin, host, self._door.limits.cors_origins):
            raise OriginRefused(
                f"pages of {origin.decode('latin-1')!r} may not use this broker; whoever runs it can allow them by http.cors_origins"
            )

    def _is_our_name(self, host: bytes) -> bool:
        name = host.decode("latin-1").lower().partition(":")[0]
        return bool(self._door.host) and name == self._door.host.lower()

    async def _identify(self, scope: Scope, headers: dict[bytes, bytes]) -> Any:
        """
        Raises:
            NotAuthenticated
        """
        peer = _peer(scope)
        authorization = headers.get(b"authorization")
        certified = scope["state"].get(CERTIFICATE)
        takes_token = scope["type"] == "websocket" or scope["path"].endswith(STREAM_SUFFIX)
        credentials: dict[str, str] = {}
        try:
            credentials = credentials_of(authorization)
            if not credentials and takes_token:
                credentials = token_in_query(scope["query_string"])
            return await identify(self._door.logins, credentials, peer, certified=certified)
        except NotAuthenticated as error:
            is_guess = bool(credentials) or authorization is not None
            await self._door.refuse_login(error, peer, is_guess=is_guess)
            raise

    # ── WebSockets ────────────────────────────────────────────────────────────────────────────────

    async def _open_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        door = self._door
        headers = dict(scope["headers"])
        try:
            self._check_origin(headers, "WEBSOCKET")
            if door.is_draining:
                raise Draining("The broker is shutting down; connect again later.")
            scope["state"][PRINCIPAL] = await self._maybe_identify(scope, headers)
        except SparrowError as error:
            await receive()
            await _refuse_socket(error, scope, send)
            return
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not door.is_draining:
                raise

    async def _maybe_identify(self, scope: Scope, headers: dict[bytes, bytes]) -> Any:
        """Who opens the socket; None: nobody said, and will have to in the first frame.

        Raises:
            NotAuthenticated: the credentials of the handshake are wrong.
        """
        try:
            return await self._identify(scope, headers)
        except NotAuthenticated:
            if b"authorization" in headers or token_in_query(scope["query_string"]):
                raise
            return None


class _Answer:
    """What was sent of an answer."""

    __slots__ = ("_is_unframed", "_scope", "_send", "is_complete", "status")

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self.status = 0
        self.is_complete = False
        self._is_unframed = False
        """Its body ends with the connection: HTTP/1.0 knows no chunks."""

    async def send(self, message: Message) -> None:
        """Pass on. The answer to HEAD ends with its head."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._end_if_unread()
            if self._scope["http_version"] == "1.0":
                self._leave_unframed(message)
        if self.is_complete:
            return
        if self._is_unframed:
            self._scope["state"][EXCHANGE].expected_content_length = len(message.get("body", b""))
        await self._send(message)
        if self._scope["method"] == "HEAD" and message["type"] == "http.response.start":
            self.is_complete = True
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def fail(self, error: SparrowError) -> None:
        """Answer with a problem; when an answer has begun it is cut off, so that the client sees that it is not whole."""
        exchange = self._scope["state"][EXCHANGE]
        if self.status:
            if not exchange.response_complete:
                exchange.transport.close()
            return
        status, headers, body = whole_answer(error, self._scope["path"])
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    def _leave_unframed(self, start: Message) -> None:
        if all(name != b"content-length" for name, _ in start["headers"]):
            self._is_unframed = True
            self._scope["state"][EXCHANGE].chunked_encoding = False

    def _end_if_unread(self) -> None:
        """A connection whose client sends a body that nobody reads ends with the answer."""
        exchange = self._scope["state"][EXCHANGE]
        if exchange.more_body:
            exchange.keep_alive = False


async def _refuse_socket(error: SparrowError, scope: Scope, send: Send) -> None:
    status, headers, body = whole_answer(error, scope["path"])
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""
