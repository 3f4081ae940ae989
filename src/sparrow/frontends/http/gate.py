"""Checks that every request passes before its route: login, origin and size of the body. Errors
become problem details here.

The checks are here and not in the routes, so that no route can forget them.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import Draining, InternalError, NotAuthenticated, Overloaded, SparrowError
from sparrow.broker.access.sessions import Guard
from sparrow.frontends.http.before_login import LOGIN
from sparrow.frontends.http.bodies import BoundedBody, ClientGone
from sparrow.frontends.http.context import EXCHANGE
from sparrow.frontends.http.cors import CrossOrigin
from sparrow.frontends.http.identity import (
    CERTIFICATE,
    LISTENER,
    PRINCIPAL,
    STREAM_SUFFIX,
    credentials_of,
    identify,
    token_in_query,
)
from sparrow.frontends.http.origins import (
    SAFE_METHODS,
    is_allowed_origin,
    is_local_name,
    is_of_another_site,
)
from sparrow.frontends.http.problems import BUG, OriginRefused, response_parts
from sparrow.frontends.transport.admission import SLOT

if TYPE_CHECKING:
    from sparrow.frontends.http.asgi import App, Message, Receive, Scope, Send
    from sparrow.frontends.http.context import HttpContext

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/favicon.ico"})
"""Paths that are served without login."""


def allowing_origins(app: App, origins: tuple[str, ...]) -> App:
    """Return the application with CORS for pages of these origins. It wraps the gate: a browser
    sends its preflight request without credentials, and pages must see why they are refused.
    """
    return CrossOrigin(app, origins) if origins else app


class Gate:
    """ASGI application that checks requests and passes them on.

    Args:
        app: the routes.
        frontend: has the limits and logins.
    """

    def __init__(self, app: App, frontend: HttpContext) -> None:
        self._app = app
        self._frontend = frontend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._respond(scope, receive, send)
        else:
            await self._open_socket(scope, receive, send)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        frontend = self._frontend
        started = perf_counter() if frontend.observer is not None else 0.0
        sender = _ResponseSender(scope, send)
        # A request whose login ends gets nothing more, and a wait ends as if the client had
        # disconnected.
        guard = Guard(frontend.broker.sessions, lambda _: scope["state"][EXCHANGE].transport.abort())
        body = BoundedBody(receive, frontend.limits, frontend.budget)
        try:
            headers = dict(scope["headers"])
            method: str = scope["method"]
            if method == "HEAD":
                scope = {**scope, "method": "GET"}
            self._check_origin(scope, headers, method)
            if scope["path"] not in OPEN_PATHS:
                principal = scope["state"][PRINCIPAL] = await self._identify(scope, headers)
                guard.hold(principal)
                scope["state"][LOGIN].succeed()
                scope["state"][SLOT].settle()
            length = headers.get(b"content-length")
            if length is not None:
                await body.announce(int(length))
            await self._app(scope, body, sender.send)
        except ClientGone:
            pass
        except SparrowError as error:
            await sender.fail(error, ends_connection=_is_refused_login(error, scope))
        except asyncio.CancelledError:
            if not frontend.is_draining:
                raise
            await sender.fail(Draining("The broker is shutting down; ask again later."))
        except Exception:
            frontend.logger.exception("a bug in the handler of %s %s", scope["method"], scope["path"])
            await sender.fail(InternalError(BUG))
        finally:
            guard.close()
            body.release()
        if frontend.observer is not None:
            route = getattr(scope.get("route"), "path", "")
            frontend.observer(route, method, sender.status, perf_counter() - started)

    def _check_origin(self, scope: Scope, headers: dict[bytes, bytes], method: str) -> None:
        """Refuse pages of other origins, and write it to the audit.

        Raises:
            OriginRefused
        """
        try:
            self._check_origin_of(headers, method)
        except OriginRefused as error:
            origin = headers.get(b"origin", b"").decode("latin-1")
            self._frontend.broker.audit.request_refused(LISTENER, _peer(scope), error, origin=origin)
            raise

    def _check_origin_of(self, headers: dict[bytes, bytes], method: str) -> None:
        host = headers.get(b"host", b"")
        if self._frontend.checks_host and not is_local_name(host) and not self._is_our_name(host):
            raise OriginRefused(
                f"the request names the host {host.decode('latin-1')!r}; as no login is "
                "required, only 127.0.0.1 and localhost are accepted: use one of them, or have your "
                "proxy send it as Host"
            )
        if method in SAFE_METHODS:
            return
        origin = headers.get(b"origin")
        if origin is None:
            if is_of_another_site(headers.get(b"sec-fetch-site", b""), self._frontend.limits.cors_origins):
                raise OriginRefused(
                    "a page of another site may not use this broker; its operator can allow it "
                    "with http.cors_origins"
                )
            return
        if not is_allowed_origin(origin, host, self._frontend.limits.cors_origins):
            raise OriginRefused(
                f"pages of {origin.decode('latin-1')!r} may not use this broker; its operator can "
                "allow them with http.cors_origins"
            )

    def _is_our_name(self, host: bytes) -> bool:
        name = host.decode("latin-1").lower().partition(":")[0]
        return bool(self._frontend.host) and name == self._frontend.host.lower()

    async def _identify(self, scope: Scope, headers: dict[bytes, bytes]) -> Any:
        """Return the principal of a request.

        Raises:
            NotAuthenticated: credentials are wrong, or missing where they are required.
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
            return await identify(self._frontend.logins, credentials, peer, certified=certified)
        except (NotAuthenticated, Overloaded) as error:
            is_guess = bool(credentials) or authorization is not None
            if is_guess or scope["type"] != "websocket":  # a WebSocket may still send hello
                await self._frontend.refuse_login(error, peer, credentials, is_guess=is_guess)
            raise

    # ── WebSockets ────────────────────────────────────────────────────────────────────────────────

    async def _open_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        frontend = self._frontend
        headers = dict(scope["headers"])
        try:
            self._check_origin(scope, headers, "WEBSOCKET")
            if frontend.is_draining:
                raise Draining("The broker is shutting down; connect again later.")
            scope["state"][PRINCIPAL] = await self._maybe_identify(scope, headers)
        except SparrowError as error:
            await receive()
            await _refuse_socket(error, scope, send)
            return
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not frontend.is_draining:
                raise

    async def _maybe_identify(self, scope: Scope, headers: dict[bytes, bytes]) -> Any:
        """Return the principal of a WebSocket, or None without credentials: the first frame must
        have them.

        Raises:
            NotAuthenticated: the credentials of the handshake are wrong.
        """
        try:
            return await self._identify(scope, headers)
        except NotAuthenticated:
            if b"authorization" in headers or token_in_query(scope["query_string"]):
                raise
            return None


