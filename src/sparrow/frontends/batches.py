"""Iteration over the record batches of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparrow.records.batch import parse_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.records.batch import BatchHeader


class PartitionBatch(NamedTuple):
    """A record batch and the partition that it comes from."""

    topic: str
    partition: int
    header: BatchHeader
    data: memoryview


def split_batches(topic: str, partition: int, data: bytes | memoryview) -> Iterator[PartitionBatch]:
    """Yield the whole batches in `data`, as read from the log. Their checksums were verified by the
    read.
    """
    view, position = memoryview(data), 0
    while position < len(view):
        header = parse_header(view, position)
        end = position + header.size_bytes
        yield PartitionBatch(topic, partition, header, view[position:end])
        position = end
