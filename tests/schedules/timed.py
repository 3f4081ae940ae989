"""A broker whose schedules a test moves through time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sparrow.model.schedules import ScheduleDescription
from sparrow.records.record import Record
from sparrow.records.wellknown import SCHEDULE_TIME
from tests.queues.work import Work

NOON_MS = round(datetime(2026, 3, 2, 12, tzinfo=UTC).timestamp() * 1000)
MINUTE_S = 60


class Timed(Work):
    """A broker with a manual clock, a queue "jobs", and what schedules did there."""

    async def put(self, name: str, **settings: Any) -> ScheduleDescription:
        return await self.broker.schedules.put(name, {"queue": "jobs", **settings})

    async def tick(self) -> None:
        await self.broker.parts.scheduler.tick()

    async def pass_minutes(self, minutes: float, *, by: float = 1) -> None:
        """Let time pass in steps, as it does for a broker that runs."""
        while minutes > 0:
            self.clock.advance(min(by, minutes) * MINUTE_S)
            minutes -= by
            await self.tick()

    async def published(self, topic: str = "jobs") -> list[Record]:
        """Return all jobs on a topic."""
        from sparrow.broker.reading.fetch import FetchRequest
        from sparrow.records.batch import split
        from sparrow.records.record import decode

        found = []
        for partition in self.broker.parts.topic_registry.get(topic).partitions:
            number = partition.id.partition
            for each in await self.broker.records.fetch([FetchRequest(topic, number, 0)]):
                found += [
                    record
                    for _, batch in split(each.chunk.data if each.chunk else b"")
                    for record in decode(batch, topic, number)
                ]
        return found

    async def minutes(self, topic: str = "jobs") -> list[float]:
        """Return the ticks of all jobs, in minutes since noon."""
        ticks = [int(dict(each.headers)[SCHEDULE_TIME] or b"0") for each in await self.published(topic)]
        return [(tick - NOON_MS) / 60_000 for tick in ticks]

    def shown(self, name: str) -> ScheduleDescription:
        return self.broker.schedules.describe(name)
