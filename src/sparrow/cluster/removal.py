"""Removal from a log: old pieces by retention, and the records of one batch by command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument, OffsetOutOfRange
from sparrow.model.topics import RemovedBatch
from sparrow.records.batch import parse_header
from sparrow.records.readable import corruption_of
from sparrow.records.rewrite import emptied

if TYPE_CHECKING:
    from sparrow.cluster.log_content import LogContent
    from sparrow.records.batch import BatchHeader


async def enforce_retention(content: LogContent, now_ms: int) -> int:
    """Drop old pieces as the configuration says. Return the freed bytes. The caller lets nothing
    else rewrite the log meanwhile.
    """
    count = _expired(content, now_ms)
    if not count or content.is_closed:
        return 0
    start = max(content.pieces[count - 1].end, content.start)
    if start > content.start:
        await content.move_start(start)
    gone = content.pieces.drop_first(count)
    content.release(gone)
    return sum(piece.run.length for piece in gone)


def _expired(content: LogContent, now_ms: int) -> int:
    """Return how many pieces go, from the oldest on."""
    config, pieces = content.config, content.pieces
    excess, count = pieces.size_bytes - config.retention_bytes, 0
    for piece in pieces:
        newest_ms = piece.run.max_timestamp if piece.run.max_timestamp >= 0 else piece.payload.at_ms
        is_last = count + 1 == len(pieces)
        is_old = config.delete and 0 <= config.retention_ms < now_ms - newest_ms
        is_much = config.delete and config.retention_bytes >= 0 and piece.run.length <= excess
        if not (piece.end <= content.start or is_old or (is_much and not is_last)):
            break
        excess -= piece.run.length
        count += 1
    return count


async def remove_batch(content: LogContent, offset: int, *, force: bool) -> RemovedBatch:
    """Replace a batch by an empty one; see `PartitionLog.remove_batch`. The caller lets nothing
    else rewrite the log meanwhile.
    """
    content.check_range(offset)
    if offset == content.end:
        raise OffsetOutOfRange(f"{content.id} ends at offset {content.end}; {offset} is not in it")
    piece = content.pieces[content.pieces.number_at(offset)]
    batches = await content.reader.batches_of(piece)
    for number, (header, data) in enumerate(batches):
        if header.base_offset <= offset < header.next_offset:
            removed = _removal(content, header, data, force=force)
            batches[number] = _emptied(header, data)
            await content.rewrite([piece], batches)
            return removed
    raise InvalidArgument(f"no batch of {content.id} holds offset {offset}: compaction left none there")


def _removal(content: LogContent, header: BatchHeader, data: bytes, *, force: bool) -> RemovedBatch:
    place = f"the batch of offsets {header.base_offset} to {header.last_offset} of {content.id}"
    if header.is_control:
        raise InvalidArgument(f"{place} ends a transaction; it must stay")
    if not header.record_count and header.size_bytes == len(emptied(header)):
        raise InvalidArgument(f"{place} has no records; there is nothing to remove")
    error = corruption_of(header, data, content.id.topic, content.id.partition)
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


def _emptied(header: BatchHeader, data: bytes) -> tuple[BatchHeader, bytes]:
    """Return a batch without its records, which keeps its stamp."""
    empty = emptied(header)
    found = data[:8] + empty[8:12] + data[12:16] + empty[16:]
    return parse_header(found), found
