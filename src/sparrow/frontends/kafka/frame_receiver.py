"""Division of the received bytes into frames, with one copy at most.

A frame is a length (4 bytes, signed) and as many bytes. Small frames are copied out of a scratch
buffer that all connections of a listener share (the loop reads into it and hands it over at once).
A frame that exceeds one read gets its own buffer, and the socket is read directly into it.

Announcing a size costs no memory: the buffer is made when its memory is reserved (`may_grow`), and
it is never larger than a small multiple of the bytes received. Until then the connection is read in
small pieces, or not at all.
"""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SCRATCH_BYTES: Final = 256 << 10
_SIZE = struct.Struct(">i")
SMALL_READ_BYTES: Final = 4 << 10
"""Size of reads while memory is scarce."""
_LAZY_BYTES: Final = 4 << 20
"""Larger buffers are mapped: the system provides their pages as they are written, and gets them
back at once.
"""
_FIRST_BYTES: Final = 8 << 10
"""The least size of a smaller buffer."""
_GROWTH: Final = 8
"""A smaller buffer grows to this multiple of the bytes received, so that a large frame is copied
few times.
"""


class MalformedRequest(Exception):
    """Bytes that are not a request, or a request that is not allowed now. The connection is closed,
    as in Kafka. Defined here because `errors.py` loads kio, which takes a tenth of a second.
    """


class FrameReceiver:
    """Divides the bytes of one connection into frames. `take` is called with each frame and may
    keep it.

    Args:
        scratch: the shared buffer, free between `buffer` and `received` of one connection.
    """

    __slots__ = ("_filled", "_frame", "_rest", "_scratch", "_size", "_take", "may_grow")

    def __init__(self, scratch: memoryview, take: Callable[[bytes | memoryview], None]) -> None:
        self._scratch = scratch
        self._take = take
        self._rest = b""
        """The first bytes of a length."""
        self._size = 0
        """The size of the unfinished frame; 0 between frames."""
        self._frame: memoryview | None = None
        """The buffer of the unfinished frame; smaller than the frame while few bytes were
        received.
        """
        self._filled = 0
        self.may_grow = False
        """True once memory for the whole frame is reserved; reset with each frame."""

    @property
    def unfinished_bytes(self) -> int:
        """The size of the unfinished frame; 0 between frames."""
        return self._size

    @property
    def received_bytes(self) -> int:
        """Bytes of the unfinished frame that were received."""
        return self._filled

    @property
    def is_between_frames(self) -> bool:
        return not self._size and not self._rest

    def buffer(self, limit_bytes: int = SCRATCH_BYTES) -> memoryview:
        """Return the buffer for the next read.

        Args:
            limit_bytes: the most that is read between frames, and of a frame that may not grow.
        """
        if not self._size:
            return self._scratch[:limit_bytes]
        if not self.may_grow:
            return self._scratch[: min(SMALL_READ_BYTES, self._size - self._filled)]
        if self._frame is None or self._filled == len(self._frame):
            self._grow(max(_FIRST_BYTES, _GROWTH * self._filled))
        assert self._frame is not None
        return self._frame[self._filled :]

    def received(self, count: int, limit: int) -> None:
        """Process the `count` bytes that were written to `buffer`; `limit` is the largest allowed
        frame.

        Raises:
            MalformedRequest: a length is negative or too large. Frames before it were taken.
        """
        if not self._size:
            self._cut(self._scratch[:count], limit)
            return
        if not self.may_grow:
            self._append(self._scratch[:count])
        self._filled += count
        if self._filled == self._size:
            frame = self._frame
            self.forget()
            assert frame is not None
            self._take(frame.toreadonly())  # kio requires it

    def close(self) -> None:
        """Drop everything after the connection was lost; it is freed without the garbage
        collector.
        """
        self.forget()
        self._take = _nothing

    def forget(self) -> None:
        """Drop the unfinished frame."""
        self._frame = None
        self._rest = b""
        self._size = self._filled = 0
        self.may_grow = False

    def _cut(self, data: memoryview, limit: int) -> None:
        if self._rest:
            data = memoryview(self._rest + bytes(data))
            self._rest = b""
        offset, end = 0, len(data)
        while end - offset >= _SIZE.size:
            (size,) = _SIZE.unpack_from(data, offset)
            if not 0 <= size <= limit:
                raise MalformedRequest(
                    f"a request of {size} bytes was announced; 0 to {limit} bytes are allowed"
                )
            offset += _SIZE.size
            if end - offset < size:
                self._size = size
                self._append(data[offset:])
                self._filled = end - offset
                return
            self._take(bytes(data[offset : offset + size]))
            offset += size
        self._rest = bytes(data[offset:])

    def _append(self, data: memoryview) -> None:
        """Store bytes of a frame whose memory is not reserved."""
        if data:
            needed_bytes = self._filled + len(data)
            if self._frame is None or len(self._frame) < needed_bytes:
                self._frame = _extended(self._frame, self._filled, bytearray(needed_bytes))
            self._frame[self._filled : needed_bytes] = data

    def _grow(self, wanted_bytes: int) -> None:
        if self._size >= _LAZY_BYTES:
            self._frame = _extended(self._frame, self._filled, mmap.mmap(-1, self._size))
        else:
            self._frame = _extended(self._frame, self._filled, bytearray(min(self._size, wanted_bytes)))


def _nothing(_: bytes | memoryview) -> None:
    """Do nothing: the connection is closed."""


def _extended(old: memoryview | None, filled: int, new: bytearray | mmap.mmap) -> memoryview:
    """Return a view of `new` that begins with the first `filled` bytes of `old`."""
    whole = memoryview(new)
    if old is not None and filled:
        whole[:filled] = old[:filled]
    return whole
