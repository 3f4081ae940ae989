"""The newest batches of logs, in memory: what follows the end of a log reads them without a call of
the system.

Each log keeps its last few batches if they came one by one and are small; others go through the
page cache, where a call is little beside their bytes. All logs together keep at most a fixed number
of bytes: the log that was quiet for the longest time loses its batches first.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from sparrow.storage.store import Chunk

if TYPE_CHECKING:
    from sparrow.storage.resources import MemoryBudget

MAX_BATCH_BYTES: Final = 16 << 10
"""Larger batches are not kept."""
_MAX_LOG_BYTES: Final = 64 << 10
_MAX_BATCHES: Final = 128
"""Limits of one log."""
MAX_BYTES: Final = 16 << 20
"""Limit of all logs of a store."""


class _Batch(Struct, frozen=True, gc=False):
    base_offset: int
    next_offset: int
    segment: int
    """Base offset of the segment."""
    position: int
    """Where it begins in the segment's file."""
    data: bytes


class Tail:
    """The newest batches of one log. Loop thread only.

    Args:
        budget: that of all logs.
    """

    __slots__ = ("_batches", "_budget", "_size")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._batches: deque[_Batch] = deque()
        self._size = 0

    def add(self, base_offset: int, next_offset: int, segment: int, position: int, data: bytes) -> None:
        """Add a batch that was appended, stamped. It follows the one before."""
        batches = self._batches
        batches.append(_Batch(base_offset, next_offset, segment, position, data))
        self._size += len(data)
        while self._size > _MAX_LOG_BYTES or len(batches) > _MAX_BATCHES:
            self._size -= len(batches.popleft().data)
        self._budget.admit(self, self._size)

    def clear(self) -> None:
        """Forget the batches: others follow that are not kept, or the log lost some."""
        if self._batches:
            self.forget()
            self._budget.drop(self)

    def forget(self) -> None:
        """Free the memory."""
        self._batches.clear()
        self._size = 0

    def maybe_chunk(self, offset: int, max_bytes: int) -> Chunk | None:
        """Return the batches from the one that has `offset` on, at most `max_bytes` but at least
        one; None if it is not here.
        """
        batches = self._batches
        if not batches or not batches[0].base_offset <= offset < batches[-1].next_offset:
            return None
        number = len(batches) - 1
        while batches[number].base_offset > offset:
            number -= 1
        first = batches[number]
        base_offset, next_offset, data = first.base_offset, first.next_offset, first.data
        if number + 1 < len(batches):
            parts, size = [data], len(data)
            for batch in islice(batches, number + 1, None):
                size += len(batch.data)
                if size > max_bytes:
                    break
                next_offset = batch.next_offset
                parts.append(batch.data)
            data = b"".join(parts)
        return Chunk(data, base_offset, next_offset, next_offset - base_offset)

    def maybe_bytes(self, segment: int, start: int, end: int) -> bytes | None:
        """Return the bytes [start, end) of a segment's file; None if they are not here."""
        parts: list[bytes] = []
        for batch in reversed(self._batches):
            if batch.segment != segment or batch.position + len(batch.data) != end:
                return None
            parts.append(batch.data)
            end = batch.position
            if end == start:
                return parts[0] if len(parts) == 1 else b"".join(reversed(parts))
        return None
