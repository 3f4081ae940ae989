"""What a publisher asks of the queues that will read a message, as headers of the message: when it is delivered, how urgently, after which others.

The same options as the Sparrow client's, by the same names but for the unit: `priority`, `delay_ms`, `deliver_at_ms`, `ttl_ms`, `expires_at_ms`, `message_id`,
`parents`. Spans count from when the request arrived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparrow.base.errors import InvalidArgument
from sparrow.records.wellknown import (
    DELIVER_AT,
    EXPIRES_AT,
    MAX_TIME_MS,
    MESSAGE_ID,
    PARENT_ID,
    PRIORITY,
    format_priority,
    format_text,
    format_time_ms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Header = tuple[str, bytes | None]


class Wanted(NamedTuple):
    """The options; None is as good as leaving one out."""

    priority: int | None = None
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    ttl_ms: int | None = None
    expires_at_ms: int | None = None
    message_id: str | None = None
    parents: Sequence[str] | None = None


NOTHING = Wanted()


def with_wanted(headers: Sequence[Header], wanted: Wanted, now_ms: int) -> Sequence[Header]:
    """The headers of a message, and those that say what is wanted.

    Raises:
        InvalidArgument: options that contradict each other or a header, or are out of range; an empty id.
    """
    if wanted == NOTHING:
        return headers
    added = [*_times(wanted, now_ms), *_others(wanted)]
    twice = {name for name, _ in headers} & {name for name, _ in added}
    if twice:
        raise InvalidArgument(
            f"the header {min(twice)!r} is given, and so is the option that sets it; give one of them"
        )
    return [*headers, *added]


def _times(wanted: Wanted, now_ms: int) -> list[Header]:
    deliver_at_ms = _time("deliver_at_ms", wanted.deliver_at_ms, ("delay_ms", wanted.delay_ms, 0), now_ms)
    expires_at_ms = _time("expires_at_ms", wanted.expires_at_ms, ("ttl_ms", wanted.ttl_ms, 1), now_ms)
    if deliver_at_ms and expires_at_ms and expires_at_ms <= deliver_at_ms:
        raise InvalidArgument(
            f"the message would expire before it may be delivered: at {expires_at_ms}, not before {deliver_at_ms} (ms since 1970)"
        )
    times = ((DELIVER_AT, deliver_at_ms), (EXPIRES_AT, expires_at_ms))
    return [(name, format_time_ms(time_ms)) for name, time_ms in times if time_ms]


def _time(at: str, at_ms: int | None, span: tuple[str, int | None, int], now_ms: int) -> int:
    """The time that one of two options says; 0 if there is none to wait for. `span`: name, value, least value."""
    name, span_ms, least_ms = span
    if at_ms is not None and span_ms is not None:
        raise InvalidArgument(
            f"{at} and {name} are both given; they are two ways to say the same, give one of them"
        )
    if at_ms is not None:
        return _within(at, at_ms, 1, MAX_TIME_MS)
    if span_ms is None:
        return 0
    span_ms = _within(name, span_ms, least_ms, MAX_TIME_MS - now_ms)
    return now_ms + span_ms if span_ms else 0


def _within(name: str, number: int, least: int, most: int) -> int:
    if least <= number <= most:
        return number
    raise InvalidArgument(f"{name} is {number}; it is from {least} to {most}")


def _others(wanted: Wanted) -> list[Header]:
    added: list[Header] = []
    if wanted.priority is not None:
        added.append((PRIORITY, format_priority(wanted.priority)))
    if wanted.message_id is not None:
        added.append((MESSAGE_ID, format_text(wanted.message_id)))
    added += [(PARENT_ID, format_text(parent)) for parent in wanted.parents or ()]
    return added
