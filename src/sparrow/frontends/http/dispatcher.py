"""Dispatch of raw routes without FastAPI's layers, which cost more than a publish.

A `RawRoute` needs none of them: its handler takes the bare request, and the gate makes problems of
errors. So its requests go straight to the handler. Everything else, including unknown paths and
methods, goes to FastAPI.
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


class _Target(NamedTuple):
    route: RawRoute
    pattern: re.Pattern[str]
    handler: Handler


class RawRouteDispatcher:
    """ASGI application that calls raw routes directly.

    Args:
        app: FastAPI's application, with the same routes and others.
        routes: the raw routes among them are used.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._targets: dict[tuple[str, int], list[_Target]] = {}
        """Raw routes, keyed by method and number of slashes."""
        for route in routes:
            if isinstance(route, RawRoute) and not any(":" in part for part in route.path.split("{")[1:]):
                for method in route.methods or ():
                    key = (method, route.path.count("/"))
                    target = _Target(route, route.path_regex, route.get_route_handler())
                    self._targets.setdefault(key, []).append(target)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            for route, pattern, handler in self._targets.get((scope["method"], path.count("/")), ()):
                found = pattern.match(path)
                if found is not None:
                    scope.update(app=self._app, route=route, path_params=found.groupdict())
                    response = await handler(Request(scope, receive, send))
                    await response(scope, receive, send)
                    return
        await self._app(scope, receive, send)
