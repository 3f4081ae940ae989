"""Decisions on the times of a schedule that have come: which of them become jobs. Pure.

A time is a *tick*. One that comes late by up to `GRACE_MS` (a restart, a busy machine) is on time;
an older one was *missed*, and the policy `misfire` decides. So short interruptions lose no job
under any policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.broker.schedules.settings import RUN_ALL, RUN_ONCE, SKIP
from sparrow.broker.schedules.timetable import latest

if TYPE_CHECKING:
    from sparrow.broker.schedules.timetable import Timetable

GRACE_MS: Final = 60_000
CATCH_UP_MS: Final = 7 * 86_400_000
"""`run_all` runs the missed ticks of this time and drops older ones: a clock that was wrong by
years must not make millions of jobs.
"""
MAX_AT_ONCE: Final = 200
"""Ticks of one schedule that become jobs together; the others follow at once."""
MAX_BACK_MS: Final = 3_600_000
"""A clock that goes back by no more repeats no tick; one that goes back further was wrong before,
and the schedules follow it.
"""


class DueTicks(NamedTuple):
    """Ticks that become jobs, and how far the timetable is handled with them."""

    ticks: list[int]
    cursor_ms: int
    is_misfire: bool = False


def due_ticks(timetable: Timetable, next_ms: int, now_ms: int, misfire: str) -> DueTicks:
    """Return the ticks from `next_ms`, which is one, to `now_ms` that become jobs.

    Args:
        misfire: the policy for missed ticks.
    """
    if now_ms - next_ms < min(timetable.least_period_ms, GRACE_MS):
        return DueTicks([next_ms], next_ms)
    missed_until_ms = now_ms - GRACE_MS
    if next_ms > missed_until_ms:
        return _from(timetable, next_ms, now_ms)
    if misfire == RUN_ONCE:
        last = latest(timetable, next_ms, now_ms)
        return DueTicks([last], last, is_misfire=True)
    first: int | None = next_ms
    if misfire == SKIP:
        first = timetable.after(missed_until_ms)
    elif next_ms < now_ms - CATCH_UP_MS:
        first = timetable.after(now_ms - CATCH_UP_MS)
    if first is None or first > now_ms:
        return DueTicks([], now_ms if misfire == RUN_ALL else missed_until_ms, is_misfire=True)
    return _from(timetable, first, now_ms)._replace(is_misfire=True)


def _from(timetable: Timetable, first: int, now_ms: int) -> DueTicks:
    ticks = [first]
    while len(ticks) < MAX_AT_ONCE:
        following = timetable.after(ticks[-1])
        if following is None or following > now_ms:
            break
        ticks.append(following)
    return DueTicks(ticks, ticks[-1])
