"""The FastAPI application: all routers, errors as problems, and the OpenAPI document.

A group of routes is a module in `routes/` with a function `router(frontend)`, and a line in
`_ROUTERS`.
"""

from __future__ import annotations

import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import Response

from sparrow.base.errors import InternalError, InvalidArgument, SparrowError
from sparrow.base.version import version
from sparrow.frontends.http.dispatcher import RawRouteDispatcher
from sparrow.frontends.http.openapi import PROBLEM_SCHEMA
from sparrow.frontends.http.problems import BUG, InvalidParameters, MethodNotAllowed, NoSuchPage
from sparrow.frontends.http.responses import problem_response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import APIRouter
    from fastapi.routing import APIRoute
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from sparrow.frontends.http.context import HttpContext

_ROUTERS: Final = (
    "documents",
    "health",
    "messages",
    "stream",
    "socket",
    "queues",
    "leases",
    "dead_letters",
    "admin_topics",
    "admin_groups",
    "admin_queues",
    "admin_subscribers",
    "admin_users",
    "admin_acls",
    "admin_broker",
    "metrics",
)
"""The modules of `routes/`, in the order of the document."""
_AT_ONCE: Final = frozenset({"documents", "health", "messages", "stream", "queues", "leases", "metrics"})
"""Modules that have only raw routes. FastAPI's own application is built when another route is
requested: the models of the administration take longer than all the rest.
"""
_TITLE: Final = "Sparrow"
_TEXT: Final = """\
The message broker for Python and Spark, by HTTP.

Errors are problem details (RFC 9457) with a stable `code` and a flag `retriable`: the same request
may succeed later. Times are milliseconds since 1970, sizes are bytes, as their names say.
"""
_SECURITY: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of the configuration."},
    "basic": {"type": "http", "scheme": "basic", "description": "A user and a password."},
}
_SECURITY_OF_ALL: Final[list[dict[str, list[str]]]] = [{"bearer": []}, {"basic": []}, {}]


def build(frontend: HttpContext) -> ASGIApp:
    """Return the application of a frontend. May be called in any thread."""
    at_once: dict[str, APIRouter] = {name: _router(name, frontend) for name in _ROUTERS if name in _AT_ONCE}
    routes = [route for router in at_once.values() for route in router.routes]
    return RawRouteDispatcher(_Whole(frontend, at_once), routes)


class _Whole:
    """FastAPI's application with all routers, built in a thread when it is first needed."""

    def __init__(self, frontend: HttpContext, routers: Mapping[str, APIRouter]) -> None:
        self._frontend = frontend
        self._routers = routers
        self._build_lock = threading.Lock()
        self._app: FastAPI | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await self._frontend.in_thread(self._made) if self._app is None else self._app
        await app(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Return the document. May be called in any thread."""
        return self._made().openapi()

    def _made(self) -> FastAPI:
        with self._build_lock:
            if self._app is None:
                self._app = _documented(
                    [self._routers.get(name) or _router(name, self._frontend) for name in _ROUTERS]
                )
            return self._app


def _documented(routers: list[APIRouter]) -> FastAPI:
    """Return FastAPI's application of the routers."""
    app = FastAPI(
        title=_TITLE,
        version=version(),
        description=_TEXT,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_name,
        exception_handlers={
            SparrowError: _broker_refused,
            HTTPException: _framework_refused,
            RequestValidationError: _input_refused,
            Exception: _failed,
        },
    )
    for router in routers:
        app.include_router(router)
    setattr(app, "openapi", lambda: _openapi(app))  # noqa: B010 - FastAPI's way to have a document of one's own
    return app


def _operation_name(route: APIRoute) -> str:
    """Return the name of the operation in generated clients, such as `queues_lease`."""
    return f"{route.tags[0]}_{route.name}".replace(" ", "_") if route.tags else route.name


def _router(name: str, frontend: HttpContext) -> APIRouter:
    made: APIRouter = import_module(f"sparrow.frontends.http.routes.{name}").router(frontend)
    return made


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


def _path(request: Request) -> str:
    path: str = request.scope["path"]
    return path


async def _broker_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, SparrowError)
    return problem_response(error, _path(request))


async def _failed(request: Request, _: Exception) -> Response:
    return problem_response(InternalError(BUG), _path(request))


async def _input_refused(request: Request, error: Exception) -> Response:
    """Refuse input that does not fit the types of a handler."""
    assert isinstance(error, RequestValidationError)
    faults = [(".".join(str(part) for part in each["loc"]), str(each["msg"])) for each in error.errors()]
    faults_text = "; ".join(f"{where}: {what}" for where, what in faults[:3])
    return problem_response(InvalidParameters(f"invalid request: {faults_text}", faults), _path(request))


async def _framework_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, SparrowError):  # raised while the framework read the body
        return problem_response(error.__cause__, _path(request))
    if error.status_code == 404:
        return problem_response(
            NoSuchPage(f"nothing is served at {_path(request)}; see /docs"), _path(request)
        )
    if error.status_code == 405:
        return _method_refused(request)
    return problem_response(InvalidArgument(str(error.detail)), _path(request))


def _method_refused(request: Request) -> Response:
    allowed = sorted(_methods_of(request))
    listed = ", ".join(allowed)
    if request.method == "OPTIONS":
        return Response(status_code=204, headers={"allow": listed})
    refused = MethodNotAllowed(f"{_path(request)} does not support {request.method}; use one of {listed}")
    response = problem_response(refused, _path(request))
    response.raw_headers.append((b"allow", listed.encode()))
    return response


def _methods_of(request: Request) -> set[str]:
    """Return the methods that the path supports."""
    found = {"OPTIONS"}
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        if _is_served(request, method):
            found.add(method)
    return found | {"HEAD"} if "GET" in found else found


def _is_served(request: Request, method: str) -> bool:
    from starlette.routing import Match

    scope = {**request.scope, "method": method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)


# ── the document ──────────────────────────────────────────────────────────────────────────────────


def _openapi(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = PROBLEM_SCHEMA
    components["securitySchemes"] = _SECURITY
    document["security"] = _SECURITY_OF_ALL
    for operations in document["paths"].values():
        for operation in operations.values():
            _without_defaults(operation)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    _widen_integers(document)
    return document


def _widen_integers(part: Any) -> None:
    """Declare all integers as 64-bit: generators of clients assume 32 bits, and offsets and times
    have more.
    """
    if isinstance(part, dict):
        if "integer" in (part.get("type"), *_listed(part.get("type"))):
            part.setdefault("format", "int64")
        part = list(part.values())
    for each in _listed(part):
        _widen_integers(each)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _without_defaults(operation: dict[str, Any]) -> None:
    """Remove the responses that FastAPI adds and this frontend never sends: invalid input is a
    problem with status 400.
    """
    responses = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422", "")):
        del responses["422"]
    content = responses.get("200", {}).get("content", {})
    if len(content) > 1 and content.get("application/json") == {"schema": {}}:
        del content["application/json"]
