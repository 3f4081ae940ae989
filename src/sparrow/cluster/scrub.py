"""Checks of what was written long ago: are the pieces of a log there, and are they batches?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import CorruptBatch, StorageFailed
from sparrow.records.batch import check

if TYPE_CHECKING:
    from sparrow.cluster.log_content import LogContent
    from sparrow.storage.damage import Damage


class Scrub:
    """Passes over one log, which go on where the last call ended."""

    def __init__(self, content: LogContent) -> None:
        self._content = content
        self._checked = 0
        """Offset up to which the present pass has come."""

    async def run(self, max_bytes: int) -> int:
        """Check about `max_bytes`; see `PartitionLog.scrub`."""
        content, size = self._content, 0
        for piece in content.pieces.since(self._checked):
            if piece.end <= self._checked or not piece.run.length:
                continue
            if size >= max_bytes or content.is_closed:
                return size
            data = await content.reader.read(piece)
            try:
                for _, position in content.reader.walk(piece, data):
                    check(data, position)
            except CorruptBatch as error:
                content.resources.damages.add(content.reader.damage(piece, error.text))
            size += piece.run.length
            self._checked = piece.end
        if not size:
            self._checked = 0
        return size


def find_unreadable(content: LogContent, offset: int) -> list[Damage]:
    """Return the pieces that cannot be read; see `PartitionLog.find_unreadable`. Blocking."""
    found = []
    for piece in content.pieces.since(offset):
        if not piece.run.length:
            continue
        try:
            for _ in content.reader.walk(piece, content.reader.read_blocking(piece)):
                pass
        except (CorruptBatch, StorageFailed) as error:
            found.append(content.reader.damage(piece, error.text, closes=True))
    return found
