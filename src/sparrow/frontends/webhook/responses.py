"""Meaning of an endpoint's response for the record. Pure.

accepted          2xx (for endpoints that must confirm in the body: 2xx with the body `true`)
410               the endpoint is gone: nothing more is sent to it
Retry-After       of 429, 503 and any other failure: no delivery before that time
everything else   a failure; the record is tried again after its backoff
"""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from sparrow.broker.webhooks.endpoint import BODY_TRUE

MAX_RETRY_AFTER_S: Final = 3600.0
_SHOWN_BYTES: Final = 200
_GONE: Final = 410


class EndpointResponse(NamedTuple):
    """The response of an endpoint."""

    status: int
    body: bytes
    """The first bytes of the body."""
    retry_after: str = ""
    location: str = ""


class DeliveryOutcome(NamedTuple):
    """The outcome of a delivery."""

    is_accepted: bool = False
    text: str = ""
    """The reason of a failure."""
    is_gone: bool = False
    retry_after_s: float = 0.0
    was_reached: bool = True
    """True if the request was sent; otherwise the endpoint cannot have seen the record."""


ACCEPTED: Final = DeliveryOutcome(is_accepted=True)


def judge(response: EndpointResponse, accepts: str, now_ms: int) -> DeliveryOutcome:
    """Return the outcome of a response; `accepts` is the endpoint's setting."""
    is_good = 200 <= response.status < 300
    if is_good and (accepts != BODY_TRUE or response.body.strip() == b"true"):
        return ACCEPTED
    text = f"HTTP {response.status}: {_shown(response.body)}".removesuffix(": ")
    if is_good:
        text = f"the endpoint did not answer `true` but {_shown(response.body) or 'nothing'}"
    return DeliveryOutcome(
        text=text,
        is_gone=response.status == _GONE,
        retry_after_s=0.0 if is_good else parse_retry_after_s(response.retry_after, now_ms),
    )


def _shown(body: bytes) -> str:
    """Return the start of a body, without characters that a log or a header cannot show."""
    text = body[:_SHOWN_BYTES].decode(errors="replace")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def parse_retry_after_s(value: str, now_ms: int) -> float:
    """Return the seconds of a Retry-After (RFC 9110: seconds, or a date), at most an hour; 0 if it
    has no valid value.
    """
    value = value.strip()
    if value.isascii() and value.isdecimal():
        return min(float(value[:10]), MAX_RETRY_AFTER_S)
    try:
        date = parsedate_to_datetime(value)
        at_s = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0.0
    return min(max(0.0, at_s - now_ms / 1000), MAX_RETRY_AFTER_S)
