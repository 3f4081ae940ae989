"""Publishing the jobs of ticks, each exactly once, over crashes as well.

The jobs that are due together form a wave. For each partition it goes in three steps, each on
stable storage before the next:

1. the plan: which jobs are in which batch, with a producer id that was made for it alone;
2. the batches, in the log;
3. the states of the schedules, in one write with the removal of the plan.

After a crash, or a failure, between 1 and 3 the headers of the log show which batches are there
(`find_produced`): their jobs are done, the others never happened and are still due. Until that is
known the partition gets no other wave.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from sparrow.base.errors import BadInput, NotFound, OffsetOutOfRange, SparrowError
from sparrow.broker.produced_batches import find_produced
from sparrow.broker.publishes import ACKS_LEADER
from sparrow.broker.schedules import persistence
from sparrow.broker.schedules.entry import NEVER, ScheduleState
from sparrow.broker.schedules.persistence import VERSION, PlannedJob, SchedulePlan
from sparrow.meta.store import Delete
from sparrow.records.batch import HEADER_BYTES
from sparrow.records.builder import build_batch
from sparrow.records.delivery_options import NOTHING, with_delivery_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.base.clock import Clock
    from sparrow.base.histogram import Histogram
    from sparrow.broker.partition import Partition
    from sparrow.broker.schedules.entry import ScheduleEntry
    from sparrow.broker.schedules.registry import ScheduleRegistry
    from sparrow.broker.schedules.settings import ScheduleSettings
    from sparrow.broker.topics.registry import TopicRegistry
    from sparrow.meta.store import MetaStore
    from sparrow.records.delivery_options import Header

_LOG = logging.getLogger(__name__)
_RECORD_BYTES: Final = 50
_HEADER_BYTES: Final = 20
"""Upper bounds of what a record, or a header, takes besides its contents."""


class DueJob(Struct, eq=False):
    """A tick that becomes a job."""

    entry: ScheduleEntry
    settings: ScheduleSettings
    state: ScheduleState
    """The state at the time of the decision: that of another timetable replaces it."""
    tick_ms: int
    cursor_ms: int
    is_misfire: bool = False


class _Batch(Struct):
    jobs: list[DueJob]
    data: bytes


class _Wave(Struct, eq=False):
    """The jobs of one partition."""

    key: str
    topic_id: uuid.UUID
    number: int
    """Number of the partition."""
    plan: SchedulePlan
    is_applied: bool = False
    """True if only step 3 is left."""
    is_reported: bool = False
    """True once the log says that the partition is waited for."""


class Waves:
    """Publishes jobs. Loop thread only.

    Args:
        new_producer_id: returns numbers that were never used before.
        lateness: gets the time between tick and stored job, in seconds.
    """

    def __init__(
        self,
        registry: ScheduleRegistry,
        topics: TopicRegistry,
        meta: MetaStore,
        clock: Clock,
        *,
        new_producer_id: Callable[[], Awaitable[int]],
        lateness: Histogram,
    ) -> None:
        self._registry = registry
        self._topics = topics
        self._meta = meta
        self._clock = clock
        self._new_producer_id = new_producer_id
        self._lateness = lateness
        self._unsettled: dict[str, _Wave] = {}

    async def load(self) -> None:
        """Read the plans of waves that a crash cut short; `settle` finishes them.

        Raises:
            DirectoryUnreadable, NewerFormat
        """
        for entry in await self._meta.scan(persistence.PLAN_KIND):
            topic_id, partition, plan = persistence.decode_plan(entry)
            self._unsettled[entry.key] = _Wave(entry.key, topic_id, partition, plan)

    def is_blocked(self, partition: Partition) -> bool:
        """Return True while it is not known what became of the partition's last wave."""
        return persistence.plan_key(partition.id.topic_id, partition.id.partition) in self._unsettled

    @property
    def has_unsettled(self) -> bool:
        return bool(self._unsettled)

    # ── one wave ──────────────────────────────────────────────────────────────────────────────────

    async def publish(self, jobs: dict[Partition, list[DueJob]]) -> None:
        """Publish jobs. Those that cannot be published now have the reason in their counts, and an
        unchanged state: they are still due.
        """
        waves: list[tuple[_Wave, Partition, list[_Batch]]] = []
        for partition, of_partition in jobs.items():
            try:
                await partition.opened()
                waves.append(await self._planned(partition, of_partition))
            except SparrowError as error:
                self._failed(of_partition, error)
        try:
            await self._meta.write([persistence.plan_entry(wave.key, wave.plan) for wave, _, _ in waves])
        except SparrowError as error:
            for _, _, batches in waves:
                for batch in batches:
                    self._failed(batch.jobs, error)
            return
        for wave, _, _ in waves:
            self._unsettled[wave.key] = wave
        await asyncio.gather(*(self._append(*each) for each in waves))
        await self._finish([wave for wave, _, _ in waves if wave.is_applied])

    async def _planned(
        self, partition: Partition, jobs: list[DueJob]
    ) -> tuple[_Wave, Partition, list[_Batch]]:
        producer_id = await self._new_producer_id()
        batches: list[_Batch] = []
        for slice_ in _slices(jobs, partition.config.max_message_bytes - HEADER_BYTES):
            batches.append(_Batch(slice_, self.build(slice_, producer_id=producer_id, number=len(batches))))
            await asyncio.sleep(0)  # building a batch takes its time
        log_id = partition.id
        plan = SchedulePlan(
            VERSION,
            producer_id,
            partition.visible_end,
            [[_in_plan(job) for job in each.jobs] for each in batches],
        )
        key = persistence.plan_key(log_id.topic_id, log_id.partition)
        return _Wave(key, log_id.topic_id, log_id.partition, plan), partition, batches

    def build(self, jobs: Sequence[DueJob], *, producer_id: int = -1, number: int = -1) -> bytes:
        """Return a batch with the records of jobs."""
        now_ms = self._clock.wall_ms()
        return build_batch(
            [job.settings.payload for job in jobs],
            [job.settings.key for job in jobs],
            [_headers(job, now_ms) for job in jobs],
            now_ms,
            producer_id=producer_id,
            producer_epoch=number,
        )

    async def _append(self, wave: _Wave, partition: Partition, batches: list[_Batch]) -> None:
        """Append batches one after the other up to a failure, wait until they are durable, and
        apply them.
        """
        appended: list[tuple[_Batch, int]] = []
        end = -1
        for number, batch in enumerate(batches):
            try:
                published = await partition.publish(batch.data, ACKS_LEADER, is_built_here=True)
            except SparrowError as error:
                if _is_refused_for_good(error):
                    self._refused(batch.jobs, error)
                    continue
                for other in batches[number:]:
                    self._failed(other.jobs, error)
                break
            appended.append((batch, published.base_offset))
            end = published.last_offset + 1
        try:
            if appended:
                await partition.log.durable(end)
        except SparrowError as error:
            _LOG.warning(
                "it is not known yet if jobs of schedules are stored in %s: %s", partition.id, error.text
            )
            return
        now_ms = self._clock.wall_ms()
        for batch, offset in appended:
            for place, job in enumerate(batch.jobs):
                self._apply(job, wave, offset + place, now_ms)
        wave.is_applied = True

    def _apply(self, job: DueJob, wave: _Wave, offset: int, now_ms: int) -> None:
        counts = job.entry.counts
        counts.jobs += 1
        counts.misfires += job.is_misfire
        counts.last_late_ms = max(0, now_ms - job.tick_ms)
        self._lateness.observe(counts.last_late_ms / 1000)
        if job.entry.state is job.state:
            _advance(job.state, job.tick_ms, job.cursor_ms)
            job.state.place(wave.topic_id.bytes, wave.number, offset)
            self._registry.changed(job.entry)

    def _failed(self, jobs: Iterable[DueJob], error: SparrowError) -> None:
        now_ms = self._clock.wall_ms()
        for job in jobs:
            job.entry.fail(error.text, now_ms)

    def _refused(self, jobs: Sequence[DueJob], error: SparrowError) -> None:
        """Give up ticks whose jobs the topic will never take."""
        self._failed(jobs, error)
        for job in jobs:
            if job.entry.state is job.state:
                _advance(job.state, job.state.last_ms, job.cursor_ms)
                self._registry.changed(job.entry)

    async def _finish(self, waves: Sequence[_Wave]) -> None:
        """Write the states, and remove the plans."""
        try:
            await self._registry.write([Delete(persistence.PLAN_KIND, wave.key) for wave in waves])
        except SparrowError as error:
            _LOG.warning("the states of schedules are not stored yet: %s", error.text)
            return
        for wave in waves:
            self._unsettled.pop(wave.key, None)

    # ── after a crash or a failure ────────────────────────────────────────────────────────────────

    async def settle(self) -> None:
        """Find out what became of the waves of which it is not known."""
        for wave in list(self._unsettled.values()):
            try:
                if not wave.is_applied:
                    await self._look(wave)
            except SparrowError as error:
                if not wave.is_reported:
                    _LOG.warning("schedules wait for partition %s: %s", wave.key, error.text)
                wave.is_reported = True
        await self._finish([wave for wave in self._unsettled.values() if wave.is_applied])

    async def _look(self, wave: _Wave) -> None:
        """Apply the batches of a wave that are in the log.

        Raises:
            LogDamaged, StorageFailed, Overloaded: the log cannot be read or synced now.
        """
        topic = self._topics.find_id(wave.topic_id)
        if topic is None or wave.number >= len(topic.partitions):
            wave.is_applied = True  # the jobs are gone with the topic
            return
        log = await topic.partitions[wave.number].opened()
        found = await find_produced(log, wave.plan.producer_id, wave.plan.first_offset)
        if found:
            await log.durable(max(header.next_offset for header in found))
        for header in found:
            if 0 <= header.producer_epoch < len(wave.plan.batches):
                for place, job in enumerate(wave.plan.batches[header.producer_epoch]):
                    self._apply_found(PlannedJob(*job), wave, header.base_offset + place)
        wave.is_applied = True

    def _apply_found(self, job: PlannedJob, wave: _Wave, offset: int) -> None:
        entry = self._registry.find(job.name)
        if entry is None or entry.state.cursor_ms > job.cursor_ms:
            return
        _advance(entry.state, job.tick_ms, job.cursor_ms)
        entry.state.place(wave.topic_id.bytes, wave.number, offset)
        self._registry.changed(entry)
        self._registry.arm(entry)


