"""The way to raw routes past FastAPI's layers, which cost more than a publish.

A `RawRoute` needs nothing of them: its handler takes the bare request, and the gate turns errors into problems. So a request for one goes to its handler at
once. Everything else, a path or method that no raw route has among it, takes FastAPI's way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request

from sparrow.frontends.http.openapi import Handler, RawRoute

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Receive, Scope, Send


class _Way(NamedTuple):
    route: RawRoute
    pattern: re.Pattern[str]
    handler: Handler


class Direct:
    """An ASGI application.

    Args:
        app: FastAPI's, with the same routes and others.
        routes: the raw ones among them are found here.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._ways: dict[tuple[str, int], list[_Way]] = {}
        """By method and number of slashes."""
        for route in routes:
            if isinstance(route, RawRoute) and not any(":" in part for part in route.path.split("{")[1:]):
                for method in route.methods or ():
                    key = (method, route.path.count("/"))
                    way = _Way(route, route.path_regex, route.get_route_handler())
                    self._ways.setdefault(key, []).append(way)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            for route, pattern, handler in self._ways.get((scope["method"], path.count("/")), ()):
                found = pattern.match(path)
                if found is not None:
                    scope.update(app=self._app, route=route, path_params=found.groupdict())
                    answer = await handler(Request(scope, receive, send))
                    await answer(scope, receive, send)
                    return
        await self._app(scope, receive, send)
