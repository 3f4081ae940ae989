"""All transactional ids: in memory, and as entries in the meta store.

Memory follows the store, with one exception that saves a write for each transaction: the completion
is known in memory first, and its entry follows at the next tick, or with the id's next write. Until
then the entry contains the decision, and a start after a crash would carry it out again, which has
no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import ProducerMismatch, UnknownTransaction
from sparrow.broker.transactions import persistence
from sparrow.broker.transactions.state import AT_REST, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sparrow.broker.keyed_lock import KeyedLock
    from sparrow.meta.store import MetaStore, Write
    from sparrow.records.topic_partition import TopicPartition

_WRITES_PER_BATCH = 1_000


class TransactionTable:
    """Transactional ids by name. Loop thread only; call `load` first. Maintenance skips ids that
    are busy in `locks`.
    """

    def __init__(self, meta: MetaStore, locks: KeyedLock) -> None:
        self._meta = meta
        self._locks = locks
        self._transactions: dict[str, Transaction] = {}
        self._active: dict[str, None] = {}
        self._unwritten: set[str] = set()
        """Ids at rest whose entry still contains the decision."""

    async def load(self) -> None:
        """Read the entries of earlier runs.

        Raises:
            DirectoryUnreadable, NewerFormat: an entry cannot be read.
        """
        for entry in await self._meta.scan(persistence.KIND):
            self._take_over(persistence.read(entry))

    # ── finding ───────────────────────────────────────────────────────────────────────────────────

    def __iter__(self) -> Iterator[Transaction]:
        """Iterate over all transactional ids, by name."""
        return iter([self._transactions[each] for each in sorted(self._transactions)])

    def maybe(self, transactional_id: str) -> Transaction | None:
        """Return a transactional id, or None."""
        return self._transactions.get(transactional_id)

    def get(self, transactional_id: str) -> Transaction:
        """Return a transactional id.

        Raises:
            UnknownTransaction
        """
        found = self._transactions.get(transactional_id)
        if found is None:
            raise UnknownTransaction(f"there is no producer with transactional id {transactional_id!r}")
        return found

    def of_producer(self, transactional_id: str) -> Transaction:
        """Return the transactional id that a producer names.

        Raises:
            ProducerMismatch: it is unknown, or was forgotten.
        """
        found = self._transactions.get(transactional_id)
        if found is None:
            raise ProducerMismatch(
                f"there is no transactional id {transactional_id!r}; the producer must be initialized first"
            )
        return found

    def active(self) -> list[Transaction]:
        """Return the ids whose transaction is open or being completed."""
        return [self._transactions[each] for each in self._active]

    def is_active(self, transactional_id: str) -> bool:
        """Return True if the id's transaction is open or being completed."""
        return transactional_id in self._active

    def producers_in(self, key: TopicPartition) -> set[int]:
        """Return the producers of transactions that are open or being completed and have the
        partition.
        """
        return {each.producer_id for each in self.active() if key in each.partitions}

    # ── keeping ───────────────────────────────────────────────────────────────────────────────────

    async def keep(self, then: Transaction, others: Sequence[Write] = ()) -> None:
        """Store the next state of an id, durably, in one write with other entries; then memory
        follows.

        Raises:
            DiskFull, StorageFailed: nothing changed.
        """
        await self.keep_all([then], others)

    async def keep_all(self, thens: Sequence[Transaction], others: Sequence[Write] = ()) -> None:
        """Store the next states of several ids, and other entries: all of it or nothing. Raises as
        `keep`.
        """
        await self._meta.write([*map(persistence.put, thens), *others])
        for then in thens:
            self._take_over(then)

    def complete(self, then: Transaction) -> None:
        """Note that an id is at rest; its entry follows."""
        self._take_over(then)
        self._unwritten.add(then.transactional_id)

    def _take_over(self, then: Transaction) -> None:
        transactional_id = then.transactional_id
        self._transactions[transactional_id] = then
        self._unwritten.discard(transactional_id)
        if then.state in AT_REST:
            self._active.pop(transactional_id, None)
        else:
            self._active[transactional_id] = None

    async def write_completed(self) -> None:
        """Write the entries of completed ids. A busy id is about to be written anyway.

        Raises:
            DiskFull, StorageFailed: it is to be tried again.
        """
        due = list(self._unwritten)
        for start in range(0, len(due), _WRITES_PER_BATCH):
            # Chosen at the very moment of writing, so that later writes of an id come after this
            # one.
            chunk = [
                self._transactions[each]
                for each in due[start : start + _WRITES_PER_BATCH]
                if each in self._unwritten and not self._locks.is_busy(each)
            ]
            await self._meta.write([persistence.put(found) for found in chunk])
            self._unwritten.difference_update(
                found.transactional_id for found in chunk if self._is_current(found)
            )

    async def forget_unused(self, before_ms: int, is_kept: Callable[[str], bool]) -> None:
        """Forget ids at rest that were not used since `before_ms`, unless `is_kept`.

        Raises:
            DiskFull, StorageFailed: it is to be tried again.
        """
        old = [
            each
            for each in self._transactions.values()
            if each.state in AT_REST and each.updated_ms < before_ms and not is_kept(each.transactional_id)
        ]
        for start in range(0, len(old), _WRITES_PER_BATCH):
            chunk = [
                each
                for each in old[start : start + _WRITES_PER_BATCH]
                if self._is_current(each) and not self._locks.is_busy(each.transactional_id)
            ]
            await self._meta.write([persistence.delete(each.transactional_id) for each in chunk])
            for each in chunk:
                if self._is_current(each):
                    del self._transactions[each.transactional_id]
                    self._unwritten.discard(each.transactional_id)

    def _is_current(self, transaction: Transaction) -> bool:
        return self._transactions.get(transaction.transactional_id) is transaction
