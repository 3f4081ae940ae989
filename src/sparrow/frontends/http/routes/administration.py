"""Routes of administration, derived from the table of operations in `frontends/admin`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from sparrow.frontends.admin.operation import OperationContext
from sparrow.frontends.admin.operations import OPERATIONS
from sparrow.frontends.admin.states import check_tag
from sparrow.frontends.http.arguments import operation_route
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.responses import json_response

if TYPE_CHECKING:
    from collections.abc import Container

    from sparrow.frontends.admin.operation import AdminOperation, HttpRoute
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.router import Route

DEAD_LETTERS = "dead letters"
"""The tag of operations whose routes are those of another module."""


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of all operations, except those of dead letters."""
    tags = {route.tag for operation in OPERATIONS for route in operation.routes}
    return routes_of(frontend, tags - {DEAD_LETTERS})


def routes_of(frontend: HttpContext, tags: Container[str]) -> list[Route]:
    """Return the routes of the operations with these tags."""
    return [
        _route(frontend, operation, route)
        for operation in OPERATIONS
        for route in operation.routes
        if route.tag in tags
    ]


def _route(frontend: HttpContext, operation: AdminOperation, route: HttpRoute) -> Route:
    async def handle(request: Request, **given: Any) -> object:
        context = OperationContext(frontend.broker, caller(request), frontend.connections)
        tag = await _tag(route, context, request)
        arguments = await _arguments(operation, route, context, given)
        result = await operation.function(context, arguments)
        if route.shown is not None:
            result = route.shown(result, arguments)
        if route.also is not None and route.also.applies(arguments):
            return json_response(result, route.also.status)
        return json_response(result, headers={"etag": tag}) if tag else result

    return operation_route(
        route.method,
        route.path,
        handle,
        route.result,
        tag=route.tag,
        name=route.name or operation.function.__name__,
        text=route.text or operation.text,
        status=route.status,
        refusals=route.refusals,
        query=route.query,
        body=route.body,
        needs_body=route.needs_body,
        also=None if route.also is None else {route.also.status: route.also.text},
    )


async def _tag(route: HttpRoute, context: OperationContext, request: Request) -> str:
    """Return the tag to show, "" for none; check the one that a change expects.

    Raises:
        StateChanged, and what the description of the state raises.
    """
    expected = request.header(b"if-match")
    if route.tag_of is None or (route.method != "GET" and not expected):
        return ""
    tag = await route.tag_of(context, *request.path_params.values())
    if route.method == "GET":
        return tag
    check_tag(expected, tag)
    return ""


async def _arguments(
    operation: AdminOperation, route: HttpRoute, context: OperationContext, given: dict[str, Any]
) -> Any:
    """Return the arguments of an operation. `given`: the parts of the path in their order, then
    `by` (the query) or `body`.
    """
    if route.arguments is not None:
        made = route.arguments(context, *given.values())
        return await made if inspect.isawaitable(made) else made
    struct = given.pop("by", None) or given.pop("body", None)
    return operation.arguments(*given.values(), **(asdict(struct) if struct is not None else {}))
