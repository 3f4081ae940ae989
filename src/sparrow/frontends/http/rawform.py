"""One message as a raw body: the value is the body, everything else is in HTTP headers.

    Sparrow-Key, Sparrow-Key-Base64   the key; neither: no key
    Sparrow-Header-NAME               a header of the message; its name is in lower case,
                                      as HTTP names have no case
    Sparrow-Headers                   all headers of the message as JSON,
                                      [["name", "value"], …] as `record_json` has them:
                                      for those that HTTP cannot carry
    Sparrow-Priority, -Delay-Ms, …    options for queues (`records/delivery_options.py`)
    Sparrow-Timestamp-Ms              its time
    Sparrow-Null                      "true": the value is null (a tombstone), the body empty
    Content-Type, traceparent,        become headers of the message with the same names,
    tracestate                        unless Sparrow-Headers has them all

Responses have `Sparrow-Topic`, `-Partition` and `-Offset` as well. A stored page must not run
scripts under the broker's address, so responses carry headers that make browsers show them in a
sandbox, without guessing their type.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.base.errors import InvalidArgument
from sparrow.frontends.http.responses import Response
from sparrow.frontends.publisher import Message
from sparrow.frontends.record_json import json_headers
from sparrow.records.delivery_options import DeliveryOptions, with_delivery_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sparrow.protocol.http.heads import Headers
    from sparrow.records.record import Record

    Header = tuple[str, bytes | None]


class Base64(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes in JSON that are not text."""

    base64: str


HeaderValue = str | Base64 | None
HeaderPairs = list[tuple[str, HeaderValue]] | dict[str, HeaderValue]

_PREFIX: Final = b"sparrow-"
_HEADER_PREFIX: Final = b"sparrow-header-"
_UNSPECIFIC_TYPES: Final = frozenset({"", "application/x-www-form-urlencoded", "application/octet-stream"})
"""Content types that are not stored: none, curl's default for a body, and the type of any bytes."""
_TRACING: Final = (b"traceparent", b"tracestate")
_HEADERS: Final = b"sparrow-headers"
_KEY: Final = b"sparrow-key"
_KEY_BASE64: Final = b"sparrow-key-base64"
_NULL: Final = b"sparrow-null"
_TIMESTAMP: Final = b"sparrow-timestamp-ms"
_MAX_DIGITS: Final = 20
_decode_pairs: Final = msgspec.json.Decoder(HeaderPairs).decode

# ── in ────────────────────────────────────────────────────────────────────────────────────────────


def message_of_headers(
    body: bytes, content_type: str, headers: Sequence[tuple[bytes, bytes]], now_ms: int
) -> Message:
    """Return the message that a body and the headers of its request describe.

    Args:
        content_type: as it was sent, "" if it was not.
        headers: of the request, with names in lower case.
        now_ms: the time from which delays count.

    Raises:
        InvalidArgument: a header has an impossible value.
    """
    own: list[Header] = []
    given: dict[bytes, bytes] = {}
    for name, value in headers:
        if name.startswith(_HEADER_PREFIX):
            own.append((name[len(_HEADER_PREFIX) :].decode("latin-1"), value))
        elif name.startswith(_PREFIX):
            if name in given:
                raise InvalidArgument(f"the header {name.decode('latin-1')} is given twice; give it once")
            given[name] = value
        elif name in _TRACING:
            own.append((name.decode(), value))
    _add_content_type(own, content_type)
    return _with_options(body, own, given, now_ms) if given else Message(body, None, own)


def _add_content_type(own: list[Header], content_type: str) -> None:
    if content_type.partition(";")[0].strip().lower() in _UNSPECIFIC_TYPES:
        return
    if all(name != "content-type" for name, _ in own):
        own.append(("content-type", content_type.encode("latin-1", "replace")))


def _with_options(body: bytes, own: list[Header], given: Mapping[bytes, bytes], now_ms: int) -> Message:
    unknown = given.keys() - _KNOWN
    if unknown:
        raise InvalidArgument(
            f"unknown header {min(unknown).decode('latin-1')}; send headers of the message as "
            "Sparrow-Header-NAME"
        )
    if _HEADERS in given:
        own = _all_headers(own, given[_HEADERS])
    values: dict[str, Any] = {
        member: read(name.decode(), given[name]) for name, (member, read) in _OPTIONS.items() if name in given
    }
    timestamp_ms = _number("sparrow-timestamp-ms", given[_TIMESTAMP]) if _TIMESTAMP in given else -1
    return Message(
        _value(body, given),
        _key(given),
        with_delivery_options(own, DeliveryOptions(**values), now_ms),
        check_timestamp(timestamp_ms),
    )


