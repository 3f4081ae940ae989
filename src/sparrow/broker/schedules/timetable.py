"""The times at which a schedule is due: those of a cron expression in a time zone, or every so many
milliseconds.

Cron expressions are read by cronsim, which follows Debian's cron: five fields (minute, hour, day of
month, month, day of week) or six, with the seconds first. In zones with daylight saving time:

- Where minute and hour of five fields are fixed ("30 2 * * *"), a time that the clock skips in
  spring is due at the first time that exists after it, and one that occurs twice in autumn is due
  the first time only.
- Where one of them begins with "*", and always with six fields, real time counts: skipped times are
  not due, repeated ones twice.

croniter was the other candidate. It needs dateutil and has gone through several maintainers;
cronsim is typed, needs nothing, and is tested against Debian's cron.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from sparrow.base.errors import InvalidConfig

if TYPE_CHECKING:
    from datetime import tzinfo

MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""Names that stand for an expression."""
UTC_NAME: Final = "UTC"
MINUTE_MS: Final = 60_000
SECOND_MS: Final = 1000
_MAX_CHARACTERS: Final = 200
_FIVE: Final = 5
_REPEATED: Final = 5000
"""Times of an expression that may be one moment, as all skipped minutes of a night are."""
_GROWTH: Final = 8


class Timetable(Protocol):
    """Times in ms since the epoch. Pure, and the same whenever it is asked."""

    @property
    def least_period_ms(self) -> int:
        """The least distance of two times."""
        ...

    def after(self, time_ms: int) -> int | None:
        """Return the first time after `time_ms`; None if there is none any more."""
        ...


class Interval(Struct, frozen=True):
    """Times in equal distances, counted from `anchor_ms`."""

    every_ms: int
    anchor_ms: int

    @property
    def least_period_ms(self) -> int:
        return self.every_ms

    def after(self, time_ms: int) -> int | None:
        return self.anchor_ms + ((time_ms - self.anchor_ms) // self.every_ms + 1) * self.every_ms


class CronTimes(Struct, frozen=True):
    """Times of a cron expression that was checked (`read_cron`)."""

    expression: str
    zone: str

    @property
    def least_period_ms(self) -> int:
        return MINUTE_MS if len(self.expression.split()) == _FIVE else SECOND_MS

    def after(self, time_ms: int) -> int | None:
        return _cron_after(self.expression, self.zone, time_ms)


def latest(timetable: Timetable, first_ms: int, now_ms: int) -> int:
    """Return the last time from `first_ms`, which is one, to `now_ms`.

    Long spans are not walked through: the search begins shortly before their end.
    """
    span_ms = 2 * timetable.least_period_ms
    while now_ms - span_ms > first_ms:
        found = timetable.after(now_ms - span_ms)
        if found is not None and found <= now_ms:
            return _last(timetable, found, now_ms)
        span_ms *= _GROWTH
    return _last(timetable, first_ms, now_ms)


def _last(timetable: Timetable, time_ms: int, now_ms: int) -> int:
    following = timetable.after(time_ms)
    while following is not None and following <= now_ms:
        time_ms = following
        following = timetable.after(time_ms)
    return time_ms


def read_zone(name: str) -> tzinfo:
    """Return a time zone by its name in the IANA database.

    Raises:
        InvalidConfig: there is none of that name.
    """
    if name == UTC_NAME:
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise InvalidConfig(
            f"time_zone {name[:80]!r} is not known; write a name such as 'Europe/Berlin' or 'UTC'"
        ) from None


def read_cron(text: str, zone: str, now_ms: int) -> CronTimes:
    """Return the times of an expression such as "*/5 * * * *" or "@daily".

    Raises:
        InvalidConfig: it cannot be read, or there is no time after `now_ms` at which it is due.
    """
    from cronsim import CronSimError

    read_zone(zone)
    expression = " ".join(text.split())
    if expression.startswith("@"):
        expression = _macro(expression)
    if len(expression) > _MAX_CHARACTERS or not expression.isascii():
        raise _unreadable(text, f"it is longer than {_MAX_CHARACTERS} characters, or not ASCII")
    times = CronTimes(expression, zone)
    try:
        first = times.after(now_ms)
    except CronSimError as error:
        why = str(error).replace("Bad ", "its field ", 1)
        never = "day-of-month" in why
        hint = " has no such value" + (", or the months have no such day: it would never be due" * never)
        raise _unreadable(text, why + (hint if "field " in why else "")) from None
    if first is None:
        raise InvalidConfig(f"cron {text[:80]!r} is never due: no day of the next 50 years is like that")
    return times


def _macro(text: str) -> str:
    found = MACROS.get(text.lower())
    if found is None:
        raise _unreadable(text, f"the names are {', '.join(MACROS)}; for an interval, give every='5m'")
    return found


def _unreadable(text: str, why: str) -> InvalidConfig:
    return InvalidConfig(
        f"cron {text[:80]!r} cannot be read: {why}; it has the five fields minute, hour, day of month, "
        "month and day of week (or six, with the second first), such as '30 2 * * MON-FRI'"
    )


@lru_cache(maxsize=8192)
def _cron_after(expression: str, zone: str, time_ms: int) -> int | None:
    """Return the first time after `time_ms`. Schedules with equal expressions share the work."""
    from cronsim import CronSim

    try:
        found = CronSim(expression, datetime.fromtimestamp(time_ms // 1000, read_zone(zone)))
        for _ in range(_REPEATED):
            moment = round(next(found).timestamp()) * 1000
            if moment > time_ms:
                return moment
    except (StopIteration, OverflowError, ValueError):  # the last two: behind the last year
        pass
    return None
