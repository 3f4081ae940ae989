"""Messages in bodies of requests, and their positions in the bodies of responses.

The content type selects one of three forms:

    application/json with a list "messages",
    application/vnd.sparrow.messages+json       many messages, one object each
    application/x-ndjson,
    application/vnd.sparrow.messages+x-ndjson   many messages, one object per line
    anything else                               one message: its value is the body as it is

With application/vnd.sparrow.messages+json any other body is refused.

An object has the members that a record has when it is read (`frontends/record_json.py`), and
`priority`, `delay_ms` and the like (`records/delivery_options.py`). The origin of a record
(`topic`, `partition`, `offset`) is accepted and ignored, so that a record that was read can be
published unchanged. If one message is wrong, the whole request is refused before anything is
stored.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.frontends.http.problems import BodyTooLarge, InvalidParameters, problem_of
from sparrow.frontends.http.rawform import (
    HeaderPairs,
    check_timestamp,
    from_base64,
    message_of_headers,
    pairs_of,
)
from sparrow.frontends.http.responses import JSON, json_response, problem_response
from sparrow.frontends.publisher import Message, Stored
from sparrow.protocol.http.errors import UnsupportedMediaType
from sparrow.records.delivery_options import DeliveryOptions, with_delivery_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.frontends.http.limits import HttpLimits
    from sparrow.frontends.http.responses import Response
    from sparrow.frontends.publisher import PublishResult

MESSAGES_JSON: Final = "application/vnd.sparrow.messages+json"
NDJSON: Final = "application/x-ndjson"
MESSAGES_NDJSON: Final = "application/vnd.sparrow.messages+x-ndjson"
MAX_OBJECTS_UNCOUNTED: Final = 100_000
"""A body with more opening braces is checked closely before it is decoded, as tiny objects take far
more memory than their text.
"""

MAX_TEXTS: Final = 50
"""Average number of texts per message, names of members included, in a body with the largest number
of messages.
"""
MAX_HEADERS: Final = 1000
"""Limit for the headers of one message, and for its parents."""
_TEXT_OR_OBJECT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|\{', re.DOTALL)
_LIST_OF_MESSAGES: Final = re.compile(rb'\s*+\{\s*+"messages"\s*+:\s*+\[')
"""The usual beginning of a list of messages."""
_BRACE: Final = ord("{")


class PublishBody(NamedTuple):
    """The messages of a request. `is_single`: the body was one message."""

    messages: Sequence[Message]
    is_single: bool


class _Item(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One message as an object. Any member may be null, as many serializers write unset members
    so.
    """

    value: str | None = None
    value_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: HeaderPairs | None = None
    timestamp_ms: int | None = None
    priority: int | None = None
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    ttl_ms: int | None = None
    expires_at_ms: int | None = None
    message_id: str | None = None
    parents: list[str] | None = None
    topic: msgspec.Raw = msgspec.Raw()
    partition: msgspec.Raw = msgspec.Raw()
    offset: msgspec.Raw = msgspec.Raw()


class _Envelope(msgspec.Struct):
    messages: msgspec.Raw = msgspec.Raw()


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    messages: list[_Item]


_decode_envelope: Final = msgspec.json.Decoder(_Envelope).decode
_decode_anything: Final = msgspec.json.Decoder(msgspec.Raw).decode
_decode_strict: Final = msgspec.json.Decoder(_Strict).decode
_decode_item: Final = msgspec.json.Decoder(_Item).decode


def messages_of(
    body: bytes,
    content_type: str,
    headers: Sequence[tuple[bytes, bytes]],
    *,
    limits: HttpLimits,
    now_ms: int,
    raw: bool = False,
) -> PublishBody:
    """Return the messages of a request.

    Args:
        content_type: as it was sent, "" if it was not.
        headers: of the request, with names in lower case.
        now_ms: the time from which delays count.
        raw: the body is one message, whatever the content type.

    Raises:
        InvalidArgument, UnsupportedMediaType, BodyTooLarge: nothing of it can be published.
    """
    _refuse_encoding(headers)
    kind = content_type.partition(";")[0].strip().lower()
    if raw or kind not in _MANY:
        return PublishBody([message_of_headers(body, content_type, headers, now_ms)], is_single=True)
    if kind in (NDJSON, MESSAGES_NDJSON):
        return PublishBody(_of_lines(body, limits, now_ms), is_single=False)
    if kind == JSON and not _is_list_of_messages(body):
        return PublishBody([message_of_headers(body, content_type, headers, now_ms)], is_single=True)
    return PublishBody(_of_json(body, limits, now_ms), is_single=False)


_MANY: Final = frozenset({JSON, MESSAGES_JSON, NDJSON, MESSAGES_NDJSON})


def _refuse_encoding(headers: Sequence[tuple[bytes, bytes]]) -> None:
    for name, value in headers:
        if name == b"content-encoding" and value.lower() != b"identity":
            raise UnsupportedMediaType(
                f"the body is encoded as {value.decode('latin-1')!r}; send it as it is (topics "
                "compress by compression.type)"
            )


