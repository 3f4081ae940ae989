"""The batches of a partition that were read last.

A consumer that leases record by record takes them from the same few kilobytes: a read of the log
for each would cost more than all else about it.
"""

from __future__ import annotations

from typing import Final

from sparrow.records.batch import parse_header
from sparrow.storage.store import Chunk

MAX_BYTES: Final = 32 << 10
"""Larger chunks are not kept."""


class KeptChunk:
    """A chunk that is read from its front to its end. Batches before the last request are gone.

    Args:
        chunk: with at least one batch.
    """

    __slots__ = ("_data", "_header", "_next_offset", "_position")

    def __init__(self, chunk: Chunk) -> None:
        self._data = memoryview(chunk.data)
        self._position = 0
        self._header = parse_header(self._data)
        """The batch at the position."""
        self._next_offset = chunk.next_offset

    def maybe_chunk(self, offset: int, end: int, max_bytes: int) -> Chunk | None:
        """Return the batches with the records [offset, end), at most `max_bytes` of them but at
        least one batch; fewer if the chunk ends before. None if it has not the first one.
        """
        header = self._header
        if not header.base_offset <= offset < self._next_offset:
            return None
        while header.next_offset <= offset:
            self._position += header.size_bytes
            header = self._header = parse_header(self._data, self._position)
        base_offset, stop, records = header.base_offset, self._position, 0
        while True:
            stop += header.size_bytes
            records += header.next_offset - header.base_offset
            if header.next_offset >= min(end, self._next_offset) or stop - self._position >= max_bytes:
                return Chunk(self._data[self._position : stop], base_offset, header.next_offset, records)
            header = parse_header(self._data, stop)
