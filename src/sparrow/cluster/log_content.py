"""The content of one open log: its pieces and bounds, and how commits change them.

Rewriting is serialised per log by a lock; appends and reads go on meanwhile. A rewrite that has
begun runs to its end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from sparrow.base.errors import CorruptStoredBatch, OffsetOutOfRange
from sparrow.cluster.log_entries import LogEntry, epochs_row, log_row
from sparrow.cluster.manifest import STAMP_BYTES, RunBuilder
from sparrow.cluster.piece_reader import PieceReader
from sparrow.cluster.pieces import Piece
from sparrow.cluster.settlement import run_to_the_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from sparrow.cluster.ledger import EntryRow
    from sparrow.cluster.loaded_logs import LogState
    from sparrow.cluster.manifest import LogRun
    from sparrow.cluster.payloads import CommitPayload
    from sparrow.cluster.resources import StoreResources
    from sparrow.records.batch import BatchHeader
    from sparrow.storage.store import LogConfig, LogId

T = TypeVar("T")
BATCHES_AT_ONCE: Final = 256
"""Batches that are checked in one step of the loop: some tenths of a millisecond."""


class LogContent:
    """The content of a log; a `CommittedLog`. Loop thread only."""

    def __init__(self, log_id: LogId, config: LogConfig, state: LogState, resources: StoreResources) -> None:
        self.id = log_id
        self.config = config
        self.state = state
        self.resources = resources
        self.reader = PieceReader(log_id, resources)
        self.pieces = state.pieces
        self.epochs = state.epochs
        """(epoch, offset of its first batch) of each epoch, those that wait included."""
        self.start = state.entry.start
        self.end = max(state.entry.end, self.pieces.end)
        self.next = self.end
        """Offset of the next append, behind all that waits."""
        self.unsaved_bytes = self.pieces.bytes_after(state.saved.offset)
        """Size of the pieces that the last checkpoint does not have."""
        self.last_append_ms = -1
        self.is_closed = False
        """True if the log is closed or deleted."""
        self.rewriting = asyncio.Lock()
        """Held by whatever drops or replaces pieces."""

    def check_range(self, offset: int) -> None:
        """Refuse an offset that the log does not have.

        Raises:
            OffsetOutOfRange
        """
        if not self.start <= offset <= self.end:
            raise OffsetOutOfRange(
                f"{self.id} holds offsets {self.start} to {self.end} (not included); "
                f"{offset} is not among them"
            )

    # ── outcomes of commits ──

    def committed(self, run: LogRun, payload: CommitPayload) -> None:
        """See `CommittedLog`."""
        self.pieces.append(Piece(run, payload))
        self.unsaved_bytes += run.length
        self.end = run.end
        self.last_append_ms = payload.at_ms

    def replaced(self, runs: Sequence[LogRun], payload: CommitPayload) -> None:
        """See `CommittedLog`."""
        self.release(self.pieces.replace(runs, payload))

    def uncommitted(self) -> None:
        """See `CommittedLog`."""
        self.next = self.end
        while self.epochs and self.epochs[-1][1] >= self.end:
            self.epochs.pop()

    def begin_epoch(self, epoch: int, offset: int) -> EntryRow | None:
        """Note that the batches from `offset` on are of `epoch`. Return the entry for the ledger;
        None if it has that already.
        """
        if self.epochs and self.epochs[-1][0] >= epoch:
            return None
        while len(self.epochs) > 1 and self.epochs[1][1] <= self.start:
            del self.epochs[0]  # all of its batches are gone
        self.epochs.append((epoch, offset))
        return epochs_row(self.state.entry, self.epochs)

    def release(self, gone: Iterable[Piece]) -> None:
        """Let go the payloads of pieces that the log has no more."""
        for piece in gone:
            self.resources.committer.release(piece.payload)

    # ── changes ──

    async def alone(self, act: Callable[[], Awaitable[T]]) -> T:
        """Run one change to its end, even when the caller is cancelled."""

        async def run() -> T:
            async with self.rewriting:
                return await act()

        return await run_to_the_end(run())

    def changed_entry(self, **changes: object) -> LogEntry:
        """Return the log's entry with other values."""
        return msgspec.structs.replace(self.state.entry, **changes)

    async def save_entry(self, **changes: object) -> None:
        """Change the log's entry, and wait for the commit."""
        entry = self.changed_entry(**changes)
        await self.resources.write([log_row(entry), self.resources.number_row()])
        self.state.entry = entry
        self.state.is_stored = True

    async def move_start(self, offset: int) -> None:
        """Forget what is before `offset`. Call it under `alone`."""
        if offset > self.start:
            await self.save_entry(start=offset, end=max(self.state.entry.end, offset))
            self.start = offset

    async def rewrite(self, pieces: Sequence[Piece], batches: Iterable[tuple[BatchHeader, bytes]]) -> None:
        """Replace neighbouring pieces by runs of `batches`, which have their offsets, in one
        commit. Call it under `alone`.

        Raises:
            all that a commit raises; nothing has changed then.
        """
        runs = self.runs_of(pieces, batches)
        await self.resources.committer.replace([(self, run) for run in runs])

    def runs_of(
        self, pieces: Sequence[Piece], batches: Iterable[tuple[BatchHeader, bytes]]
    ) -> list[RunBuilder]:
        """Return runs of `batches` that may replace neighbouring pieces."""
        row = RunRow(self.state.entry.number, pieces[0].base, self.config.index_interval_bytes)
        for header, data in batches:
            row.add(header, memoryview(data))
        return row.end(pieces[-1].end)

    async def merged(self, pieces: Sequence[Piece]) -> list[RunBuilder]:
        """Return runs that have all batches of neighbouring pieces, byte for byte, and let other
        tasks run meanwhile.

        Raises:
            ObjectMissing, ObjectsUnavailable, LedgerUnavailable, CorruptStoredBatch
        """
        row = RunRow(self.state.entry.number, pieces[0].base, self.config.index_interval_bytes)
        for piece in pieces:
            if not piece.run.length:
                continue
            data = await self.reader.read(piece)
            row.add_run(piece.run, data, await self._starts_of(piece, data))
            await asyncio.sleep(0)
        return row.end(pieces[-1].end)

    async def _starts_of(self, piece: Piece, data: memoryview) -> list[tuple[int, int]]:
        starts = []
        try:
            for start in self.reader.starts(piece, data):
                starts.append(start)
                if len(starts) % BATCHES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        except CorruptStoredBatch:
            piece.is_damaged = True
            raise
        return starts


