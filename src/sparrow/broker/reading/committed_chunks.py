"""Chunks as readers of committed records get them where the broker filters (the native protocol).

Records of open transactions are held back: the chunk ends at the last stable offset. Batches of
aborted transactions are cut out, by their headers, and only where the partition knows of aborted
transactions in the chunk. Control batches stay: they are small, clients skip them, and they move a
reader's position past what was cut out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.records.batch import parse_header
from sparrow.storage.store import Chunk

if TYPE_CHECKING:
    from sparrow.broker.partition import Partition
    from sparrow.broker.transaction_index import AbortedRange
    from sparrow.records.batch import BatchHeader


def stable(partition: Partition, chunk: Chunk, offset: int) -> Chunk:
    """Return the leading batches of `chunk`, which was read at `offset`, whose records lie before
    the last stable offset.
    """
    end = partition.last_stable_offset
    if chunk.next_offset <= end:
        return chunk
    position, next_offset = 0, offset
    size = len(chunk.data)
    while position < size:
        header = parse_header(chunk.data, position)
        if header.next_offset > end:
            break
        position += header.size_bytes
        next_offset = header.next_offset
    return Chunk(
        chunk.data[:position], chunk.base_offset, next_offset, max(0, next_offset - chunk.base_offset)
    )


def without_aborted(partition: Partition, chunk: Chunk, offset: int) -> Chunk:
    """Return the chunk without batches of aborted transactions. Its offsets stay; it is only copied
    if a batch is removed.
    """
    ranges = partition.aborted_ranges(offset, chunk.next_offset) if chunk.data else ()
    if not ranges:
        return chunk
    kept: list[bytes | memoryview] = []
    position = begin = 0
    size = len(chunk.data)
    while position < size:
        header = parse_header(chunk.data, position)
        if _is_aborted(header, ranges):
            kept.append(chunk.data[begin:position])
            begin = position + header.size_bytes
        position += header.size_bytes
    kept.append(chunk.data[begin:size])
    return Chunk(b"".join(kept), chunk.base_offset, chunk.next_offset, chunk.records)


def _is_aborted(header: BatchHeader, ranges: tuple[AbortedRange, ...] | list[AbortedRange]) -> bool:
    return (
        header.is_transactional
        and not header.is_control
        and any(
            each.producer_id == header.producer_id
            and each.first_offset <= header.base_offset < each.last_offset
            for each in ranges
        )
    )
