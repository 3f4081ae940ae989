"""Compaction of a log in the ledger and in objects: read pieces, keep the last record of each key,
replace them by a commit.

The rules are those of `storage/compaction.py`. A log has no segment files; what would be in closed
ones counts: whole segments' worth of bytes, and the rest once it is as old as a segment may get.
Records are decoded in threads. A crash between two commits leaves a part compacted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sparrow.cluster.manifest import producer_batches
from sparrow.records.batch import parse_header
from sparrow.storage.batch_compaction import BatchCompaction, Survey
from sparrow.storage.compaction import Candidate, Range, maybe_range
from sparrow.storage.retention import max_active_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparrow.base.errors import CorruptBatch
    from sparrow.cluster.log_content import LogContent
    from sparrow.cluster.pieces import Piece
    from sparrow.records.batch import BatchHeader

    Batches = list[tuple[BatchHeader, bytes]]

MAP_BYTES: Final = 128 << 20
PRODUCER_EXPIRY_MS: Final = 86_400_000
MAX_REWRITE_BYTES: Final = 4 << 20
"""Bytes that one commit rewrites at a time."""


async def compact(content: LogContent, now_ms: int, unreadable: dict[int, CorruptBatch]) -> int:
    """Compact a log if that is worth it. Return the freed bytes. The caller lets nothing else
    rewrite the log meanwhile.

    Args:
        unreadable: becomes the batches that were kept because they cannot be read.

    Raises:
        ObjectMissing, ObjectsUnavailable, LedgerUnavailable, CorruptStoredBatch: it cannot be read.
        DiskFull, LedgerRefused, NotOwner, Overloaded: it cannot be written.
    """
    pieces = closed_pieces(content, now_ms)
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
    dirty = maybe_range(candidates, content.state.entry.clean_offset, content.config, now_ms)
    if dirty is None:
        return 0
    pieces = [each for each in pieces if each.base < dirty.end]
    compaction = _Compaction(content, now_ms)
    survey = await compaction.survey(pieces, dirty)
    before = content.pieces.size_bytes
    for group in _groups(pieces):
        if group[0].base < survey.end:
            await compaction.clean(group, survey)
    unreadable.clear()
    unreadable.update(compaction.batches.unreadable)
    await content.save_entry(clean_offset=survey.end)
    return max(before - content.pieces.size_bytes, 0)


def closed_pieces(content: LogContent, now_ms: int) -> list[Piece]:
    """Return the pieces that compaction may change."""
    clean_offset, config = content.state.entry.clean_offset, content.config
    closed, size, first_ms = 0, 0, -1
    for number, piece in enumerate(content.pieces):
        if piece.end <= clean_offset:
            closed = number + 1
            continue
        first_ms = piece.payload.at_ms if first_ms < 0 else first_ms
        size += piece.run.length
        if size >= config.segment_bytes or now_ms - first_ms > max_active_ms(config):
            closed, size, first_ms = number + 1, 0, -1
    return content.pieces.until(closed)


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

    def __init__(self, content: LogContent, now_ms: int) -> None:
        self._content = content
        self.batches = BatchCompaction(
            content.id,
            now_ms=now_ms,
            delete_retention_ms=content.config.delete_retention_ms,
            producer_expiry_ms=PRODUCER_EXPIRY_MS,
            map_bytes=MAP_BYTES,
        )

    async def survey(self, pieces: Sequence[Piece], dirty: Range) -> Survey:
        """Search the dirty part for the last offset of each key, and all of it for producers."""
        end = dirty.end
        for piece in pieces:
            if piece.end <= dirty.first_dirty:
                continue
            if self.batches.is_full:
                end = min(end, piece.base)
                break
            batches = await self._content.reader.batches_of(piece)
            await asyncio.to_thread(self._survey, batches, dirty)
        headers = (header for piece in pieces for header, _ in producer_batches(piece.run))
        return self.batches.surveyed(end, headers)

    def _survey(self, batches: Batches, dirty: Range) -> None:
        for header, data in batches:
            if header.next_offset > dirty.first_dirty:
                self.batches.survey(header, data)

    async def clean(self, group: Sequence[Piece], survey: Survey) -> None:
        """Replace pieces by what stays of them, if that is less."""
        batches = [each for piece in group for each in await self._content.reader.batches_of(piece)]
        kept = await asyncio.to_thread(self._clean, batches, survey)
        if kept is not None:
            await self._content.rewrite(group, kept)

    def _clean(self, batches: Batches, survey: Survey) -> Batches | None:
        """Return what stays; None if that is everything."""
        found: Batches = []
        has_changed = False
        for header, data in batches:
            kept = self.batches.clean(header, data, survey)
            if kept is not None and kept != data:
                # Rewritten batches keep the epoch that the log stamped.
                kept = data[:8] + kept[8:12] + data[12:16] + kept[16:]
            has_changed = has_changed or kept != data
            if kept is not None:
                found.append((parse_header(kept), kept))
        return found if has_changed else None