class RunRow:
    """Neighbouring runs that batches are added to. They meet, so that each offset belongs to one,
    also where compaction left holes.
    """

    def __init__(self, log: int, base: int, interval_bytes: int) -> None:
        self._log = log
        self._interval_bytes = interval_bytes
        self._runs = [RunBuilder(log, base, interval_bytes)]

    def add(self, header: BatchHeader, data: memoryview) -> None:
        """Append a batch, which has its offset."""
        run = self._run_for(header.base_offset, header.size_bytes, header.next_offset)
        run.add_stamped(header, bytes(data[:STAMP_BYTES]), data, header.base_offset)

    def add_run(self, run: LogRun, data: memoryview, starts: Iterable[tuple[int, int]]) -> None:
        """Append all batches of a run; see `RunBuilder.add_run`."""
        self._run_for(run.base, run.length, run.end).add_run(run, data, starts)

    def _run_for(self, base: int, size_bytes: int, end: int) -> RunBuilder:
        """Return the run for what has these offsets: the last one, or a new one."""
        run = self._runs[-1]
        if run.is_full(size_bytes, end):
            run.end = base
            run = RunBuilder(self._log, base, self._interval_bytes)
            self._runs.append(run)
        return run

    def end(self, offset: int) -> list[RunBuilder]:
        """Return the runs, the last of which ends at `offset`."""
        self._runs[-1].end = offset
        return self._runs
