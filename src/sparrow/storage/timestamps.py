"""The search for the first record that is not older than a point in time.

The time index and the batch headers lead to the batch; only that batch's records are decoded.
Timestamps need not be in order, neither over batches nor inside one: the result is the first by
*offset*, as Kafka's `ListOffsets` gives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import CorruptBatch, RecordTooLarge, UnsupportedCompression
from sparrow.records.batch import parse_header
from sparrow.records.rewrite import iterate_raw

if TYPE_CHECKING:
    from sparrow.storage.segment import Segment


def first_since(segment: Segment, timestamp_ms: int, start_offset: int, size: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the segment's first record at or after `start_offset` with
    timestamp >= `timestamp_ms`.

    Blocking; raises as `Segment.read`.
    """
    for batch in segment.batches_since(timestamp_ms, start_offset, size):
        found = first_in(batch, timestamp_ms, start_offset)
        if found is not None:
            return found
    return None


def first_in(batch: bytes, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first such record of one batch, as `first_since`."""
    header = parse_header(batch)
    if header.is_log_append_time:
        return (max(header.base_offset, start_offset), header.max_timestamp) if header.record_count else None
    try:
        for offset, timestamp, *_ in iterate_raw(batch):
            if offset >= start_offset and timestamp >= timestamp_ms:
                return offset, timestamp
    except (CorruptBatch, UnsupportedCompression, RecordTooLarge):
        # A record of that time may be in it: reading from here on misses nothing.
        return max(header.base_offset, start_offset), header.max_timestamp
    return None
