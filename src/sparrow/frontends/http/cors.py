"""Cross-origin requests (CORS, in the Fetch standard) for pages of configured origins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.frontends.http.origins import ANY
from sparrow.frontends.http.responses import bytes_response

if TYPE_CHECKING:
    from sparrow.frontends.http.asgi import App, Message, Receive, Scope, Send
    from sparrow.frontends.http.problems import Headers
    from sparrow.frontends.http.responses import Response

_METHODS: Final = (b"DELETE", b"GET", b"HEAD", b"OPTIONS", b"PATCH", b"POST", b"PUT", b"QUERY")
_ALLOW_ORIGIN: Final = b"access-control-allow-origin"
_ASKED: Final = (
    b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers, "
    b"Access-Control-Request-Private-Network"
)
_PREFLIGHT: Final[Headers] = [
    (b"vary", _ASKED),
    (b"access-control-allow-methods", b", ".join(_METHODS)),
    (b"access-control-max-age", b"600"),
    (b"content-type", b"text/plain; charset=utf-8"),
]


class CrossOrigin:
    """ASGI application that lets pages of some origins use another one.

    Args:
        origins: such as `https://app.example.org`; "*" for all.
    """

    def __init__(self, app: App, origins: tuple[str, ...]) -> None:
        self._app = app
        self._origins = {origin.encode("latin-1") for origin in origins}
        self._allows_any = ANY in origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        origin = headers.get(b"origin")
        if (
            origin is not None
            and scope["method"] == "OPTIONS"
            and b"access-control-request-method" in headers
        ):
            await self._preflight(origin, headers).send(send)
            return
        extra = self._headers_for(origin)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _headers_for(self, origin: bytes | None) -> Headers:
        """Return the headers of a response to a page of this origin; None: not to a page."""
        exposing = [] if origin is None else [(b"access-control-expose-headers", b"*")]
        if origin is not None and self._allows_any:
            exposing.append((_ALLOW_ORIGIN, b"*"))
        elif origin in self._origins:
            exposing.append((_ALLOW_ORIGIN, origin or b""))
        return [*exposing, (b"vary", b"Origin")]

    def _preflight(self, origin: bytes, headers: dict[bytes, bytes]) -> Response:
        """Return the response to a browser that asks before it sends a request of a page."""
        allowed = list(_PREFLIGHT)
        failures = []
        if self._allows_any or origin in self._origins:
            allowed.append((_ALLOW_ORIGIN, b"*" if self._allows_any else origin))
        else:
            failures.append("origin")
        if headers[b"access-control-request-method"] not in _METHODS:
            failures.append("method")
        wanted = headers.get(b"access-control-request-headers")
        if wanted is not None:
            allowed.append((b"access-control-allow-headers", wanted))
        if b"access-control-request-private-network" in headers:
            failures.append("private-network")
        text = f"Disallowed CORS {', '.join(failures)}" if failures else "OK"
        return bytes_response(text.encode(), 400 if failures else 200, allowed)
