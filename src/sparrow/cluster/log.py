"""One partition's log in the ledger and in objects.

A log is a row of *pieces*: runs of batches in payloads of commits (`manifest`, `payloads`). An
append adds its batches, stamped, to the group that the committer commits next; with that commit
they become visible, and they are durable then. Nothing is ever changed in place: pieces are dropped
(retention), or replaced by other runs of the same offsets (compaction, merging, removed batches),
by a commit.

Beside its runs a log has two entries in the ledger: its identity with the bounds of the log
(`LogEntry`), and the caller's last checkpoint. A log that was never written to has none.

Rewriting is serialised per log by a lock; appends and reads go on meanwhile. A rewrite that has
begun runs to its end.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from sparrow.base.errors import (
    CorruptBatch,
    CorruptStoredBatch,
    InvalidArgument,
    OffsetOutOfRange,
    Overloaded,
    SparrowError,
    StorageFailed,
)
from sparrow.cluster.compaction import compact
from sparrow.cluster.ledger import EntryRow
from sparrow.cluster.manifest import STAMP_BYTES, LogRun, RunBuilder, points_of, producer_batches
from sparrow.model.topics import RemovedBatch
from sparrow.records.batch import HEADER_BYTES, check, parse_header
from sparrow.records.readable import corruption_of
from sparrow.records.rewrite import emptied
from sparrow.storage.damage import Damage
from sparrow.storage.store import Appended, Chunk
from sparrow.storage.timestamps import first_in

if TYPE_CHECKING:
    from sparrow.cluster.committer import Group
    from sparrow.cluster.payloads import CommitPayload
    from sparrow.cluster.store import StoreResources
    from sparrow.records.batch import BatchHeader
    from sparrow.storage.store import LogConfig, LogId

T = TypeVar("T")
LOG_KIND: Final = b"L"
STATE_KIND: Final = b"S"
ENTRY_VERSION: Final = 1
MAX_READ_AT_ONCE: Final = 16
"""Pieces that one read fetches side by side."""
_encode = msgspec.msgpack.Encoder().encode


class Cut(msgspec.Struct, array_like=True, frozen=True):
    """A truncation: of runs up to commit `seq`, only what lies before offset `end` counts. The
    piece that contains the end keeps `length` bytes.
    """

    seq: int
    end: int
    length: int
    max_timestamp: int


class LogEntry(msgspec.Struct, array_like=True):
    """The identity of a log and its bounds, as an entry of the ledger.

    Attributes:
        number: the log's number in manifests.
        end: the log's end is not before it; the runs say more.
        clean_offset: everything before it was compacted.
    """

    version: int
    number: int
    topic: str
    topic_id: bytes
    partition: int
    start: int = 0
    end: int = 0
    clean_offset: int = 0
    cuts: list[Cut] = []


class StateEntry(msgspec.Struct, array_like=True):
    """The caller's last checkpoint, as an entry of the ledger."""

    version: int
    offset: int
    state: bytes


@dataclass(slots=True, eq=False)
class Piece:
    """A run that is part of a log, and the payload that has it."""

    run: LogRun
    payload: CommitPayload

    @property
    def base(self) -> int:
        return self.run.base

    @property
    def end(self) -> int:
        return self.run.end


@dataclass(slots=True)
class LogState:
    """A log as it is loaded from the ledger."""

    entry: LogEntry
    saved: StateEntry = field(default_factory=lambda: StateEntry(ENTRY_VERSION, 0, b""))
    pieces: list[Piece] = field(default_factory=list)
    is_stored: bool = False
    """True if the ledger has the entry."""
    damage: Damage | None = None


