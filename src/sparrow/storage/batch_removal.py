"""The decision which batch `PartitionLog.remove_batch` removes: one batch, by an offset that it
contains. Blocking; changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparrow.base.errors import CorruptBatch, InvalidArgument
from sparrow.model.topics import RemovedBatch
from sparrow.records.readable import corruption_of
from sparrow.records.rewrite import emptied

if TYPE_CHECKING:
    from sparrow.records.batch import BatchHeader
    from sparrow.storage.segment import Segment
    from sparrow.storage.store import LogId


class Removal(NamedTuple):
    """A batch to be removed, and the empty one that replaces it."""

    position: int
    """Position of the batch in the segment's file."""
    empty: bytes
    removed: RemovedBatch


def find_removal(segment: Segment, offset: int, log: LogId, force: bool) -> Removal:
    """Find the batch of a segment that contains `offset`.

    Raises:
        InvalidArgument: see `PartitionLog.remove_batch`.
        CorruptBatch, StorageFailed: the segment cannot be walked.
    """
    found = segment.find_batch(offset)
    if found is None:
        raise InvalidArgument(f"no batch of {log} holds offset {offset}: compaction left none there")
    position, header, data = found
    place = f"the batch of offsets {header.base_offset} to {header.last_offset} of {log}"
    if header.is_control:
        raise InvalidArgument(f"{place} ends a transaction; it must stay")
    if not header.record_count and header.size_bytes == len(emptied(header)):
        raise InvalidArgument(f"{place} has no records; there is nothing to remove")
    reason = _reason(header, data, log)
    if not reason and not force:
        raise InvalidArgument(
            f"{place} can be read; say so (--force) if its records are to be removed nevertheless"
        )
    removed = RemovedBatch(
        header.base_offset, header.last_offset, header.record_count, header.size_bytes, reason
    )
    return Removal(position, emptied(header), removed)


def _reason(header: BatchHeader, data: bytes, log: LogId) -> str:
    """Return why the records are unreadable; "" if they can be read."""
    error: CorruptBatch | None = corruption_of(header, data, log.topic, log.partition)
    return "" if error is None else error.text
