"""Messages in bodies of requests, and what was stored in bodies of answers.

Three forms, told by the content type:

    application/json with a member "messages" that is a list      many messages, an object each
    application/vnd.sparrow.messages+json                         the same, and nothing else is accepted
    application/x-ndjson, application/vnd.sparrow.messages+x-ndjson   many messages, an object on each line
    anything else                                                 one message: its value is the body as it is

An object has the members that a record has when it is read (`frontends/record_json.py`), and `priority`, `delay_ms` and the like (`wanted.py`); where a record came from
(`topic`, `partition`, `offset`) may stand there and means nothing, so that what was read can be published as it is. With one message wrong the whole request is refused, before anything is stored.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.frontends.http.answers import json_answer, problem_answer
from sparrow.frontends.http.problems import BodyTooLarge, InvalidParameters, UnsupportedMediaType, problem_of
from sparrow.frontends.http.rawform import (
    HeaderPairs,
    check_timestamp,
    from_base64,
    message_of_headers,
    pairs_of,
)
from sparrow.frontends.http.wanted import Wanted, with_wanted
from sparrow.frontends.publishing import Message, Stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from sparrow.frontends.http.limits import HttpLimits
    from sparrow.frontends.publishing import Answer

JSON: Final = "application/json"
MESSAGES_JSON: Final = "application/vnd.sparrow.messages+json"
NDJSON: Final = "application/x-ndjson"
MESSAGES_NDJSON: Final = "application/vnd.sparrow.messages+x-ndjson"
MAX_OBJECTS_UNCOUNTED: Final = 100_000
"""A body with more opening braces is looked at closely before it is decoded, as tiny objects take far more memory than their text."""

MAX_TEXTS: Final = 50
"""Texts that a message may have on average, names of members included, in a body of as many messages as there may be."""
MAX_HEADERS: Final = 1000
"""Headers of one message, and its parents."""
_TEXT_OR_OBJECT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|\{', re.DOTALL)
_LIST_OF_MESSAGES: Final = re.compile(rb'\s*+\{\s*+"messages"\s*+:\s*+\[')
"""How such a body begins, most of the time."""
_BRACE: Final = ord("{")


class Posted(NamedTuple):
    """What a request publishes. `is_single`: the body was one message."""

    messages: Sequence[Message]
    is_single: bool


class _Item(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One message as an object. Any member may be null, as many serializers write what is not set."""

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
) -> Posted:
    """The messages of a request.

    Args:
        content_type: as it was sent, "" if it was not.
        headers: of the request, their names in lower case.
        now_ms: the time from which delays count.
        raw: one message, whatever the content type says.

    Raises:
        InvalidArgument, UnsupportedMediaType, BodyTooLarge: nothing of it can be published.
    """
    _refuse_encoding(headers)
    kind = content_type.partition(";")[0].strip().lower()
    if raw or kind not in _MANY:
        return Posted([message_of_headers(body, content_type, headers, now_ms)], is_single=True)
    if kind in (NDJSON, MESSAGES_NDJSON):
        return Posted(_of_lines(body, limits, now_ms), is_single=False)
    if kind == JSON and not _is_list_of_messages(body):
        return Posted([message_of_headers(body, content_type, headers, now_ms)], is_single=True)
    return Posted(_of_json(body, limits, now_ms), is_single=False)


_MANY: Final = frozenset({JSON, MESSAGES_JSON, NDJSON, MESSAGES_NDJSON})


def _refuse_encoding(headers: Sequence[tuple[bytes, bytes]]) -> None:
    for name, value in headers:
        if name == b"content-encoding" and value.lower() != b"identity":
            raise UnsupportedMediaType(
                f"the body is encoded as {value.decode('latin-1')!r}; send it as it is (topics compress by compression.type)"
            )


def _is_list_of_messages(body: bytes) -> bool:
    """Whether JSON is an object whose member "messages" is a list.

    Raises:
        InvalidArgument: it is no JSON.
    """
    if _LIST_OF_MESSAGES.match(body):
        return True
    try:
        try:
            return bytes(_decode_envelope(body).messages)[:1] == b"["
        except msgspec.ValidationError:  # no object
            _decode_anything(body)
            return False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(
            f"the body is not JSON, as its content type says: {_reason(error)}; publish other content with ?raw=true or another"
            " content type"
        ) from None


def _of_json(body: bytes, limits: HttpLimits, now_ms: int) -> list[Message]:
    _refuse_swarm(body, limits.max_messages)
    try:
        items = _decode_strict(body).messages
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(
            f'the body is not {{"messages": […]}} with a message in each place: {_reason(error)}'
        ) from None
    _refuse_many(len(items), limits.max_messages)
    return [_message(item, now_ms, f"messages[{place}]") for place, item in enumerate(items)]


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
    """Count the texts, and the objects that are in no text, without making any; it ends with the first that is too many."""
    quotes = body.count(b'"') - body.count(b'\\"')  # of texts; a few less where texts end with a backslash
    if quotes // 2 > MAX_TEXTS * most:
        raise BodyTooLarge(
            f"more than {MAX_TEXTS * most} texts in one request, names of members and headers included; send several requests"
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
        if item.headers or item.priority is not None or _has_wishes(item):
            return Message(_content(item, "value"), _content(item, "key"), _headers(item, now_ms), time_ms)
        return Message(_content(item, "value"), _content(item, "key"), (), time_ms)
    except (InvalidArgument, UnicodeEncodeError) as error:
        raise InvalidParameters(f"{where}: {error}", [(where, str(error))]) from None


def _has_wishes(item: _Item) -> bool:
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
        raise InvalidArgument(f"a message with {len(headers)} headers; it may have {MAX_HEADERS}")
    if item.parents and len(item.parents) > MAX_HEADERS:
        raise InvalidArgument(f"a message with {len(item.parents)} parents; it may have {MAX_HEADERS}")
    wanted = Wanted(
        item.priority,
        item.delay_ms,
        item.deliver_at_ms,
        item.ttl_ms,
        item.expires_at_ms,
        item.message_id,
        item.parents,
    )
    return with_wanted(pairs_of(headers), wanted, now_ms)


# ── answers ───────────────────────────────────────────────────────────────────────────────────────


def publishing_answer(
    answers: Sequence[Answer],
    posted: Posted,
    instance: str,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response:
    """Where each message is: `status` if all are stored, 207 if some are, the problem if none is. `posted.is_single`: just the one, without a list."""
    failed = [each for each in answers if isinstance(each, SparrowError)]
    if failed and len(failed) == len(answers) and _is_same(failed):
        return problem_answer(failed[0], instance)
    if posted.is_single:
        return json_answer(_place(answers[0]), status, headers)
    body = b",".join([_place(each) for each in answers])
    return json_answer(b'{"messages":[%b]}' % body, 207 if failed else status, headers)


def _is_same(failed: Sequence[SparrowError]) -> bool:
    return len({(each.code, each.text) for each in failed}) == 1


def _place(answer: Answer) -> bytes:
    if isinstance(answer, Stored):
        return b'{"partition":%d,"offset":%d,"timestamp_ms":%d}' % answer
    return msgspec.json.encode({"error": problem_of(answer)})
