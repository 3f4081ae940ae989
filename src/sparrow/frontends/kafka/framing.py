"""From the socket's bytes to frames, with one copy at most.

A frame is a length (4 bytes, signed) and as many bytes. Small ones are cut out of a scratch buffer that all connections of a door share (the
loop reads into it and hands it over at once). Once a frame does not fit into what was read, it gets a buffer of its own, and the
socket is read straight into that.
"""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, Final

from sparrow.frontends.kafka.malformed import MalformedRequest

if TYPE_CHECKING:
    from collections.abc import Callable

SCRATCH_BYTES: Final = 256 << 10
_SIZE = struct.Struct(">i")
_LAZY_BYTES: Final = 4 << 20
"""Buffers from this size on come from the system page by page, so that an announcement alone costs no memory."""


class FrameReceiver:
    """Cuts frames for one connection. `take` gets each; it may keep it.

    Args:
        scratch: the shared buffer, free between `buffer` and `received` of one connection.
    """

    def __init__(self, scratch: memoryview, take: Callable[[bytes | memoryview], None]) -> None:
        self._scratch = scratch
        self._take = take
        self._rest = b""
        """The beginning of a length."""
        self._frame: memoryview | None = None
        self._filled = 0

    @property
    def unfinished_bytes(self) -> int:
        """The size of the frame that is being received; 0 between frames."""
        return len(self._frame) if self._frame is not None else 0

    @property
    def received_bytes(self) -> int:
        """How much of it is there."""
        return self._filled if self._frame is not None else 0

    @property
    def is_between_frames(self) -> bool:
        return self._frame is None and not self._rest

    def buffer(self) -> memoryview:
        """Where the next bytes belong."""
        return self._scratch if self._frame is None else self._frame[self._filled :]

    def received(self, count: int, limit: int) -> None:
        """So many bytes were written to `buffer`; `limit` is the largest frame that is allowed.

        Raises:
            MalformedRequest: a length is negative or too large. Frames before it were taken.
        """
        if self._frame is None:
            self._cut(self._scratch[:count], limit)
            return
        self._filled += count
        if self._filled == len(self._frame):
            frame, self._frame = self._frame, None
            self._take(frame.toreadonly())  # what kio insists on

    def forget(self) -> None:
        """Drop what is unfinished."""
        self._frame = None
        self._rest = b""

    def _cut(self, data: memoryview, limit: int) -> None:
        if self._rest:
            data = memoryview(self._rest + bytes(data))
            self._rest = b""
        offset, end = 0, len(data)
        while end - offset >= _SIZE.size:
            (size,) = _SIZE.unpack_from(data, offset)
            if not 0 <= size <= limit:
                raise MalformedRequest(f"a request of {size} bytes was announced; allowed are 0 to {limit}")
            offset += _SIZE.size
            if end - offset < size:
                self._begin(data[offset:], size)
                return
            self._take(bytes(data[offset : offset + size]))
            offset += size
        self._rest = bytes(data[offset:])

    def _begin(self, data: memoryview, size: int) -> None:
        whole = memoryview(bytearray(size) if size < _LAZY_BYTES else mmap.mmap(-1, size))
        whole[: len(data)] = data
        self._frame = whole
        self._filled = len(data)
