"""The coordinator of transactions: what was decided, kept and carried out.

Whoever asks for something about a transactional id waits for its turn (`turns`). What is known of the ids is in `table`, the rules are in
`state`. The order of every end:

1. The decision is durable in the meta store, in one write with the offsets that it commits (or drops). From here on it stands.
2. Each partition gets its marker, and the markers are on stable storage.
3. The transaction is complete, in memory; its fact follows at the next tick, or with the id's next write.

A crash between any two leaves the fact of the decision: the next start carries it out, and writes a marker only where records still wait for
one. Because memory knows of the decision before the first marker is written, nothing is appended to a partition after its marker.
What fails (a full disk) is tried again at each tick; the producer that decided has its answer all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeGuard

from sparrow.base.errors import ConcurrentTransactions, SparrowError, UnknownTopic
from sparrow.broker.partition import TransactionEnd
from sparrow.broker.producer_ids import ProducerIdentity
from sparrow.broker.transactions import state
from sparrow.broker.transactions.pending import PendingOffsets
from sparrow.broker.transactions.state import AT_REST, PREPARED, Transaction, TransactionState
from sparrow.broker.transactions.table import TransactionTable
from sparrow.broker.transactions.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sparrow.base.clock import Clock
    from sparrow.broker.groups.offsets import OffsetAndMetadata
    from sparrow.broker.partition import Partition
    from sparrow.broker.producer_ids import ProducerIds
    from sparrow.broker.transactions.state import Key
    from sparrow.meta.store import MetaStore, Put, Write

_LOG = logging.getLogger(__name__)
_EXPIRY_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Times in milliseconds."""

    max_timeout_ms: int = 900_000
    """The longest time-out a producer may ask for (Kafka: transaction.max.timeout.ms)."""
    id_expiration_ms: int = 7 * 86_400_000
    """A transactional id that is at rest for so long is forgotten (Kafka: transactional.id.expiration.ms)."""


class CommittedOffsets(Protocol):
    """Where decided offsets go; the groups."""

    def offset_writes(
        self, group: str, offsets: Mapping[Key, OffsetAndMetadata]
    ) -> tuple[list[Put], Callable[[], None]]:
        """The facts of a commit, and what to call when they are durable."""
        ...


def _nothing() -> None:
    """Nothing stands in the way."""


def _no_facts(_: ProducerIdentity) -> Sequence[Write]:
    return ()


