"""The description of a schedule for people and programs."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from sparrow.broker.schedules.entry import NEVER
from sparrow.model.schedules import ScheduleDescription, ScheduleStatistics

if TYPE_CHECKING:
    from sparrow.broker.schedules.entry import ScheduleEntry

SHOWN_TIMES: Final = 5


def describe(entry: ScheduleEntry, problem: str, now_ms: int) -> ScheduleDescription:
    """Return the description.

    Args:
        problem: the reason why jobs cannot be published now; "": there is none.
    """
    definition, state, counts = entry.definition, entry.state, entry.counts
    settings = definition.settings
    value, value_base64 = _text(settings.payload)
    key, key_base64 = ("", "") if settings.key is None else _text(settings.key)
    return ScheduleDescription(
        definition.name,
        settings.queue,
        settings.topic,
        settings.cron,
        settings.every_ms,
        settings.time_zone,
        value,
        value_base64,
        None if settings.key is None else key,
        key_base64,
        [(name, each.decode(errors="replace")) for name, each in settings.headers],
        settings.priority,
        settings.ttl_ms,
        settings.misfire,
        settings.overlap,
        str(definition.owner),
        definition.created_ms,
        "paused" if definition.is_paused else "broken" if problem else "active",
        definition.is_paused,
        definition.paused_because,
        problem,
        [] if definition.is_paused else next_times(entry, now_ms),
        ScheduleStatistics(
            counts.jobs,
            counts.skipped,
            counts.misfires,
            counts.failed,
            counts.last_late_ms,
            counts.last_error,
            counts.last_error_ms,
            state.last_ms,
            state.partition,
            state.offset,
            state.waiting_ms != NEVER,
        ),
    )


def next_times(entry: ScheduleEntry, now_ms: int) -> list[int]:
    """Return the next times at which it is due, ms since the epoch."""
    times: list[int] = []
    after: int | None = max(entry.state.cursor_ms, now_ms)
    while len(times) < SHOWN_TIMES and after is not None:
        after = entry.timetable.after(after)
        if after is not None:
            times.append(after)
    return times


def _text(value: bytes) -> tuple[str, str]:
    """Return the value as text, and "" or, where it is no text, "" and the value in base64."""
    try:
        return value.decode(), ""
    except UnicodeDecodeError:
        return "", base64.b64encode(value).decode()
