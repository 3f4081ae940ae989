"""A delivery, its request, and the fields that all formats take from the headers of a record."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from sparrow.records.record import Record

HttpHeaders = list[tuple[str, str]]
OCTETS: Final = "application/octet-stream"
MAX_HEADERS: Final = 64
MAX_HEADER_BYTES: Final = 6 << 10
"""Limit for the headers of a record in a request; servers accept 8 KiB in all, or little more."""
_MEDIA_TYPE: Final = re.compile(
    rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}/[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}([ ;][ -~]{0,160})?"
)
PRINTABLE: Final = re.compile(rb"[!-~]([ -~]{0,2000}[!-~])?")
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
    return [(name, value.decode()) for name, value in found if value and PRINTABLE.fullmatch(value)]