class ObjectLog:
    """A `PartitionLog`. Made by `ObjectLogStore.open`."""

    def __init__(self, log_id: LogId, config: LogConfig, state: LogState, resources: StoreResources) -> None:
        self.id = log_id
        self.config = config
        self.last_append_ms = -1
        self._state = state
        self._resources = resources
        self._pieces = state.pieces
        self._bases = [piece.base for piece in self._pieces]
        self._start = state.entry.start
        self._end = max(state.entry.end, self._pieces[-1].end if self._pieces else 0)
        self._next = self._end
        """Offset of the next append, behind all that waits."""
        self._size = sum(piece.run.length for piece in self._pieces)
        self._unsaved = sum(p.run.length for p in self._pieces if p.end > state.saved.offset)
        self._is_closed = False
        self._is_truncating = False
        self.rewriting = asyncio.Lock()
        """Held by whatever drops or replaces pieces."""
        self._scrubbed = 0
        """Offset up to which the present pass of `scrub` has come."""
        self._unreadable: dict[int, CorruptBatch] = {}

    # ── what is known ──

    @property
    def start_offset(self) -> int:
        return self._start

    @property
    def end_offset(self) -> int:
        return self._end

    @property
    def durable_offset(self) -> int:
        return self._end

    @property
    def size_bytes(self) -> int:
        return self._size

    @property
    def uncheckpointed_bytes(self) -> int:
        return self._unsaved

    @property
    def max_timestamp(self) -> int:
        return max((piece.run.max_timestamp for piece in self._pieces), default=-1)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        return []

    @property
    def is_closed(self) -> bool:
        """True if the log is closed or deleted."""
        return self._is_closed

    @property
    def kept_unreadable(self) -> list[CorruptBatch]:
        return list(self._unreadable.values())

    def configure(self, config: LogConfig) -> None:
        self.config = config

    # ── appending ──

    def append(
        self, batches: Sequence[tuple[BatchHeader, memoryview]], *, leader_epoch: int = 0
    ) -> asyncio.Future[Appended]:
        self._refuse_if_unable()
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        if not batches:
            future.set_result(Appended(self._end, self._end - 1))
            return future
        group = self._resources.committer.admit_batches(sum(header.size_bytes for header, _ in batches))
        base = offset = self._next
        for header, data in batches:
            run = self._run_of(group, header, offset)
            run.add(header, data, offset, leader_epoch)
            offset += header.last_offset_delta + 1
        self._next = offset
        self._resources.before_append(group)
        if not self._state.is_stored:
            self._add_entry(group)
        appended = Appended(base, offset - 1)

        def settle(error: SparrowError | None) -> None:
            if error is None:
                self._state.is_stored = True
            if not future.done():
                if error is None:
                    future.set_result(appended)
                else:
                    future.set_exception(error)

        group.settlements.append(settle)
        return future

    def _run_of(self, group: Group, header: BatchHeader, offset: int) -> RunBuilder:
        """Return the run of the group that takes a batch."""
        run = group.last_runs.get(self)
        if run is None or run.is_full(header.size_bytes, header.last_offset_delta + 1):
            run = RunBuilder(self._state.entry.number, offset, self.config.index_interval_bytes)
            group.runs.append((self, run, False))
            group.last_runs[self] = run
        return run

    def _add_entry(self, group: Group) -> None:
        entry = self._state.entry
        for row in (log_row(entry), self._resources.number_row()):
            group.entries[row.kind, row.key] = row

    def _refuse_if_unable(self) -> None:
        if self._is_closed:
            raise StorageFailed(f"the log {self.id} is closed; open it again")
        if self._is_truncating:
            raise Overloaded(f"the log {self.id} is being cut back; try again")

    def committed(self, run: LogRun, payload: CommitPayload) -> None:
        """See `CommittedLog`."""
        self._pieces.append(Piece(run, payload))
        self._bases.append(run.base)
        self._size += run.length
        self._unsaved += run.length
        self._end = run.end
        self.last_append_ms = payload.at_ms

    def replaced(self, runs: Sequence[LogRun], payload: CommitPayload) -> None:
        """See `CommittedLog`."""
        gone = replace_pieces(self._pieces, runs, payload)
        self._bases = [piece.base for piece in self._pieces]
        self._size += sum(run.length for run in runs)
        self._release(gone)

    def uncommitted(self) -> None:
        """See `CommittedLog`."""
        self._next = self._end

    def durable(self, offset: int) -> asyncio.Future[None]:
        if offset > self._end:
            raise OffsetOutOfRange(
                f"{self.id} ends at offset {self._end}; nothing before {offset} can be made durable"
            )
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    # ── reading ──

    def read_nowait(self, offset: int, max_bytes: int) -> Chunk | None:
        self._check_range(offset)
        if not self._resources.is_trusted():
            return None
        if offset == self._end:
            return Chunk(b"", offset, offset, 0)
        return self._read(offset, max_bytes, self._maybe_read_piece)

    async def read(self, offset: int, max_bytes: int) -> Chunk:
        while True:
            await self._resources.trusted()
            self._check_range(offset)
            if offset == self._end:
                return Chunk(b"", offset, offset, 0)
            pieces = self._pieces_for(offset, max_bytes)
            try:
                found = await asyncio.gather(*map(self._read_piece, pieces))
            except StorageFailed:
                if all(piece in self._pieces for piece in pieces):
                    raise
                continue  # they were replaced meanwhile
            self._check_range(offset)
            if not self._resources.is_trusted():
                continue
            held = {id(piece): data for piece, data in zip(pieces, found, strict=True)}
            chunk = self._read(offset, max_bytes, partial(_held, held))
            if chunk is not None:
                return chunk

    def _pieces_for(self, offset: int, max_bytes: int) -> list[Piece]:
        """Return the pieces of a read that must wait: at least one, and one ahead."""
        pieces, size = [], 0
        for piece in _from(self._pieces, self._number_of(offset)):
            pieces.append(piece)
            size += piece.run.length if piece.end > offset else 0
            if size >= max_bytes or len(pieces) >= MAX_READ_AT_ONCE:
                break
        return pieces

    async def _read_piece(self, piece: Piece) -> memoryview:
        return await self._resources.cache.read(piece.payload, piece.run.position, piece.run.length)

    def _maybe_read_piece(self, piece: Piece) -> memoryview | None:
        return self._resources.cache.maybe_read(piece.payload, piece.run.position, piece.run.length)

    def _read(self, offset: int, max_bytes: int, read: Callable[[Piece], memoryview | None]) -> Chunk | None:
        """Return a chunk of what `read` has; None if it has nothing of the first piece."""
        parts: list[memoryview] = []
        size, records, base = 0, 0, -1
        next_offset = offset
        for piece in _from(self._pieces, self._number_of(offset)):
            if not piece.run.length:
                next_offset = piece.end
                continue
            data = read(piece)
            if data is None:
                break
            begin = self._begin_of(piece, data, next_offset)
            if begin is None:
                next_offset = piece.end
                continue
            stop, after = self._stop_of(piece, data, begin, max_bytes - size, is_first=not parts)
            if stop == begin:
                break
            first = int.from_bytes(data[begin : begin + 8], "big")
            base = first if base < 0 else base
            parts.append(data[begin:stop])
            size += stop - begin
            records += after - max(first, piece.base)
            next_offset = after
            if stop < len(data) or size >= max_bytes:
                break
        if not parts:
            return Chunk(b"", next_offset, next_offset, 0) if next_offset > offset else None
        return Chunk(parts[0] if len(parts) == 1 else b"".join(parts), base, next_offset, records)

    def _begin_of(self, piece: Piece, data: memoryview, offset: int) -> int | None:
        """Return the position of the first batch that ends behind `offset`; None: there is none."""
        if offset <= piece.base:
            return 0
        begin = 0
        for base, position in points_of(piece.run):
            if base > offset:
                break
            begin = position
        for header, position in self._walk(piece, data, begin):
            if header.next_offset > offset:
                return position
        return None

    def _stop_of(
        self, piece: Piece, data: memoryview, begin: int, room: int, *, is_first: bool
    ) -> tuple[int, int]:
        """Return (position, offset) of the end of the whole batches that fit into `room` bytes."""
        if len(data) - begin <= room:
            return len(data), piece.end
        stop, after = begin, piece.base
        for header, position in self._walk(piece, data, begin):
            end = position + header.size_bytes
            if end - begin > room and (stop > begin or not is_first):
                break
            stop, after = end, header.next_offset
            if end - begin >= room:
                break
        return stop, piece.end if stop == len(data) else after

    def _walk(self, piece: Piece, data: memoryview, begin: int = 0) -> Iterator[tuple[BatchHeader, int]]:
        """Iterate over the batches of a piece and their positions.

        Raises:
            CorruptStoredBatch: the bytes are no batches.
        """
        position = begin
        while position < len(data):
            try:
                header = parse_header(data, position)
            except CorruptBatch as error:
                raise self._corrupt(piece, error.text) from None
            if header.size_bytes < HEADER_BYTES or position + header.size_bytes > len(data):
                raise self._corrupt(piece, f"a batch at byte {position} does not end inside its run")
            yield header, position
            position += header.size_bytes

    def _corrupt(self, piece: Piece, problem: str) -> CorruptStoredBatch:
        """Record damaged bytes that a read met. Return the error for the reader."""
        damage = self._damage(piece, problem)
        self._resources.damages.count_corrupt_read()
        self._resources.damages.add(damage)
        return CorruptStoredBatch(damage.sentence, piece.base)

    def _damage(self, piece: Piece, problem: str) -> Damage:
        path = self._resources.path_of(piece.payload)
        return Damage(str(self.id), path, problem, piece.base, piece.end, closes=False, is_there=True)

    def _check_range(self, offset: int) -> None:
        if not self._start <= offset <= self._end:
            raise OffsetOutOfRange(
                f"{self.id} holds offsets {self._start} to {self._end} (not included); "
                f"{offset} is not among them"
            )

    def _number_of(self, offset: int) -> int:
        """Return the number of the piece that contains `offset`, or of the next."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def headers(self, offset: int) -> Iterator[BatchHeader]:
        return (header for header, _ in self.headers_and_markers(offset))

    def headers_and_markers(self, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        self._check_range(offset)
        for piece in self._pieces[self._number_of(offset) :]:
            if piece.end <= offset or not piece.run.length:
                continue
            data = self._resources.cache.read_blocking(piece.payload, piece.run.position, piece.run.length)
            for header, position in self._walk(piece, data):
                if header.next_offset > offset:
                    end = position + header.size_bytes
                    yield header, bytes(data[position:end]) if header.is_control else b""

    def producer_batches(self, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """See `PartitionLog.producer_batches`. Reads nothing."""
        self._check_range(offset)
        for piece in self._pieces[self._number_of(offset) :]:
            for header, control in producer_batches(piece.run):
                if offset < header.next_offset <= piece.end:
                    yield header, control

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        for piece in list(self._pieces):
            if piece.run.max_timestamp < timestamp_ms or piece.end <= self._start or not piece.run.length:
                continue
            data = await self._read_piece(piece)
            for header, position in self._walk(piece, data):
                if header.max_timestamp >= timestamp_ms and header.next_offset > self._start:
                    batch = bytes(data[position : position + header.size_bytes])
                    found = first_in(batch, timestamp_ms, self._start)
                    if found is not None:
                        return found
        return None

    # ── estimates ──

    async def estimate_size(self, start: int, end: int) -> int:
        start, end = max(start, self._start), min(end, self._end)
        if start >= end:
            return 0
        if start == self._start and end == self._end:
            return self._size
        total = 0
        for piece in _from(self._pieces, self._number_of(start)):
            if piece.base >= end:
                break
            total += _position_of(piece.run, end) - _position_of(piece.run, start)
        return total

    async def estimate_offset(self, start: int, max_bytes: int) -> int:
        start = max(start, self._start)
        self._check_range(start)
        before, found = 0, start
        origin = -1
        for piece in _from(self._pieces, self._number_of(start)):
            for offset, position in [*points_of(piece.run), (piece.end, piece.run.length)]:
                at = before + position
                if offset <= start:
                    origin = at
                    continue
                if origin < 0:
                    origin = before
                if at - origin > max_bytes and found > start:
                    return found
                found = offset
                if at - origin > max_bytes:
                    return found
            before += piece.run.length
        return found

    # ── bounds ──

    async def _change(self, rows: Iterable[EntryRow], deletes: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Commit changed entries of the log."""
        await self._resources.write(list(rows), deletes)

    def _changed_entry(self, **changes: object) -> LogEntry:
        return msgspec.structs.replace(self._state.entry, **changes)

    async def _save_entry(self, **changes: object) -> None:
        entry = self._changed_entry(**changes)
        await self._change([log_row(entry), self._resources.number_row()])
        self._state.entry = entry
        self._state.is_stored = True

    async def delete_records(self, before_offset: int) -> int:
        wanted = min(before_offset, self._end)
        if wanted > self._start:
            await self._alone(lambda: self._move_start(wanted))
        return self._start

    async def _move_start(self, offset: int) -> None:
        if offset > self._start:
            await self._save_entry(start=offset, end=max(self._state.entry.end, offset))
            self._start = offset

    async def enforce_retention(self, now_ms: int) -> int:
        return await self._alone(lambda: self._enforce_retention(now_ms))

    async def _enforce_retention(self, now_ms: int) -> int:
        count = self._expired(now_ms)
        if not count or self._is_closed:
            return 0
        gone = self._pieces[:count]
        start = max(gone[-1].end, self._start)
        if start > self._start:
            await self._move_start(start)
        del self._pieces[:count], self._bases[:count]
        self._release(gone)
        return sum(piece.run.length for piece in gone)

    def _expired(self, now_ms: int) -> int:
        """Return how many pieces go, from the oldest on."""
        config, excess, count = self.config, self._size - self.config.retention_bytes, 0
        for piece in self._pieces:
            newest_ms = piece.run.max_timestamp if piece.run.max_timestamp >= 0 else piece.payload.at_ms
            is_last = piece is self._pieces[-1]
            is_old = config.delete and 0 <= config.retention_ms < now_ms - newest_ms
            is_much = config.delete and config.retention_bytes >= 0 and piece.run.length <= excess
            if not (piece.end <= self._start or is_old or (is_much and not is_last)):
                break
            excess -= piece.run.length
            count += 1
        return count

    def _release(self, gone: Iterable[Piece]) -> None:
        for piece in gone:
            self._size -= piece.run.length
            self._resources.committer.release(piece.payload)

    async def truncate(self, offset: int) -> None:
        await self._alone(lambda: self._truncate(max(offset, 0)))

    async def _truncate(self, offset: int) -> None:
        self._refuse_if_unable()
        self._is_truncating = True
        try:
            await self._resources.committer.settled()
            if offset < self._end:
                await self._cut(offset)
        finally:
            self._is_truncating = False

    async def _cut(self, offset: int) -> None:
        number = self._number_of(offset)
        piece = self._pieces[number]
        data = await self._read_piece(piece)
        end, length, max_timestamp = piece.base, 0, -1
        for header, position in self._walk(piece, data):
            if header.next_offset > offset:
                break
            end, length = header.next_offset, position + header.size_bytes
            max_timestamp = max(max_timestamp, header.max_timestamp)
        cut = Cut(self._resources.committer.seq, end, length, max_timestamp)
        entry = self._changed_entry(end=end, start=min(self._start, end), cuts=[*self._state.entry.cuts, cut])
        saved = self._state.saved
        deletes = [(STATE_KIND, log_key(entry))] if saved.offset > end else []
        await self._change([log_row(entry)], deletes)
        self._state.entry = entry
        if deletes:
            self._state.saved = StateEntry(ENTRY_VERSION, 0, b"")
        gone = self._pieces[number + 1 :] if length else self._pieces[number:]
        del self._pieces[number + bool(length) :], self._bases[number + bool(length) :]
        self._release(gone)
        if length:
            self._size -= piece.run.length - length
            self._pieces[number] = Piece(cut_run(piece.run, cut), piece.payload)
        self._end = self._next = end
        self._start = min(self._start, end)
        self._unsaved = sum(p.run.length for p in self._pieces if p.end > self._state.saved.offset)

    # ── rewriting ──

    async def _alone(self, act: Callable[[], Awaitable[T]]) -> T:
        """Run one change to its end, even when the caller is cancelled."""

        async def run() -> T:
            async with self.rewriting:
                return await act()

        return await asyncio.shield(asyncio.create_task(run()))

    async def rewrite(self, pieces: Sequence[Piece], batches: Iterable[tuple[BatchHeader, bytes]]) -> None:
        """Replace neighbouring pieces by runs of `batches`, which have their offsets, in one
        commit. Call it under `_alone`.

        Raises:
            all that a commit raises; nothing has changed then.
        """
        runs = self.runs_of(pieces, batches)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group = self._resources.committer.admit_batches(sum(len(run.data) for run in runs))
        group.runs += [(self, run, True) for run in runs]
        group.settlements.append(lambda error: _finish(done, error))
        await done

    def runs_of(
        self, pieces: Sequence[Piece], batches: Iterable[tuple[BatchHeader, bytes]]
    ) -> list[RunBuilder]:
        """Return runs of `batches` that may replace neighbouring pieces."""
        number, interval = self._state.entry.number, self.config.index_interval_bytes
        runs = [RunBuilder(number, pieces[0].base, interval)]
        for header, data in batches:
            if runs[-1].is_full(header.size_bytes, header.last_offset_delta + 1):
                # Runs meet, so that each offset belongs to one, also where compaction left holes.
                runs[-1].end = header.base_offset
                runs.append(RunBuilder(number, header.base_offset, interval))
            runs[-1].add_stamped(header, data[:STAMP_BYTES], memoryview(data), header.base_offset)
        runs[-1].end = pieces[-1].end
        return runs

    async def batches_of(self, piece: Piece) -> list[tuple[BatchHeader, bytes]]:
        """Return the batches of a piece.

        Raises:
            ObjectMissing, ObjectsUnavailable, LedgerUnavailable, CorruptStoredBatch
        """
        if not piece.run.length:
            return []
        data = await self._read_piece(piece)
        return [(h, bytes(data[at : at + h.size_bytes])) for h, at in self._walk(piece, data)]

    async def remove_batch(self, offset: int, *, force: bool = False) -> RemovedBatch:
        return await self._alone(lambda: self._remove_batch(offset, force))

    async def _remove_batch(self, offset: int, force: bool) -> RemovedBatch:
        self._refuse_if_unable()
        self._check_range(offset)
        if offset == self._end:
            raise OffsetOutOfRange(f"{self.id} ends at offset {self._end}; {offset} is not in it")
        piece = self._pieces[self._number_of(offset)]
        batches = await self.batches_of(piece)
        for number, (header, data) in enumerate(batches):
            if header.base_offset <= offset < header.next_offset:
                removed = self._removal(header, data, force=force)
                batches[number] = _emptied(header, data)
                await self.rewrite([piece], batches)
                return removed
        raise InvalidArgument(f"no batch of {self.id} holds offset {offset}: compaction left none there")

    def _removal(self, header: BatchHeader, data: bytes, *, force: bool) -> RemovedBatch:
        place = f"the batch of offsets {header.base_offset} to {header.last_offset} of {self.id}"
        if header.is_control:
            raise InvalidArgument(f"{place} ends a transaction; it must stay")
        if not header.record_count and header.size_bytes == len(emptied(header)):
            raise InvalidArgument(f"{place} has no records; there is nothing to remove")
        error = corruption_of(header, data, self.id.topic, self.id.partition)
        if error is None and not force:
            raise InvalidArgument(
                f"{place} can be read; say so (--force) if its records are to be removed all the same"
            )
        return RemovedBatch(
            header.base_offset,
            header.last_offset,
            header.record_count,
            header.size_bytes,
            "" if error is None else error.text,
        )

    async def compact(self, now_ms: int) -> int:
        if not self.config.compact or self._is_closed:
            return 0
        return await self._alone(lambda: compact(self, now_ms))

    # ── for compaction ──

    @property
    def pieces(self) -> list[Piece]:
        """All pieces, in order."""
        return self._pieces

    @property
    def clean_offset(self) -> int:
        """Everything before it was compacted."""
        return self._state.entry.clean_offset

    @property
    def unreadable(self) -> dict[int, CorruptBatch]:
        """See `kept_unreadable`; by base offset."""
        return self._unreadable

    async def move_clean_offset(self, offset: int) -> None:
        """Remember that everything before `offset` was compacted. Call it under `_alone`."""
        await self._save_entry(clean_offset=offset)

    # ── checking ──

    def find_unreadable(self, offset: int) -> list[Damage]:
        found = []
        for piece in self._pieces[self._number_of(offset) :]:
            if not piece.run.length:
                continue
            try:
                data = self._resources.cache.read_blocking(
                    piece.payload, piece.run.position, piece.run.length
                )
                for _ in self._walk(piece, data):
                    pass
            except (CorruptBatch, StorageFailed) as error:
                path = self._resources.path_of(piece.payload)
                found.append(Damage(str(self.id), path, error.text, piece.base, piece.end, is_there=True))
        return found

    async def scrub(self, max_bytes: int) -> int:
        return await self._alone(lambda: self._scrub(max_bytes))

    async def _scrub(self, max_bytes: int) -> int:
        checked = 0
        for piece in list(_from(self._pieces, self._number_of(self._scrubbed))):
            if piece.end <= self._scrubbed or not piece.run.length:
                continue
            if checked >= max_bytes or self._is_closed:
                return checked
            data = await self._read_piece(piece)
            try:
                for _, position in self._walk(piece, data):
                    check(data, position)
            except CorruptBatch as error:
                self._resources.damages.add(self._damage(piece, error.text))
            checked += piece.run.length
            self._scrubbed = piece.end
        if not checked:
            self._scrubbed = 0
        return checked

    # ── checkpoints and the end ──

    async def checkpoint(self, state: bytes) -> None:
        if not self._state.is_stored:
            return
        saved = StateEntry(ENTRY_VERSION, self._end, state)
        unsaved = self._unsaved
        row = EntryRow(STATE_KIND, log_key(self._state.entry), _encode(saved), 1)
        await self._change([row])
        self._state.saved = saved
        self._unsaved = max(self._unsaved - unsaved, 0)

    def saved_state(self) -> tuple[int, bytes]:
        return max(self._state.saved.offset, self._start), self._state.saved.state

    @property
    def final_row(self) -> EntryRow | None:
        """The entry that says where the log ends, for a clean close; None: the ledger has it."""
        if not self._state.is_stored or self._state.entry.end == self._end:
            return None
        return log_row(self._changed_entry(end=self._end, start=self._start))

    async def stop(self) -> None:
        """Accept no more work, and wait for what runs and for what is being committed."""
        self._is_closed = True
        async with self.rewriting:
            await self._resources.committer.settled()

    def take_pieces(self) -> list[Piece]:
        """Return all pieces and forget them: the log is deleted."""
        gone, self._pieces, self._bases = self._pieces, [], []
        self._size = 0
        return gone


