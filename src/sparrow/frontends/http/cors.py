"""Cross-origin requests (CORS, in the Fetch standard) for pages of configured origins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.frontends.http.origins import ANY
from sparrow.frontends.http.responses import Response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sparrow.frontends.http.request import Request
    from sparrow.protocol.http.heads import Headers

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
    """Rules for pages of some origins. They apply before all other checks: a browser sends its
    preflight request without credentials, and pages must see why they are refused.

    Args:
        origins: such as `https://app.example.org`; "*" for all.
    """

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._origins = {origin.encode("latin-1") for origin in origins}
        self._allows_any = ANY in origins

    async def respond(
        self, request: Request, serve: Callable[[Request], Awaitable[Response | None]]
    ) -> Response | None:
        """Return the response to a browser that asks before it sends a request of a page, or else
        that of `serve`, with the headers that pages need.
        """
        headers = request.head.by_name
        origin = headers.get(b"origin")
        if origin is not None and request.method == "OPTIONS" and b"access-control-request-method" in headers:
            return self._preflight(origin, headers)
        response = await serve(request)
        if response is not None:
            response.headers = [*response.headers, *self._headers_for(origin)]
        return response

    def _headers_for(self, origin: bytes | None) -> Headers:
        """Return the headers of a response to a page of this origin; None: not to a page."""
        exposing = [] if origin is None else [(b"access-control-expose-headers", b"*")]
        if origin is not None and self._allows_any:
            exposing.append((_ALLOW_ORIGIN, b"*"))
        elif origin in self._origins:
            exposing.append((_ALLOW_ORIGIN, origin or b""))
        return [*exposing, (b"vary", b"Origin")]

    def _preflight(self, origin: bytes, headers: Mapping[bytes, bytes]) -> Response:
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
        return Response(400 if failures else 200, allowed, text.encode())
