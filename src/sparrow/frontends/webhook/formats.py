"""Request bodies and headers: a record in one of the formats that an endpoint may choose.

raw                  the value itself; everything else in headers (`sparrow-…`)
json                 an object: the record as in `record_json.py`, and the delivery
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
"""Limit for the headers of a record in a request; servers accept 8 KiB in all, or little more."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,128}")
"""Lower-case header names: HTTP ignores case, so others would be changed."""
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_MEDIA_TYPE: Final = re.compile(
    rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}/[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}([ ;][ -~]{0,160})?"
)
_PRINTABLE: Final = re.compile(rb"[!-~]([ -~]{0,2000}[!-~])?")
_TRACES: Final = ("traceparent", "tracestate")
"""Headers of W3C Trace Context: the trace continues at the endpoint."""


class WebhookDelivery(NamedTuple):
    """A record to deliver to an endpoint."""

    record: Record
    queue: str
    subscriber: str
    delivery_count: int
    message_id: str


class Payload(NamedTuple):
    """The body of a request and its headers."""

    content_type: str
    body: bytes
    headers: HttpHeaders


def render(delivery: WebhookDelivery, form: str) -> Payload:
    """Return the request for a record in the format `form`."""
    return _FORMATS[form](delivery)


def content_type_of(record: Record) -> str:
    """Return the content type in the record's header; "" if it is missing or not valid in HTTP."""
    value = header_of(record, "content-type")
    return value.decode() if value is not None and _MEDIA_TYPE.fullmatch(value) else ""


def header_of(record: Record, name: str) -> bytes | None:
    """Return the last value of a header, ignoring the case of its name."""
    for each, value in reversed(record.headers):
        if len(each) == len(name) and each.lower() == name:
            return value
    return None


def header_text(text: str) -> str:
    """Return text in a form for a header: percent-encoded unless it is plain."""
    plain = text.isascii() and text.isprintable() and text == text.strip()
    return text if plain else quote(text, safe="")


def trace_headers(record: Record) -> HttpHeaders:
    """Return the trace headers of a record."""
    found = [(name, header_of(record, name)) for name in _TRACES]
    return [(name, value.decode()) for name, value in found if value and _PRINTABLE.fullmatch(value)]


# ── raw ───────────────────────────────────────────────────────────────────────────────────────────


def _raw(delivery: WebhookDelivery) -> Payload:
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
    """Add the key unless it is too long. Return the bytes that it takes."""
    if not key or _PRINTABLE.fullmatch(key):
        headers.append(("sparrow-key", key.decode()))
    elif len(key) <= MAX_HEADER_BYTES // 2:
        headers.append(("sparrow-key-base64", b64encode(key).decode()))
    else:
        headers.append(("sparrow-key-omitted", str(len(key))))
    return len(headers[-1][1])


def _put_headers(headers: HttpHeaders, record: Record, room: int) -> None:
    """Add the record's headers: one by one, or all as JSON if HTTP would change them. If they are
    too large, add only their number.
    """
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


def _json(delivery: WebhookDelivery) -> Payload:
    members = members_of_record(delivery.record)
    members["queue"] = delivery.queue
    if delivery.subscriber:
        members["subscriber"] = delivery.subscriber
    members["delivery_count"] = delivery.delivery_count
    return Payload("application/json", encode(members), trace_headers(delivery.record))


def _syncbrok(delivery: WebhookDelivery) -> Payload:
    content = b64encode(delivery.record.value or b"").decode()
    return Payload("application/json", encode({"id": _as_uuid(delivery.message_id), "content": content}), [])


def _as_uuid(message_id: str) -> str:
    """Return the id if it is a UUID, else a UUID derived from it: Syncbrok's endpoints know no
    other ids.
    """
    return message_id if _UUID.fullmatch(message_id) else str(uuid5(NAMESPACE_URL, message_id))


def _cloud_event(delivery: WebhookDelivery) -> Payload:
    from sparrow.frontends.webhook import cloud_events

    return cloud_events.structured(delivery)


def _binary_cloud_event(delivery: WebhookDelivery) -> Payload:
    from sparrow.frontends.webhook import cloud_events

    return cloud_events.binary(delivery)


_FORMATS: Final[dict[str, Callable[[WebhookDelivery], Payload]]] = {
    settings.RAW: _raw,
    settings.JSON: _json,
    settings.CLOUDEVENTS: _cloud_event,
    settings.CLOUDEVENTS_BINARY: _binary_cloud_event,
    settings.SYNCBROK: _syncbrok,
}
