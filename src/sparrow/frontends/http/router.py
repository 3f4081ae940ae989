"""The table of routes: what each is, and which one serves a request."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sparrow.frontends.http.problems import NoSuchPage, response_parts
from sparrow.frontends.http.request import Request
from sparrow.frontends.http.responses import Response
from sparrow.protocol.http.errors import MethodNotAllowed

if TYPE_CHECKING:
    from msgspec import Struct

    from sparrow.frontends.http.asgi import App, Receive, Scope, Send
    from sparrow.frontends.http.openapi import Schema

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """One operation.

    Args:
        path: `{name}` is a part of the path; `fields.PathParameters` describes it.
        tag: the group in the document; "": the route is not in it.
        name: name of the operation in generated clients, behind the tag.
        parameters, request_body, responses: as in the document.
        query: the parameters as a struct, instead of `parameters`.
        structs: those to which request and responses refer.
    """

    method: str
    path: str
    handler: Handler
    tag: str = ""
    name: str = ""
    summary: str = ""
    text: str = ""
    parameters: Sequence[Schema] = ()
    request_body: Schema | None = None
    responses: Mapping[int, Schema] = field(default_factory=dict)
    query: type[Struct] | None = None
    structs: tuple[type[Struct], ...] = ()

    @property
    def path_names(self) -> list[str]:
        """Return the names of the parts of the path."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    def matcher(self) -> Callable[[str], re.Match[str] | None]:
        """Return the test of a path; its groups are the parts by their names."""
        parts = [
            f"(?P<{part[1:-1]}>[^/]+)" if part.startswith("{") else re.escape(part)
            for part in self.path.split("/")
        ]
        return re.compile("/".join(parts)).fullmatch


class _Target(NamedTuple):
    route: Route
    match: Callable[[str], re.Match[str] | None]


class Router:
    """ASGI application that calls the routes, and responds where there is none.

    Args:
        sockets: serves WebSockets.
    """

    def __init__(self, routes: Sequence[Route], sockets: App) -> None:
        self.routes = routes
        self._sockets = sockets
        self._targets: dict[tuple[str, int], list[_Target]] = {}
        """Routes, keyed by method and number of slashes."""
        for route in routes:
            key = (route.method, route.path.count("/"))
            self._targets.setdefault(key, []).append(_Target(route, route.matcher()))
        self._methods = sorted({route.method for route in routes})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._sockets(scope, receive, send)
            return
        path: str = scope["path"]
        for route, match in self._targets.get((scope["method"], path.count("/")), ()):
            found = match(path)
            if found is not None:
                scope["route"] = route
                response = await route.handler(Request(scope, receive, found.groupdict()))
                await response.send(send)
                return
        await self._unserved(scope, path).send(send)

    def _unserved(self, scope: Scope, path: str) -> Response:
        """Return the response to a method that the path does not support, or to an unknown path."""
        served = {
            method: route
            for method in self._methods
            for route, match in self._targets.get((method, path.count("/")), ())
            if match(path)
        }
        if not served:
            raise NoSuchPage(f"nothing is served at {path}; see /docs")
        scope["route"] = next(iter(served.values()))
        allowed = ", ".join(sorted({*served, "OPTIONS", *(["HEAD"] if "GET" in served else [])}))
        headers = [(b"allow", allowed.encode())]
        method = scope["method"]
        if method == "OPTIONS":
            return Response(204, headers)
        error = MethodNotAllowed(f"{path} does not support {method}; use one of {allowed}")
        status, own_headers, body = response_parts(error, path)
        return Response(status, own_headers + headers, body)
