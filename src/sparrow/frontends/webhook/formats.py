"""What is POSTed: a record in one of the formats that an endpoint may have.

raw                  the value as it is; all about it in headers (`sparrow-…`)
json                 an object: the record as `record_json.py` has it, and what the delivery is
cloudevents          CloudEvents 1.0, structured (`cloud_events.py`)
cloudevents-binary   CloudEvents 1.0, binary
syncbrok             {"id": a UUID, "content": base64 of the value}, as Syncbrok sends it
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from sparrow.broker.webhooks import endpoint as settings
from sparrow.frontends.record_json import encode, json_headers, members_of_record

if TYPE_CHECKING:
    from sparrow.records.record import Record

HttpHeaders = list[tuple[str, str]]
OCTETS: Final = "application/octet-stream"
MAX_HEADERS: Final = 64
MAX_HEADER_BYTES: Final = 6 << 10
"""What the headers of a record may take of a request; servers take 8 KiB in all, or little more."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,128}")
"""Names that HTTP carries, in whose letters nothing is lost: it knows no case."""
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_MEDIA_TYPE: Final = re.compile(
    rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}/[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}([ ;][ -~]{0,160})?"
)
_PRINTABLE: Final = re.compile(rb"[!-~]([ -~]{0,2000}[!-~])?")
_TRACES: Final = ("traceparent", "tracestate")
"""W3C Trace Context: a trace goes on at the endpoint."""


class Delivery(NamedTuple):
    """A record on its way to an endpoint."""

    record: Record
    queue: str
    subscriber: str
    delivery_count: int
    message_id: str


class Payload(NamedTuple):
    """A request's body and the headers that belong to it."""

    content_type: str
    body: bytes
    headers: HttpHeaders


def render(delivery: Delivery, form: str) -> Payload:
    """The request that a record is in a format."""
    return _FORMATS[form](delivery)


def content_type_of(record: Record) -> str:
    """The content type that a record says it has in its header; "" where it says none that HTTP can carry."""
    value = header_of(record, "content-type")
    return value.decode() if value is not None and _MEDIA_TYPE.fullmatch(value) else ""


def header_of(record: Record, name: str) -> bytes | None:
    """The last value of a header whose name is this, in whatever letters."""
    for each, value in reversed(record.headers):
        if len(each) == len(name) and each.lower() == name:
            return value
    return None


def header_text(text: str) -> str:
    """Text as a header can carry it: percent-encoded where it is not plain."""
    plain = text.isascii() and text.isprintable() and text == text.strip()
    return text if plain else quote(text, safe="")


def trace_headers(record: Record) -> HttpHeaders:
    """The trace that a record belongs to."""
    found = [(name, header_of(record, name)) for name in _TRACES]
    return [(name, value.decode()) for name, value in found if value and _PRINTABLE.fullmatch(value)]


# ── raw ───────────────────────────────────────────────────────────────────────────────────────────


def _raw(delivery: Delivery) -> Payload:
    record = delivery.record
    headers = [
        ("sparrow-queue", header_text(delivery.queue)),
        ("sparrow-topic", record.topic),
        ("sparrow-partition", str(record.partition)),
        ("sparrow-offset", str(record.offset)),
        ("sparrow-timestamp-ms", str(record.timestamp)),
        ("sparrow-delivery-count", str(delivery.delivery_count)),
    ]
    if delivery.subscriber:
        headers.append(("sparrow-subscriber", header_text(delivery.subscriber)))
    if record.value is None:
        headers.append(("sparrow-null", "true"))
    room = MAX_HEADER_BYTES
    if record.key is not None:
        room -= _put_key(headers, record.key)
    if record.headers:
        _put_headers(headers, record, room)
        headers += trace_headers(record)
    return Payload(content_type_of(record) or OCTETS, record.value or b"", headers)


def _put_key(headers: HttpHeaders, key: bytes) -> int:
    """Add the key if it is not too long; returns what it takes."""
    if not key or _PRINTABLE.fullmatch(key):
        headers.append(("sparrow-key", key.decode()))
    elif len(key) <= MAX_HEADER_BYTES // 2:
        headers.append(("sparrow-key-base64", b64encode(key).decode()))
    else:
        headers.append(("sparrow-key-omitted", str(len(key))))
    return len(headers[-1][1])


def _put_headers(headers: HttpHeaders, record: Record, room: int) -> None:
    """Add the record's headers: each by itself, or all as JSON where HTTP would lose something; how many are left out is said."""
    if all(_is_plain(name, value) for name, value in record.headers):
        pairs = [(f"sparrow-header-{name}", (value or b"").decode()) for name, value in record.headers]
    else:
        pairs = [("sparrow-headers", json.dumps(json_headers(record.headers)))]
    size = sum(len(name) + len(value) for name, value in pairs)
    if size <= room and len(pairs) <= MAX_HEADERS:
        headers += pairs
    else:
        headers.append(("sparrow-headers-omitted", str(len(record.headers))))


def _is_plain(name: str, value: bytes | None) -> bool:
    return (
        value is not None
        and bool(_TOKEN.fullmatch(name))
        and (not value or bool(_PRINTABLE.fullmatch(value)))
    )


# ── json, syncbrok ────────────────────────────────────────────────────────────────────────────────


def _json(delivery: Delivery) -> Payload:
    members = members_of_record(delivery.record)
    members["queue"] = delivery.queue
    if delivery.subscriber:
        members["subscriber"] = delivery.subscriber
    members["delivery_count"] = delivery.delivery_count
    return Payload("application/json", encode(members), trace_headers(delivery.record))


def _syncbrok(delivery: Delivery) -> Payload:
    content = b64encode(delivery.record.value or b"").decode()
    return Payload("application/json", encode({"id": _as_uuid(delivery.message_id), "content": content}), [])


def _as_uuid(message_id: str) -> str:
    """The id itself if it is a UUID; else one that is made of it, always the same: Syncbrok's endpoints know no other ids."""
    return message_id if _UUID.fullmatch(message_id) else str(uuid5(NAMESPACE_URL, message_id))


def _cloud_event(delivery: Delivery) -> Payload:
    from sparrow.frontends.webhook import cloud_events

    return cloud_events.structured(delivery)


def _binary_cloud_event(delivery: Delivery) -> Payload:
    from sparrow.frontends.webhook import cloud_events

    return cloud_events.binary(delivery)


_FORMATS: Final[dict[str, Callable[[Delivery], Payload]]] = {
    settings.RAW: _raw,
    settings.JSON: _json,
    settings.CLOUDEVENTS: _cloud_event,
    settings.CLOUDEVENTS_BINARY: _binary_cloud_event,
    settings.SYNCBROK: _syncbrok,
}
