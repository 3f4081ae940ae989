"""Schemas of messages for the OpenAPI document: as they are published, stored and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.frontends.http.openapi import (
    BYTES,
    PROBLEM,
    TEXT,
    array,
    body,
    header_parameter,
    integer,
    members,
    problems,
    response,
)
from sparrow.frontends.http.publishes import ACKS, PARTITION, RAW
from sparrow.frontends.http.records import MESSAGES_JSON, MESSAGES_NDJSON, NDJSON
from sparrow.frontends.http.responses import JSON
from sparrow.frontends.http.router import Route, Schema

if TYPE_CHECKING:
    from sparrow.frontends.http.queries import Parameter
    from sparrow.frontends.http.router import Handler

_MAX_INTEGER: Final = (1 << 62) - 1
_TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
_BASE64: Final[Schema] = {"type": ["string", "null"], "contentEncoding": "base64"}
_HEADER_VALUE: Final[Schema] = {
    "anyOf": [
        TEXT,
        {"type": "null"},
        members(["base64"], base64={"type": "string", "contentEncoding": "base64"}),
    ]
}
_PAIR: Final[Schema] = {
    "type": "array",
    "description": "Name and value.",
    "minItems": 2,
    "maxItems": 2,
    "items": _HEADER_VALUE,
}
_CONTENT: Final[dict[str, Schema]] = {
    "key": _TEXT_OR_NULL,
    "key_base64": _BASE64,
    "value": _TEXT_OR_NULL,
    "value_base64": _BASE64,
}
_SPAN: Final[Schema] = {"type": ["integer", "null"], "minimum": 0, "maximum": _MAX_INTEGER}

MESSAGE: Final[Schema] = members(
    **_CONTENT,
    headers={
        "anyOf": [
            array(_PAIR),
            {"type": "object", "additionalProperties": _HEADER_VALUE},
            {"type": "null"},
        ]
    },
    timestamp_ms={**_SPAN, "minimum": -1},
    priority={"type": ["integer", "null"], "minimum": 0, "maximum": 9},
    delay_ms=_SPAN,
    deliver_at_ms=_SPAN,
    ttl_ms=_SPAN,
    expires_at_ms=_SPAN,
    message_id=_TEXT_OR_NULL,
    parents={"anyOf": [array(TEXT), {"type": "null"}]},
)
RECORD: Final[Schema] = members(
    ["topic", "partition", "offset", "timestamp_ms", "headers"],
    topic=TEXT,
    partition=integer(),
    offset=integer(),
    timestamp_ms=integer(),
    **_CONTENT,
    headers=array(_PAIR),
)
PAGE: Final[Schema] = members(
    ["messages", "next"],
    messages=array(RECORD),
    next={
        "type": "object",
        "description": "Partition → next offset to read.",
        "additionalProperties": integer(),
    },
)
_STORED: Final[Schema] = members(
    ["partition", "offset", "timestamp_ms"], partition=integer(), offset=integer(), timestamp_ms=integer()
)
_FAILED: Final[Schema] = members(["error"], error=PROBLEM)
_STORED_LIST: Final[Schema] = members(["messages"], messages=array({"anyOf": [_STORED, _FAILED]}))
_MANY: Final[Schema] = members(["messages"], messages=array(MESSAGE))

PUBLISH_TEXT: Final = """\
A body of `application/json` with a member `messages` has many messages, as has NDJSON (a message
on each line). Any other body is the value of one message: its key, headers and the rest are in
headers `Sparrow-…`.
"""
_PUBLISH_BODY: Final[Schema] = body(
    "The value of one message, or many messages.",
    {MESSAGES_JSON: _MANY, JSON: _MANY, NDJSON: MESSAGE, MESSAGES_NDJSON: MESSAGE, "*/*": BYTES},
    is_required=False,
)
_PARAMETERS: Final[list[Parameter | Schema]] = [
    ACKS,
    PARTITION,
    RAW,
    header_parameter("Idempotency-Key", "Publish once, even if the request is repeated with this key."),
    header_parameter("Sparrow-Key", "Key of a raw message."),
    header_parameter("Sparrow-Key-Base64", "The same for a key that is not text."),
    header_parameter("Sparrow-Headers", 'All headers of a raw message as JSON: `[["name", "value"]]`.'),
    header_parameter("Sparrow-Timestamp-Ms", "Time of a raw message.", integer(least=-1, most=_MAX_INTEGER)),
    header_parameter("Sparrow-Null", "`true`: a raw message without a value (a tombstone)."),
    header_parameter("Sparrow-Priority", "0 to 9; queues deliver 9 first.", integer(least=0, most=9)),
    header_parameter(
        "Sparrow-Delay-Ms", "Delay before queues deliver it.", integer(least=0, most=_MAX_INTEGER)
    ),
    header_parameter(
        "Sparrow-Deliver-At-Ms", "Time when queues deliver it.", integer(least=1, most=_MAX_INTEGER)
    ),
    header_parameter(
        "Sparrow-TTL-Ms", "Time after which queues drop it.", integer(least=1, most=_MAX_INTEGER)
    ),
    header_parameter(
        "Sparrow-Expires-At-Ms", "Time when queues drop it.", integer(least=1, most=_MAX_INTEGER)
    ),
    header_parameter("Sparrow-Message-Id", "Id by which child messages refer to it."),
    header_parameter(
        "Sparrow-Parent-Ids", "Ids of messages that must be handled before it, separated by commas."
    ),
]
_PUBLISHED: Final[dict[int, Schema]] = {
    200: response(
        "Position of each message; of a single message without a list.",
        {JSON: {"anyOf": [_STORED, _STORED_LIST]}},
    ),
    202: response("The same, for `acks=none`.", {JSON: {"anyOf": [_STORED, _STORED_LIST]}}),
    207: response("Some were stored; the others have an `error`.", {JSON: _STORED_LIST}),
}


def publishing_route(path: str, handler: Handler, *, tag: str, summary: str, text: str) -> Route:
    """Return a route that publishes."""
    return Route(
        "POST",
        path,
        handler,
        tag=tag,
        name="publish",
        summary=summary,
        text=text,
        parameters=_PARAMETERS,
        request_body=_PUBLISH_BODY,
        responses=problems(404, 409, 413, 415, 422, 429, 507) | _PUBLISHED,
    )
