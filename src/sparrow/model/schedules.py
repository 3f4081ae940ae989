"""Schedules, and what they have done."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sparrow.model.result import Result


class ScheduleStatistics(Result, frozen=True):
    """Counts of a schedule since the broker started, and its last job. Times are ms since the
    epoch, -1: never.
    """

    jobs: int = 0
    """Jobs that were published."""
    skipped: int = 0
    """Ticks without a job of their own, as the last job was unfinished (`overlap`)."""
    misfires: int = 0
    """Looks that found missed ticks, on which `misfire` decided."""
    failed: int = 0
    """Attempts to publish that failed."""
    last_late_ms: int = -1
    """Time between the last tick and its stored job."""
    last_error: str = ""
    last_error_ms: int = -1
    last_ms: int = -1
    """The tick of the last job; kept over restarts, as is its place."""
    last_partition: int = -1
    last_offset: int = -1
    is_waiting: bool = False
    """True while a job waits for the end of the last one."""


class ScheduleDescription(Result, frozen=True):
    """A schedule; `docs/schedules.md` explains the settings."""

    name: str
    queue: str
    topic: str = ""
    """"" means the queue's only topic, or that of its name."""
    cron: str = ""
    every_ms: int = 0
    time_zone: str = "UTC"
    value: str = ""
    value_base64: Annotated[str, Meta(description="The value where it is no text.")] = ""
    key: str | None = None
    key_base64: str = ""
    headers: list[tuple[str, str]] = []
    priority: int | None = None
    ttl_ms: int = 0
    misfire: str = "run_once"
    overlap: str = "run_all"
    owner: str = ""
    created_ms: int = -1
    state: Annotated[str, Meta(description="active, paused, or broken (see problem)")] = "active"
    is_paused: bool = False
    paused_because: str = ""
    problem: Annotated[
        str, Meta(description="Why jobs cannot be published now, such as a deleted queue.")
    ] = ""
    next_ms: Annotated[list[int], Meta(description="The next five times, ms since the epoch.")] = []
    statistics: ScheduleStatistics = ScheduleStatistics()


class ScheduledJob(Result, frozen=True):
    """The place of a job that was published by hand."""

    topic: str
    partition: int
    offset: int
