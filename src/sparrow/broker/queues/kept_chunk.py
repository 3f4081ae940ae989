"""The batches of partitions that were read last.

A consumer that leases record by record takes them from the same batches: a read of the log for each
would cost more than all else about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.records.batch import parse_header
from sparrow.storage.store import Chunk

if TYPE_CHECKING:
    from collections.abc import Hashable

MAX_BYTES: Final = 4 << 20
"""Memory of all chunks that are kept; a chunk of more than a quarter of it is not."""


class KeptChunk:
    """A chunk that is read from its front to its end. Batches before the last request are gone.

    Args:
        chunk: with at least one batch.
    """

    __slots__ = ("_data", "_header", "_next_offset", "_position", "size_bytes")

    def __init__(self, chunk: Chunk) -> None:
        self._data = memoryview(chunk.data)
        self.size_bytes = len(self._data)
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


class KeptChunks:
    """The last chunk of each of the partitions that were read last. Loop thread only."""

    __slots__ = ("_by_reader", "_max_bytes", "_size_bytes")

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._by_reader: dict[Hashable, KeptChunk] = {}
        """The chunk that was read last is the last."""
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Memory that they take."""
        return self._size_bytes

    def maybe_chunk(self, reader: Hashable, offset: int, end: int, max_bytes: int) -> Chunk | None:
        """Return batches of the reader's chunk, as `KeptChunk.maybe_chunk` does; None without
        one.
        """
        kept = self._by_reader.get(reader)
        return None if kept is None else kept.maybe_chunk(offset, end, max_bytes)

    def keep(self, reader: Hashable, chunk: Chunk) -> None:
        """Keep a chunk instead of the reader's last one; those that were kept first give way."""
        self.forget(reader)
        if not 0 < len(chunk.data) <= self._max_bytes // 4:
            return
        kept = self._by_reader[reader] = KeptChunk(chunk)
        self._size_bytes += kept.size_bytes
        while self._size_bytes > self._max_bytes:
            self.forget(next(iter(self._by_reader)))

    def forget(self, reader: Hashable) -> None:
        """Free the reader's chunk."""
        kept = self._by_reader.pop(reader, None)
        if kept is not None:
            self._size_bytes -= kept.size_bytes
