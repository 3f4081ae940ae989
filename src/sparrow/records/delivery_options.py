"""Options that a publisher sets for the queues that will read a message: when it is delivered, how
urgently, after which other messages. They travel as headers of the message (`wellknown.py`).

The HTTP frontend takes them by these names. The client takes them by the names of
`client/schedule.py`, which also knows datetimes.
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


class DeliveryOptions(NamedTuple):
    """Delivery options of one message; None leaves one out. Times are ms since 1970, `delay_ms` and
    `ttl_ms` count from the publish.
    """

    priority: int | None = None
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    ttl_ms: int | None = None
    expires_at_ms: int | None = None
    message_id: str | None = None
    parents: Sequence[str] | None = None


NOTHING = DeliveryOptions()


def with_delivery_options(
    headers: Sequence[Header], options: DeliveryOptions, now_ms: int
) -> Sequence[Header]:
    """Return the headers of a message with those of the options behind them.

    Args:
        now_ms: wall time of the publish.

    Raises:
        InvalidArgument: options that contradict each other or a header, or are out of range; an
            empty id.
    """
    if options == NOTHING:
        return headers
    added = [*_times(options, now_ms), *_others(options)]
    twice = {name for name, _ in headers} & {name for name, _ in added}
    if twice:
        raise InvalidArgument(
            f"the header {min(twice)!r} is given, and so is the option that sets it; give one of them"
        )
    return (*headers, *added)


def _times(options: DeliveryOptions, now_ms: int) -> list[Header]:
    deliver_at_ms = _time("deliver_at_ms", options.deliver_at_ms, ("delay_ms", options.delay_ms, 0), now_ms)
    expires_at_ms = _time("expires_at_ms", options.expires_at_ms, ("ttl_ms", options.ttl_ms, 1), now_ms)
    if deliver_at_ms and expires_at_ms and expires_at_ms <= deliver_at_ms:
        raise InvalidArgument(
            f"the message would expire before it may be delivered: at {expires_at_ms}, not before "
            f"{deliver_at_ms} (ms since 1970)"
        )
    times = ((DELIVER_AT, deliver_at_ms), (EXPIRES_AT, expires_at_ms))
    return [(name, format_time_ms(time_ms)) for name, time_ms in times if time_ms]


def _time(at: str, at_ms: int | None, span: tuple[str, int | None, int], now_ms: int) -> int:
    """Return the time that one of two options sets, ms since 1970; 0 for none.

    Args:
        span: name, value and least value of the option that counts from the publish.
    """
    name, span_ms, least_ms = span
    if at_ms is not None and span_ms is not None:
        raise InvalidArgument(f"{at} and {name} are both given; give one of them")
    if at_ms is not None:
        return _within(at, at_ms, 1, MAX_TIME_MS)
    if span_ms is None:
        return 0
    span_ms = _within(name, span_ms, least_ms, MAX_TIME_MS - now_ms)
    return now_ms + span_ms if span_ms else 0


def _within(name: str, number: int, least: int, most: int) -> int:
    if least <= number <= most:
        return number
    raise InvalidArgument(f"{name} is {number}; it must be from {least} to {most}")


def _others(options: DeliveryOptions) -> list[Header]:
    added: list[Header] = []
    if options.priority is not None:
        added.append((PRIORITY, format_priority(options.priority)))
    if options.message_id is not None:
        added.append((MESSAGE_ID, format_text(options.message_id)))
    added += [(PARENT_ID, format_text(parent)) for parent in options.parents or ()]
    return added
