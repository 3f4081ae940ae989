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
from typing import TYPE_CHECKING, Final
from uuid import NAMESPACE_URL, uuid5

from sparrow.broker.webhooks import endpoint as settings
from sparrow.frontends.record_json import encode, json_headers, members_of_record
from sparrow.frontends.webhook import cloud_events
from sparrow.frontends.webhook.payload import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    OCTETS,
    PRINTABLE,
    HttpHeaders,
    Payload,
    WebhookDelivery,
    content_type_of,
    header_text,
    trace_headers,
)

if TYPE_CHECKING:
    from sparrow.records.record import Record

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,128}")
"""Lower-case header names: HTTP ignores case, so others would be changed."""
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def render(delivery: WebhookDelivery, form: str) -> Payload:
    """Return the request for a record in the format `form`."""
    return _FORMATS[form](delivery)


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
    if not key or PRINTABLE.fullmatch(key):
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
        value is not None and bool(_TOKEN.fullmatch(name)) and (not value or bool(PRINTABLE.fullmatch(value)))
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


_FORMATS: Final[dict[str, Callable[[WebhookDelivery], Payload]]] = {
    settings.RAW: _raw,
    settings.JSON: _json,
    settings.CLOUDEVENTS: cloud_events.structured,
    settings.CLOUDEVENTS_BINARY: cloud_events.binary,
    settings.SYNCBROK: _syncbrok,
}
