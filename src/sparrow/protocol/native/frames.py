"""Frames: the envelope around every payload, see `docs/protocol.md`.

There is no work per byte. A chunk from the socket is cut into memoryviews, without a copy, as long
as it has whole frames. The pieces of a frame that spans chunks are kept as they came and joined
once, when the last is there; small pieces are collected in a buffer, so that a peer that sends two
bytes at a time costs no more memory than the frame. Memory grows with what arrives, never with what
was announced. A length over the limit is refused as soon as its four bytes are there.

The payloads of the types are not known here; see `connection.py`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias

from sparrow.base.errors import BadFrame, FrameTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LENGTH_BYTES = 4
HEADER_BYTES = 10
"""Size of length, type, flags and channel."""
REST_OF_HEADER_BYTES = HEADER_BYTES - LENGTH_BYTES
"""The part of the header that the length counts."""
HEAD_SIZE_BYTES = 4

FLAG_BATCHES = 0x01
MAX_LENGTH_BYTES = (1 << 32) - 1
"""Largest value of the length field."""
MAX_FRAME_BYTES = 16 << 20
MAX_FRAME_BYTES_BEFORE_WELCOME = 16 << 10
HEAD_RESERVE_BYTES = 1024
"""A batch is at most the frame limit less this, so that a published batch fits into a DELIVER or
LEASED, whose heads are longer.
"""
LARGE_PIECE_BYTES = 32 << 10
"""A piece of a frame of this size is kept as it came, with the chunk that it is part of."""
JOIN_BELOW_BYTES = 2048
"""Smaller frames leave as one piece: a copy is cheaper than one more element in writev."""

_HEADER = struct.Struct(">IBBI")
_HEADER_AND_HEAD_SIZE = struct.Struct(">IBBII")
_LENGTH = struct.Struct(">I")
_unpack_header = _HEADER.unpack_from
_unpack_length = _LENGTH.unpack_from
_BUFFER = (bytes, memoryview)

Buffer: TypeAlias = "bytes | memoryview"
Frame: TypeAlias = "tuple[int, int, int, memoryview]"
"""Type, flags, channel, payload."""
TakeFrame: TypeAlias = "Callable[[int, int, int, memoryview], bool]"
"""Takes a frame; returns False if the rest of the bytes is not wanted."""

_STRANGERS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PRI ", b"CONN", b"PATC", b"HTTP")


class FrameDecoder:
    """A decoder that cuts a byte stream into frames.

    `max_frame_bytes` bounds a frame's length field and may be changed between two frames.
    """

    __slots__ = ("_pieces", "buffered_bytes", "bytes_wanted", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._pieces: list[memoryview | bytearray] = []
        self.buffered_bytes = 0
        """Received bytes of an unfinished frame."""
        self.bytes_wanted = 0
        """Announced size of the frame that is being received, with its length field; 0 between
        frames.
        """

    def receive_data(self, data: Buffer, take: TakeFrame) -> None:
        """Pass on the frames that `data` completes, until `take` wants no more.

        Raises:
            FrameTooLarge: a length is over the limit; nothing more can be decoded.
            BadFrame: a length is too small for a header.
        """
        start, end = 0, len(data)
        view = memoryview(data)
        if self.buffered_bytes:
            start = self._continue(view)
            if not self.bytes_wanted or self.buffered_bytes < self.bytes_wanted:
                return
            if not take(*self._take()):
                return
        while end - start >= HEADER_BYTES:
            length, kind, flags, channel = _unpack_header(data, start)
            if not REST_OF_HEADER_BYTES <= length <= self.max_frame_bytes:
                raise _bad_length(length, self.max_frame_bytes)
            stop = start + LENGTH_BYTES + length
            if stop > end:
                break
            if not take(kind, flags, channel, view[start + HEADER_BYTES : stop]):
                return
            start = stop
        if start < end:
            self._hold(view[start:])
            self._announce()

    def _continue(self, view: memoryview) -> int:
        """Keep the bytes of the unfinished frame. Return where the rest of `view` begins."""
        start = 0
        if self.buffered_bytes < HEADER_BYTES:
            start = min(HEADER_BYTES - self.buffered_bytes, len(view))
            self._hold(view[:start])
            self._announce()
        stop = max(start, self.bytes_wanted - self.buffered_bytes + start)
        self._hold(view[start:stop])
        return stop

    def _hold(self, piece: memoryview) -> None:
        if len(piece) >= LARGE_PIECE_BYTES:
            self._pieces.append(piece)
        elif self._pieces and isinstance(self._pieces[-1], bytearray):
            self._pieces[-1] += piece
        else:
            self._pieces.append(bytearray(piece))
        self.buffered_bytes += len(piece)

    def _announce(self) -> None:
        if self.buffered_bytes < LENGTH_BYTES:
            return
        # The first piece has at least a header's bytes, or else all that there are.
        (length,) = _unpack_length(self._pieces[0])
        if not REST_OF_HEADER_BYTES <= length <= self.max_frame_bytes:
            raise _bad_length(length, self.max_frame_bytes)
        self.bytes_wanted = LENGTH_BYTES + length

    def _take(self) -> Frame:
        frame = b"".join(self._pieces)
        self._pieces = []
        self.buffered_bytes = self.bytes_wanted = 0
        _, kind, flags, channel = _unpack_header(frame)
        return kind, flags, channel, memoryview(frame)[HEADER_BYTES:]


def _bad_length(length: int, max_frame_bytes: int) -> BadFrame | FrameTooLarge:
    if length < REST_OF_HEADER_BYTES:
        return BadFrame(
            f"A frame's length field says {length} bytes, but type, flags and channel alone take "
            f"{REST_OF_HEADER_BYTES}."
        )
    if _LENGTH.pack(length) in _STRANGERS:
        return FrameTooLarge(
            "This is not the native protocol but looks like HTTP; this port speaks sparrow:// "
            "only, see docs/protocol.md."
        )
    return FrameTooLarge(
        f"A frame announces {length} bytes, the limit here is {max_frame_bytes}; send smaller "
        "batches, or raise the broker's limit."
    )


def encode_frame(
    kind: int, channel: int, head: bytes, batches: Buffer | Sequence[Buffer] | None, max_frame_bytes: int
) -> Sequence[Buffer]:
    """Return a frame as pieces for `writelines`; large batches are not copied.

    Args:
        batches: the bytes behind the head in a frame with the flag BATCHES, None without.

    Raises:
        FrameTooLarge: the length field would be over `max_frame_bytes`.
    """
    if batches is None:
        length = REST_OF_HEADER_BYTES + len(head)
        front = _HEADER.pack(length, kind, 0, channel) + head
        pieces: Sequence[Buffer] = (front,)
    else:
        behind: Sequence[Buffer] = (batches,) if isinstance(batches, _BUFFER) else batches
        length = REST_OF_HEADER_BYTES + HEAD_SIZE_BYTES + len(head) + sum(map(len, behind))
        front = _HEADER_AND_HEAD_SIZE.pack(length, kind, FLAG_BATCHES, channel, len(head)) + head
        pieces = (front, *behind) if length > JOIN_BELOW_BYTES else (b"".join((front, *behind)),)
    if length > max_frame_bytes:
        raise FrameTooLarge(f"A frame of {length} bytes is over the limit of {max_frame_bytes} bytes.")
    return pieces


def split_payload(payload: memoryview) -> tuple[memoryview, memoryview]:
    """Return head and batches of a payload with the flag BATCHES.

    Raises:
        BadFrame: the head's size goes beyond the payload.
    """
    payload_bytes = len(payload)
    stop = HEAD_SIZE_BYTES + _unpack_length(payload)[0] if payload_bytes >= HEAD_SIZE_BYTES else -1
    if not HEAD_SIZE_BYTES <= stop <= payload_bytes:
        raise BadFrame(
            f"A frame with batches has {payload_bytes} bytes of payload, too few for the head that "
            "it announces."
        )
    return payload[HEAD_SIZE_BYTES:stop], payload[stop:]