class _ResponseSender:
    """One response, and what was sent of it."""

    __slots__ = ("_is_unframed", "_scope", "_send", "is_complete", "status")

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self.status = 0
        self.is_complete = False
        self._is_unframed = False
        """True if the body ends with the connection: HTTP/1.0 has no chunks."""

    async def send(self, message: Message) -> None:
        """Pass a message on. The response to HEAD ends with its head."""
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

    async def fail(self, error: SparrowError, *, ends_connection: bool = False) -> None:
        """Respond with a problem, and close the connection if `ends_connection`. A response that
        has begun is cut off, so that the client sees that it is incomplete.
        """
        exchange = self._scope["state"][EXCHANGE]
        if self.status:
            if not exchange.response_complete:
                exchange.transport.close()
            return
        status, headers, body = response_parts(error, self._scope["path"])
        if ends_connection:
            headers = [*headers, (b"connection", b"close")]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    def _leave_unframed(self, start: Message) -> None:
        if all(name != b"content-length" for name, _ in start["headers"]):
            self._is_unframed = True
            self._scope["state"][EXCHANGE].chunked_encoding = False

    def _end_if_unread(self) -> None:
        """Close the connection after the response if the body of the request was not read."""
        exchange = self._scope["state"][EXCHANGE]
        if exchange.more_body:
            exchange.keep_alive = False


async def _refuse_socket(error: SparrowError, scope: Scope, send: Send) -> None:
    status, headers, body = response_parts(error, scope["path"])
    if _is_refused_login(error, scope):
        headers = [*headers, (b"connection", b"close")]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


def _is_refused_login(error: SparrowError, scope: Scope) -> bool:
    """Return True if the request was refused because its login failed."""
    is_unknown = PRINCIPAL not in scope["state"]
    return is_unknown and isinstance(error, NotAuthenticated | Overloaded)


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""
