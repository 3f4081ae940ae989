"""The check of an import: everything is read back from the cluster, and compared with the source.

The bounds and all batches of each log (offsets, sizes, checksums) have to be the same, and all
entries with their versions. The checksum of each batch is computed over the bytes that the cluster
gave.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import CorruptBatch, StorageFailed
from sparrow.cluster.entries import PREFIX
from sparrow.cluster.loaded_logs import load_logs
from sparrow.cluster.payloads import PayloadCache
from sparrow.records.batch import split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparrow.cluster.import_source import ImportSource
    from sparrow.cluster.ledger import Ledger, ShardContent
    from sparrow.cluster.loaded_logs import LogState
    from sparrow.cluster.objects import Objects
    from sparrow.cluster.pieces import Piece
    from sparrow.records.batch import BatchHeader
    from sparrow.storage.store import LogId, PartitionLog

CACHE_BYTES: Final = 16 << 20
_BATCH: Final = struct.Struct("<qqI")


class ImportResult(msgspec.Struct, frozen=True):
    """The content of the cluster after an import. `batches`, `size_bytes`: of all logs."""

    logs: int
    entries: int
    batches: int
    size_bytes: int


class _Sum:
    """Number, size and a checksum of the batches of a log from its start on, in their order."""

    def __init__(self) -> None:
        self.batches = 0
        self.size_bytes = 0
        self.checksum = 0

    def add(self, header: BatchHeader) -> None:
        self.batches += 1
        self.size_bytes += header.size_bytes
        self.checksum = zlib.crc32(
            _BATCH.pack(header.base_offset, header.next_offset, header.crc & 0xFFFFFFFF), self.checksum
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Sum) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes


async def check_import(
    source: ImportSource, ledger: Ledger, objects: Objects, progress: Callable[[str, int, int], None]
) -> ImportResult:
    """Compare a cluster with the source.

    Raises:
        StorageFailed: they are not the same.
        LedgerUnavailable, ObjectsUnavailable
    """
    content = await ledger.load(0)
    _compare_entries(source, content)
    states = load_logs(content).states
    wanted = {log.id: log for log in source.logs}
    if states.keys() != wanted.keys():
        raise _different(f"it has {len(states)} logs instead of {len(wanted)}")
    for log_id, state in states.items():
        _compare_bounds(wanted[log_id], state)
    sums = await _read_back(states, ledger, objects, progress)
    for log_id, log in wanted.items():
        if await asyncio.to_thread(_sum_of, log) != sums[log_id]:
            raise _different(f"{log_id} has other batches")
    return ImportResult(
        len(sums),
        len(source.entries),
        sum(each.batches for each in sums.values()),
        sum(each.size_bytes for each in sums.values()),
    )


def _compare_entries(source: ImportSource, content: ShardContent) -> None:
    there = {
        (row.kind[1:].decode(), row.key.decode()): (row.value, row.version)
        for row in content.entries
        if row.kind[:1] == PREFIX
    }
    wanted = {(each.kind, each.key): (each.value, each.version) for each in source.entries}
    if there != wanted:
        keys = there.keys() | wanted.keys()
        kind, key = next(each for each in keys if there.get(each) != wanted.get(each))
        raise _different(f"the {kind} {key!r} is not the same")


def _compare_bounds(log: PartitionLog, state: LogState) -> None:
    if state.damage is not None:
        raise _different(state.damage.sentence)
    there = (state.entry.start, state.entry.end)
    if there != (log.start_offset, log.end_offset):
        raise _different(
            f"{log.id} has offsets {there[0]} to {there[1]} instead of {log.start_offset} to {log.end_offset}"
        )


async def _read_back(
    states: Mapping[LogId, LogState],
    ledger: Ledger,
    objects: Objects,
    progress: Callable[[str, int, int], None],
) -> dict[LogId, _Sum]:
    sums = {log_id: _Sum() for log_id in states}
    pieces = [(log_id, piece) for log_id, state in states.items() for piece in state.pieces]
    pieces.sort(key=lambda each: (each[1].payload.seq, each[1].run.position))
    total, done = sum(piece.run.length for _, piece in pieces), 0
    cache = PayloadCache(0, ledger, objects, lambda: ledger, CACHE_BYTES)
    try:
        for log_id, piece in pieces:
            await _add_piece(sums[log_id], states[log_id].entry.start, log_id, piece, cache)
            done += piece.run.length
            progress("checked", done, total)
    finally:
        await cache.close()
    return sums


async def _add_piece(total: _Sum, start: int, log_id: LogId, piece: Piece, cache: PayloadCache) -> None:
    if not piece.run.length:
        return
    data = await cache.read(piece.payload, piece.run.position, piece.run.length)
    try:
        for header, _ in split(data):
            if not piece.base <= header.base_offset < header.next_offset <= piece.end:
                raise _different(f"a batch of {log_id} at offset {header.base_offset} is in the wrong place")
            if header.next_offset > start:
                total.add(header)
    except CorruptBatch as error:
        raise _different(f"a batch of {log_id} is damaged: {error.text}") from None


def _sum_of(log: PartitionLog) -> _Sum:
    """Return the sum of a log of the source. Blocking."""
    total = _Sum()
    for header in log.headers(log.start_offset):
        total.add(header)
    return total


def _different(problem: str) -> StorageFailed:
    return StorageFailed(
        f"the cluster does not have what was imported: {problem}; check the engines, and run the import "
        "again with another database and prefix"
    )
