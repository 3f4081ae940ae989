"""What the OpenAPI document says, and routes that are documented by FastAPI and called without it.

FastAPI reads a request by the types of its handler, which costs more than a publish. A `RawRoute` is in the document with what its
declaration says, and its handler gets the bare request.
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
"""The value of a message, of whatever content type it was stored with: JSON among others, so it need not be a string."""
PROBLEM: Final[Schema] = {"$ref": "#/components/schemas/Problem"}

PROBLEM_SCHEMA: Final[Schema] = {
    "title": "Problem",
    "description": "What went wrong (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "retriable"],
    "properties": {
        "type": {"type": "string", "examples": ["urn:sparrow:error:unknown-topic"]},
        "title": {"type": "string", "examples": ["Unknown topic"]},
        "status": {"type": "integer", "examples": [404]},
        "detail": {"type": "string", "description": "A sentence for people: what failed, and what to do."},
        "instance": {"type": "string", "description": "The path that was asked for."},
        "code": {"type": "string", "description": "Stable, for programs.", "examples": ["UNKNOWN_TOPIC"]},
        "retriable": {"type": "boolean", "description": "Whether the same request may succeed later."},
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
    400: "The request is wrong in itself.",
    401: "Login is required, or the credentials are wrong.",
    403: "You may not do that.",
    404: "There is no such thing.",
    405: "Not by this method.",
    406: "Not in a form that you accept.",
    408: "The request did not arrive in time.",
    409: "The state of the broker says no.",
    413: "The body or a message is too large.",
    415: "Not in this form.",
    422: "The same key was used for another request.",
    429: "Too much at a time.",
    431: "The head of the request is too large.",
    503: "Not now.",
    507: "The disk is full.",
}
ALWAYS: Final = (400, 401, 403, 408, 431, 503)
"""What every route may answer."""


Handler = Callable[["Request"], Coroutine[Any, Any, "Response"]]
_HANDLER: Final = "raw_handler"


class RawRoute(APIRoute):
    """A route whose handler gets the request as it is and answers itself. FastAPI sees a stand-in without parameters, so that it looks for none."""

    def __init__(self, path: str, endpoint: Handler, **options: Any) -> None:
        self._handler: Handler = getattr(endpoint, _HANDLER, endpoint)
        options["response_model"] = None
        super().__init__(path, _stand_in(self._handler), **options)

    def get_route_handler(self) -> Handler:
        return self._handler


def _stand_in(handler: Handler) -> Callable[[], None]:
    def stand_in() -> None: ...

    stand_in.__name__ = getattr(handler, "__name__", "handler")
    setattr(stand_in, _HANDLER, handler)  # FastAPI may make the route anew from it
    return stand_in


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route answers with, those of every route among them."""
    return {
        status: {"description": _MEANING[status], "content": {MEDIA_TYPE: {"schema": PROBLEM}}}
        for status in sorted({*ALWAYS, *statuses})
    }


def answer(text: str, media: Mapping[str, Schema] | None = None) -> dict[str, Any]:
    """What an answer is; `media`: schema by content type, none where there is no body."""
    found: dict[str, Any] = {"description": text}
    if media:
        found["content"] = {kind: {"schema": schema} for kind, schema in media.items()}
    return found


def body(text: str, media: Mapping[str, Schema], *, is_required: bool = True) -> dict[str, Any]:
    """What a request's body is: schema by content type."""
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
    """The schema of a whole number."""
    limits = {"default": default, "minimum": least, "maximum": most}
    return {"type": "integer", **{name: value for name, value in limits.items() if value is not None}}


def choice(default: str, *choices: str) -> Schema:
    """The schema of one of several words."""
    return {"type": "string", "enum": list(choices), "default": default}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def members(required: list[str] | None = None, /, **properties: Schema) -> Schema:
    """The schema of an object."""
    found: Schema = {"type": "object", "properties": properties}
    if required:
        found["required"] = required
    return found
