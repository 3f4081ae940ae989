"""Times of cron expressions and intervals, over changes of the clock as well."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidConfig
from sparrow.broker.schedules.settings import RUN_ALL, RUN_ONCE, SKIP, new_settings
from sparrow.broker.schedules.ticks import CATCH_UP_MS, GRACE_MS, MAX_AT_ONCE, due_ticks
from sparrow.broker.schedules.timetable import Interval, latest, read_cron

NOON_MS = 1_772_452_800_000
BERLIN = ZoneInfo("Europe/Berlin")


def ms(text: str, zone: str = "UTC") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def times(text: str, start: str, count: int, zone: str = "UTC") -> list[str]:
    """Return the local times at which an expression is due, with the offset where it has one."""
    at = ms(start, zone)
    timetable = read_cron(text, zone, at)
    found = []
    for _ in range(count):
        following = timetable.after(at)
        assert following is not None
        at = following
        found.append(f"{datetime.fromtimestamp(at / 1000, ZoneInfo(zone)):%a %m-%d %H:%M:%S %z}")
    return found


def test_fields_names_and_macros_are_read() -> None:
    assert times("*/20 * * * *", "2026-03-02T12:05", 2) == [
        "Mon 03-02 12:20:00 +0000",
        "Mon 03-02 12:40:00 +0000",
    ]
    assert times("0 9 * JAN MON-FRI", "2026-03-02", 1) == ["Fri 01-01 09:00:00 +0000"]
    assert times("@daily", "2026-03-02T12:00", 1) == ["Tue 03-03 00:00:00 +0000"]
    assert times("15 */30 * * * *", "2026-03-02T12:00", 2)[1] == "Mon 03-02 12:30:15 +0000"
    assert times("0 0 L * *", "2026-02-02", 1) == ["Sat 02-28 00:00:00 +0000"]


def test_a_skipped_hour_moves_fixed_times_and_drops_others() -> None:
    # at 02:00 on 2026-03-29 the clock of Berlin goes to 03:00
    assert times("30 2 * * *", "2026-03-28T12:00", 2, "Europe/Berlin") == [
        "Sun 03-29 03:00:00 +0200",
        "Mon 03-30 02:30:00 +0200",
    ]
    assert times("*/30 2 * * *", "2026-03-28T12:00", 1, "Europe/Berlin") == ["Mon 03-30 02:00:00 +0200"]
    assert times("0 30 2 * * *", "2026-03-28T12:00", 1, "Europe/Berlin") == ["Mon 03-30 02:30:00 +0200"]
    assert times("0-59 2 * * *", "2026-03-29T01:00", 2, "Europe/Berlin") == [
        "Sun 03-29 03:00:00 +0200",
        "Mon 03-30 02:00:00 +0200",
    ]


def test_a_repeated_hour_runs_fixed_times_once_and_others_twice() -> None:
    # at 03:00 on 2026-10-25 the clock of Berlin goes back to 02:00
    assert times("30 2 * * *", "2026-10-24T12:00", 2, "Europe/Berlin") == [
        "Sun 10-25 02:30:00 +0200",
        "Mon 10-26 02:30:00 +0100",
    ]
    assert times("*/30 * * * *", "2026-10-25T01:45", 5, "Europe/Berlin") == [
        "Sun 10-25 02:00:00 +0200",
        "Sun 10-25 02:30:00 +0200",
        "Sun 10-25 02:00:00 +0100",
        "Sun 10-25 02:30:00 +0100",
        "Sun 10-25 03:00:00 +0100",
    ]
    assert times("0 30 2 * * *", "2026-10-24T12:00", 2, "Europe/Berlin") == [
        "Sun 10-25 02:30:00 +0200",
        "Sun 10-25 02:30:00 +0100",
    ]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"cron": "0 0 30 2 *"}, "never be due"),
        ({"cron": "0 0 31 2,4,6 *"}, "never be due"),
        ({"cron": "61 * * * *"}, "its field minute has no such value"),
        ({"cron": "* * *"}, "Wrong number of fields"),
        ({"cron": "@reboot"}, "the names are @yearly"),
        ({"cron": "@every 5m"}, "give every='5m'"),
        ({"cron": "* * * * * * *"}, "Wrong number"),
        ({"cron": "0 0 " + "1," * 120 + "1 * *"}, "longer than 200"),
        ({"cron": "٣ * * * *"}, "not ASCII"),
        ({"cron": "* * * * *", "time_zone": "Europe/Berlim"}, "time_zone 'Europe/Berlim' is not known"),
        ({"cron": "* * * * *", "time_zone": "../../etc/passwd"}, "not known"),
        ({"cron": "* * * * *", "every": "5m"}, "give one of them"),
        ({}, "give one of them"),
        ({"every": "0.2s"}, "every is '0.2s'"),
        ({"every": "1m", "time_zone": "Europe/Berlin"}, "an interval has none"),
        ({"every": "1m", "overlap": "run"}, "one of skip, run_once, run_all"),
        ({"every": "1m", "misfre": "skip"}, "did you mean 'misfire'"),
        ({"every": "1m", "value": "a", "value_base64": "YQ=="}, "value and value_base64"),
        ({"every": "1m", "value_base64": "%"}, "base64"),
        ({"every": "1m", "value": "x" * 300_000}, "262144 bytes"),
        ({"every": "1m", "priority": 10}, "from 0 to 9"),
        ({"every": "1m", "headers": {"a": [1]}}, "a mapping of names to texts"),
    ],
)
def test_invalid_settings_are_refused_with_the_reason(settings: dict[str, object], text: str) -> None:
    def check() -> None:
        checked = new_settings({"queue": "jobs", **settings})
        read_cron(checked.cron, checked.time_zone, NOON_MS)

    with pytest.raises(InvalidConfig) as refused:
        check()
    assert text in refused.value.text


def test_data_is_sent_as_json_and_bytes_in_base64() -> None:
    assert new_settings({"queue": "q", "every": "1m", "value": {"to": ["ann"]}}).payload == b'{"to":["ann"]}'
    assert new_settings({"queue": "q", "every": 60_000, "value_base64": "AP8="}).payload == b"\x00\xff"


EXPRESSIONS = st.sampled_from(
    ["* * * * *", "*/7 * * * *", "30 2 * * *", "0,30 1-3 * * *", "0 */5 * * * *", "0 0 1 * *", "5 4 * * SUN"]
)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
MOMENTS = st.integers(ms("2026-01-01"), ms("2027-01-01"))


@given(EXPRESSIONS, ZONES, MOMENTS)
def test_times_only_grow_and_do_not_depend_on_where_the_search_begins(
    text: str, zone: str, at_ms: int
) -> None:
    timetable = read_cron(text, zone, at_ms)
    found = [at_ms]
    for _ in range(20):
        following = timetable.after(found[-1])
        assert following is not None
        found.append(following)
    assert all(b - a >= timetable.least_period_ms for a, b in pairwise(found[1:]))
    assert timetable.after(found[7] - 1) == found[7]
    assert timetable.after(found[7]) == found[8]
    assert latest(timetable, found[1], found[20]) == found[20]
    assert latest(timetable, found[1], found[20] - 1) == found[19]


@given(st.integers(1000, 10**9), MOMENTS, MOMENTS)
def test_intervals_count_from_their_anchor(every_ms: int, anchor_ms: int, at_ms: int) -> None:
    following = Interval(every_ms, anchor_ms).after(at_ms)
    assert following is not None
    assert at_ms < following <= at_ms + every_ms
    assert (following - anchor_ms) % every_ms == 0


@given(st.sampled_from([SKIP, RUN_ONCE, RUN_ALL]), st.integers(0, 3_000_000), st.integers(1000, 400_000))
def test_every_tick_is_a_job_or_was_missed(misfire: str, late_ms: int, every_ms: int) -> None:
    timetable = Interval(every_ms, NOON_MS)
    now_ms = NOON_MS + every_ms + late_ms
    ticks, cursor_ms = [], NOON_MS
    while (next_ms := timetable.after(cursor_ms)) is not None and next_ms <= now_ms:
        found = due_ticks(timetable, next_ms, now_ms, misfire)
        assert found.cursor_ms > cursor_ms
        assert len(found.ticks) <= MAX_AT_ONCE
        ticks += found.ticks
        cursor_ms = found.cursor_ms
    every = list(range(NOON_MS + every_ms, now_ms + 1, every_ms))
    missed = [tick for tick in every if tick <= now_ms - GRACE_MS]
    if misfire == RUN_ALL or not missed:
        assert ticks == every
    elif misfire == SKIP:
        assert ticks == every[len(missed) :]
    else:
        assert ticks == every[-1:]


def test_a_clock_that_was_years_behind_makes_a_week_of_jobs_at_most() -> None:
    timetable = Interval(3_600_000, NOON_MS)
    now_ms = NOON_MS + 20 * 365 * 86_400_000
    found = due_ticks(timetable, NOON_MS + 3_600_000, now_ms, RUN_ALL)
    assert found.ticks[0] > now_ms - CATCH_UP_MS
    assert len(found.ticks) == 168
    assert due_ticks(timetable, NOON_MS + 3_600_000, now_ms, RUN_ONCE).ticks == [now_ms]