def _all_headers(own: Sequence[Header], text: bytes) -> list[Header]:
    if any(name not in {"content-type", "traceparent", "tracestate"} for name, _ in own):
        raise InvalidArgument(
            "Sparrow-Headers has all headers of the message; remove the Sparrow-Header-NAME headers"
        )
    try:
        return pairs_of(_decode_pairs(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidArgument(f'Sparrow-Headers is not JSON like [["name", "value"]]: {error}') from None


def pairs_of(given: HeaderPairs) -> list[Header]:
    """Return headers of a message from JSON.

    Raises:
        InvalidArgument: invalid base64.
        UnicodeEncodeError: the text cannot be encoded in UTF-8.
    """
    pairs = given.items() if isinstance(given, dict) else given
    return [(name, _header_value(value)) for name, value in pairs]


def _header_value(value: HeaderValue) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    return None if value is None else from_base64(value.base64)


def _value(body: bytes, given: Mapping[bytes, bytes]) -> bytes | None:
    if given.get(_NULL, b"false").lower() != b"true":
        return body
    if body:
        raise InvalidArgument("Sparrow-Null is given with a body; send one of them")
    return None


def _key(given: Mapping[bytes, bytes]) -> bytes | None:
    key, encoded = given.get(_KEY), given.get(_KEY_BASE64)
    if encoded is None:
        return key
    if key is not None:
        raise InvalidArgument("Sparrow-Key and Sparrow-Key-Base64 are both given; give one of them")
    return from_base64(encoded)


def from_base64(text: str | bytes) -> bytes:
    """Decode base64.

    Raises:
        InvalidArgument: invalid base64.
    """
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument(f"invalid base64: {error}") from None


def check_timestamp(timestamp_ms: int) -> int:
    """Return the timestamp if it is valid for a record; -1 means now.

    Raises:
        InvalidArgument: out of range.
    """
    if -1 <= timestamp_ms < 1 << 62:
        return timestamp_ms
    raise InvalidArgument(f"timestamp_ms is {timestamp_ms}; it must be ms since 1970, or -1 for now")


def _number(name: str, value: bytes) -> int:
    digits = value[1:] if value.startswith(b"-") else value
    if not digits.isdigit() or len(digits) > _MAX_DIGITS:
        raise InvalidArgument(f"{name} is {value.decode('latin-1')!r}; it must be a whole number")
    return int(value)


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidArgument(f"{name} is not UTF-8") from None


def _texts(name: str, value: bytes) -> list[str]:
    return [each.strip() for each in _text(name, value).split(",")]


_OPTIONS: Final[dict[bytes, tuple[str, Callable[[str, bytes], Any]]]] = {
    b"sparrow-priority": ("priority", _number),
    b"sparrow-delay-ms": ("delay_ms", _number),
    b"sparrow-deliver-at-ms": ("deliver_at_ms", _number),
    b"sparrow-ttl-ms": ("ttl_ms", _number),
    b"sparrow-expires-at-ms": ("expires_at_ms", _number),
    b"sparrow-message-id": ("message_id", _text),
    b"sparrow-parent-ids": ("parents", _texts),
}
_STORED: Final = frozenset({b"sparrow-topic", b"sparrow-partition", b"sparrow-offset"})
"""Headers of a record that was read; they are ignored, so that it can be published unchanged."""
_KNOWN: Final = frozenset({*_OPTIONS, *_STORED, _HEADERS, _KEY, _KEY_BASE64, _NULL, _TIMESTAMP})

# ── out ───────────────────────────────────────────────────────────────────────────────────────────

OCTETS: Final = b"application/octet-stream"
_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(rb"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")
_SAFE: Final[Headers] = [
    (b"content-security-policy", b"sandbox; default-src 'none'; frame-ancestors 'none'"),
]


def raw_response(record: Record, extra_headers: Iterable[tuple[bytes, bytes]] = ()) -> Response:
    """Return the record as a raw body."""
    headers: Headers = [
        (b"content-type", _content_type(record)),
        *_SAFE,
        (b"sparrow-topic", record.topic.encode()),
        (b"sparrow-partition", b"%d" % record.partition),
        (b"sparrow-offset", b"%d" % record.offset),
        (_TIMESTAMP, b"%d" % record.timestamp),
        *_shown_key(record.key),
        *_shown_headers(record),
        *extra_headers,
    ]
    if record.value is None:
        headers.append((_NULL, b"true"))
    return Response(200, headers, record.value or b"")


def _content_type(record: Record) -> bytes:
    given = [value for name, value in record.headers if name == "content-type"]
    is_plain = given and given[-1] is not None and given[-1] and _VALUE.fullmatch(given[-1])
    return given[-1] or OCTETS if is_plain else OCTETS


def _shown_key(key: bytes | None) -> Headers:
    if key is None:
        return []
    if _VALUE.fullmatch(key):
        return [(_KEY, key)]
    return [(_KEY_BASE64, b64encode(key))]


def _shown_headers(record: Record) -> Headers:
    """Return one HTTP header per header, or all of them as JSON where HTTP would lose something."""
    if all(_is_plain(name, value) for name, value in record.headers):
        return [(_HEADER_PREFIX + name.encode(), value or b"") for name, value in record.headers]
    return [(_HEADERS, _ascii(msgspec.json.encode(json_headers(record.headers))))]


def _is_plain(name: str, value: bytes | None) -> bool:
    return value is not None and bool(_NAME.fullmatch(name) and _VALUE.fullmatch(value))


def _ascii(text: bytes) -> bytes:
    """Escape the characters of JSON that an HTTP header cannot have; all of them are inside of
    texts.
    """
    return re.sub(r"[^\x20-\x7e]", lambda found: _escaped(found.group()), text.decode()).encode()


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))
