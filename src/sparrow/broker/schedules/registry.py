"""The schedules of a broker by name, and the times at which the scheduler looks at them.

Changes are durable when a method returns, and run one after the other. Idle schedules cost nothing:
a heap has the next time of each.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidConfig, PolicyViolation, UnknownSchedule
from sparrow.broker.changes import Changes
from sparrow.broker.keyed_lock import KeyedLock
from sparrow.broker.schedules import persistence
from sparrow.broker.schedules.entry import NEVER, ScheduleEntry, ScheduleState, timetable_of
from sparrow.broker.schedules.ticks import MAX_BACK_MS
from sparrow.meta.store import Delete

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparrow.base.clock import Clock
    from sparrow.broker.access.authz import Principal
    from sparrow.broker.schedules.entry import ScheduleDefinition
    from sparrow.meta.store import MetaStore, Write

_LOG = logging.getLogger(__name__)
MAX_SCHEDULES: Final = 100_000
Make = Callable[["ScheduleDefinition | None"], "ScheduleDefinition"]
"""Returns the new definition for the present one (None: there is none)."""


class ScheduleRegistry:
    """All schedules. Loop thread only."""

    def __init__(self, meta: MetaStore, clock: Clock) -> None:
        self._meta = meta
        self._clock = clock
        self._entries: dict[str, ScheduleEntry] = {}
        self._pages: dict[str, dict[str, ScheduleState]] = {}
        self._dirty: set[str] = set()
        """Pages whose states have changed since they were written."""
        self._heap: list[tuple[int, int, ScheduleEntry]] = []
        self._numbers = itertools.count()
        self._changes = Changes(meta)
        self._creations = KeyedLock()
        self.poke: Callable[[], None] = lambda: None
        """Called when a schedule may be due earlier than before."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ScheduleEntry]:
        return iter(list(self._entries.values()))

    async def load(self) -> None:
        """Read all schedules. The scheduler computes their times.

        Raises:
            DirectoryUnreadable, NewerFormat
        """
        stored: dict[str, ScheduleState] = {}
        for entry in await self._meta.scan(persistence.STATE_KIND):
            stored.update(persistence.decode_page(entry))
        for entry in await self._meta.scan(persistence.KIND):
            definition = persistence.decode(entry)
            state = stored.get(definition.name) or ScheduleState(definition.created_ms)
            try:
                timetable = timetable_of(definition.settings, definition.created_ms)
            except InvalidConfig as error:  # a zone that this machine does not know
                _LOG.error("schedule %r is left out: %s", definition.name, error.text)
                continue
            self._remember(ScheduleEntry(definition, timetable, state))
        self.follow_clock()

    async def close(self) -> None:
        """Write states that are not written yet, and wait for changes that are under way."""
        await self._creations.settle()
        await self._changes.settle()
        await self.write(())

    # ── finding ───────────────────────────────────────────────────────────────────────────────────

    def find(self, name: str) -> ScheduleEntry | None:
        """Return the schedule, or None."""
        return self._entries.get(name)

    def get(self, name: str) -> ScheduleEntry:
        """Return the schedule.

        Raises:
            UnknownSchedule
        """
        entry = self._entries.get(name)
        if entry is None:
            raise UnknownSchedule(
                f"there is no schedule {name[:200]!r}; `sparrow schedule list` shows those there are"
            )
        return entry

    def of_owner(self, owner: Principal) -> list[ScheduleEntry]:
        """Return the schedules that a principal put last, and that are not paused."""
        return [
            each
            for each in self._entries.values()
            if each.definition.owner == owner and not each.definition.is_paused
        ]

    # ── changing ──────────────────────────────────────────────────────────────────────────────────

    async def put(self, name: str, make: Make) -> ScheduleEntry:
        """Add a schedule or replace its definition. `make` gets the present one and returns the new
        one; if that is the same object nothing is written.

        Times before the change are not made up for if the timetable has changed, or if the schedule
        was paused.

        Raises:
            InvalidConfig, PolicyViolation, DiskFull, StorageFailed, and what `make` raises.
        """

        if name in self._entries:
            return await self._changes.carry_out(lambda: self._replace(name, make))
        return await self._creations.run(name, lambda: self._create(name, make))

    async def _create(self, name: str, make: Make) -> ScheduleEntry:
        """Add a schedule; many are added at once, and share the store's commits.

        Its state needs no write: it is that of its creation (`load`).
        """
        if name in self._entries:  # by another caller
            return await self._changes.carry_out(lambda: self._replace(name, make))
        definition = make(None)
        if len(self._entries) + len(self._creations) > MAX_SCHEDULES:
            raise PolicyViolation(f"the broker has {MAX_SCHEDULES} schedules, which is the limit")
        timetable = timetable_of(definition.settings, definition.created_ms)
        await self._meta.write([persistence.entry_of(definition)])
        entry = ScheduleEntry(definition, timetable, ScheduleState(definition.created_ms))
        self._remember(entry)
        self.arm(entry)
        self.poke()
        return entry

    async def _replace(self, name: str, make: Make) -> ScheduleEntry:
        entry = self.get(name)
        before, definition = entry.definition, make(entry.definition)
        if definition is before:
            return entry
        timetable = timetable_of(definition.settings, definition.created_ms)
        state = entry.state
        if timetable != entry.timetable or (before.is_paused and not definition.is_paused):
            state = ScheduleState(self._clock.wall_ms(), state.last_ms)
            state.place(entry.state.topic_id, entry.state.partition, entry.state.offset)
        page = persistence.page_of(name)
        states = {**self._pages.get(page, {}), name: state}
        await self._meta.write([persistence.entry_of(definition), persistence.page_entry(page, states)])
        entry.definition, entry.timetable, entry.state = definition, timetable, state
        self._remember(entry)
        self.arm(entry)
        self.poke()
        return entry

    async def delete(self, name: str) -> None:
        """Delete a schedule.

        Raises:
            UnknownSchedule, DiskFull, StorageFailed
        """

        async def change() -> None:
            entry = self.get(name)
            page = persistence.page_of(name)
            states = {each: state for each, state in self._pages[page].items() if each != name}
            await self._meta.write([Delete(persistence.KIND, name), persistence.page_entry(page, states)])
            entry.is_deleted = True
            self._entries.pop(name, None)
            self._pages[page].pop(name, None)

        await self._changes.carry_out(change)

    def _remember(self, entry: ScheduleEntry) -> None:
        self._entries[entry.name] = entry
        self._pages.setdefault(persistence.page_of(entry.name), {})[entry.name] = entry.state

    # ── states ────────────────────────────────────────────────────────────────────────────────────

    def changed(self, entry: ScheduleEntry) -> None:
        """Have the state of a schedule written with the next write."""
        if not entry.is_deleted:
            self._dirty.add(persistence.page_of(entry.name))

    @property
    def has_changes(self) -> bool:
        return bool(self._dirty)

    async def write(self, others: Iterable[Write]) -> None:
        """Write the changed states, and `others` in the same transaction.

        Raises:
            DiskFull, StorageFailed: nothing was written; the states are written with the next
                write.
        """

        async def change() -> None:
            pages, self._dirty = self._dirty, set()
            writes = [*others, *(persistence.page_entry(page, self._pages[page]) for page in sorted(pages))]
            try:
                if writes:
                    await self._meta.write(writes)
            except BaseException:
                self._dirty |= pages
                raise

        await self._changes.carry_out(change)

    # ── times ─────────────────────────────────────────────────────────────────────────────────────

    def arm(self, entry: ScheduleEntry) -> None:
        """Have the scheduler look at a schedule when it is due next."""
        next_ms = None if entry.definition.is_paused or entry.is_deleted else entry.next_ms()
        if next_ms is None:
            entry.wake_ms = NEVER
        elif entry.state.waiting_ms != NEVER:
            self.wake_at(entry, self._clock.wall_ms())
        else:
            self.wake_at(entry, next_ms)

    def wake_at(self, entry: ScheduleEntry, time_ms: int) -> None:
        """Have the scheduler look at a schedule at a time, and not earlier."""
        entry.wake_ms = time_ms
        heappush(self._heap, (time_ms, next(self._numbers), entry))

    @property
    def next_wake_ms(self) -> int | None:
        """The time at which the scheduler has something to look at; None: there is nothing."""
        while self._heap and self._heap[0][0] != self._heap[0][2].wake_ms:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[ScheduleEntry]:
        """Return the schedules that are to be looked at now; each is armed again by the caller."""
        due = []
        while (wake_ms := self.next_wake_ms) is not None and wake_ms <= now_ms:
            entry = heappop(self._heap)[2]
            entry.wake_ms = NEVER
            due.append(entry)
        return due

    def follow_clock(self) -> int:
        """Let schedules that are far ahead of the clock, which was wrong before, follow it. Return
        their number; the caller arms all.
        """
        now_ms = self._clock.wall_ms()
        ahead = [each for each in self._entries.values() if each.state.cursor_ms > now_ms + MAX_BACK_MS]
        for entry in ahead:
            entry.state.cursor_ms = now_ms
            self.changed(entry)
        if ahead:
            _LOG.warning(
                "the clock was set back by more than an hour: %d schedules follow it, and may repeat jobs",
                len(ahead),
            )
        return len(ahead)
