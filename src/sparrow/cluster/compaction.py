"""Compaction of a log in the ledger and in objects: read pieces, keep the last record of each key,
replace them by a commit.

The rules are those of `storage/compaction.py`. A log has no segment files; what would be in closed
ones counts: whole segments' worth of bytes, and the rest once it is as old as a segment may get.
Records are decoded in threads. A crash between two commits leaves a part compacted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.cluster.manifest import producer_batches
from sparrow.records.batch import parse_header
from sparrow.records.control import ControlType, maybe_parse_marker
from sparrow.records.readable import corruption_of
from sparrow.records.rewrite import iterate_raw, retain
from sparrow.storage.compaction import Candidate, LatestOffsets, Range, keeps, maybe_range
from sparrow.storage.retention import is_due_to_roll

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparrow.base.errors import CorruptBatch
    from sparrow.cluster.log import ObjectLog, Piece
    from sparrow.records.batch import BatchHeader
    from sparrow.records.rewrite import RawRecord

    Batches = list[tuple[BatchHeader, bytes]]

MAP_BYTES: Final = 128 << 20
PRODUCER_EXPIRY_MS: Final = 86_400_000
MAX_REWRITE_BYTES: Final = 4 << 20
"""Bytes that one commit rewrites at a time."""


class _Survey(NamedTuple):
    """The result of one pass along the log; see `storage/cleaner.py`."""

    latest: dict[bytes, int]
    end: int
    last_batches: frozenset[int]


async def compact(log: ObjectLog, now_ms: int) -> int:
    """Compact a log if that is worth it. Return the freed bytes. The caller lets nothing else
    rewrite the log meanwhile.

    Raises:
        ObjectMissing, ObjectsUnavailable, LedgerUnavailable, CorruptStoredBatch: it cannot be read.
        DiskFull, LedgerRefused, NotOwner, Overloaded: it cannot be written.
    """
    pieces = closed_pieces(log, now_ms)
    candidates = [
        Candidate(
            each.base,
            each.end,
            each.run.length,
            max(each.run.max_timestamp, 0) or each.payload.at_ms,
            each.payload.at_ms,
        )
        for each in pieces
    ]
    dirty = maybe_range(candidates, log.clean_offset, log.config, now_ms)
    if dirty is None:
        return 0
    pieces = [each for each in pieces if each.base < dirty.end]
    compaction = _Compaction(log, now_ms)
    survey = await compaction.survey(pieces, dirty)
    before = log.size_bytes
    for group in _groups(pieces):
        if group[0].base < survey.end:
            await compaction.clean(group, survey)
    log.unreadable.clear()
    log.unreadable.update(compaction.unreadable)
    await log.move_clean_offset(survey.end)
    return max(before - log.size_bytes, 0)


def closed_pieces(log: ObjectLog, now_ms: int) -> list[Piece]:
    """Return the pieces that compaction may change."""
    closed, size, first_ms = 0, 0, -1
    for number, piece in enumerate(log.pieces):
        if piece.end <= log.clean_offset:
            closed = number + 1
            continue
        first_ms = piece.payload.at_ms if first_ms < 0 else first_ms
        size += piece.run.length
        if size >= log.config.segment_bytes or is_due_to_roll(now_ms - first_ms, log.config):
            closed, size, first_ms = number + 1, 0, -1
    if first_ms >= 0 and is_due_to_roll(now_ms - first_ms, log.config):
        closed = len(log.pieces)
    return log.pieces[:closed]


def _groups(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    group: list[Piece] = []
    size = 0
    for piece in pieces:
        if group and size + piece.run.length > MAX_REWRITE_BYTES:
            yield group
            group, size = [], 0
        group.append(piece)
        size += piece.run.length
    if group:
        yield group


class _Compaction:
    """One compaction of one log."""

    def __init__(self, log: ObjectLog, now_ms: int) -> None:
        self._log = log
        self._now_ms = now_ms
        self._horizon_ms = now_ms + log.config.delete_retention_ms
        self.unreadable: dict[int, CorruptBatch] = {}

    async def survey(self, pieces: Sequence[Piece], dirty: Range) -> _Survey:
        """Search the dirty part for the last offset of each key, and all of it for producers."""
        latest, end = LatestOffsets(MAP_BYTES), dirty.end
        for piece in pieces:
            if piece.end <= dirty.first_dirty:
                continue
            if latest.is_full:
                end = min(end, piece.base)
                break
            batches = await self._log.batches_of(piece)
            await asyncio.to_thread(self._survey_batches, batches, dirty, latest)
        unfinished = latest.first_open()
        end = end if unfinished is None else min(end, unfinished)
        return _Survey(latest.offsets, end, self._last_batches(pieces))

    def _survey_batches(self, batches: Batches, dirty: Range, latest: LatestOffsets) -> None:
        for header, data in batches:
            if header.next_offset <= dirty.first_dirty:
                continue
            if header.is_control:
                marker = maybe_parse_marker(data)
                if marker is not None and marker.type in {ControlType.COMMIT, ControlType.ABORT}:
                    latest.end(header.producer_id, committed=marker.type == ControlType.COMMIT)
                continue
            pending = (
                latest.begin(header.producer_id, header.base_offset) if header.is_transactional else None
            )
            if self._is_unreadable(header, data):
                continue  # its keys are unknown, so it removes no other record
            for record in iterate_raw(data):
                if record.key is None:
                    continue
                if pending is not None:
                    pending[record.key] = record.offset
                else:
                    latest.add(record.key, record.offset)

    def _last_batches(self, pieces: Sequence[Piece]) -> frozenset[int]:
        last: dict[int, int] = {}
        for piece in pieces:
            for header, _ in producer_batches(piece.run):
                if header.max_timestamp >= self._now_ms - PRODUCER_EXPIRY_MS:
                    last[header.producer_id] = header.last_offset
        return frozenset(last.values())

    async def clean(self, group: Sequence[Piece], survey: _Survey) -> None:
        """Replace pieces by what stays of them, if that is less."""
        batches = [each for piece in group for each in await self._log.batches_of(piece)]
        kept = await asyncio.to_thread(self._clean_batches, batches, survey)
        if kept is not None:
            await self._log.rewrite(group, kept)

    def _clean_batches(self, batches: Batches, survey: _Survey) -> Batches | None:
        """Return what stays; None if that is everything."""
        found: Batches = []
        has_changed = False
        for header, data in batches:
            kept = data if header.base_offset >= survey.end else self._clean_batch(header, data, survey)
            if kept is not None and kept != data:
                # Rewritten batches keep the epoch that the log stamped.
                kept = data[:8] + kept[8:12] + data[12:16] + kept[16:]
            has_changed = has_changed or kept != data
            if kept is not None:
                found.append((parse_header(kept), kept))
        return found if has_changed else None

    def _clean_batch(self, header: BatchHeader, data: bytes, survey: _Survey) -> bytes | None:
        if header.is_control or self._is_unreadable(header, data):
            return data
        tombstones_go = header.has_delete_horizon and header.base_timestamp <= self._now_ms
        has_tombstone = False

        def keep(record: RawRecord) -> bool:
            nonlocal has_tombstone
            stays = keeps(record, survey.latest, survey.end, tombstones_go=tombstones_go)
            has_tombstone = has_tombstone or (stays and record.value_is_null and record.key is not None)
            return stays

        is_last = header.last_offset in survey.last_batches
        kept = retain(data, keep, keep_empty=is_last)
        if has_tombstone and not header.has_delete_horizon:
            return retain(data, keep, keep_empty=is_last, delete_horizon_ms=self._horizon_ms)
        return kept

    def _is_unreadable(self, header: BatchHeader, data: bytes) -> bool:
        error = corruption_of(header, data, self._log.id.topic, self._log.id.partition)
        if error is not None and header.base_offset not in self.unreadable:
            self.unreadable[header.base_offset] = error
        return error is not None
