"""Messages as lines of JSON, in and out; what `consume --format json` writes, `publish --ndjson`
reads.

    {"value": "…", "key": "…", "headers": {"name": "…"}, "partition": 0, "timestamp": 1700000000000}

A value, key or header value is a string (UTF-8), null, or {"base64": "…"} for other bytes. Headers
whose names repeat are a list of [name, value]. `timestamp` is ms since the epoch, or a time as ISO
8601. Only `value` is required; `topic` and `offset`, which `consume` writes, and `queue`, which
`queue peek` and `queue lease` write, are accepted and mean nothing to `publish`.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

import msgspec

from sparrow.base.errors import InvalidRecord
from sparrow.cli.times import parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.records.record import Record

Headers = tuple[tuple[str, bytes | None], ...]


class MessageToPublish(msgspec.Struct, frozen=True):
    """One message to publish; None where a member was left out."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None


class _Bytes(msgspec.Struct, forbid_unknown_fields=True):
    base64: str


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    value: str | _Bytes | None
    key: str | _Bytes | None = None
    headers: dict[str, str | _Bytes | None] | list[tuple[str, str | _Bytes | None]] = {}
    partition: int | None = None
    timestamp: int | str | None = None
    topic: str | None = None
    offset: int | None = None
    queue: object = None


_decode = msgspec.json.Decoder(_Message).decode
_encode = msgspec.json.Encoder().encode


def parse_line(line: bytes) -> MessageToPublish:
    """Parse one line of NDJSON.

    Raises:
        InvalidRecord: says what is wrong with the line.
    """
    try:
        found = _decode(line)
        pairs = found.headers.items() if isinstance(found.headers, dict) else found.headers
        return MessageToPublish(
            value=_to_bytes(found.value),
            key=_to_bytes(found.key),
            headers=tuple((name, _to_bytes(value)) for name, value in pairs),
            partition=found.partition,
            timestamp_ms=parse_time_ms(found.timestamp) if found.timestamp is not None else None,
        )
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidRecord(f"not a message as JSON: {error}") from None


def _to_bytes(given: str | _Bytes | None) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        return given.encode()
    try:
        return base64.b64decode(given.base64, validate=True)
    except binascii.Error as error:
        raise ValueError(f"base64 that is none ({error})") from None


def format_line(record: Record, queue: Mapping[str, object] | None = None) -> bytes:
    """Format one record as a line of JSON, without the line's end. A record that was read from a
    file alone has no topic.

    Args:
        queue: the queue's state of the record.
    """
    shown: dict[str, object] = {"topic": record.topic, "partition": record.partition} if record.topic else {}
    shown |= {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _to_json(record.key),
        "value": _to_json(record.value),
    }
    if record.headers:
        shown["headers"] = _headers_to_json(record.headers)
    if queue is not None:
        shown["queue"] = queue
    return _encode(shown)


def _to_json(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _headers_to_json(headers: Headers) -> object:
    pairs = [(name, _to_json(value)) for name, value in headers]
    return dict(pairs) if len({name for name, _ in pairs}) == len(pairs) else pairs
