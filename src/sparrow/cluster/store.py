"""The log store of a shard: logs in the ledger and in objects.

A commit whose batches belong to no log any more (deleted topics, retention) is dropped by the next
one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import LogDamaged, SparrowError, StorageFailed
from sparrow.cluster.errors import NotOwner
from sparrow.cluster.journal import LedgerJournal
from sparrow.cluster.ledger import EntryRow
from sparrow.cluster.loaded_logs import LogState
from sparrow.cluster.log import ObjectLog
from sparrow.cluster.log_entries import (
    CLEAN_KIND,
    ENTRY_VERSION,
    EPOCHS_KIND,
    LOG_KIND,
    STATE_KIND,
    LogEntry,
    log_key,
)
from sparrow.cluster.resources import StoreResources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparrow.base.histogram import Histogram
    from sparrow.cluster.committer import ShardCommitter
    from sparrow.cluster.loaded_logs import LoadedLogs
    from sparrow.cluster.log_content import LogContent
    from sparrow.cluster.payloads import PayloadCache
    from sparrow.cluster.pieces import Piece
    from sparrow.storage.damage import Damages
    from sparrow.storage.journal import Journal
    from sparrow.storage.store import LogConfig, LogId, PartitionLog

UNLIMITED_BYTES: Final = 1 << 62
"""The free space of stores that have no limit."""


class ObjectLogStore:
    """A `LogStore` over a shard that this node owns.

    Args:
        when_closed: awaited at the end of `close`.
    """

    def __init__(
        self,
        loaded: LoadedLogs,
        committer: ShardCommitter,
        cache: PayloadCache,
        *,
        location: str,
        is_trusted: Callable[[], bool] = lambda: True,
        when_closed: Callable[[], object] = lambda: None,
    ) -> None:
        self._resources = StoreResources(committer, cache, location, is_trusted)
        self._resources.next_number = loaded.next_number
        self._resources.is_marked_clean = loaded.is_clean
        self._committer = committer
        self._location = location
        self._when_closed = when_closed
        self._states = loaded.states
        self._journal_records = loaded.journal
        self._logs: dict[LogId, ObjectLog] = {}
        self._is_closed = False
        self.clean_start = loaded.is_clean or not loaded.states
        committer.drop(loaded.drops)

    @property
    def damages(self) -> Damages:
        return self._resources.damages

    @property
    def leader_epoch(self) -> int:
        return self._committer.epoch

    def is_current(self) -> bool:
        return self._resources.is_trusted()

    async def current(self) -> None:
        await self._resources.trusted()

    @property
    def location(self) -> str:
        return self._location

    @property
    def sync_times(self) -> Histogram:
        return self._committer.commit_times

    def free_bytes(self) -> int:
        return UNLIMITED_BYTES

    def total_bytes(self) -> int:
        return UNLIMITED_BYTES

    @property
    def reserve_bytes(self) -> int:
        return 0

    def refusal(self) -> SparrowError | None:
        if not self._resources.is_trusted():
            return NotOwner("the ledger does not confirm that this broker owns the data; it waits for it")
        return self._committer.failure or self._committer.objects_failure

    def ids(self) -> list[LogId]:
        return [log_id for log_id, state in self._states.items() if state.is_stored]

    # ── opening ──

    def open(self, log_id: LogId, config: LogConfig) -> PartitionLog:
        state = self._state_of(log_id)
        if state.damage is not None:
            self._resources.damages.add(state.damage)
            raise LogDamaged(
                f"the partition {log_id} is closed: {state.damage.sentence}. Restore PostgreSQL and "
                "the bucket from backups"
            )
        log = self._logs[log_id] = ObjectLog(log_id, config, state, self._resources)
        return log

    def _state_of(self, log_id: LogId) -> LogState:
        state = self._states.get(log_id)
        if state is None:
            number = self._resources.next_number
            self._resources.next_number += 1
            entry = LogEntry(ENTRY_VERSION, number, log_id.topic, log_id.topic_id.bytes, log_id.partition)
            state = self._states[log_id] = LogState(entry)
        return state

    def open_nowait(self, log_id: LogId, config: LogConfig) -> PartitionLog | None:
        state = self._states.get(log_id)
        return self.open(log_id, config) if state is None or not state.is_stored else None

    async def survey(self, log_ids: Iterable[LogId]) -> None:
        for log_id in log_ids:
            state = self._states.get(log_id)
            if state is not None and state.damage is not None:
                self._resources.damages.add(state.damage)

    # ── removing ──

    async def forget_missing(self, log_id: LogId) -> bool:
        state = self._states.get(log_id)
        if state is not None and state.pieces:
            return False
        await self.purge(log_id)
        return True

    async def delete(self, log: PartitionLog) -> None:
        assert isinstance(log, ObjectLog)
        await log.stop()
        self._logs.pop(log.id, None)
        self._resources.damages.forget(str(log.id))
        state = self._states.get(log.id)
        if state is None:
            return
        if state.is_stored:
            await self._forget(state.entry)
        self._release(log.take_pieces())
        del self._states[log.id]

    async def purge(self, log_id: LogId) -> None:
        state = self._states.get(log_id)
        if state is None:
            return
        self._resources.damages.forget(str(log_id))
        if state.is_stored:
            await self._forget(state.entry)
        self._release(state.pieces)
        del self._states[log_id]

    async def _forget(self, entry: LogEntry) -> None:
        key = log_key(entry)
        await self._resources.write([], [(kind, key) for kind in (LOG_KIND, STATE_KIND, EPOCHS_KIND)])

    def _release(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self._committer.release(piece.payload)

    # ── the rest ──

    def contents(self) -> Iterator[LogContent]:
        """Iterate over the contents of the open logs."""
        yield from [log.content for log in self._logs.values()]

    def open_journal(self, mark: bytes | None) -> Journal:
        records, self._journal_records = self._journal_records, []
        return LedgerJournal(self._committer, records, mark)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        failure: SparrowError | None = None
        for log in list(self._logs.values()):
            await log.stop()
        try:
            await self._mark_clean()
        except SparrowError as error:
            failure = error
        finally:
            await _maybe_await(self._when_closed())
        if failure is not None:
            raise StorageFailed(f"the logs could not be closed: {failure.text}")

    async def _mark_clean(self) -> None:
        rows = [row for log in self._logs.values() if (row := log.final_row) is not None]
        if rows or not self._resources.is_marked_clean:
            await self._resources.write([*rows, EntryRow(CLEAN_KIND, b"", b"", 1)])


async def _maybe_await(found: object) -> None:
    if asyncio.iscoroutine(found):
        await found
