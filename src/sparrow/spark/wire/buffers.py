"""The memory that large frames are received into, reused as soon as it is no longer referenced.

A fresh megabyte costs more to touch for the first time than to receive, so buffers are kept. A
reference to a frame (a memoryview, an array on it) exports its buffer, and a bytearray with exports
refuses to change its size; one that does not is free. Nothing has to be returned explicitly.
"""

from __future__ import annotations

KEPT_BUFFERS = 4
STEP_BYTES = 256 << 10


class Buffers:
    """Buffers of one connection. Not thread-safe."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    @property
    def kept_bytes(self) -> int:
        """Return the size of all buffers, in use or not."""
        return sum(map(len, self._kept))

    def take(self, size_bytes: int) -> memoryview:
        """Return a view of exactly this many writable bytes, whose content is arbitrary."""
        smallest: bytearray | None = None
        for buffer in self._kept:
            if (
                len(buffer) >= size_bytes
                and (smallest is None or len(buffer) < len(smallest))
                and _is_free(buffer)
            ):
                smallest = buffer
        if smallest is None:
            smallest = bytearray(-(-size_bytes // STEP_BYTES) * STEP_BYTES)
            self._keep(smallest)
        return memoryview(smallest)[:size_bytes]

    def _keep(self, buffer: bytearray) -> None:
        """Keep a buffer; the oldest one makes room, and lives as long as it is referenced."""
        if len(self._kept) >= KEPT_BUFFERS:
            del self._kept[0]
        self._kept.append(buffer)


def _is_free(buffer: bytearray) -> bool:
    """Return True if the buffer is not referenced. The first question allocates room for one byte
    more.
    """
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
