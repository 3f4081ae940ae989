"""A record as JSON, in the form that all frontends share.

    {"topic": "orders", "partition": 0, "offset": 17, "timestamp_ms": 1700000000000,
     "key": "customer-7", "value": "an order",
     "headers": [["content-type", "text/plain"], ["trace", null]]}

JSON has text only. So key, value and the values of headers are text if they are UTF-8; otherwise
they are base64 under a name that says so (`key_base64`, `value_base64`; for a header `["name",
{"base64": "…"}]`). Null stays null. Nothing is lost: decoded by the form that the name shows, the
bytes are the same. Clients that prefer one form for all values can ask for base64 throughout.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.records.record import Record

JsonHeaders = list[list[object]]
"""A list of [name, value]; the value is text, null, or {"base64": text}."""
encode: Final = msgspec.json.Encoder().encode
"""Encodes the result of `members_of_record` as JSON."""


def members_of_record(record: Record, *, as_base64: bool = False) -> dict[str, object]:
    """Return a record as the members of a JSON object; with `as_base64`, text is written as base64,
    too.
    """
    members: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
    }
    put_bytes(members, "key", record.key, as_base64=as_base64)
    put_bytes(members, "value", record.value, as_base64=as_base64)
    members["headers"] = json_headers(record.headers, as_base64=as_base64)
    return members


def put_bytes(
    members: dict[str, object], name: str, content: bytes | None, *, as_base64: bool = False
) -> None:
    """Add `name` with the bytes as text, or `name_base64`."""
    text = None if content is None or as_base64 else maybe_text(content)
    if content is None or text is not None:
        members[name] = text
    else:
        members[f"{name}_base64"] = b64encode(content).decode()


def json_headers(headers: Iterable[tuple[str, bytes | None]], *, as_base64: bool = False) -> JsonHeaders:
    """Return the headers of a record, in order."""
    return [[name, _header_value(value, as_base64=as_base64)] for name, value in headers]


def _header_value(value: bytes | None, *, as_base64: bool) -> object:
    if value is None:
        return None
    text = None if as_base64 else maybe_text(value)
    return text if text is not None else {"base64": b64encode(value).decode()}


def maybe_text(content: bytes) -> str | None:
    """Decode UTF-8; return None if the bytes are not UTF-8."""
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError:
        return None
