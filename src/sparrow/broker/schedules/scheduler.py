"""The scheduler: publishes the jobs of all schedules when they are due.

One task sleeps until the earliest time; there is none while there are no schedules. It looks at the
wall clock at least once a second, so that a clock that jumps is noticed: after a jump forward ticks
were missed (`ticks.py`), after one back by up to an hour nothing is repeated, and after a longer
one the schedules follow the clock.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import SparrowError
from sparrow.broker.schedules.entry import NEVER
from sparrow.broker.schedules.settings import RUN_ALL, SKIP
from sparrow.broker.schedules.targets import is_unfinished, partition_of, problem_text
from sparrow.broker.schedules.ticks import MAX_BACK_MS, DueTicks, due_ticks
from sparrow.broker.schedules.waves import DueJob

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.broker.access.authz import Principal
    from sparrow.broker.partition import Partition
    from sparrow.broker.schedules.entry import ScheduleEntry
    from sparrow.broker.schedules.registry import ScheduleRegistry
    from sparrow.broker.schedules.targets import ScheduleTarget, ScheduleTargets
    from sparrow.broker.schedules.waves import Waves

_LOG = logging.getLogger(__name__)
LONGEST_SLEEP_S: Final = 1.0
RETRY_MS: Final = 1000
"""Time after which a job is tried again that could not be published."""
CHECK_MS: Final = 250
"""Time between two looks at the job for whose end another one waits."""
_AT_ONCE: Final = 200
"""Schedules that are handled before other tasks run."""
_WAVE: Final = 5000
"""Schedules whose jobs are published together."""


class Scheduler:
    """The task that publishes. Loop thread only; tests call `tick` themselves."""

    def __init__(
        self, registry: ScheduleRegistry, targets: ScheduleTargets, waves: Waves, clock: Clock
    ) -> None:
        self._registry = registry
        self._targets = targets
        self._waves = waves
        self._clock = clock
        self._poked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last_wall_ms = clock.wall_ms()
        self._settle_at_ms = 0
        self._is_armed = False
        self._lock = asyncio.Lock()
        self._is_open = False
        registry.poke = self._poke

    def begin(self) -> None:
        """Publish from now on."""
        self._is_open = True
        if not self._is_idle:
            self._poke()

    def _poke(self) -> None:
        """Look now: a schedule was made or changed."""
        self._poked.set()
        if self._is_open and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def _is_idle(self) -> bool:
        return not (len(self._registry) or self._registry.has_changes or self._waves.has_unsettled)

    async def close(self) -> None:
        """Stop; a wave that has begun is finished by the next start."""
        self._is_open = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            await self._registry.close()
        except SparrowError as error:
            _LOG.warning("the states of schedules could not be stored: %s", error.text)

    async def _run(self) -> None:
        while not self._is_idle or self._poked.is_set():
            try:
                await self.tick()
            except Exception:  # noqa: BLE001 - the schedules must outlive any one failure
                _LOG.exception("the scheduler failed, and tries again")
                await asyncio.sleep(LONGEST_SLEEP_S)
            self._poked.clear()
            if self._is_idle:
                break
            try:
                async with asyncio.timeout(self._pause_s()):
                    await self._poked.wait()
            except TimeoutError:
                pass

    def _pause_s(self) -> float:
        wake_ms = self._registry.next_wake_ms
        if wake_ms is None:
            return LONGEST_SLEEP_S
        return min(max(wake_ms - self._clock.wall_ms(), 0) / 1000, LONGEST_SLEEP_S)

    # ── one look ──────────────────────────────────────────────────────────────────────────────────

    async def tick(self) -> None:
        """Publish all jobs that are due now."""
        async with self._lock:
            await self._tick()

    async def _tick(self) -> None:
        now_ms = self._clock.wall_ms()
        if self._waves.has_unsettled and now_ms >= self._settle_at_ms:
            await self._waves.settle()
            self._settle_at_ms = now_ms + RETRY_MS
        await self._follow_clock(now_ms)
        while due := self._registry.take_due(now_ms):
            for start in range(0, len(due), _WAVE):
                await self._handle(due[start : start + _WAVE], now_ms)
        if self._registry.has_changes:
            try:
                await self._registry.write(())
            except SparrowError as error:
                _LOG.warning("the states of schedules are not stored yet: %s", error.text)

    async def _follow_clock(self, now_ms: int) -> None:
        went_back = now_ms < self._last_wall_ms - MAX_BACK_MS and self._registry.follow_clock() > 0
        self._last_wall_ms = now_ms
        if went_back or not self._is_armed:
            self._is_armed = True
            for number, entry in enumerate(self._registry):
                self._registry.arm(entry)
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def _handle(self, due: list[ScheduleEntry], now_ms: int) -> None:
        jobs: dict[Partition, list[DueJob]] = {}
        known: dict[tuple[str, str, bool, Principal], ScheduleTarget | SparrowError] = {}
        for number, entry in enumerate(due):
            if entry.is_deleted or entry.definition.is_paused:
                continue
            settings = entry.definition.settings
            asked = (settings.queue, settings.topic, settings.key is None, entry.definition.owner)
            if asked not in known:
                known[asked] = self._find(entry)
            self._decide(entry, known[asked], now_ms, jobs)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        if jobs:
            await self._publish(jobs, now_ms)

    async def _publish(self, jobs: dict[Partition, list[DueJob]], now_ms: int) -> None:
        """Publish jobs, and arm their schedules: for the next tick, or soon where it failed."""
        before = {
            id(job.state): (job.entry, job.state, job.state.cursor_ms, job.state.waiting_ms)
            for of_partition in jobs.values()
            for job in of_partition
        }
        await self._waves.publish(jobs)
        for number, (entry, state, cursor_ms, waiting_ms) in enumerate(before.values()):
            if entry.wake_ms >= 0 or entry.is_deleted:
                continue  # changed, and armed, meanwhile
            if (cursor_ms, waiting_ms) == (state.cursor_ms, state.waiting_ms):
                self._registry.wake_at(entry, now_ms + RETRY_MS)
            else:
                self._registry.arm(entry)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)

    def _find(self, entry: ScheduleEntry) -> ScheduleTarget | SparrowError:
        try:
            return self._targets.find(entry.definition.settings, entry.definition.owner)
        except SparrowError as error:
            return error

    def _decide(
        self,
        entry: ScheduleEntry,
        target: ScheduleTarget | SparrowError,
        now_ms: int,
        jobs: dict[Partition, list[DueJob]],
    ) -> None:
        """Add the jobs of a schedule to `jobs`; a schedule without a job is armed again."""
        state, settings = entry.state, entry.definition.settings
        if isinstance(target, SparrowError):
            entry.fail(problem_text(settings.queue, target), now_ms)
            state.cursor_ms, state.waiting_ms = max(now_ms, state.cursor_ms), NEVER
            self._changed(entry)
            return
        partition = partition_of(target.topic, entry.name, settings.key)
        if self._waves.is_blocked(partition):
            self._registry.wake_at(entry, now_ms + RETRY_MS)
            return
        next_ms = entry.next_ms()
        found = DueTicks([], state.cursor_ms)
        if next_ms is not None and next_ms <= now_ms:
            found = due_ticks(entry.timetable, next_ms, now_ms, settings.misfire)
        ticks = found.ticks
        if settings.overlap != RUN_ALL:
            if is_unfinished(target, state):
                self._wait(entry, found, now_ms)
                return
            if not ticks and state.waiting_ms != NEVER:
                ticks = [state.waiting_ms]
            entry.counts.skipped += max(0, len(ticks) - 1)
            ticks = ticks[-1:]  # the first of several would be unfinished when the next is due
        if not ticks:
            entry.counts.misfires += found.is_misfire
            state.cursor_ms = max(state.cursor_ms, found.cursor_ms)
            self._changed(entry)
            return
        jobs.setdefault(partition, []).extend(
            DueJob(entry, settings, state, tick_ms, max(tick_ms, state.cursor_ms), found.is_misfire)
            for tick_ms in ticks[:-1]
        )
        last_cursor_ms = max(found.cursor_ms, state.cursor_ms)
        jobs[partition].append(DueJob(entry, settings, state, ticks[-1], last_cursor_ms, found.is_misfire))

    def _wait(self, entry: ScheduleEntry, found: DueTicks, now_ms: int) -> None:
        """Handle ticks that come while the last job is unfinished."""
        state = entry.state
        if not found.ticks and found.cursor_ms == state.cursor_ms:
            self._registry.wake_at(entry, now_ms + CHECK_MS)
            return
        state.cursor_ms = max(state.cursor_ms, found.cursor_ms)
        if entry.definition.settings.overlap == SKIP:
            entry.counts.skipped += len(found.ticks)
            self._changed(entry)
            return
        if found.ticks:
            entry.counts.skipped += len(found.ticks) - (state.waiting_ms == NEVER)
            state.waiting_ms = found.ticks[-1]
        self._registry.changed(entry)
        self._registry.wake_at(entry, now_ms + CHECK_MS)

    def _changed(self, entry: ScheduleEntry) -> None:
        self._registry.changed(entry)
        self._registry.arm(entry)