class TransactionCoordinator:
    """All transactional ids of a broker. Loop thread only; `load` first, then `resume`.

    Args:
        find: the partition, or None when there is none (any more).
    """

    def __init__(
        self,
        meta: MetaStore,
        clock: Clock,
        *,
        find: Callable[[Key], Partition | None],
        producer_ids: ProducerIds,
        offsets: CommittedOffsets,
        limits: TransactionLimits | None = None,
    ) -> None:
        self.pending = PendingOffsets()
        self.limits = limits or TransactionLimits()
        self.is_kept: Callable[[str], bool] = lambda _: False
        """Whether somebody else looks after an id: its transaction is not timed out, and it is not forgotten."""
        self._meta = meta
        self._clock = clock
        self._find = find
        self._producer_ids = producer_ids
        self._offsets = offsets
        self._turns = Turns()
        self._table = TransactionTable(meta, self._turns)
        self._attempted: set[str] = set()
        """Ids that are being completed, whose markers may be there in part."""
        self._failed: set[str] = set()
        """Of those: the ones whose failure the log tells of."""
        self._expired_at = clock.monotonic()
        self._is_failing = False

    # ── life ──────────────────────────────────────────────────────────────────────────────────────

    async def load(self) -> None:
        """Read what earlier runs knew.

        Raises:
            DirectoryUnreadable, NewerFormat: a fact cannot be read.
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
        """Carry out what was decided before the start. What cannot be now is tried again by `tick`."""
        attempted = list(self._attempted)
        await self._turns.run_all(attempted, partial(self._finish, attempted))

    async def tick(self) -> None:
        """Abort what is open for too long, try again what could not be completed, forget ids that nobody uses.

        What cannot be written is left for the next tick.
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
            await self._turns.run_all(prepared, partial(self._finish, prepared))
        for found in active:
            transactional_id = found.transactional_id
            if found.is_over(now_ms) and not self.is_kept(transactional_id):
                await self._turns.run(transactional_id, partial(self._time_out, transactional_id))
        await self._table.write_completed()
        if self._clock.monotonic() - self._expired_at >= _EXPIRY_INTERVAL_S:
            self._expired_at = self._clock.monotonic()
            await self._table.forget_unused(now_ms - self.limits.id_expiration_ms, self.is_kept)

    async def close(self) -> None:
        """Wait for what has begun; then the facts tell what is so."""
        await self._turns.settle()
        try:
            await self._table.write_completed()
        except SparrowError as error:
            _LOG.warning("the ends of transactions are carried out again at the next start: %s", error.text)

    # ── verbs ─────────────────────────────────────────────────────────────────────────────────────

    async def initialize(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None = None,
        *,
        others: Callable[[ProducerIdentity], Sequence[Write]] = _no_facts,
        check: Callable[[], None] = _nothing,
    ) -> ProducerIdentity:
        """The identity of a producer that begins, or (`expected`) goes on; durable when it returns.

        Args:
            others: facts that are kept in the same write, for the identity.
            check: raises if it must not be any more; asked at the moment of writing.

        Raises:
            what `check` raises
            InvalidTransactionTimeout, ProducerFenced
            ConcurrentTransactions: the last transaction is being completed; ask again.
            DiskFull, StorageFailed: nothing was decided.
        """
        state.check_timeout(timeout_ms, self.limits.max_timeout_ms)
        known = None if expected is None else (expected.producer_id, expected.epoch)
        return await self._turns.run(
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
            found = Transaction(transactional_id, (await self._producer_ids.allocate()).producer_id)
        elif state.needs_fresh_id(found, expected):
            fresh_id = (await self._producer_ids.allocate()).producer_id
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

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[Key],
        *,
        check: Callable[[], None] = _nothing,
    ) -> None:
        """Let partitions take part in the producer's transaction, which begins if none is open; durable when it returns.

        Args:
            check: raises if they may not any more; asked at the moment of writing.

        Raises:
            what `check` raises
            ProducerMismatch, ProducerFenced, ConcurrentTransactions, DiskFull, StorageFailed
        """
        wanted = frozenset(partitions)
        found = self._table.maybe(transactional_id)
        if (
            found is not None
            and found.state is TransactionState.ONGOING
            and wanted <= found.partitions
            and not self._turns.is_busy(transactional_id)
        ):
            state.check_producer(found, producer.producer_id, producer.epoch)
            return

        async def add() -> None:
            check()
            await self._add(transactional_id, producer, wanted, ())

        await self._turns.run(transactional_id, add)

    async def add_group(self, transactional_id: str, producer: ProducerIdentity, group: str) -> None:
        """Let a group's offsets take part in the producer's transaction. Raises as `add_partitions`."""
        await self._turns.run(transactional_id, lambda: self._add(transactional_id, producer, (), (group,)))

    async def _add(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[Key],
        groups: Sequence[str],
    ) -> None:
        found = self._table.of_producer(transactional_id)
        now_ms = self._clock.wall_ms()
        then = state.add(
            found, producer.producer_id, producer.epoch, partitions=partitions, groups=groups, now_ms=now_ms
        )
        if then is not found:
            await self._table.keep(then)

    def check_partition(self, transactional_id: str, producer: ProducerIdentity, key: Key) -> None:
        """Whether the producer may append to a partition in its transaction. Cheap: asked for each batch.

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
        offsets: Mapping[Key, OffsetAndMetadata],
        *,
        adds_group: bool,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Keep offsets that the producer's transaction commits when it does; durable when it returns.

        Args:
            adds_group: the group takes part from now on (KIP-890); else it must have been added.
            check: raises if the group refuses; asked at the moment of writing, because members change while others have their turn.

        Raises:
            what `check` raises
            ProducerMismatch, ProducerFenced, ConcurrentTransactions, DiskFull, StorageFailed
            NotInTransaction: the group was not added.
        """
        await self._turns.run(
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
        offsets: Mapping[Key, OffsetAndMetadata],
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
        """Commit or abort; the decision is durable when it returns, and readers see it unless a disk failed.

        Returns:
            What the producer goes on with: another epoch with `bumps_epoch` (KIP-890).

        Raises:
            ProducerMismatch, ProducerFenced, ConcurrentTransactions, InvalidTransactionState
            DiskFull, StorageFailed: nothing was decided.
        """

        async def decide() -> ProducerIdentity:
            found = self._table.of_producer(transactional_id)
            fresh_id = state.NO_PRODUCER_ID
            if bumps_epoch and found.is_exhausted:
                fresh_id = (await self._producer_ids.allocate()).producer_id
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

        return await self._turns.run(transactional_id, decide)

    async def end_together(
        self,
        commits: Mapping[str, ProducerIdentity],
        aborts: Iterable[str],
        others: Sequence[Write] = (),
    ) -> None:
        """Commit the transactions of producers and abort those of other ids, in one write with further facts: all of it or nothing.

        Durable when it returns, and readers see it unless a disk failed. What has no transaction open is left as it is.

        Raises:
            ProducerMismatch, ProducerFenced, ConcurrentTransactions: what was to be committed was ended by somebody else.
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

        await self._turns.run_all([*commits, *aborted], decide)

    def _committed(self, transactional_id: str, producer: ProducerIdentity, now_ms: int) -> Transaction:
        """The commit of what the producer has open; if it has nothing, the id as it is."""
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
        """What is known of a transactional id, or None."""
        return self._table.maybe(transactional_id)

    def find(self, transactional_id: str) -> Transaction:
        """What is known of a transactional id.

        Raises:
            UnknownTransaction
        """
        return self._table.get(transactional_id)

    def all(self) -> list[Transaction]:
        """All transactional ids, by name."""
        return list(self._table)

    async def abort_forgotten(self, partition: Partition) -> None:
        """End transactions of a partition that no transactional id knows of: the meta store was lost, or the log came from
        elsewhere. Nobody else would, and readers of committed records would wait for ever.

        Raises:
            DiskFull, StorageFailed, Overloaded: as appending.
        """
        key = (partition.id.topic, partition.id.partition)
        found = partition.open_transactions()
        known = self._table.producers_in(key) if found else set()
        for producer_id, epoch in found:
            if producer_id not in known:
                _LOG.warning(
                    "producer %d has a transaction open in %s that no transactional id knows of; it is aborted",
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
        """Carry decisions out: markers everywhere, those of one partition in one step. What fails is left for the next tick."""
        due = [each for each in map(self._table.get, transactional_ids) if each.state in PREPARED]
        by_partition: defaultdict[Key, list[Transaction]] = defaultdict(list)
        for found in due:
            for key in found.partitions:
                by_partition[key].append(found)
        maybe_there = self._attempted.intersection(each.transactional_id for each in due)
        self._attempted.update(each.transactional_id for each in due)
        keys = sorted(by_partition)
        marking = []
        for key in keys:
            marking.append(asyncio.ensure_future(self._mark(key, by_partition[key], maybe_there)))
            await asyncio.sleep(0)  # the markers of many transactions take a while: others come between
        outcomes = await asyncio.gather(*marking, return_exceptions=True)
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

    async def _mark(self, key: Key, those: Sequence[Transaction], maybe_there: set[str]) -> None:
        partition = self._find(key)
        if partition is None:
            return
        try:
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
