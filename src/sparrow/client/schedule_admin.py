"""Administration of schedules: the part of `client.admin` for jobs that the broker publishes at
their times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparrow.client.admin_base import AdminBase, result_as
from sparrow.client.results import ScheduleDescription, ScheduledJob

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta


class ScheduleAdmin(AdminBase):
    """The operations on schedules."""

    async def put_schedule(
        self,
        name: str,
        queue: str,
        *,
        cron: str | None = None,
        every: str | int | timedelta | None = None,
        time_zone: str | None = None,
        value: bytes | str = b"",
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str] | None = None,
        priority: int | None = None,
        ttl: str | int | timedelta | None = None,
        misfire: str | None = None,
        overlap: str | None = None,
        topic: str | None = None,
    ) -> ScheduleDescription:
        """Create a schedule, or replace its settings; the same again changes nothing. Any number of
        processes may call this at once, and the call is repeated over a lost connection.

        Args:
            cron: when it is due, such as "*/5 * * * *" or "@daily"; or else
            every: the time between two jobs, such as "15m" (a number is milliseconds).
            time_zone: of `cron`, such as "Europe/Berlin"; default: UTC.
            value, key, headers, priority: those of each job.
            ttl: time after which a job that nobody has taken is dropped.
            misfire: what becomes of jobs that were missed, as the broker was down: "skip",
                "run_once" (default) or "run_all".
            overlap: what becomes of a job that is due while the last one is unfinished: the same
                words, default "run_all".
            topic: the topic of the queue that gets the jobs, if it has several.

        Raises:
            InvalidConfig: a setting is wrong, or `cron` cannot be read or is never due.
            UnknownQueue, UnknownTopic, InvalidArgument
        """
        given: dict[str, Any] = {
            "queue": queue,
            "cron": cron,
            "every": _milliseconds(every),
            "time_zone": time_zone,
            "value": value or None,
            "key": key,
            "headers": None if headers is None else dict(headers),
            "priority": priority,
            "ttl": _milliseconds(ttl),
            "misfire": misfire,
            "overlap": overlap,
            "topic": topic,
        }
        settings = {word: setting for word, setting in given.items() if setting is not None}
        arguments = {"name": name, "settings": settings}
        return result_as(ScheduleDescription, await self._read("schedule.put", arguments))

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule; its jobs stay. Raises UnknownSchedule."""
        await self._change("schedule.delete", {"name": name})

    async def describe_schedule(self, name: str) -> ScheduleDescription:
        """Return a schedule with its next five times and its counts. Raises UnknownSchedule."""
        return result_as(ScheduleDescription, await self._read("schedule.describe", {"name": name}))

    async def list_schedules(self, pattern: str = "*", *, queue: str = "") -> list[ScheduleDescription]:
        """Return schedules whose name matches (`*` any run of characters, `?` one), of one queue or
        of all.
        """
        reply = await self._read("schedule.list", {"pattern": pattern, "queue": queue})
        return result_as(list[ScheduleDescription], reply["schedules"])

    async def pause_schedule(self, name: str) -> ScheduleDescription:
        """Publish no jobs until `resume_schedule`, also over restarts of the broker. Raises
        UnknownSchedule.
        """
        return result_as(ScheduleDescription, await self._change("schedule.pause", {"name": name}))

    async def resume_schedule(self, name: str) -> ScheduleDescription:
        """Publish jobs again, from the next time on. Raises UnknownSchedule."""
        return result_as(ScheduleDescription, await self._change("schedule.resume", {"name": name}))

    async def run_schedule(self, name: str) -> ScheduledJob:
        """Publish a job of the schedule now, and return where it is. Raises UnknownSchedule,
        UnknownQueue.
        """
        return result_as(ScheduledJob, await self._change("schedule.run", {"name": name}))


def _milliseconds(span: str | int | timedelta | None) -> str | int | None:
    if span is None or isinstance(span, str | int):
        return span
    return round(span.total_seconds() * 1000)
