"""The table of routes: their descriptions, and the choice of the one that serves a request."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from sparrow.frontends.http.problems import NoSuchPage
from sparrow.frontends.http.request import Request
from sparrow.frontends.http.responses import Response, problem_response
from sparrow.protocol.http.errors import MethodNotAllowed

if TYPE_CHECKING:
    from sparrow.frontends.http.queries import Parameter

Handler = Callable[[Request], Awaitable[Response]]
Schema = dict[str, Any]
"""A part of the OpenAPI document."""


class Route(Struct, frozen=True):
    """One operation.

    Args:
        path: `{name}` is a part of the path; `fields.PathParameters` describes it.
        tag: the group in the document; "": the route is not in it.
        name: name of the operation in generated clients, behind the tag.
        parameters: of the query, and schemas of headers.
        request_body, responses: as in the document.
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
    parameters: Sequence[Parameter | Schema] = ()
    request_body: Schema | None = None
    responses: Mapping[int, Schema] = field(default_factory=dict)
    query: type[Struct] | None = None
    structs: tuple[type[Struct], ...] = ()

    @property
    def path_names(self) -> list[str]:
        """Return the names of the parts of the path."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


@cache
def _test_of(path: str) -> Callable[[str], re.Match[str] | None]:
    """Return the test for the path of a route, made at the first request that may be for it; its
    groups are the parts by their names.
    """
    parts = [
        f"(?P<{part[1:-1]}>[^/]+)" if part.startswith("{") else re.escape(part) for part in path.split("/")
    ]
    return re.compile("/".join(parts)).fullmatch


class Router:
    """The routes of a frontend by method and path."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = routes
        self._targets: dict[tuple[str, int], list[Route]] = {}
        """Routes, keyed by method and number of slashes."""
        for route in routes:
            self._targets.setdefault((route.method, route.path.count("/")), []).append(route)
        self._methods = sorted({route.method for route in routes})

    def find(self, request: Request) -> Handler:
        """Return the handler of a request, and leave route and parts of the path in the request.

        Raises:
            NoSuchPage: there is no route at this path.
        """
        path = request.path
        for route in self._targets.get((request.method, path.count("/")), ()):
            found = _test_of(route.path)(path)
            if found is not None:
                request.route_path = route.path
                request.path_params = found.groupdict()
                return route.handler
        served = {
            method: route.path
            for method in self._methods
            for route in self._targets.get((method, path.count("/")), ())
            if _test_of(route.path)(path)
        }
        if not served:
            raise NoSuchPage(f"nothing is served at {path}; see /docs")
        request.route_path = next(iter(served.values()))
        return partial(_decline, sorted({*served, "OPTIONS", *(["HEAD"] if "GET" in served else [])}))


async def _decline(methods: list[str], request: Request) -> Response:
    """Return the response to a method that a path does not support."""
    allowed = ", ".join(methods)
    headers = [(b"allow", allowed.encode())]
    if request.method == "OPTIONS":
        return Response(204, headers)
    error = MethodNotAllowed(f"{request.path} does not support {request.method}; use one of {allowed}")
    response = problem_response(error, request.path)
    return Response(response.status, response.headers + headers, response.body)
