"""What a publisher tells the queues that will read a message: when to deliver it, how urgently, after which others. All of it travels in headers.

`publish` and `send` take these options beside their own; who uses none pays nothing. The headers are `records/wellknown.py`'s.
Times are those of this machine's wall clock; `delay_ms` and `ttl_ms` count from the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict

from sparrow.base.errors import InvalidArgument
from sparrow.client.options import epoch_ms
from sparrow.records.wellknown import (
    DELIVER_AT,
    EXPIRES_AT,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MAX_TIME_MS,
    MESSAGE_ID,
    PARENT_ID,
    PRIORITY,
    format_priority,
    format_text,
    format_time_ms,
)

if TYPE_CHECKING:
    from sparrow.client.delivery import Headers


class Schedule(TypedDict, total=False):
    """Options of `publish` and `send`. None is as good as leaving one out."""

    delay_ms: int | None
    """Deliver it so many ms after the call, not before."""
    deliver_at: datetime | int | None
    """Deliver it at this time (ms since 1970, or a datetime with a time zone), not before."""
    priority: int | None
    """0 to 9; 9 is delivered first. A message without has 4."""
    ttl_ms: int | None
    """So many ms after the call it expires, and is not delivered any more."""
    expires_at: datetime | int | None
    """At this time it expires."""
    message_id: str | None
    """What other messages call it by, as their parent."""
    parents: Sequence[str] | None
    """The ids of the messages that a parented queue finishes before it delivers this one."""


def with_schedule(headers: Headers, schedule: Schedule, now_ms: int) -> Headers:
    """The headers, and those that say what `schedule` does.

    Args:
        now_ms: wall time of the call.

    Raises:
        InvalidArgument: options that contradict each other or a header, are out of range or of another type; a datetime without time zone; an empty id.
        TypeError: there is no such option.
    """
    _check_names(schedule)
    added = (*_time_headers(schedule, now_ms), *_priority_header(schedule), *_id_headers(schedule))
    twice = {name for name, _ in headers} & {name for name, _ in added}
    if twice:
        raise InvalidArgument(
            f"the header {min(twice)!r} is given, and so is the option that sets it; give one of them"
        )
    return (*headers, *added)


def anchored(schedule: Schedule, now_ms: int) -> Schedule:
    """The same with times instead of spans, so that it says the same when it is read later. What is wrong with its values is left for then.

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


def _time_headers(schedule: Schedule, now_ms: int) -> Headers:
    deliver_at_ms = _time(schedule, "deliver_at", "delay_ms", now_ms, 0)
    expires_at_ms = _time(schedule, "expires_at", "ttl_ms", now_ms, 1)
    if deliver_at_ms and expires_at_ms and expires_at_ms <= deliver_at_ms:
        raise InvalidArgument(
            f"the message would expire before it may be delivered: at {expires_at_ms}, not before {deliver_at_ms} (ms since 1970)"
        )
    times = ((DELIVER_AT, deliver_at_ms), (EXPIRES_AT, expires_at_ms))
    return tuple((name, format_time_ms(time_ms)) for name, time_ms in times if time_ms)


def _time(schedule: Schedule, at: str, span: str, now_ms: int, least_span_ms: int) -> int:
    """The time that one of the two options says, ms since 1970; 0 if there is none to wait for."""
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
        return 0
    milliseconds = _whole(
        span, span_ms, least_span_ms, MAX_TIME_MS - now_ms, f"milliseconds, {least_span_ms} or more"
    )
    return now_ms + milliseconds if milliseconds else 0


def _priority_header(schedule: Schedule) -> Headers:
    priority = schedule.get("priority")
    if priority is None:
        return ()
    _whole("priority", priority, LOWEST_PRIORITY, HIGHEST_PRIORITY, "a number from 0 to 9 (delivered first)")
    return ((PRIORITY, format_priority(priority)),)


def _id_headers(schedule: Schedule) -> Headers:
    message_id, parents = schedule.get("message_id"), schedule.get("parents")
    if isinstance(parents, str | bytes) or not isinstance(parents or (), Iterable):
        raise InvalidArgument(f"parents is {parents!r}; it must be a list of ids, even of one")
    named = () if message_id is None else ((MESSAGE_ID, _id("message_id", message_id)),)
    return (*named, *((PARENT_ID, _id("each of the parents", parent)) for parent in parents or ()))


def _id(name: str, text: object) -> bytes:
    if not isinstance(text, str) or not text:
        raise InvalidArgument(f"{name} must be text that is not empty, not {text!r}")
    return format_text(text)


def _whole(name: str, number: object, least: int, most: int, what: str) -> int:
    if isinstance(number, int) and not isinstance(number, bool) and least <= number <= most:
        return number
    raise InvalidArgument(f"{name} is {number!r}; it must be {what}")
