"""What the OpenAPI document says of messages: as they are published, stored and read."""

from __future__ import annotations

from typing import Any, Final

from sparrow.frontends.http.openapi import (
    BYTES,
    FLAG,
    PROBLEM,
    TEXT,
    Schema,
    answer,
    array,
    body,
    choice,
    header_parameter,
    integer,
    members,
    problems,
    query_parameter,
)
from sparrow.frontends.http.records import JSON, MESSAGES_JSON, MESSAGES_NDJSON, NDJSON

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
        "description": "Partition → the offset from which to read on.",
        "additionalProperties": integer(),
    },
)
_PLACE: Final[Schema] = members(
    ["partition", "offset", "timestamp_ms"], partition=integer(), offset=integer(), timestamp_ms=integer()
)
_FAILED: Final[Schema] = members(["error"], error=PROBLEM)
_PLACES: Final[Schema] = members(["messages"], messages=array({"anyOf": [_PLACE, _FAILED]}))
_MANY: Final[Schema] = members(["messages"], messages=array(MESSAGE))

PUBLISHING_TEXT: Final = """\
A body of `application/json` with a member `messages` is many messages, as is NDJSON (a message on each line). Any other body is one message, whose value it is: its
key, headers and the rest stand in headers `Sparrow-…`.
"""
_POSTED: Final[dict[str, Any]] = body(
    "One message as it is, or many.",
    {MESSAGES_JSON: _MANY, JSON: _MANY, NDJSON: MESSAGE, MESSAGES_NDJSON: MESSAGE, "*/*": BYTES},
    is_required=False,
)
_PARAMETERS: Final[list[dict[str, Any]]] = [
    query_parameter(
        "acks",
        "`all`: answered when it is on stable storage. `leader`: when the broker has it. `none`: the same, with status 202.",
        choice("all", "all", "leader", "none"),
    ),
    query_parameter(
        "partition", "To this partition, whatever the keys.", integer(least=0, most=(1 << 31) - 1)
    ),
    query_parameter("raw", "One message, whatever the content type.", FLAG),
    header_parameter("Idempotency-Key", "Publish once, however often the request is sent with this key."),
    header_parameter("Sparrow-Key", "Key of a raw message."),
    header_parameter("Sparrow-Key-Base64", "The same for a key that is no text."),
    header_parameter("Sparrow-Headers", 'All headers of a raw message as JSON: `[["name", "value"]]`.'),
    header_parameter("Sparrow-Timestamp-Ms", "Time of a raw message.", integer(least=-1, most=_MAX_INTEGER)),
    header_parameter("Sparrow-Null", "`true`: a raw message without a value (a tombstone)."),
    header_parameter("Sparrow-Priority", "0 to 9; queues deliver 9 first.", integer(least=0, most=9)),
    header_parameter(
        "Sparrow-Delay-Ms", "Queues deliver it so much later.", integer(least=0, most=_MAX_INTEGER)
    ),
    header_parameter("Sparrow-Deliver-At-Ms", "Queues deliver it then.", integer(least=1, most=_MAX_INTEGER)),
    header_parameter("Sparrow-TTL-Ms", "Queues drop it after so long.", integer(least=1, most=_MAX_INTEGER)),
    header_parameter("Sparrow-Expires-At-Ms", "Queues drop it then.", integer(least=1, most=_MAX_INTEGER)),
    header_parameter("Sparrow-Message-Id", "What children call it by."),
    header_parameter("Sparrow-Parent-Ids", "Ids of the messages that come before it, with commas between."),
]
_PUBLISHED: Final[dict[int | str, dict[str, Any]]] = {
    200: answer("Where each message is; of a raw one just that.", {JSON: {"anyOf": [_PLACE, _PLACES]}}),
    202: answer("The same, for `acks=none`.", {JSON: {"anyOf": [_PLACE, _PLACES]}}),
    207: answer("Some were stored; the others have an `error`.", {JSON: _PLACES}),
}


def publishing(place: dict[str, Any]) -> dict[str, Any]:
    """What is said of a route that publishes; `place` is the parameter in its path."""
    return {
        "responses": problems(404, 409, 413, 415, 422, 429, 507) | _PUBLISHED,
        "openapi_extra": {"parameters": [place, *_PARAMETERS], "requestBody": _POSTED},
    }