def replace_pieces(pieces: list[Piece], runs: Sequence[LogRun], payload: CommitPayload) -> list[Piece]:
    """Put neighbouring runs in the place of the pieces between their base and their end. Return
    those pieces.
    """
    first = bisect_left(pieces, runs[0].base, key=lambda piece: piece.base)
    after = bisect_left(pieces, runs[-1].end, key=lambda piece: piece.base)
    gone = pieces[first:after]
    pieces[first:after] = [Piece(run, payload) for run in runs]
    return gone


def _held(held: Mapping[int, memoryview], piece: Piece) -> memoryview | None:
    return held.get(id(piece))


def log_key(entry: LogEntry) -> bytes:
    """Return the key of a log's entries."""
    return entry.topic_id + entry.partition.to_bytes(4, "big")


def log_row(entry: LogEntry) -> EntryRow:
    """Return a log's entry for the ledger."""
    return EntryRow(LOG_KIND, log_key(entry), _encode(entry), 1)


def cut_run(run: LogRun, cut: Cut) -> LogRun:
    """Return the part of a run that a truncation leaves."""
    points = b"".join(
        (offset - run.base).to_bytes(4, "little") + position.to_bytes(4, "little")
        for offset, position in points_of(run)
        if 0 < position < cut.length
    )
    return msgspec.structs.replace(
        run, end=cut.end, length=cut.length, max_timestamp=cut.max_timestamp, points=points
    )


def _from(pieces: Sequence[Piece], number: int) -> Iterator[Piece]:
    """Iterate over pieces from a number on, without a copy."""
    while number < len(pieces):
        yield pieces[number]
        number += 1


def _position_of(run: LogRun, offset: int) -> int:
    """Estimate how many bytes of a run lie before `offset`."""
    if offset >= run.end:
        return run.length
    low, low_at = run.base, 0
    high, high_at = run.end, run.length
    for base, position in points_of(run):
        if base > offset:
            high, high_at = base, position
            break
        low, low_at = base, position
    if offset <= low:
        return low_at
    return low_at + (high_at - low_at) * (offset - low) // max(high - low, 1)


def _emptied(header: BatchHeader, data: bytes) -> tuple[BatchHeader, bytes]:
    """Return a batch without its records, which keeps its stamp."""
    empty = emptied(header)
    found = data[:8] + empty[8:12] + data[12:16] + empty[16:]
    return parse_header(found), found


def _finish(done: asyncio.Future[None], error: SparrowError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
