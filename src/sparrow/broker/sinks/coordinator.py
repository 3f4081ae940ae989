"""The coordinator of sinks: stages of batches, and commits that publish a whole batch at once.

Each stage is a transaction, so that a commit decides many of them. It does so in one write of the
meta store: the listed stages are committed, all other stages of the sink are aborted, and this
batch is the last one committed. From here on the decision is final, whatever crashes; the markers
follow (`transactions.coordinator`). Before that, the records of the listed stages are on stable
storage.

Staging, committing and aborting hold the sink's lock. Opening a stage holds only the lock of its
slot: tasks begin together, and their entries share one commit of the store. A stage is closed
before it is decided (`Stage.is_open`): no partition joins it and nothing is appended to it any
more, and a concurrent opening fails.

Stages are entries, too: they survive a restart, with their time counted from the beginning.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from sparrow.base.errors import SparrowError, StageExpired, UnknownTopic
from sparrow.broker.detached import Detached
from sparrow.broker.keyed_lock import KeyedLock
from sparrow.broker.sinks import persistence, state
from sparrow.broker.sinks.stage import Stage, slot_of
from sparrow.broker.sinks.stage_table import StageTable
from sparrow.broker.sinks.table import SinkTable
from sparrow.broker.transactions.state import TransactionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sparrow.base.clock import Clock
    from sparrow.broker.partition import Partition
    from sparrow.broker.producer_ids import ProducerIdentity
    from sparrow.broker.sinks.state import Caller, Sink
    from sparrow.broker.transactions.coordinator import TransactionCoordinator
    from sparrow.meta.store import MetaStore, Write
    from sparrow.records.topic_partition import TopicPartition

_LOG = logging.getLogger(__name__)
_OPEN: Final = frozenset({TransactionState.EMPTY, TransactionState.ONGOING})


class SinkCounts(Struct):
    """Counts since the broker started."""

    committed_batches: int = 0
    committed_stages: int = 0
    aborted_stages: int = 0
    """Expired stages are not among them."""
    expired_stages: int = 0


class SinkCoordinator:
    """All sinks of a broker. Loop thread only; call `load` first.

    Args:
        find: returns the partition, or None if there is none (any more).
    """

    def __init__(
        self,
        meta: MetaStore,
        clock: Clock,
        transactions: TransactionCoordinator,
        *,
        find: Callable[[TopicPartition], Partition | None],
    ) -> None:
        self.counts = SinkCounts()
        self._meta = meta
        self._clock = clock
        self._transactions = transactions
        self._find = find
        self.stages = StageTable(transactions.maybe_find)
        self._locks = KeyedLock()
        self._sinks = SinkTable(meta, clock, self._is_idle)
        self._opening = Detached()
        self._is_failing = False

    # ── life ──────────────────────────────────────────────────────────────────────────────────────

    async def load(self) -> None:
        """Read the entries of earlier runs, after the transactions were loaded.

        Raises:
            DirectoryUnreadable, NewerFormat: an entry cannot be read.
        """
        await self._sinks.load()
        stages = [persistence.read_stage(entry) for entry in await self._meta.scan(persistence.STAGE)]
        used = (slot_of(each.transactional_id) for each in self._transactions.all())
        self.stages.load(
            filter(self._is_undecided, stages),
            [each for each in used if each is not None],
            self._clock.monotonic(),
        )
        self._transactions.is_kept = self._is_kept

    def _is_undecided(self, stage: Stage) -> bool:
        found = self._transactions.maybe_find(stage.transactional_id)
        return (
            found is not None
            and (found.producer_id, found.epoch) == (stage.producer_id, stage.epoch)
            and found.state in _OPEN
        )

    def _is_kept(self, transactional_id: str) -> bool:
        slot = slot_of(transactional_id)
        return slot is not None and self.stages.has_slot(slot)

    def _is_idle(self, sink_id: str) -> bool:
        return not self.stages.of_sink(sink_id) and not self._locks.is_busy(sink_id)

    async def tick(self) -> None:
        """Abort stages without a sign of life, and forget old single writes. A failure is
        left for the next tick.
        """
        try:
            await self._expire()
            await self._sinks.tick()
        except SparrowError as error:
            if not self._is_failing:
                _LOG.warning("sinks cannot be looked after for now: %s", error.text)
            self._is_failing = True
        else:
            self._is_failing = False

    async def close(self) -> None:
        """Wait for work that has begun."""
        await self._opening.settle()
        await self._locks.settle()

    # ── stages ────────────────────────────────────────────────────────────────────────────────────

    async def stage(
        self, sink_id: str, caller: Caller, *, task: int, attempt: int, timeout_ms: int
    ) -> Stage | None:
        """Open a stage for the output of a task, durably. Return None if the batch was committed
        before: nothing is to be written.

        A new run fences those before it, and aborts their stages.

        Args:
            timeout_ms: how long the stage is kept after the last sign of life of its batch; 0: 15
                minutes, or what the broker allows.

        Raises:
            InvalidArgument, InvalidTransactionTimeout, SinkFenced, SinkTaken
            Overloaded: there are too many stages, or sinks.
            DiskFull, StorageFailed: nothing was opened.
        """
        state.check_caller(sink_id, caller)
        state.check_number("task", task)
        state.check_number("attempt", attempt)
        timeout_ms = state.timeout_of(timeout_ms, self._transactions.limits.max_timeout_ms)

        async def admit() -> Stage | None:
            sink = await self._enter(sink_id, caller)
            if sink.has_committed(caller.batch):
                return None
            self.stages.check_room(sink_id)
            stage = Stage(
                self.stages.take_slot(),
                sink_id,
                caller.run,
                caller.batch,
                task=task,
                attempt=attempt,
                timeout_ms=timeout_ms,
                opened_ms=self._clock.wall_ms(),
            )
            self.stages.add(stage, self._clock.monotonic())
            return stage

        async def open_stage() -> Stage | None:
            stage = await self._locks.run(sink_id, admit)
            if stage is not None:
                await self._open(stage)
            return stage

        return await self._opening.run(open_stage())

    async def _open(self, stage: Stage) -> None:
        def check() -> None:
            if not stage.is_open:
                raise StageExpired(
                    f"batch {stage.batch} of sink {stage.sink_id!r} was decided before the stage "
                    f"of task {stage.task} was open"
                )

        def entry(producer: ProducerIdentity) -> list[Write]:
            return [persistence.put_stage(stage, producer.producer_id, producer.epoch)]

        try:
            producer = await self._transactions.initialize(
                stage.transactional_id, stage.timeout_ms, others=entry, check=check
            )
            stage.producer_id, stage.epoch = producer.producer_id, producer.epoch
            check()
        except BaseException:
            # The task that decides about the stage frees the slot, after its decision: otherwise
            # the decision could hit the next stage in the slot.
            if stage.is_open:
                self.stages.remove(stage)
            raise

    async def join(self, stage: Stage, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to a stage's transaction, durably.

        Raises:
            StageExpired, DiskFull, StorageFailed
        """
        await self._transactions.add_partitions(
            stage.transactional_id, stage.producer, partitions, check=lambda: self.check_open(stage)
        )

    def check_open(self, stage: Stage) -> None:
        """Raise StageExpired if nothing may be added to a stage any more."""
        if not stage.is_open:
            self.stages.get(stage.stage_id)
            raise StageExpired(
                f"stage {stage.stage_id!r} is being decided about; nothing more is added to it"
            )

    def check_batch(self, stage: Stage, producer: ProducerIdentity, key: TopicPartition) -> None:
        """Raise an error unless a batch of this producer belongs into the stage. Cheap: called for
        each batch.

        Raises:
            ProducerMismatch, ProducerFenced, NotInTransaction
        """
        self._transactions.check_partition(stage.transactional_id, producer, key)

    def touch(self, stage: Stage) -> None:
        """Note that something was written into a stage."""
        self.stages.touch(stage.sink_id, stage.run, stage.batch, self._clock.monotonic())

    def opened_channel(self, stage: Stage) -> None:
        """Note that a client is about to publish into a stage."""
        stage.channels += 1
        stage.abandoned_s = None

    def ended_channel(self, stage: Stage, *, is_complete: bool) -> None:
        """Note that a client does not publish into a stage any more. `is_complete`: the client
        closed it itself.
        """
        stage.channels -= 1
        if not stage.channels and not is_complete:
            stage.abandoned_s = self._clock.monotonic()

    def renew(self, sink_id: str, run: str, batch: int) -> None:
        """Note that a batch is still in work.

        Raises:
            SinkFenced: a later run has taken over.
        """
        found = self._sinks.maybe(sink_id)
        if found is not None:
            state.check_not_fenced(found, run)
        self.stages.touch(sink_id, run, batch, self._clock.monotonic())

    # ── decisions ─────────────────────────────────────────────────────────────────────────────────

    async def commit(self, sink_id: str, caller: Caller, stage_ids: Sequence[str]) -> bool:
        """Publish the records of these stages as the batch, and drop all other stages of the sink.
        The decision is durable when this returns; readers see the records unless a disk failed, and
        then as soon as it works.

        Returns:
            True if the batch was committed before; then nothing was published now.

        Raises:
            InvalidArgument, SinkFenced, SinkTaken
            StageExpired: a stage is not open for this batch; nothing was committed.
            Overloaded: there are too many sinks.
            DiskFull, StorageFailed: nothing was committed.
        """
        state.check_caller(sink_id, caller)

        async def decide() -> bool:
            found = self._sinks.maybe(sink_id)
            then = state.enter(found, sink_id, caller, self._clock.wall_ms())
            if then.has_committed(caller.batch):
                await self._enter(sink_id, caller)
                stale = [each for each in self.stages.of_sink(sink_id) if then.has_committed(each.batch)]
                await self._abort(stale)
                return True
            listed = [self._listed(then, caller.batch, each) for each in dict.fromkeys(stage_ids)]
            if found is None:
                await self._sinks.make_room()
            await self._commit(state.commit(then, caller.batch, self._clock.wall_ms()), listed)
            return False

        return await self._locks.run(sink_id, decide)

    def _listed(self, sink: Sink, batch: int, stage_id: str) -> Stage:
        stage = self.stages.get(stage_id)
        if (stage.sink_id, stage.run, stage.batch) != (sink.sink_id, sink.run, batch):
            raise StageExpired(
                f"stage {stage_id[:80]!r} is not one of batch {batch} of run {sink.run!r} of sink "
                f"{sink.sink_id!r}; the batch must be written again"
            )
        return stage

    async def _commit(self, then: Sink, listed: Sequence[Stage]) -> None:
        winners = set(listed)
        losers = [each for each in self.stages.of_sink(then.sink_id) if each not in winners]
        stages = [*listed, *losers]
        for stage in stages:
            stage.is_open = False
        try:
            await self._sync(listed)
            await self._transactions.end_together(
                {each.transactional_id: each.producer for each in listed},
                [each.transactional_id for each in losers],
                [persistence.put_sink(then), *(persistence.delete_stage(each.slot) for each in stages)],
            )
        except BaseException:
            for stage in stages:
                stage.is_open = True
            raise
        self._sinks.put(then)
        for stage in stages:
            self.stages.remove(stage)
        self.counts.committed_batches += 1
        self.counts.committed_stages += len(listed)
        self.counts.aborted_stages += len(losers)

    async def _sync(self, stages: Iterable[Stage]) -> None:
        """Wait until the records of stages are on stable storage, as far as topics promise that."""
        for stage in stages:
            if stage.pending:
                await asyncio.wait(stage.pending)
            if stage.failure is not None:
                raise stage.failure
            if not stage.is_synced:
                found = self._transactions.find(stage.transactional_id)
                await asyncio.gather(*(self._sync_partition(key) for key in found.partitions))
                stage.is_synced = True

    async def _sync_partition(self, key: TopicPartition) -> None:
        partition = self._find(key)
        if partition is None or not partition.config.syncs:
            return
        try:
            await partition.log.durable(partition.log.end_offset)
        except UnknownTopic:  # deleted meanwhile: nothing to keep
            return

    async def abort(self, sink_id: str, caller: Caller, stage_ids: Sequence[str] = ()) -> tuple[bool, int]:
        """Drop the stages of a batch, or only the listed ones.

        Returns:
            True if the batch was committed, and then nothing was dropped; the number of dropped
            stages.

        Raises:
            InvalidArgument, DiskFull, StorageFailed
        """
        state.check_caller(sink_id, caller)
        wanted = frozenset(stage_ids)

        async def decide() -> tuple[bool, int]:
            found = self._sinks.maybe(sink_id)
            if found is not None and found.query == caller.query and found.has_committed(caller.batch):
                return True, 0
            dropped = [
                each
                for each in self.stages.of_sink(sink_id)
                if (each.run, each.batch) == (caller.run, caller.batch)
                and (not wanted or each.stage_id in wanted)
            ]
            await self._abort(dropped)
            return False, len(dropped)

        return await self._locks.run(sink_id, decide)

    async def _abort(self, stages: Sequence[Stage], others: Sequence[Write] = ()) -> None:
        if not stages and not others:
            return
        for stage in stages:
            stage.is_open = False
        try:
            await self._transactions.end_together(
                {},
                [each.transactional_id for each in stages],
                [*others, *(persistence.delete_stage(each.slot) for each in stages)],
            )
        except BaseException:
            for stage in stages:
                stage.is_open = True
            raise
        for stage in stages:
            self.stages.remove(stage)
        self.counts.aborted_stages += len(stages)

    async def _enter(self, sink_id: str, caller: Caller) -> Sink:
        """Return the sink with the caller's run as its current one."""
        found = self._sinks.maybe(sink_id)
        then = state.enter(found, sink_id, caller, self._clock.wall_ms())
        if then is found:
            return then
        if found is None:
            await self._sinks.make_room()
        await self._abort(self.stages.of_sink(sink_id), [persistence.put_sink(then)])
        self._sinks.put(then)
        if found is not None:
            _LOG.info("run %r has taken over sink %r from run %r", then.run, sink_id, found.run)
        return then

    # ── looking, ending ───────────────────────────────────────────────────────────────────────────

    def find(self, sink_id: str) -> Sink:
        """Return a sink.

        Raises:
            UnknownSink
        """
        return self._sinks.get(sink_id)

    def all(self) -> list[Sink]:
        """Return all sinks, by id."""
        return self._sinks.all()

    async def delete(self, sink_id: str) -> int:
        """Forget a sink, and drop its stages. Return their number.

        Raises:
            UnknownSink, DiskFull, StorageFailed
        """

        async def decide() -> int:
            self.find(sink_id)
            stages = self.stages.of_sink(sink_id)
            await self._abort(stages, [persistence.delete_sink(sink_id)])
            self._sinks.remove(sink_id)
            return len(stages)

        return await self._locks.run(sink_id, decide)

    def left_ms(self, stage: Stage) -> int:
        """Return how long a stage is kept without a further sign of life, in ms."""
        return max(0, self.stages.left_ms(stage, self._clock.monotonic()))

    async def _expire(self) -> None:
        for sink_id in {each.sink_id for each in self.stages if self._is_over(each)}:
            await self._locks.run(sink_id, partial(self._expire_of, sink_id))

    async def _expire_of(self, sink_id: str) -> None:
        over = [each for each in self.stages.of_sink(sink_id) if self._is_over(each)]
        if not over:
            return
        await self._abort(over)
        self.counts.aborted_stages -= len(over)
        self.counts.expired_stages += len(over)
        _LOG.info(
            "%d stages of sink %r are dropped: their batches gave no sign of life for too long",
            len(over),
            sink_id,
        )

    def _is_over(self, stage: Stage) -> bool:
        return self.stages.left_ms(stage, self._clock.monotonic()) < 0
