"""A broker in this process for tests of an app: `app.testing()`.

    async with app.testing() as run:
        await send.send("alice", "hello")
        await run.drain()
        assert run.done == 1

A real broker runs in a thread, and `drain` runs the app's real workers until nothing is left that
could run. Delays of sends and retries are left out unless `delays=True`, so that a test needs no
clock.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import InvalidArgument, TimedOut, UnknownQueue
from sparrow.tasks.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from sparrow.client.client import Client
    from sparrow.client.results import DeadLetter
    from sparrow.tasks.connection import TaskMessage
    from sparrow.tasks.interface import App

_LOOK_S: Final = 0.01


class TestRun:
    """An app on a broker of its own."""

    __test__ = False  # no class of tests, for pytest

    def __init__(self, app: App, client: Client, *, has_delays: bool) -> None:
        self._app = app
        self._client = client
        self._has_delays = has_delays
        self.sent: list[TaskMessage] = []
        """All messages that were sent, with their options as they were given."""
        self.done = 0
        """Jobs that were done by `drain`."""
        self.failed = 0
        """Attempts that failed."""

    @property
    def client(self) -> Client:
        """A client of the broker."""
        return self._client

    def keep(self, message: TaskMessage) -> None:
        """Keep a message that is sent, and take its delay from it."""
        self.sent.append(message)
        if not self._has_delays:
            message.schedule = {
                k: v for k, v in message.schedule.items() if k not in ("deliver_at", "delay_ms")
            }

    async def drain(self, *, timeout: float = 30.0, concurrency: int = 8) -> int:
        """Run jobs until none is left that could run; return the number of jobs that were done.

        With delays, jobs whose time has not come stay.

        Raises:
            TimedOut: jobs are left after `timeout` seconds.
        """
        connection = await self._app.connection()
        for queue in self._app.queues:  # also for jobs that were not sent by the app
            await connection.topic(queue)
        runtime = Runtime(self._app, concurrency=concurrency, has_delays=self._has_delays)
        working = asyncio.get_running_loop().create_task(runtime.run(0.0, handle_signals=False))
        deadline = time.monotonic() + timeout
        try:
            while await self._left():
                if working.done():
                    break
                if time.monotonic() > deadline:
                    raise TimedOut(f"jobs are left after {timeout:g} s: {await self._statistics()}")
                await asyncio.sleep(_LOOK_S)
        finally:
            runtime.stop("drained")
            await working
            self.done += runtime.counts.done
            self.failed += runtime.counts.failed
        return runtime.counts.done

    async def dead_letters(self, queue: str | None = None) -> list[DeadLetter]:
        """Return the dead letters of a queue; None: of all queues of the app."""
        found: list[DeadLetter] = []
        for name in self._app.queues if queue is None else [queue]:
            try:
                description = await self._client.admin.describe_queue(name)
            except UnknownQueue:
                continue
            if description.statistics.dead:
                found += await self._client.admin.dead_letters(name, 1000)
        return found

    async def _left(self) -> bool:
        return any(
            each["ready"] or each["leased"] or each["blocked"] or each["moving"]
            for each in (await self._statistics()).values()
        )

    async def _statistics(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for name in self._app.queues:
            try:
                statistics = (await self._client.admin.describe_queue(name)).statistics
            except UnknownQueue:
                continue
            found[name] = {
                state: getattr(statistics, state)
                for state in ("ready", "leased", "delayed", "blocked", "moving")
            }
        return found


@asynccontextmanager
async def test_run(app: App, *, has_delays: bool, options: Mapping[str, Any]) -> AsyncIterator[TestRun]:
    """Run a broker for an app; see `Tasks.testing`."""
    from sparrow.testing import broker

    if app.is_connected:
        raise InvalidArgument(f"the app {app.name!r} is connected already; close it before app.testing()")
    url = app.given_url
    context = broker(**dict(options))
    running = await asyncio.to_thread(context.__enter__)
    try:
        app.url = running.url
        run = TestRun(app, (await app.connection()).client, has_delays=has_delays)
        app.send_hooks.append(run.keep)
        try:
            yield run
        finally:
            app.send_hooks.remove(run.keep)
            await app.close()
    finally:
        app.url = url
        await asyncio.to_thread(context.__exit__, None, None, None)


test_run.__test__ = False  # type: ignore[attr-defined]  # no test, for pytest
