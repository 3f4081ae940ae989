"""Reading a log by offsets: whole batches as chunks, headers, and searches by time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import StorageFailed
from sparrow.cluster.manifest import points_of, producer_batches
from sparrow.storage.store import Chunk
from sparrow.storage.timestamps import first_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sparrow.cluster.log_content import LogContent
    from sparrow.cluster.pieces import Piece
    from sparrow.records.batch import BatchHeader

MAX_READ_AT_ONCE: Final = 16
"""Pieces that one read fetches side by side."""


class ChunkReader:
    """Reads one log. See `PartitionLog` for the methods."""

    def __init__(self, content: LogContent) -> None:
        self._content = content
        self._reader = content.reader
        self._resources = content.resources

    def read_nowait(self, offset: int, max_bytes: int) -> Chunk | None:
        content = self._content
        content.check_range(offset)
        if not self._resources.is_trusted():
            return None
        if offset == content.end:
            return Chunk(b"", offset, offset, 0)
        return self._read(offset, max_bytes, self._reader.maybe_read)

    async def read(self, offset: int, max_bytes: int) -> Chunk:
        content = self._content
        while True:
            await self._resources.trusted()
            content.check_range(offset)
            if offset == content.end:
                return Chunk(b"", offset, offset, 0)
            pieces = self._pieces_for(offset, max_bytes)
            try:
                found = await asyncio.gather(*map(self._reader.read, pieces))
            except StorageFailed:
                present = set(map(id, content.pieces.since(offset)))
                if all(id(piece) in present for piece in pieces):
                    raise
                continue  # they were replaced meanwhile
            content.check_range(offset)
            if not self._resources.is_trusted():
                continue
            held = {id(piece): data for piece, data in zip(pieces, found, strict=True)}
            chunk = self._read(offset, max_bytes, partial(_held, held))
            if chunk is not None:
                return chunk

    def _pieces_for(self, offset: int, max_bytes: int) -> list[Piece]:
        """Return the pieces of a read that must wait: at least one, and one ahead."""
        pieces, size = [], 0
        for piece in self._content.pieces.after(offset):
            pieces.append(piece)
            size += piece.run.length if piece.end > offset else 0
            if size >= max_bytes or len(pieces) >= MAX_READ_AT_ONCE:
                break
        return pieces

    def _read(self, offset: int, max_bytes: int, read: Callable[[Piece], memoryview | None]) -> Chunk | None:
        """Return a chunk of what `read` has; None if it has nothing of the first piece."""
        parts: list[memoryview] = []
        size, records, base = 0, 0, -1
        next_offset = offset
        for piece in self._content.pieces.after(offset):
            if not piece.run.length:
                next_offset = piece.end
                continue
            data = read(piece)
            if data is None:
                break
            begin = self._begin_of(piece, data, next_offset)
            if begin is None:
                next_offset = piece.end
                continue
            stop, after = self._stop_of(piece, data, begin, max_bytes - size, is_first=not parts)
            if stop == begin:
                break
            first = int.from_bytes(data[begin : begin + 8], "big")
            base = first if base < 0 else base
            parts.append(data[begin:stop])
            size += stop - begin
            records += after - max(first, piece.base)
            next_offset = after
            if stop < len(data) or size >= max_bytes:
                break
        if not parts:
            return Chunk(b"", next_offset, next_offset, 0) if next_offset > offset else None
        return Chunk(parts[0] if len(parts) == 1 else b"".join(parts), base, next_offset, records)

    def _begin_of(self, piece: Piece, data: memoryview, offset: int) -> int | None:
        """Return the position of the first batch that ends behind `offset`; None: there is none."""
        if offset <= piece.base:
            return 0
        begin = 0
        for base, position in points_of(piece.run):
            if base > offset:
                break
            begin = position
        for header, position in self._reader.walk(piece, data, begin):
            if header.next_offset > offset:
                return position
        return None

    def _stop_of(
        self, piece: Piece, data: memoryview, begin: int, room: int, *, is_first: bool
    ) -> tuple[int, int]:
        """Return (position, offset) of the end of the whole batches that fit into `room` bytes."""
        if len(data) - begin <= room:
            return len(data), piece.end
        stop, after = begin, piece.base
        for header, position in self._reader.walk(piece, data, begin):
            end = position + header.size_bytes
            if end - begin > room and (stop > begin or not is_first):
                break
            stop, after = end, header.next_offset
            if end - begin >= room:
                break
        return stop, piece.end if stop == len(data) else after

    def headers_and_markers(self, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        self._content.check_range(offset)
        for piece in self._content.pieces.since(offset):
            if piece.end <= offset or not piece.run.length:
                continue
            data = self._reader.read_blocking(piece)
            for header, position in self._reader.walk(piece, data):
                if header.next_offset > offset:
                    end = position + header.size_bytes
                    yield header, bytes(data[position:end]) if header.is_control else b""

    def producer_batches(self, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """See `PartitionLog.producer_batches`. Reads nothing."""
        self._content.check_range(offset)
        for piece in self._content.pieces.since(offset):
            for header, control in producer_batches(piece.run):
                if offset < header.next_offset <= piece.end:
                    yield header, control

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        start = self._content.start
        for piece in list(self._content.pieces):
            if piece.run.max_timestamp < timestamp_ms or piece.end <= start or not piece.run.length:
                continue
            data = await self._reader.read(piece)
            for header, position in self._reader.walk(piece, data):
                if header.max_timestamp >= timestamp_ms and header.next_offset > start:
                    batch = bytes(data[position : position + header.size_bytes])
                    found = first_in(batch, timestamp_ms, start)
                    if found is not None:
                        return found
        return None


def _held(held: Mapping[int, memoryview], piece: Piece) -> memoryview | None:
    return held.get(id(piece))
