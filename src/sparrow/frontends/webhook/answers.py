"""What an endpoint's answer means for the record. Pure.

accepted              2xx (or, where the endpoint is to say so, the body `true`)
410                   the endpoint is gone: nothing more is sent to it
Retry-After           of 429 and 503, and of any other failure that has one: not before then
everything else       a failure; the record is tried again after its backoff
"""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from sparrow.broker.webhooks.endpoint import BODY_TRUE

LONGEST_HOLD_S: Final = 3600.0
_SHOWN_BYTES: Final = 200
_GONE: Final = 410


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes
    """The first bytes of it."""
    retry_after: str = ""
    location: str = ""


class Outcome(NamedTuple):
    """What it means."""

    is_accepted: bool = False
    text: str = ""
    """What went wrong."""
    is_gone: bool = False
    retry_after_s: float = 0.0
    was_reached: bool = True
    """Whether a connection was made and the request sent: else nobody can have seen the record."""


ACCEPTED: Final = Outcome(is_accepted=True)


def judge(answer: Answer, accepts: str, now_ms: int) -> Outcome:
    """What an answer means; `accepts` is the endpoint's setting."""
    is_good = 200 <= answer.status < 300
    if is_good and (accepts != BODY_TRUE or answer.body.strip() == b"true"):
        return ACCEPTED
    text = f"HTTP {answer.status}: {_shown(answer.body)}".removesuffix(": ")
    if is_good:
        text = f"the endpoint did not answer `true` but {_shown(answer.body) or 'nothing'}"
    return Outcome(
        text=text,
        is_gone=answer.status == _GONE,
        retry_after_s=0.0 if is_good else parse_retry_after_s(answer.retry_after, now_ms),
    )


def _shown(body: bytes) -> str:
    """The first words of a body, without what a log or a header could not show."""
    text = body[:_SHOWN_BYTES].decode(errors="replace")
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def parse_retry_after_s(value: str, now_ms: int) -> float:
    """Seconds that a Retry-After says (RFC 9110: seconds, or a date), at most an hour; 0 where it says none."""
    value = value.strip()
    if value.isascii() and value.isdecimal():
        return min(float(value[:10]), LONGEST_HOLD_S)
    try:
        date = parsedate_to_datetime(value)
        at_s = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0.0
    return min(max(0.0, at_s - now_ms / 1000), LONGEST_HOLD_S)
