"""One partition's log in the ledger and in objects.

A log is a row of *pieces*: runs of batches in payloads of commits (`manifest`, `payloads`). An
append adds its batches, stamped, to the group that the committer commits next; with that commit
they become visible, and they are durable then. Nothing is ever changed in place: pieces are dropped
(retention), or replaced by other runs of the same offsets (compaction, merging, removed batches),
by a commit.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sparrow.base.errors import OffsetOutOfRange, SparrowError, StorageFailed
from sparrow.cluster import removal
from sparrow.cluster.chunks import ChunkReader
from sparrow.cluster.compaction import compact
from sparrow.cluster.log_content import LogContent
from sparrow.cluster.log_entries import ENTRY_VERSION, StateEntry, log_row, state_row
from sparrow.cluster.manifest import RunBuilder
from sparrow.cluster.scrub import Scrub, find_unreadable
from sparrow.cluster.settlement import settle_future
from sparrow.storage.store import Appended, Chunk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparrow.base.errors import CorruptBatch
    from sparrow.base.futures import Then
    from sparrow.cluster.committer import Group
    from sparrow.cluster.ledger import EntryRow
    from sparrow.cluster.loaded_logs import LogState
    from sparrow.cluster.pieces import Piece
    from sparrow.cluster.resources import StoreResources
    from sparrow.model.topics import RemovedBatch
    from sparrow.records.batch import BatchHeader
    from sparrow.storage.damage import Damage
    from sparrow.storage.store import LogConfig, LogId


class ObjectLog:
    """A `PartitionLog`. Made by `ObjectLogStore.open`."""

    def __init__(self, log_id: LogId, config: LogConfig, state: LogState, resources: StoreResources) -> None:
        self.id = log_id
        self.content = LogContent(log_id, config, state, resources)
        self._chunks = ChunkReader(self.content)
        self._scrub = Scrub(self.content)
        self._state = state
        self._resources = resources
        self._unreadable: dict[int, CorruptBatch] = {}

    # ── what is known ──

    @property
    def config(self) -> LogConfig:
        return self.content.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self.content.config = config

    def configure(self, config: LogConfig) -> None:
        self.content.config = config

    @property
    def start_offset(self) -> int:
        return self.content.start

    @property
    def end_offset(self) -> int:
        return self.content.end

    @property
    def durable_offset(self) -> int:
        return self.content.end

    @property
    def size_bytes(self) -> int:
        return self.content.pieces.size_bytes

    @property
    def uncheckpointed_bytes(self) -> int:
        return self.content.unsaved_bytes

    @property
    def max_timestamp(self) -> int:
        return self.content.pieces.max_timestamp

    @property
    def last_append_ms(self) -> int:
        return self.content.last_append_ms

    @property
    def epochs(self) -> Sequence[tuple[int, int]]:
        return self.content.epochs

    @property
    def gaps(self) -> list[tuple[int, int]]:
        return []

    @property
    def kept_unreadable(self) -> list[CorruptBatch]:
        return list(self._unreadable.values())

    # ── appending ──

    def append(
        self, batches: Sequence[tuple[BatchHeader, memoryview]], *, leader_epoch: int = 0
    ) -> asyncio.Future[Appended]:
        self._refuse_if_unable()
        content = self.content
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        if not batches:
            future.set_result(Appended(content.end, content.end - 1))
            return future
        group = self._resources.committer.admit_batches(sum(header.size_bytes for header, _ in batches))
        base = offset = content.next
        for header, data in batches:
            run = self._run_of(group, header, offset)
            run.add(header, data, offset, leader_epoch)
            offset += header.last_offset_delta + 1
        content.next = offset
        self._resources.before_append(group)
        if not self._state.is_stored:
            self._add_entry(group)
        if (row := content.begin_epoch(leader_epoch, base)) is not None:
            group.entries[row.kind, row.key] = row
        group.settlements.append(settle_future(future, Appended(base, offset - 1)))
        return future

    def _run_of(self, group: Group, header: BatchHeader, offset: int) -> RunBuilder:
        """Return the run of the group that takes a batch."""
        run = group.last_runs.get(self.content)
        if run is None or run.is_full(header.size_bytes, run.end + header.last_offset_delta + 1):
            run = RunBuilder(self._state.entry.number, offset, self.config.index_interval_bytes)
            group.runs.append((self.content, run, False))
            group.last_runs[self.content] = run
        return run

    def _add_entry(self, group: Group) -> None:
        entry = self._state.entry
        for row in (log_row(entry), self._resources.number_row()):
            group.entries[row.kind, row.key] = row

        def settle(error: SparrowError | None) -> None:
            self._state.is_stored = self._state.is_stored or error is None

        group.settlements.append(settle)

    def _refuse_if_unable(self) -> None:
        if self.content.is_closed:
            raise StorageFailed(f"the log {self.id} is closed; open it again")

    def durable(self, offset: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_durable(offset, lambda _: future.set_result(None))
        return future

    def when_durable(self, offset: int, then: Then) -> None:
        if offset > self.content.end:
            raise OffsetOutOfRange(
                f"{self.id} ends at offset {self.content.end}; nothing before {offset} can be made durable"
            )
        then(None)

    # ── reading ──

    def read_nowait(self, offset: int, max_bytes: int) -> Chunk | None:
        return self._chunks.read_nowait(offset, max_bytes)

    async def read(self, offset: int, max_bytes: int) -> Chunk:
        return await self._chunks.read(offset, max_bytes)

    def headers(self, offset: int) -> Iterator[BatchHeader]:
        return (header for header, _ in self._chunks.headers_and_markers(offset))

    def headers_and_markers(self, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        return self._chunks.headers_and_markers(offset)

    def producer_batches(self, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        return self._chunks.producer_batches(offset)

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        return await self._chunks.offset_for_timestamp(timestamp_ms)

    async def estimate_size(self, start: int, end: int) -> int:
        content = self.content
        start, end = max(start, content.start), min(end, content.end)
        if start >= end:
            return 0
        if start == content.start and end == content.end:
            return content.pieces.size_bytes
        return content.pieces.estimate_size(start, end)

    async def estimate_offset(self, start: int, max_bytes: int) -> int:
        start = max(start, self.content.start)
        self.content.check_range(start)
        return self.content.pieces.estimate_offset(start, max_bytes)

    # ── bounds ──

    async def delete_records(self, before_offset: int) -> int:
        wanted = min(before_offset, self.content.end)
        if wanted > self.content.start:
            await self.content.alone(lambda: self.content.move_start(wanted))
        return self.content.start

    async def enforce_retention(self, now_ms: int) -> int:
        return await self.content.alone(lambda: removal.enforce_retention(self.content, now_ms))

    # ── rewriting and checking ──

    async def remove_batch(self, offset: int, *, force: bool = False) -> RemovedBatch:
        return await self.content.alone(lambda: self._remove_batch(offset, force=force))

    async def _remove_batch(self, offset: int, *, force: bool) -> RemovedBatch:
        self._refuse_if_unable()
        return await removal.remove_batch(self.content, offset, force=force)

    async def compact(self, now_ms: int) -> int:
        if not self.config.compact or self.content.is_closed:
            return 0
        return await self.content.alone(lambda: compact(self.content, now_ms, self._unreadable))

    def find_unreadable(self, offset: int) -> list[Damage]:
        return find_unreadable(self.content, offset)

    async def scrub(self, max_bytes: int) -> int:
        return await self.content.alone(lambda: self._scrub.run(max_bytes))

    # ── checkpoints and the end ──

    async def checkpoint(self, state: bytes) -> None:
        if not self._state.is_stored:
            return
        content = self.content
        saved = StateEntry(ENTRY_VERSION, content.end, state)
        unsaved_bytes = content.unsaved_bytes
        await self._resources.write([state_row(self._state.entry, saved)])
        self._state.saved = saved
        content.unsaved_bytes = max(content.unsaved_bytes - unsaved_bytes, 0)

    def saved_state(self) -> tuple[int, bytes]:
        return max(self._state.saved.offset, self.content.start), self._state.saved.state

    @property
    def final_row(self) -> EntryRow | None:
        """The entry that says where the log ends, for a clean close; None: the ledger has it."""
        content = self.content
        if not self._state.is_stored or self._state.entry.end == content.end:
            return None
        return log_row(content.changed_entry(end=content.end, start=content.start))

    async def stop(self) -> None:
        """Accept no more work, and wait for what runs and for what is being committed."""
        self.content.is_closed = True
        async with self.content.rewriting:
            await self._resources.committer.settled()

    def take_pieces(self) -> list[Piece]:
        """Return all pieces and forget them: the log is deleted."""
        return self.content.pieces.clear()
