"""Checks that every request passes before its route: origin, login and size of the body. Errors
become problem details here.

The checks are here and not in the routes, so that no route can forget them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import Draining, InternalError, NotAuthenticated, Overloaded, SparrowError
from sparrow.frontends.http.cors import CrossOrigin
from sparrow.frontends.http.identity import (
    LISTENER,
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
from sparrow.frontends.http.problems import (
    BUG,
    ConsoleReadOnly,
    NoSuchPage,
    OriginRefused,
    check_size,
)
from sparrow.frontends.http.request import ClientGone
from sparrow.frontends.http.responses import problem_response, without_basic
from sparrow.frontends.http.router import Router
from sparrow.frontends.http.routes import all_routes
from sparrow.frontends.http.routes.console import is_of_console
from sparrow.frontends.http.routes.session import SESSION_PATH
from sparrow.frontends.http.routes.socket import SOCKET_PATH
from sparrow.frontends.http.web_sessions import cookie_name, cookie_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.broker.access.authz import Principal
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.responses import Response

OPEN_PATHS: Final = frozenset({"/", "/healthz", "/readyz", "/favicon.ico", SESSION_PATH})
"""Paths that are served without login, beside those of the console."""
_READ_ONLY: Final = "read-only"


class Gate:
    """The way from requests to their routes. Loop thread only."""

    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend
        self._router = Router(all_routes(frontend))
        origins = frontend.limits.cors_origins
        self.cross_origin = CrossOrigin(origins) if origins else None
        self._is_read_only = frontend.limits.console == _READ_ONLY

    async def respond(self, request: Request) -> Response | None:
        """Return the response to a request; None if its client is gone."""
        is_known = False
        try:
            self._check_origin(request, request.head.method)
            if self._is_read_only:
                self._refuse_changes_by_pages(request)
            if request.path not in OPEN_PATHS and not is_of_console(request.path):
                request.authenticate(await self._identify(request))
            is_known = True
            check_size(request.head.content_length, self._frontend.limits.max_body_bytes)
            await self._until_current(request)
            response = await self._router.find(request)(request)
        except ClientGone:
            return None
        except SparrowError as error:
            response = problem_response(error, request.path)
            if not is_known and isinstance(error, NotAuthenticated | Overloaded):
                request.head.keeps_alive = False
            if isinstance(error, NotAuthenticated) and request.header(b"sec-fetch-dest") == "empty":
                without_basic(response)
        except asyncio.CancelledError:
            if not self._frontend.is_stopping:
                raise
            draining = Draining("The broker is shutting down; ask again later.")
            response = problem_response(draining, request.path)
        except Exception:
            self._frontend.logger.exception("a bug in the handler of %s %s", request.method, request.path)
            response = problem_response(InternalError(BUG), request.path)
        return response

    async def _until_current(self, request: Request) -> None:
        """Wait while another broker may own the data: nothing is answered from memory then."""
        if request.path not in OPEN_PATHS and not self._frontend.broker.is_current():
            await self._frontend.broker.current()

    async def admit_socket(self, request: Request) -> Principal | None:
        """Return the principal of a WebSocket; None without credentials where they are required:
        the first frame must have them.

        Raises:
            OriginRefused, Draining, NoSuchPage
            NotAuthenticated: the credentials of the handshake are wrong.
        """
        self._check_origin(request, "WEBSOCKET")
        if self._frontend.is_stopping:
            raise Draining("The broker is shutting down; connect again later.")
        principal = None
        try:
            principal = await self._identify(request)
        except NotAuthenticated:
            if b"authorization" in request.head.by_name or token_in_query(request.query):
                raise
        if request.path != SOCKET_PATH:
            raise NoSuchPage(f"no WebSocket is served here; it is at {SOCKET_PATH}")
        return principal

    def _check_origin(self, request: Request, method: str) -> None:
        """Refuse pages of other origins, and write it to the audit.

        Raises:
            OriginRefused
        """
        headers = request.head.by_name
        try:
            self._check_origin_of(headers, method)
        except OriginRefused as error:
            origin = headers.get(b"origin", b"").decode("latin-1")
            self._frontend.broker.audit.request_refused(LISTENER, request.host, error, origin=origin)
            raise

    def _check_origin_of(self, headers: Mapping[bytes, bytes], method: str) -> None:
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

    def _refuse_changes_by_pages(self, request: Request) -> None:
        """Refuse changes that a page of this listener asks for, if the console is read-only; others
        are not concerned. Logging in and out is no change.

        Raises:
            ConsoleReadOnly
        """
        if request.head.method in SAFE_METHODS or request.path == SESSION_PATH:
            return
        headers = request.head.by_name
        is_of_page = b"origin" in headers or b"sec-fetch-site" in headers or self._session_text(request)
        if is_of_page:
            raise ConsoleReadOnly(
                "the console of this broker is read-only (http.console); use the command line or the API"
            )

    def _session_text(self, request: Request) -> str:
        """Return the text of the session's cookie; "" without one."""
        headers = request.head.by_name
        cookies = headers.get(b"cookie")
        return cookie_of(cookies, cookie_name(headers.get(b"host", b""))) if cookies else ""

    def _is_our_name(self, host: bytes) -> bool:
        name = host.decode("latin-1").lower().partition(":")[0]
        return bool(self._frontend.host) and name == self._frontend.host.lower()

    async def _identify(self, request: Request) -> Principal:
        """Return the principal of a request.

        Raises:
            NotAuthenticated: credentials are wrong, or missing where they are required.
        """
        authorization = request.head.by_name.get(b"authorization")
        if authorization is None:
            text = self._session_text(request)
            found = self._frontend.web_sessions.find(text, request.host) if text else None
            if found is not None:
                return found
        is_socket = request.head.upgrade == b"websocket"
        credentials: dict[str, str] = {}
        try:
            credentials = credentials_of(authorization)
            if not credentials and (is_socket or request.path.endswith(STREAM_SUFFIX)):
                credentials = token_in_query(request.query)
            return await identify(
                self._frontend.logins, credentials, request.host, certified=request.certified
            )
        except (NotAuthenticated, Overloaded) as error:
            is_guess = bool(credentials) or authorization is not None
            if is_guess or not is_socket:  # a WebSocket may still send hello
                await self._frontend.refuse_login(error, request.host, credentials, is_guess=is_guess)
            raise
