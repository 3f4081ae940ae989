"""Reading pieces of a log, and taking them apart into batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import CorruptBatch, CorruptStoredBatch
from sparrow.records.batch import HEADER_BYTES, check, parse_header
from sparrow.storage.damage import Damage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.cluster.pieces import Piece
    from sparrow.cluster.resources import StoreResources
    from sparrow.records.batch import BatchHeader
    from sparrow.storage.store import LogId


class PieceReader:
    """Reads pieces of one log through the cache of payloads."""

    def __init__(self, log_id: LogId, resources: StoreResources) -> None:
        self._log_id = log_id
        self._resources = resources
        self._cache = resources.cache

    async def read(self, piece: Piece) -> memoryview:
        """Return the bytes of a piece.

        Raises:
            ObjectMissing, ObjectsUnavailable, LedgerUnavailable
        """
        return await self._cache.read(piece.payload, piece.run.position, piece.run.length)

    def maybe_read(self, piece: Piece) -> memoryview | None:
        """Return the bytes of a piece if they are in memory."""
        return self._cache.maybe_read(piece.payload, piece.run.position, piece.run.length)

    def read_blocking(self, piece: Piece) -> memoryview:
        """Read as `read`, but block the calling thread."""
        return self._cache.read_blocking(piece.payload, piece.run.position, piece.run.length)

    async def batches_of(self, piece: Piece) -> list[tuple[BatchHeader, bytes]]:
        """Return the batches of a piece.

        Raises:
            ObjectMissing, ObjectsUnavailable, LedgerUnavailable, CorruptStoredBatch
        """
        if not piece.run.length:
            return []
        data = await self.read(piece)
        return [(h, bytes(data[at : at + h.size_bytes])) for h, at in self.walk(piece, data)]

    def walk(self, piece: Piece, data: memoryview, begin: int = 0) -> Iterator[tuple[BatchHeader, int]]:
        """Iterate over the batches of a piece and their positions.

        Raises:
            CorruptStoredBatch: the bytes are no batches.
        """
        position = begin
        while position < len(data):
            try:
                header = parse_header(data, position)
            except CorruptBatch as error:
                raise self._corrupt(piece, error.text) from None
            if header.size_bytes < HEADER_BYTES or position + header.size_bytes > len(data):
                raise self._corrupt(piece, f"a batch at byte {position} does not end inside its run")
            yield header, position
            position += header.size_bytes

    def starts(self, piece: Piece, data: memoryview) -> Iterator[tuple[int, int]]:
        """Iterate over (base offset, position) of the batches of a piece, and check their bytes.

        Raises:
            CorruptStoredBatch
        """
        position = 0
        while position < len(data):
            try:
                header = check(data, position)
            except CorruptBatch as error:
                raise self._corrupt(piece, f"at byte {position} of its run: {error.text}") from None
            yield header.base_offset, position
            position += header.size_bytes

    def _corrupt(self, piece: Piece, problem: str) -> CorruptStoredBatch:
        """Record damaged bytes that a read met. Return the error for the reader."""
        damage = self.damage(piece, problem)
        self._resources.damages.count_corrupt_read()
        self._resources.damages.add(damage)
        return CorruptStoredBatch(damage.sentence, piece.base)

    def damage(self, piece: Piece, problem: str, *, closes: bool = False) -> Damage:
        """Return the description of a damaged piece."""
        path = self._resources.path_of(piece.payload)
        return Damage(str(self._log_id), path, problem, piece.base, piece.end, closes=closes, is_there=True)
