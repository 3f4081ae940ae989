"""Parts of the OpenAPI document, and routes that FastAPI documents and does not call.

FastAPI parses a request by the types of its handler, which costs more than a publish. A `RawRoute`
is in the document with what its declaration says, and its handler gets the bare request.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from fastapi.routing import APIRoute

from sparrow.frontends.http.problems import MEDIA_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean", "default": False}
BYTES: Final[Schema] = {"type": "string", "format": "binary"}
AS_STORED: Final[Schema] = {}
"""The value of a message of any content type, including JSON, so it need not be a string."""
PROBLEM: Final[Schema] = {"$ref": "#/components/schemas/Problem"}

PROBLEM_SCHEMA: Final[Schema] = {
    "title": "Problem",
    "description": "An error (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "retriable"],
    "properties": {
        "type": {"type": "string", "examples": ["urn:sparrow:error:unknown-topic"]},
        "title": {"type": "string", "examples": ["Unknown topic"]},
        "status": {"type": "integer", "examples": [404]},
        "detail": {"type": "string", "description": "A sentence for people: what failed, and what to do."},
        "instance": {"type": "string", "description": "The requested path."},
        "code": {"type": "string", "description": "Stable, for programs.", "examples": ["UNKNOWN_TOPIC"]},
        "retriable": {"type": "boolean", "description": "True if the same request may succeed later."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"where": {"type": "string"}, "what": {"type": "string"}},
            },
        },
    },
}
_MEANING: Final[dict[int, str]] = {
    400: "The request is invalid.",
    401: "Login is required, or the credentials are wrong.",
    403: "You do not have the right to do this.",
    404: "It does not exist.",
    405: "The path does not support this method.",
    406: "No accepted content type is available.",
    408: "The request did not arrive in time.",
    409: "The state of the broker does not allow it.",
    413: "The body or a message is too large.",
    415: "The content type is not supported.",
    422: "The idempotency key was used for another request.",
    429: "Too many requests at a time.",
    431: "The head of the request is too large.",
    503: "The broker cannot do it now; retry later.",
    507: "The disk is full.",
}
ALWAYS: Final = (400, 401, 403, 408, 431, 503)
"""Problems of every route."""


Handler = Callable[["Request"], Coroutine[Any, Any, "Response"]]
_HANDLER: Final = "raw_handler"


class RawRoute(APIRoute):
    """A route whose handler gets the bare request and returns a response. FastAPI sees a stand-in
    without parameters, so it parses none.
    """

    def __init__(self, path: str, endpoint: Handler, **options: Any) -> None:
        self._handler: Handler = getattr(endpoint, _HANDLER, endpoint)
        options["response_model"] = None
        super().__init__(path, _stand_in(self._handler), **options)

    def get_route_handler(self) -> Handler:
        return self._handler


def _stand_in(handler: Handler) -> Callable[[], None]:
    def stand_in() -> None: ...

    stand_in.__name__ = getattr(handler, "__name__", "handler")
    setattr(stand_in, _HANDLER, handler)  # FastAPI may create the route again from it
    return stand_in


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the problems of a route, including those of every route."""
    return {
        status: {"description": _MEANING[status], "content": {MEDIA_TYPE: {"schema": PROBLEM}}}
        for status in sorted({*ALWAYS, *statuses})
    }


def response(text: str, media: Mapping[str, Schema] | None = None) -> dict[str, Any]:
    """Return the description of a response. `media` has a schema by content type, none without a
    body.
    """
    found: dict[str, Any] = {"description": text}
    if media:
        found["content"] = {kind: {"schema": schema} for kind, schema in media.items()}
    return found


def body(text: str, media: Mapping[str, Schema], *, is_required: bool = True) -> dict[str, Any]:
    """Return the description of a request's body: a schema by content type."""
    return {
        "description": text,
        "required": is_required,
        "content": {kind: {"schema": schema} for kind, schema in media.items()},
    }


def path_parameter(name: str, text: str, schema: Schema | None = None) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "description": text, "schema": schema or TEXT}


def query_parameter(name: str, text: str, schema: Schema | None = None) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": text, "schema": schema or TEXT}


def header_parameter(name: str, text: str, schema: Schema | None = None) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": text, "schema": schema or TEXT}


def integer(default: int | None = None, least: int | None = None, most: int | None = None) -> Schema:
    """Return the schema of a whole number."""
    limits = {"default": default, "minimum": least, "maximum": most}
    return {"type": "integer", **{name: value for name, value in limits.items() if value is not None}}


def choice(default: str, *choices: str) -> Schema:
    """Return the schema of one of several words."""
    return {"type": "string", "enum": list(choices), "default": default}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def members(required: list[str] | None = None, /, **properties: Schema) -> Schema:
    """Return the schema of an object."""
    found: Schema = {"type": "object", "properties": properties}
    if required:
        found["required"] = required
    return found
