"""A record as JSON, as every door that speaks JSON shows it.

    {"topic": "orders", "partition": 0, "offset": 17, "timestamp_ms": 1700000000000,
     "key": "customer-7", "value": "an order", "headers": [["content-type", "text/plain"], ["trace", null]]}

JSON has text only. So key, value and the values of headers are text where they are UTF-8; what is not stands in base64 under a name that says so
(`key_base64`, `value_base64`; of a header `["name", {"base64": "…"}]`), and null stays null. A reader sees at the name which of the two it has, and
nothing is lost: read back, the bytes are the same. Who would rather have one form for all asks for base64 throughout.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.records.record import Record

JsonHeaders = list[list[object]]
"""[name, value] each; the value is text, null, or {"base64": text}."""
encode: Final = msgspec.json.Encoder().encode
"""JSON of what `members_of_record` gives."""


def members_of_record(record: Record, *, as_base64: bool = False) -> dict[str, object]:
    """The members of the object that a record is; `as_base64`: whatever could be text as well."""
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
    """Add `name` with the text that the bytes are, or `name_base64`."""
    text = None if content is None or as_base64 else maybe_text(content)
    if content is None or text is not None:
        members[name] = text
    else:
        members[f"{name}_base64"] = b64encode(content).decode()


def json_headers(headers: Iterable[tuple[str, bytes | None]], *, as_base64: bool = False) -> JsonHeaders:
    """The headers of a record, in their order."""
    return [[name, _header_value(value, as_base64=as_base64)] for name, value in headers]


def _header_value(value: bytes | None, *, as_base64: bool) -> object:
    if value is None:
        return None
    text = None if as_base64 else maybe_text(value)
    return text if text is not None else {"base64": b64encode(value).decode()}


def maybe_text(content: bytes) -> str | None:
    """The text that the bytes are in UTF-8; None if they are none."""
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError:
        return None