def _is_list_of_messages(body: bytes) -> bool:
    """Return True if the JSON is an object whose member "messages" is a list.

    Raises:
        InvalidArgument: the body is not JSON.
    """
    if _LIST_OF_MESSAGES.match(body):
        return True
    try:
        try:
            return bytes(_decode_envelope(body).messages)[:1] == b"["
        except msgspec.ValidationError:  # not an object
            _decode_anything(body)
            return False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(
            f"the body is not JSON, as its content type says: {_reason(error)}; publish other "
            "content with ?raw=true or another"
            " content type"
        ) from None


def _of_json(body: bytes, limits: HttpLimits, now_ms: int) -> list[Message]:
    _refuse_swarm(body, limits.max_messages)
    try:
        items = _decode_strict(body).messages
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(
            f'the body is not {{"messages": […]}} with a list of messages: {_reason(error)}'
        ) from None
    _refuse_many(len(items), limits.max_messages)
    return [_message(item, now_ms, f"messages[{index}]") for index, item in enumerate(items)]


def _of_lines(body: bytes, limits: HttpLimits, now_ms: int) -> list[Message]:
    _refuse_many(body.count(b"\n"), limits.max_messages)
    _refuse_swarm(body, limits.max_messages)
    lines = body.split(b"\n")
    return [
        _message(_item(line, number), now_ms, f"line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def _item(line: bytes, number: int) -> _Item:
    try:
        return _decode_item(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"line {number} is not a message as a JSON object: {_reason(error)}") from None


def _refuse_many(count: int, most: int) -> None:
    if count > most:
        raise BodyTooLarge(f"more than {most} messages in one request; send several requests")


def _refuse_swarm(body: bytes, most: int) -> None:
    """Count the texts, and the objects outside of texts, without creating any; stop at the first
    that is too many.
    """
    # Texts that end with a backslash are not counted.
    quotes = body.count(b'"') - body.count(b'\\"')
    if quotes // 2 > MAX_TEXTS * most:
        raise BodyTooLarge(
            f"more than {MAX_TEXTS * most} texts in one request, names of members and headers "
            "included; send several requests"
        )
    if body.count(b"{") <= MAX_OBJECTS_UNCOUNTED:
        return
    objects = 0
    for found in _TEXT_OR_OBJECT.finditer(body):
        if body[found.start()] == _BRACE:
            objects += 1
            _refuse_many(objects // 2, most)


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _message(item: _Item, now_ms: int, where: str) -> Message:
    try:
        time_ms = -1 if item.timestamp_ms is None else check_timestamp(item.timestamp_ms)
        if item.headers or item.priority is not None or _has_options(item):
            return Message(_content(item, "value"), _content(item, "key"), _headers(item, now_ms), time_ms)
        return Message(_content(item, "value"), _content(item, "key"), (), time_ms)
    except (InvalidArgument, UnicodeEncodeError) as error:
        raise InvalidParameters(f"{where}: {error}", [(where, str(error))]) from None


def _has_options(item: _Item) -> bool:
    return (
        item.delay_ms is not None
        or item.deliver_at_ms is not None
        or item.ttl_ms is not None
        or item.expires_at_ms is not None
        or item.message_id is not None
        or item.parents is not None
    )


def _content(item: _Item, name: str) -> bytes | None:
    if name == "value":
        text, encoded = item.value, item.value_base64
    else:
        text, encoded = item.key, item.key_base64
    if encoded is None:
        return None if text is None else text.encode()
    if text is not None:
        raise InvalidArgument(f"{name} and {name}_base64 are both given; give one of them")
    return from_base64(encoded)


def _headers(item: _Item, now_ms: int) -> Sequence[tuple[str, bytes | None]]:
    headers = item.headers or []
    if len(headers) > MAX_HEADERS:
        raise InvalidArgument(f"the message has {len(headers)} headers; the limit is {MAX_HEADERS}")
    if item.parents and len(item.parents) > MAX_HEADERS:
        raise InvalidArgument(f"the message has {len(item.parents)} parents; the limit is {MAX_HEADERS}")
    options = DeliveryOptions(
        item.priority,
        item.delay_ms,
        item.deliver_at_ms,
        item.ttl_ms,
        item.expires_at_ms,
        item.message_id,
        item.parents,
    )
    return with_delivery_options(pairs_of(headers), options, now_ms)


# ── responses ─────────────────────────────────────────────────────────────────────────────────────


def publish_response(
    results: Sequence[PublishResult],
    published: PublishBody,
    instance: str,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response:
    """Return the response to a publish: `status` if all messages are stored, 207 if some are, the
    problem if none is. For a single message, the body is its position without a list.
    """
    failed = [each for each in results if isinstance(each, SparrowError)]
    if failed and len(failed) == len(results) and _is_same(failed):
        return problem_response(failed[0], instance)
    if published.is_single:
        return json_response(_stored_or_problem(results[0]), status, headers)
    body = b",".join([_stored_or_problem(each) for each in results])
    return json_response(b'{"messages":[%b]}' % body, 207 if failed else status, headers)


def _is_same(failed: Sequence[SparrowError]) -> bool:
    return len({(each.code, each.text) for each in failed}) == 1


def _stored_or_problem(result: PublishResult) -> bytes:
    if isinstance(result, Stored):
        return b'{"partition":%d,"offset":%d,"timestamp_ms":%d}' % result
    return msgspec.json.encode({"error": problem_of(result)})
