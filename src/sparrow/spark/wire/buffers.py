"""The memory that large frames are received into, used again as soon as nobody looks at it.

A fresh megabyte costs more to touch for the first time than to receive, so buffers are kept. Whoever looks at a frame (by a memoryview,
an array on it) exports its buffer, and a bytearray with exports refuses to change its size; one that does not is free. Nobody has to give anything back.
"""

from __future__ import annotations

KEPT_BUFFERS = 4
STEP_BYTES = 256 << 10


class Buffers:
    """Of one connection. Not thread-safe."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    @property
    def kept_bytes(self) -> int:
        """Memory that is held, in use or not."""
        return sum(map(len, self._kept))

    def take(self, size_bytes: int) -> memoryview:
        """A view of exactly so many writable bytes, whose content is arbitrary."""
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
        """The oldest makes place; who still looks at it keeps it alive."""
        if len(self._kept) >= KEPT_BUFFERS:
            del self._kept[0]
        self._kept.append(buffer)


def _is_free(buffer: bytearray) -> bool:
    """Whether nobody looks at it. It is allocated with room for one byte more at the first question."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
