"""Schedules of tasks, which the broker keeps: declared with `@app.schedule`, and created by workers
when they start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sparrow.tasks.wire import TASK

if TYPE_CHECKING:
    from sparrow.tasks.connection import Connection
    from sparrow.tasks.interface import AnyTask


class TaskSchedule(Struct):
    """A schedule of a task."""

    name: str
    task: AnyTask
    arguments: dict[str, Any]
    settings: dict[str, Any]
    """Arguments of `client.admin.put_schedule`."""

    async def put(self, connection: Connection) -> None:
        """Create the schedule, or replace its settings.

        Raises:
            ArgumentsMisfit: the arguments do not fit the task.
            SparrowError: the cron line cannot be read or is never due; the broker refuses.
        """
        task = self.task
        await connection.topic(task.settings.queue)
        await connection.client.admin.put_schedule(
            self.name,
            task.settings.queue,
            value=task.signature.encode((), self.arguments),
            headers={TASK: task.name},
            **self.settings,
        )
