"""The settings of a schedule, declared once: every frontend and the configuration file take these
words, ranges and defaults (`base/named_settings.py`), and `docs/schedules.md` lists them. Pure.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.base.errors import InvalidConfig
from sparrow.base.named_settings import SettingTable, setting
from sparrow.base.settings import Kind, choice, duration, integer
from sparrow.records.delivery_options import DeliveryOptions
from sparrow.records.wellknown import SCHEDULE_NAME, SCHEDULE_TIME

if TYPE_CHECKING:
    from sparrow.records.delivery_options import Header

SKIP: Final = "skip"
RUN_ONCE: Final = "run_once"
RUN_ALL: Final = "run_all"
POLICIES: Final = (SKIP, RUN_ONCE, RUN_ALL)
MAX_VALUE_BYTES: Final = 256 << 10
_LEAST_EVERY_MS: Final = 1000
_YEAR_MS: Final = 366 * 86_400_000
_MAX_HEADERS: Final = 50
_MAX_TEXT: Final = 255


def _read_text(given: object) -> str:
    if given is None:
        return ""
    if not isinstance(given, str) or len(given) > _MAX_TEXT:
        raise ValueError(f"a text of at most {_MAX_TEXT} characters")
    return given


def _read_value(given: object) -> bytes:
    if given is None:
        return b""
    if isinstance(given, str):
        value = given.encode()
    else:
        value = bytes(given) if isinstance(given, bytes | bytearray) else msgspec.json.encode(given)
    if len(value) > MAX_VALUE_BYTES:
        raise ValueError(f"at most {MAX_VALUE_BYTES} bytes: a text, or data that is sent as JSON")
    return value


def _read_key(given: object) -> bytes | None:
    if given is None:
        return None
    if not isinstance(given, str | bytes) or len(given) > MAX_VALUE_BYTES:
        raise ValueError("a text")
    return given.encode() if isinstance(given, str) else given


def _read_base64(given: object) -> bytes | None:
    if given is None:
        return None
    try:
        value = base64.b64decode(str(given), validate=True)
    except (binascii.Error, ValueError):
        value = b"x" * (MAX_VALUE_BYTES + 1)
    if len(value) > MAX_VALUE_BYTES:
        raise ValueError(f"a text in base64 of at most {MAX_VALUE_BYTES} bytes")
    return value


def _read_headers(given: object) -> tuple[tuple[str, bytes], ...]:
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    if pairs is None:
        return ()
    if not isinstance(pairs, list | tuple) or len(pairs) > _MAX_HEADERS:
        raise ValueError(f"a mapping of at most {_MAX_HEADERS} names to texts")
    return tuple(_read_header(each) for each in pairs)


def _read_header(pair: object) -> tuple[str, bytes]:
    if isinstance(pair, list | tuple) and len(pair) == 2:
        name, value = pair
        if isinstance(value, bool):
            value = str(value).lower()
        if isinstance(value, int | float):
            value = str(value)
        if isinstance(name, str) and name and isinstance(value, str | bytes):
            return name, value.encode() if isinstance(value, str) else value
    raise ValueError("a mapping of names to texts, such as {content-type: application/json}")


def _read_priority(given: object) -> int | None:
    return None if given is None else integer(0, 9).read(given)


def _duration_or_none(least_ms: int) -> Kind[int]:
    """Return the kind of a duration in ms; 0 for none."""
    span = duration(least_ms, _YEAR_MS)

    def read(given: object) -> int:
        # a timedelta; the client takes it
        seconds = getattr(given, "total_seconds", None)
        value = round(float(seconds()) * 1000) if callable(seconds) else given
        return 0 if value in (None, 0, "0") else span.read(value)

    return Kind("duration", read, show=span.show)


_TEXT: Final = Kind("text", _read_text)


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """Settings of a schedule. Times are in milliseconds."""

    queue: str = setting(_TEXT, help="The queue that gets the jobs.")
    topic: str = setting(
        _TEXT, "", help="The topic of the queue that gets the jobs; needed if it has several."
    )
    cron: str = setting(_TEXT, "", help="When it is due: five fields, six with seconds, or @daily.")
    every_ms: int = setting(
        _duration_or_none(_LEAST_EVERY_MS),
        0,
        word="every",
        help="Time between two jobs, instead of cron.",
        metavar="DURATION",
    )
    time_zone: str = setting(_TEXT, "UTC", help="The time zone of cron, such as Europe/Berlin.")
    value: bytes = setting(Kind("value", _read_value), b"", help="The value of each job.")
    value_base64: bytes | None = setting(Kind("base64", _read_base64), None)
    key: bytes | None = setting(Kind("key", _read_key), None, help="The key of each job.")
    headers: tuple[tuple[str, bytes], ...] = setting(Kind("headers", _read_headers), ())
    priority: int | None = setting(Kind("priority", _read_priority), None, help="0 to 9; 9 first.")
    ttl_ms: int = setting(
        _duration_or_none(1),
        0,
        word="ttl",
        help="Time after which a job that nobody has taken is dropped; 0: never.",
        metavar="DURATION",
    )
    misfire: str = setting(
        choice(*POLICIES), RUN_ONCE, help="Jobs that were missed while the broker was down."
    )
    overlap: str = setting(
        choice(*POLICIES), RUN_ALL, help="A job that is due while the last one is unfinished."
    )

    @property
    def payload(self) -> bytes:
        """The value of each job."""
        return self.value if self.value_base64 is None else self.value_base64

    def headers_at(self, name: str, tick_ms: int) -> tuple[Header, ...]:
        """Return the headers of a job, without those of delivery."""
        return (
            *self.headers,
            (SCHEDULE_NAME, name.encode()),
            (SCHEDULE_TIME, b"%d" % tick_ms),
        )

    @property
    def delivery(self) -> DeliveryOptions:
        """The delivery options of each job."""
        return DeliveryOptions(priority=self.priority, ttl_ms=self.ttl_ms or None)

    def values(self) -> dict[str, Any]:
        """Return all settings by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


TABLE: Final = SettingTable("a schedule", ScheduleSettings, none_is_default=True)


def new_settings(given: Mapping[str, object]) -> ScheduleSettings:
    """Return checked settings; those that are left out get their defaults. The expression and the
    zone are checked by `timetable.read_cron`.

    Raises:
        InvalidConfig: names every fault.
    """
    values = TABLE.read(given)
    if not values.get("queue"):
        raise InvalidConfig("a schedule needs a queue, which gets the jobs")
    settings = ScheduleSettings(**values)
    if bool(settings.cron) == bool(settings.every_ms):
        raise InvalidConfig(
            "a schedule is due by cron or every so often: give one of them, cron='0 3 * * *' or every='15m'"
        )
    if settings.value_base64 is not None and settings.value:
        raise InvalidConfig("value and value_base64 are both given; give one of them")
    if settings.every_ms and settings.time_zone != "UTC":
        raise InvalidConfig("time_zone is for cron; an interval has none")
    return settings
