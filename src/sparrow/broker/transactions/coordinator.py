"""The coordinator of transactions: makes decisions, stores them and carries them out.

Work on a transactional id holds the id's lock (`KeyedLock`). The ids are in `table`, the rules in
`state`. The order of every end:

1. The decision is durable in the meta store, in one write with the offsets that it commits (or
   drops). From here on it is final.
2. Each partition gets its marker, and the markers are on stable storage.
3. The transaction is complete, in memory; its entry follows at the next tick, or with the id's next
   write.

A crash between any two leaves the entry of the decision: the next start carries it out, and writes
a marker only where records still wait for one. Because memory has the decision before the first
marker is written, nothing is appended to a partition after its marker. A failed step (a full disk)
is tried again at each tick; the producer that decided gets its response nevertheless.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeGuard

from msgspec import Struct

from sparrow.base.errors import ConcurrentTransactions, SparrowError, UnknownTopic
from sparrow.broker.keyed_lock import KeyedLock
from sparrow.broker.producer_ids import ProducerIdentity, owner_of_transactions
from sparrow.broker.producers import TransactionEnd
from sparrow.broker.transactions import state
from sparrow.broker.transactions.pending_offsets import PendingOffsets
from sparrow.broker.transactions.state import AT_REST, PREPARED, Transaction, TransactionState
from sparrow.broker.transactions.table import TransactionTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sparrow.base.clock import Clock
    from sparrow.broker.groups.offsets import OffsetAndMetadata
    from sparrow.broker.partition import Partition
    from sparrow.broker.producer_ids import ProducerIds
    from sparrow.meta.store import MetaStore, Put, Write
    from sparrow.records.topic_partition import TopicPartition

_LOG = logging.getLogger(__name__)
_EXPIRY_INTERVAL_S = 60.0


class TransactionLimits(Struct, frozen=True):
    """Times in milliseconds."""

    max_timeout_ms: int = 900_000
    """The longest time-out a producer may ask for (Kafka: transaction.max.timeout.ms)."""
    id_expiration_ms: int = 7 * 86_400_000
    """Time at rest after which a transactional id is forgotten (Kafka:
    transactional.id.expiration.ms).
    """


class CommittedOffsets(Protocol):
    """The committed offsets of groups, which take over decided offsets."""

    def offset_writes(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> tuple[list[Put], Callable[[], None]]:
        """Return the entries of a commit, and a function to call when they are durable."""
        ...


def _nothing() -> None:
    """Accept: there is nothing to check."""


def _no_entries(_: ProducerIdentity) -> Sequence[Write]:
    return ()


class TransactionCoordinator:
    """All transactional ids of a broker. Loop thread only; call `load` first, then `resume`.

    Args:
        find: returns the partition, or None if there is none (any more).
    """

    def __init__(
        self,
        meta: MetaStore,
        clock: Clock,
        *,
        find: Callable[[TopicPartition], Partition | None],
        producer_ids: ProducerIds,
        offsets: CommittedOffsets,
        limits: TransactionLimits | None = None,
    ) -> None:
        self.pending = PendingOffsets()
        self.limits = limits or TransactionLimits()
        self.is_kept: Callable[[str], bool] = lambda _: False
        """Return True if another part manages an id (a stage of a sink): it is neither timed out
        nor forgotten here.
        """
        self._meta = meta
        self._clock = clock
        self._find = find
        self._producer_ids = producer_ids
        self._offsets = offsets
        self._locks = KeyedLock()
        self._table = TransactionTable(meta, self._locks)
        self._attempted: set[str] = set()
        """Ids that are being completed, with markers in some partitions perhaps."""
        self._failed: set[str] = set()
        """Those of the attempted ids whose failure was logged."""
        self._expired_at = clock.monotonic()
        self._is_failing = False

    # ── life ──────────────────────────────────────────────────────────────────────────────────────

    async def load(self) -> None:
        """Read the entries of earlier runs.

        Raises:
            DirectoryUnreadable, NewerFormat: an entry cannot be read.
        """
        await self._table.load()
        await self.pending.load(self._meta)
        orphans = [each for each in self.pending.transactions() if not self._table.is_active(each)]
        for transactional_id in orphans:
            await self._meta.write(self.pending.deletes(transactional_id))
            self.pending.forget(transactional_id)
        for group in list(self.pending.groups()):
            gone = [key for key in self.pending.of_group(group) if self._find(key) is None]
            writes, forget = self.pending.supersede(group, gone)
            await self._meta.write(writes)
            forget()
        self._attempted = {each.transactional_id for each in self._table.active() if each.state in PREPARED}

    async def resume(self) -> None:
        """Carry out what was decided before the start. `tick` tries failures again."""
        attempted = list(self._attempted)
        await self._locks.run_all(attempted, partial(self._finish, attempted))

    async def tick(self) -> None:
        """Abort transactions that are open for too long, retry completions that failed, and forget
        unused ids.

        A failed write is left for the next tick.
        """
        try:
            await self._tick()
        except SparrowError as error:
            if not self._is_failing:
                _LOG.warning("transactions cannot be looked after for now: %s", error.text)
            self._is_failing = True
        else:
            self._is_failing = False

    async def _tick(self) -> None:
        now_ms = self._clock.wall_ms()
        active = self._table.active()
        prepared = [each.transactional_id for each in active if each.state in PREPARED]
        if prepared:
            await self._locks.run_all(prepared, partial(self._finish, prepared))
        for found in active:
            transactional_id = found.transactional_id
            if found.is_over(now_ms) and not self.is_kept(transactional_id):
                await self._locks.run(transactional_id, partial(self._time_out, transactional_id))
        await self._table.write_completed()
        if self._clock.monotonic() - self._expired_at >= _EXPIRY_INTERVAL_S:
            self._expired_at = self._clock.monotonic()
            await self._table.forget_unused(now_ms - self.limits.id_expiration_ms, self.is_kept)

    async def close(self) -> None:
        """Wait for work that has begun, then write the entries that are behind memory."""
        await self._locks.settle()
        try:
            await self._table.write_completed()
        except SparrowError as error:
            _LOG.warning("the ends of transactions are carried out again at the next start: %s", error.text)

    # ── operations ────────────────────────────────────────────────────────────────────────────────

    async def initialize(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None = None,
        *,
        others: Callable[[ProducerIdentity], Sequence[Write]] = _no_entries,
        check: Callable[[], None] = _nothing,
    ) -> ProducerIdentity:
        """Return the identity of a producer that begins, or (`expected`) continues, durably.

        Args:
            others: returns entries to store in the same write, for the identity.
            check: raises if the identity may not be given any more; called at the moment of
                writing.

        Raises:
            InvalidTransactionTimeout, ProducerFenced
            ConcurrentTransactions: the last transaction is being completed; ask again.
            DiskFull, StorageFailed: nothing was decided. And what `check` raises.
        """
        state.check_timeout(timeout_ms, self.limits.max_timeout_ms)
        known = None if expected is None else (expected.producer_id, expected.epoch)
        return await self._locks.run(
            transactional_id,
            lambda: self._initialize(transactional_id, timeout_ms, known, others=others, check=check),
        )

    async def _initialize(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        *,
        others: Callable[[ProducerIdentity], Sequence[Write]],
        check: Callable[[], None],
    ) -> ProducerIdentity:
        found = self._table.maybe(transactional_id)
        fresh_id = state.NO_PRODUCER_ID
        if found is None:
            found = Transaction(transactional_id, await self._new_producer_id(transactional_id))
        elif state.needs_fresh_id(found, expected):
            fresh_id = await self._new_producer_id(transactional_id)
        then = state.initialize(found, timeout_ms, expected, fresh_id, self._clock.wall_ms())
        if then.state is TransactionState.PREPARE_ABORT:
            await self._end(then)
            if self._table.get(transactional_id).state in AT_REST:
                return await self._initialize(
                    transactional_id, timeout_ms, expected, others=others, check=check
                )
            raise ConcurrentTransactions(
                f"the open transaction of {transactional_id!r} was aborted; ask again for a producer id"
            )
        check()
        identity = ProducerIdentity(then.producer_id, then.epoch)
        await self._table.keep(then, others(identity))
        return identity

    async def _new_producer_id(self, transactional_id: str) -> int:
        """Return a producer id for batches in transactions of this transactional id alone."""
        return (await self._producer_ids.allocate(owner_of_transactions(transactional_id))).producer_id

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        *,
        check: Callable[[], None] = _nothing,
    ) -> None:
        """Add partitions to the producer's transaction, durably. It begins if none is open.

        Args:
            check: raises if they may not take part any more; called at the moment of writing.

        Raises:
            ProducerMismatch, ProducerFenced, ConcurrentTransactions, DiskFull, StorageFailed, and
            what `check` raises.
        """
        wanted = frozenset(partitions)
        found = self._table.maybe(transactional_id)
        if (
            found is not None
            and found.state is TransactionState.ONGOING
            and wanted <= found.partitions
            and not self._locks.is_busy(transactional_id)
        ):
            state.check_producer(found, producer.producer_id, producer.epoch)
            return

        async def add() -> None:
            check()
            await self._add(transactional_id, producer, wanted, ())

        await self._locks.run(transactional_id, add)

    async def add_group(self, transactional_id: str, producer: ProducerIdentity, group: str) -> None:
        """Add a group's offsets to the producer's transaction. Raises as `add_partitions`."""
        await self._locks.run(transactional_id, lambda: self._add(transactional_id, producer, (), (group,)))

    async def _add(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        groups: Sequence[str],
    ) -> None:
        found = self._table.of_producer(transactional_id)
        now_ms = self._clock.wall_ms()
        then = state.add(
            found, producer.producer_id, producer.epoch, partitions=partitions, groups=groups, now_ms=now_ms
        )
        if then is not found:
            await self._table.keep(then)

    def check_partition(self, transactional_id: str, producer: ProducerIdentity, key: TopicPartition) -> None:
        """Raise an error unless the producer may append to a partition in its transaction. Cheap:
        called for each batch.

        Raises:
            ProducerMismatch, ProducerFenced, ConcurrentTransactions, NotInTransaction
        """
        state.check_partition(
            self._table.of_producer(transactional_id), producer.producer_id, producer.epoch, key
        )

    async def commit_offsets(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        adds_group: bool,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Store offsets that the producer's transaction commits when it does, durably.

        Args:
            adds_group: the group takes part from now on (KIP-890); else it must have been added.
            check: raises if the group refuses; called at the moment of writing, because members
                change while this waits.

        Raises:
            ProducerMismatch, ProducerFenced, ConcurrentTransactions, DiskFull, StorageFailed, and
            what `check` raises.
            NotInTransaction: the group was not added.
        """
        await self._locks.run(
            transactional_id,
            lambda: self._commit_offsets(
                transactional_id, producer, group, offsets, adds_group=adds_group, check=check
            ),
        )

    async def _commit_offsets(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        adds_group: bool,
        check: Callable[[], None],
    ) -> None:
        found = then = self._table.of_producer(transactional_id)
        if adds_group:
            now_ms = self._clock.wall_ms()
            then = state.add(found, producer.producer_id, producer.epoch, groups=(group,), now_ms=now_ms)
        else:
            state.check_group(found, producer.producer_id, producer.epoch, group)
        check()
        left = {key: value for key, value in offsets.items() if self._find(key) is not None}
        writes = self.pending.writes(transactional_id, group, left)
        with self.pending.announced(group, left):
            if then is found:
                await self._meta.write(writes)
            else:
                await self._table.keep(then, writes)
            self.pending.apply(transactional_id, group, left)

    async def end(
        self, transactional_id: str, producer: ProducerIdentity, *, commit: bool, bumps_epoch: bool
    ) -> ProducerIdentity:
        """Commit or abort. The decision is durable when this returns, and readers see it unless a
        disk failed.

        Returns:
            The identity with which the producer continues: another epoch with `bumps_epoch`
                (KIP-890).

        Raises:
            ProducerMismatch, ProducerFenced, ConcurrentTransactions, InvalidTransactionState
            DiskFull, StorageFailed: nothing was decided.
        """

        async def decide() -> ProducerIdentity:
            found = self._table.of_producer(transactional_id)
            fresh_id = state.NO_PRODUCER_ID
            if bumps_epoch and found.is_exhausted:
                fresh_id = await self._new_producer_id(transactional_id)
            then = state.end(
                found,
                producer.producer_id,
                producer.epoch,
                commit=commit,
                bumps_epoch=bumps_epoch,
                fresh_id=fresh_id,
                now_ms=self._clock.wall_ms(),
            )
            if then is not found:
                await self._end(then)
            return ProducerIdentity(*then.identity)

        return await self._locks.run(transactional_id, decide)

    async def end_together(
        self,
        commits: Mapping[str, ProducerIdentity],
        aborts: Iterable[str],
        others: Sequence[Write] = (),
    ) -> None:
        """Commit the transactions of producers and abort those of other ids, in one write with
        further entries: all of it or nothing.

        The decision is durable when this returns, and readers see it unless a disk failed. Ids
        without an open transaction stay as they are.

        Raises:
            ProducerMismatch, ProducerFenced, ConcurrentTransactions: a transaction to be committed
                was ended otherwise.
            DiskFull, StorageFailed: nothing was decided.
        """
        aborted = list(aborts)

        async def decide() -> None:
            now_ms = self._clock.wall_ms()
            decided = [self._committed(each, producer, now_ms) for each, producer in commits.items()]
            decided += [
                state.time_out(each, now_ms) for each in map(self._table.maybe, aborted) if _is_open(each)
            ]
            await self._decide([each for each in decided if each.state in PREPARED], others)
            await self._finish([each.transactional_id for each in decided])

        await self._locks.run_all([*commits, *aborted], decide)

    def _committed(self, transactional_id: str, producer: ProducerIdentity, now_ms: int) -> Transaction:
        """Return the commit of the producer's open transaction; if it has none, the id as it is."""
        found = self._table.of_producer(transactional_id)
        if found.state is TransactionState.EMPTY:
            state.check_producer(found, producer.producer_id, producer.epoch)
            return found
        return state.end(
            found,
            producer.producer_id,
            producer.epoch,
            commit=True,
            bumps_epoch=False,
            fresh_id=state.NO_PRODUCER_ID,
            now_ms=now_ms,
        )

    def maybe_find(self, transactional_id: str) -> Transaction | None:
        """Return a transactional id, or None."""
        return self._table.maybe(transactional_id)

    def find(self, transactional_id: str) -> Transaction:
        """Return a transactional id.

        Raises:
            UnknownTransaction
        """
        return self._table.get(transactional_id)

    def all(self) -> list[Transaction]:
        """Return all transactional ids, by name."""
        return list(self._table)

    async def abort_open(self, producer: ProducerIdentity, key: TopicPartition) -> None:
        """Abort the transaction that a producer has open in a partition, in all partitions that
        take part in it.

        Do nothing if it has none open there.

        Raises:
            ProducerFenced: the transaction is of a later epoch.
            DiskFull, StorageFailed: nothing was decided.
        """
        taking_part = [
            each.transactional_id
            for each in self._table.active()
            if each.producer_id == producer.producer_id and key in each.partitions
        ]

        async def abort() -> None:
            for found in map(self._table.get, taking_part):
                if not _is_open(found) or found.producer_id != producer.producer_id:
                    continue
                if producer.epoch < found.epoch:
                    raise state.fenced(found, producer.producer_id, producer.epoch)
                await self._end(state.time_out(found, self._clock.wall_ms()))

        await self._locks.run_all(taking_part, abort)

    async def abort_forgotten(self, partition: Partition) -> None:
        """Abort transactions of a partition that belong to no transactional id, because the meta
        store was lost or the log came from elsewhere. Otherwise readers of committed records would
        wait for ever.

        Raises:
            DiskFull, StorageFailed, Overloaded: as appending.
        """
        key = (partition.id.topic, partition.id.partition)
        found = partition.open_transactions()
        known = self._table.producers_in(key) if found else set()
        for producer_id, epoch in found:
            if producer_id not in known:
                _LOG.warning(
                    "producer %d has a transaction open in %s that no transactional id knows of; "
                    "it is aborted",
                    producer_id,
                    partition.id,
                )
                await partition.end_transactions([TransactionEnd(producer_id, epoch, commit=False)])

    # ── the end of a transaction ──────────────────────────────────────────────────────────────────

    async def _end(self, then: Transaction) -> None:
        await self._decide([then])
        await self._finish([then.transactional_id])

    async def _decide(self, decided: Sequence[Transaction], others: Sequence[Write] = ()) -> None:
        """Make decisions durable, with the offsets that depend on them."""
        writes: list[Write] = list(others)
        applies = []
        for then in decided:
            transactional_id = then.transactional_id
            writes += self.pending.deletes(transactional_id)
            if then.state is not TransactionState.PREPARE_COMMIT:
                continue
            for group, offsets in self.pending.of_transaction(transactional_id).items():
                left = {key: value for key, value in offsets.items() if self._find(key) is not None}
                puts, apply = self._offsets.offset_writes(group, left)
                writes += puts
                applies.append(apply)
        await self._table.keep_all(
            [each if each.partitions else state.complete(each, each.updated_ms) for each in decided], writes
        )
        for then in decided:
            self.pending.forget(then.transactional_id)
        for apply in applies:
            apply()

    async def _finish(self, transactional_ids: Iterable[str]) -> None:
        """Carry decisions out: write markers everywhere, those of one partition in one step. A
        failure is left for the next tick.
        """
        due = [each for each in map(self._table.get, transactional_ids) if each.state in PREPARED]
        by_partition: defaultdict[TopicPartition, list[Transaction]] = defaultdict(list)
        for found in due:
            for key in found.partitions:
                by_partition[key].append(found)
        maybe_there = self._attempted.intersection(each.transactional_id for each in due)
        self._attempted.update(each.transactional_id for each in due)
        keys = sorted(by_partition)
        writes = []
        for key in keys:
            writes.append(asyncio.ensure_future(self._write_markers(key, by_partition[key], maybe_there)))
            # the markers of many transactions take a while: let other tasks run between
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        failures = {
            key: outcome
            for key, outcome in zip(keys, outcomes, strict=True)
            if isinstance(outcome, BaseException)
        }
        for found in due:
            self._finished(
                found, next((failures[each] for each in found.partitions if each in failures), None)
            )

    def _finished(self, found: Transaction, failure: BaseException | None) -> None:
        transactional_id = found.transactional_id
        if failure is None:
            self._attempted.discard(transactional_id)
            self._failed.discard(transactional_id)
            self._table.complete(state.complete(found, self._clock.wall_ms()))
        elif transactional_id not in self._failed:
            self._failed.add(transactional_id)
            _report(found, failure)

    async def _write_markers(
        self, key: TopicPartition, those: Sequence[Transaction], maybe_there: set[str]
    ) -> None:
        partition = self._find(key)
        if partition is None:
            return
        try:
            await partition.opened()
            ends = [
                TransactionEnd(each.producer_id, each.epoch, each.state is TransactionState.PREPARE_COMMIT)
                for each in those
                if each.transactional_id not in maybe_there
                or partition.has_open_transaction(each.producer_id)
            ]
            if ends:
                await partition.end_transactions(ends)
            else:
                await partition.log.durable(partition.log.end_offset)
        except UnknownTopic:  # deleted meanwhile: nothing to decide
            return

    async def _time_out(self, transactional_id: str) -> None:
        found = self._table.get(transactional_id)
        now_ms = self._clock.wall_ms()
        if found.is_over(now_ms):
            _LOG.info(
                "the transaction of %r is open for more than %d ms and is aborted",
                transactional_id,
                found.timeout_ms,
            )
            await self._end(state.time_out(found, now_ms))


def _is_open(found: Transaction | None) -> TypeGuard[Transaction]:
    return found is not None and found.state is TransactionState.ONGOING


def _report(found: Transaction, failure: BaseException) -> None:
    if not isinstance(failure, SparrowError):
        _LOG.error("a transaction of %r could not be completed", found.transactional_id, exc_info=failure)
        return
    _LOG.warning(
        "a transaction of %r (%s) could not be completed and is tried again: %s",
        found.transactional_id,
        found.state.value,
        failure.text,
    )
