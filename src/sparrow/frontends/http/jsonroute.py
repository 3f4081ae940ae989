"""Routes of administration. FastAPI parses their parameters, of which unknown ones are refused, and
their bodies, which must be JSON.

Their bodies have a lower limit than those of messages, because as objects they take many times
their size. FastAPI would treat a body of another content type as bytes and report that those are
not an object; the error here says what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi.routing import APIRoute
from pydantic import BaseModel

from sparrow.frontends.http.bodies import media_type
from sparrow.frontends.http.openapi import problems
from sparrow.frontends.http.problems import BodyTooLarge, UnsupportedMediaType
from sparrow.frontends.http.queries import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.requests import Request
    from starlette.responses import Response


MAX_BODY_BYTES: Final = 1 << 20


class JsonRoute(APIRoute):
    """A route whose body, if it has one, is JSON."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.body_field is not None:
            self.responses = {**self.responses, 413: problems(413)[413], 415: problems(415)[415]}

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        known = _parameters_of(self)
        has_body = self.body_field is not None

        async def handle_checked(request: Request) -> Response:
            if known is not None and request.scope["query_string"]:
                _check_parameters(request, known)
            if has_body:
                await _check_body(request)
            return await handle(request)

        return handle_checked


def _parameters_of(route: APIRoute) -> frozenset[str] | None:
    """Return the query parameters that a route knows, or None if they are a model, which refuses
    others itself.
    """
    fields = route.dependant.query_params
    if any(_is_model(field.field_info.annotation) for field in fields):
        return None
    return frozenset(field.alias for field in fields)


def _check_parameters(request: Request, known: frozenset[str]) -> None:
    """Check the names of the query parameters.

    Raises:
        InvalidArgument: a parameter is given twice, or is unknown.
    """
    query = Query(request)
    for name in known:
        query.text(name)
    query.refuse_others()


def _is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


async def _check_body(request: Request) -> None:
    """Check type and size of the body.

    Raises:
        UnsupportedMediaType, BodyTooLarge
    """
    _check_content_type(request)
    if len(await request.body()) > MAX_BODY_BYTES:
        raise BodyTooLarge(
            f"the body is larger than {MAX_BODY_BYTES} bytes, the most that administration takes; "
            "send several smaller ones"
        )


def _check_content_type(request: Request) -> None:
    """Check the content type.

    Raises:
        UnsupportedMediaType: there is a body that is not declared as JSON.
    """
    kind = media_type(request)
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return
    headers = request.headers
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise UnsupportedMediaType(
            f"the content type of the body is {kind[:80]!r}; send JSON with the header "
            "Content-Type: application/json"
        )