def _in_plan(job: DueJob) -> PlannedJob:
    return PlannedJob(job.entry.name, job.tick_ms, job.cursor_ms)


def _advance(state: ScheduleState, tick_ms: int, cursor_ms: int) -> None:
    state.last_ms, state.waiting_ms = tick_ms, NEVER
    state.cursor_ms = max(state.cursor_ms, cursor_ms)


def _is_refused_for_good(error: SparrowError) -> bool:
    return isinstance(error, BadInput | NotFound) and not isinstance(error, OffsetOutOfRange)


def _headers(job: DueJob, now_ms: int) -> Sequence[Header]:
    headers = job.settings.headers_at(job.entry.name, job.tick_ms)
    delivery = job.settings.delivery
    return headers if delivery == NOTHING else with_delivery_options(headers, delivery, now_ms)


def _slices(jobs: list[DueJob], room: int) -> Iterable[list[DueJob]]:
    """Yield jobs in portions whose records fit one batch."""
    used, portion = 0, list[DueJob]()
    for job in jobs:
        size = _estimate_bytes(job)
        if portion and used + size > room:
            yield portion
            used, portion = 0, []
        portion.append(job)
        used += size
    if portion:
        yield portion


def _estimate_bytes(job: DueJob) -> int:
    settings = job.settings
    named = sum(_HEADER_BYTES + len(name) * 4 + len(value) for name, value in settings.headers)
    own = 5 * (_HEADER_BYTES + 20) + 4 * len(job.entry.name)
    return _RECORD_BYTES + len(settings.payload) + len(settings.key or b"") + named + own
