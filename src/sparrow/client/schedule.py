"""Options of a message for the queues that will read it: when it is delivered, how urgently, after
which other messages. They travel in headers (`records/delivery_options.py`).

`publish` and `send` accept these options besides their own; programs that use none pay nothing.
Times are those of this machine's wall clock; `delay_ms` and `ttl_ms` count from the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict

from sparrow.base.errors import InvalidArgument
from sparrow.client.options import epoch_ms
from sparrow.records.delivery_options import DeliveryOptions, with_delivery_options
from sparrow.records.wellknown import HIGHEST_PRIORITY, LOWEST_PRIORITY, MAX_TIME_MS

if TYPE_CHECKING:
    from sparrow.client.batch import Headers


class Schedule(TypedDict, total=False):
    """Delivery options of `publish` and `send`. None leaves an option out."""

    delay_ms: int | None
    """Earliest delivery, in ms after the call."""
    deliver_at: datetime | int | None
    """Earliest delivery, in ms since 1970, or a datetime with a time zone."""
    priority: int | None
    """0 to 9; 9 is delivered first. Default: 4."""
    ttl_ms: int | None
    """Expiry, in ms after the call: the message is not delivered from then on."""
    expires_at: datetime | int | None
    """Expiry, in ms since 1970, or a datetime with a time zone."""
    message_id: str | None
    """The ID by which other messages name this one as their parent."""
    parents: Sequence[str] | None
    """IDs of the messages that a parented queue finishes before it delivers this one."""


def with_schedule(headers: Headers, schedule: Schedule, now_ms: int) -> Headers:
    """Return the headers with those of `schedule` behind them.

    Args:
        now_ms: wall time of the call.

    Raises:
        InvalidArgument: options that contradict each other or a header, are out of range or of
            another type; a datetime without time zone; an empty ID.
        TypeError: there is no such option.
    """
    _check_names(schedule)
    options = DeliveryOptions(
        priority=_priority(schedule),
        deliver_at_ms=_time(schedule, "deliver_at", "delay_ms", now_ms, 0),
        expires_at_ms=_time(schedule, "expires_at", "ttl_ms", now_ms, 1),
        message_id=_message_id(schedule),
        parents=_parents(schedule),
    )
    return tuple(with_delivery_options(headers, options, now_ms))


def anchored(schedule: Schedule, now_ms: int) -> Schedule:
    """Return the options with times instead of spans, so that they mean the same when they are used
    later. Wrong values are left for `with_schedule` to refuse.

    Raises:
        TypeError: there is no such option.
    """
    _check_names(schedule)
    fixed = schedule.copy()
    delay_ms, ttl_ms = schedule.get("delay_ms"), schedule.get("ttl_ms")
    if type(delay_ms) is int and 0 < delay_ms <= MAX_TIME_MS - now_ms and schedule.get("deliver_at") is None:
        fixed |= {"delay_ms": None, "deliver_at": now_ms + delay_ms}
    if type(ttl_ms) is int and 0 < ttl_ms <= MAX_TIME_MS - now_ms and schedule.get("expires_at") is None:
        fixed |= {"ttl_ms": None, "expires_at": now_ms + ttl_ms}
    return fixed


def _check_names(schedule: Schedule) -> None:
    unknown = schedule.keys() - Schedule.__annotations__.keys()
    if unknown:
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")


def _time(schedule: Schedule, at: str, span: str, now_ms: int, least_span_ms: int) -> int | None:
    """Return the time that one of the two options sets, ms since 1970; None for none."""
    time, span_ms = schedule.get(at), schedule.get(span)
    if time is not None and span_ms is not None:
        raise InvalidArgument(
            f"{at} and {span} are both given; they are two ways to say the same, give one of them"
        )
    if isinstance(time, datetime):
        time = epoch_ms(at, time)
    if time is not None:
        return _whole(at, time, 1, MAX_TIME_MS, "milliseconds since 1970, or a datetime with a time zone")
    if span_ms is None:
        return None
    milliseconds = _whole(
        span, span_ms, least_span_ms, MAX_TIME_MS - now_ms, f"milliseconds, {least_span_ms} or more"
    )
    return now_ms + milliseconds if milliseconds else None


def _priority(schedule: Schedule) -> int | None:
    priority = schedule.get("priority")
    if priority is None:
        return None
    return _whole(
        "priority", priority, LOWEST_PRIORITY, HIGHEST_PRIORITY, "a number from 0 to 9 (delivered first)"
    )


def _message_id(schedule: Schedule) -> str | None:
    message_id = schedule.get("message_id")
    return None if message_id is None else _text("message_id", message_id)


def _parents(schedule: Schedule) -> list[str]:
    parents = schedule.get("parents")
    if isinstance(parents, str | bytes) or not isinstance(parents or (), Iterable):
        raise InvalidArgument(f"parents is {parents!r}; it must be a list of ids, even of one")
    return [_text("each of the parents", parent) for parent in parents or ()]


def _text(name: str, text: object) -> str:
    if not isinstance(text, str) or not text:
        raise InvalidArgument(f"{name} must be text that is not empty, not {text!r}")
    return text


def _whole(name: str, number: object, least: int, most: int, what: str) -> int:
    if isinstance(number, int) and not isinstance(number, bool) and least <= number <= most:
        return number
    raise InvalidArgument(f"{name} is {number!r}; it must be {what}")
