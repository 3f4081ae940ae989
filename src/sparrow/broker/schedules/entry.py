"""A schedule in memory: its definition, what it has done, and when it is due next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from sparrow.broker.schedules.timetable import Interval, read_cron

if TYPE_CHECKING:
    from sparrow.broker.access.authz import Principal
    from sparrow.broker.schedules.settings import ScheduleSettings
    from sparrow.broker.schedules.timetable import Timetable

NEVER: Final = -1


class ScheduleDefinition(Struct, frozen=True):
    """The definition of a schedule, as it is stored."""

    name: str
    settings: ScheduleSettings
    owner: Principal
    """The principal that put it last; jobs are published with its rights."""
    created_ms: int
    is_paused: bool = False
    paused_because: str = ""


class ScheduleState(Struct, array_like=True):
    """The progress of a schedule, as it is stored."""

    cursor_ms: int
    """All ticks up to this time are handled."""
    last_ms: int = NEVER
    """The tick of the last job."""
    topic_id: bytes = b""
    partition: int = -1
    offset: int = -1
    """Where the last job is."""
    waiting_ms: int = NEVER
    """The tick of a job that waits until the last one is finished (overlap `run_once`)."""

    def place(self, topic_id: bytes, partition: int, offset: int) -> None:
        """Note where the last job is."""
        self.topic_id, self.partition, self.offset = topic_id, partition, offset


class ScheduleCounts(Struct):
    """Counts of a schedule since the broker started; times are ms since the epoch, -1: never."""

    jobs: int = 0
    skipped: int = 0
    misfires: int = 0
    failed: int = 0
    last_late_ms: int = NEVER
    last_error: str = ""
    last_error_ms: int = NEVER


class ScheduleEntry(Struct, eq=False):
    """A schedule in memory."""

    definition: ScheduleDefinition
    timetable: Timetable
    state: ScheduleState
    counts: ScheduleCounts = field(default_factory=ScheduleCounts)
    wake_ms: int = NEVER
    """The time at which the scheduler looks at it; its entry in the heap counts only while it has
    this time.
    """
    is_deleted: bool = False

    @property
    def name(self) -> str:
        return self.definition.name

    def next_ms(self) -> int | None:
        """Return the next tick; None: there is none any more."""
        return self.timetable.after(self.state.cursor_ms)

    def fail(self, error: str, now_ms: int) -> None:
        """Note that a job was not published."""
        self.counts.failed += 1
        self.counts.last_error, self.counts.last_error_ms = error, now_ms


def timetable_of(settings: ScheduleSettings, created_ms: int) -> Timetable:
    """Return the times of a schedule; an interval counts from `created_ms`.

    Raises:
        InvalidConfig: the expression or the zone is wrong, or it is never due.
    """
    if settings.every_ms:
        return Interval(settings.every_ms, created_ms)
    return read_cron(settings.cron, settings.time_zone, created_ms)
