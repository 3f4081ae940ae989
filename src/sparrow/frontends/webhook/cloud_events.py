"""A record as a CloudEvent 1.0, in the structured and in the binary mode of the HTTP binding.

    id               the message's own id, else topic/partition/offset
    source           /topics/TOPIC
    type             sparrow.message
    subject          the key, if it is text
    time             the record's timestamp
    datacontenttype  the record's header content-type; without one, text/plain if the value is text,
                     else application/octet-stream

and the extensions `partitionkey` (the key), `traceparent`, `tracestate`, `sparrowqueue`,
`sparrowpartition`, `sparrowoffset` (text, as it may exceed 32 bits), `sparrowdeliverycount`
and `sparrowparents` (ids separated by commas).

A record that is a CloudEvent already, as the Kafka binding writes it (headers `ce_id`, `ce_source`,
`ce_type`, `ce_specversion`), keeps its own attributes.
"""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from sparrow.frontends.record_json import encode, maybe_text
from sparrow.frontends.webhook.payload import (
    MAX_HEADER_BYTES,
    OCTETS,
    HttpHeaders,
    Payload,
    content_type_of,
    trace_headers,
)
from sparrow.records.wellknown import PARENT_ID, parse_text

if TYPE_CHECKING:
    from sparrow.frontends.webhook.payload import WebhookDelivery
    from sparrow.records.record import Record

Attributes = dict[str, str | int]
_TYPE: Final = "sparrow.message"
_VERSION: Final = "1.0"
_PREFIX: Final = "ce_"
_REQUIRED: Final = ("id", "source", "type", "specversion")
_NAME: Final = re.compile(r"[a-z0-9]{1,40}")
_UNSAFE: Final = re.compile(r"[^!#-$&-~]")
"""Characters that the binary mode percent-encodes in a header: space, quote, percent and all that
is not printable ASCII.
"""
_LONGEST: Final = 2000


def structured(delivery: WebhookDelivery) -> Payload:
    """Return one JSON object that contains the data."""
    attributes = _attributes(delivery)
    event: dict[str, object] = dict(attributes)
    value = delivery.record.value
    if value is not None:
        content_type = str(attributes.get("datacontenttype", ""))
        data = _maybe_json(value) if _is_json(content_type) else _maybe_readable(value, content_type)
        if data is None:
            event["data_base64"] = b64encode(value).decode()
        else:
            event["data"] = data
    return Payload("application/cloudevents+json", encode(event), [])


def binary(delivery: WebhookDelivery) -> Payload:
    """Return the value as the body, and the attributes as headers."""
    attributes = _attributes(delivery)
    content_type = str(attributes.pop("datacontenttype", OCTETS))
    headers: HttpHeaders = []
    room = MAX_HEADER_BYTES
    for name, value in attributes.items():
        text = _UNSAFE.sub(_quoted, str(value))
        room -= len(name) + len(text)
        if room >= 0 or name in _REQUIRED:
            headers.append((f"ce-{name}", text))
    return Payload(content_type, delivery.record.value or b"", headers + trace_headers(delivery.record))


def _quoted(found: re.Match[str]) -> str:
    return quote(found[0], safe="")


def _maybe_json(value: bytes) -> msgspec.Raw | None:
    """Return the value unchanged if it is JSON, else None."""
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return msgspec.Raw(value)


def _maybe_readable(value: bytes, content_type: str) -> str | None:
    return maybe_text(value) if content_type.startswith("text/") else None


def _is_json(content_type: str) -> bool:
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type.endswith(("/json", "+json"))


def _attributes(delivery: WebhookDelivery) -> Attributes:
    record = delivery.record
    attributes = _own(record) or _made(delivery)
    content_type = content_type_of(record)
    if record.value is not None:
        is_text = not content_type and maybe_text(record.value) is not None
        attributes["datacontenttype"] = content_type or ("text/plain" if is_text else OCTETS)
    for name, trace in trace_headers(record):
        attributes.setdefault(name, trace)
    attributes["sparrowqueue"] = delivery.queue
    attributes["sparrowpartition"] = record.partition
    attributes["sparrowoffset"] = str(record.offset)
    attributes["sparrowdeliverycount"] = delivery.delivery_count
    parents = [parse_text(value) for name, value in record.headers if name == PARENT_ID]
    if parents:
        attributes["sparrowparents"] = ",".join(parents)
    return attributes


def _made(delivery: WebhookDelivery) -> Attributes:
    record = delivery.record
    attributes: Attributes = {
        "specversion": _VERSION,
        "id": delivery.message_id,
        "source": f"/topics/{quote(record.topic)}",
        "type": _TYPE,
    }
    time = _time_of(record)
    if time:
        attributes["time"] = time
    key = maybe_text(record.key) if record.key and len(record.key) <= _LONGEST else None
    if key and key.isprintable():
        attributes["subject"] = attributes["partitionkey"] = key
    return attributes


def _own(record: Record) -> Attributes | None:
    """Return the attributes of a record that is a CloudEvent; None if it is none."""
    found: Attributes = {}
    for name, value in record.headers:
        attribute = name.removeprefix(_PREFIX)
        if attribute != name and _NAME.fullmatch(attribute) and value:
            text = maybe_text(value)
            if text and text.isprintable() and len(text) <= _LONGEST:
                found[attribute] = text
    # they describe the body that is sent; `data` is no attribute
    for name in ("datacontenttype", "data"):
        found.pop(name, None)
    is_one = all(name in found for name in _REQUIRED) and found["specversion"] == _VERSION
    return found if is_one else None


def _time_of(record: Record) -> str:
    """Return the timestamp as in RFC 3339; "" for times before 1970 or after 9999."""
    try:
        moment = datetime.fromtimestamp(record.timestamp // 1000, UTC) if record.timestamp >= 0 else None
    except (OverflowError, ValueError, OSError):
        moment = None
    if moment is None:
        return ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{record.timestamp % 1000:03d}Z"
