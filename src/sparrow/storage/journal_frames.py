"""Bytes of a journal file: a header block, then frames.

    block 0     magic "SPRWJRNL" (8) | version u32 | crc u32 | journal id (16) | first number u64
    frames      from byte 4096 on, each at a multiple of 8 bytes:

     0        4        8                16               24
     +--------+--------+----------------+----------------+---------- - -
     | crc    | length | number         | synced         | payload
     +--------+--------+----------------+----------------+---------- - -

Integers are little-endian. `crc` is the CRC-32 of everything behind it in the frame; in block 0
that of the version, the id and the number.

Numbers of frames are consecutive. Each opening of the journal begins at a number far behind the
last one, so that bytes which an earlier broker left behind the end never continue the frames of
this one. `synced` is the number up to which all frames were on stable storage when the frame was
written. So a bad frame with number n is a torn tail, of which nothing was ever confirmed, unless a
later frame has `synced` >= n: then the disk has lost it.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.storage.filesystem import BLOCK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC: Final = b"SPRWJRNL"
VERSION: Final = 2
HEADER_BYTES: Final = 24
_ALIGNMENT: Final = 8

_BLOCK = struct.Struct("<8sII16sQ")
_BLOCK_CRC_END: Final = 16
_FRAME = struct.Struct("<IIQQ")
_BEHIND_CRC = struct.Struct("<IQQ")
_CRC_BYTES: Final = 4
_PADDING: Final = tuple(bytes(-size % _ALIGNMENT) for size in range(_ALIGNMENT))
"""By the size of what is padded, modulo the alignment."""


class FileHeader(NamedTuple):
    """Block 0 of a file."""

    version: int
    journal_id: bytes
    first: int
    """Number of the file's first frame."""


class Frame(NamedTuple):
    """A valid frame. `end` is the position behind it."""

    number: int
    synced: int
    payload: memoryview
    end: int


@dataclass(slots=True)
class Contents:
    """Valid frames of a file, in order."""

    header: FileHeader | None = None
    """None: the file has none, or it is damaged."""
    payloads: list[memoryview] = field(default_factory=list)
    end: int = BLOCK_BYTES
    """Position behind the last frame."""

    @property
    def first(self) -> int:
        """Number of the first frame; 0 without a header."""
        return self.header.first if self.header is not None else 0

    @property
    def next_number(self) -> int:
        """Number of the frame that would come next."""
        return self.first + len(self.payloads)


def encode_header(journal_id: bytes, first: int) -> bytes:
    """Return block 0."""
    rest = struct.pack("<16sQ", journal_id, first)
    crc = zlib.crc32(rest, zlib.crc32(VERSION.to_bytes(4, "little")))
    return _BLOCK.pack(MAGIC, VERSION, crc, journal_id, first).ljust(BLOCK_BYTES, b"\0")


def decode_header(block: memoryview) -> FileHeader | None:
    """Return the header of block 0; None if it is not valid. Only `version` holds for a version
    that is not known here.
    """
    if len(block) < BLOCK_BYTES:
        return None
    magic, version, crc, journal_id, first = _BLOCK.unpack_from(block)
    found = zlib.crc32(block[_BLOCK_CRC_END : _BLOCK.size], zlib.crc32(version.to_bytes(4, "little")))
    if magic != MAGIC or (version <= VERSION and crc != found):
        return None
    return FileHeader(version, journal_id, first)


def frame_bytes(payload_bytes: int) -> int:
    """Return the size of a frame."""
    size = HEADER_BYTES + payload_bytes
    return size + -size % _ALIGNMENT


def encode_frame(payload: bytes, number: int, synced: int) -> bytes:
    """Return a frame, padded."""
    size = len(payload)
    rest = _BEHIND_CRC.pack(size, number, synced)
    crc = zlib.crc32(payload, zlib.crc32(rest)).to_bytes(_CRC_BYTES, "little")
    return b"".join((crc, rest, payload, _PADDING[(HEADER_BYTES + size) % _ALIGNMENT]))


def maybe_frame(data: memoryview, position: int) -> Frame | None:
    """Return the frame at a position; None if there is no valid one."""
    if position + HEADER_BYTES > len(data):
        return None
    crc, size, number, synced = _FRAME.unpack_from(data, position)
    end = position + HEADER_BYTES + size
    if end > len(data) or not number or zlib.crc32(data[position + _CRC_BYTES : end]) != crc:
        return None
    payload = data[position + HEADER_BYTES : end]
    return Frame(number, synced, payload, position + frame_bytes(size))


def read_frames(data: memoryview) -> Contents:
    """Return the frames of a file up to the first bad one."""
    found = Contents(decode_header(data[:BLOCK_BYTES]))
    if found.header is None or found.header.version > VERSION:
        return found
    while (frame := maybe_frame(data, found.end)) is not None:
        if frame.number != found.next_number:
            break
        found.payloads.append(frame.payload)
        found.end = frame.end
    return found


def frames_after(data: memoryview, number: int) -> Iterator[Frame]:
    """Yield all valid frames with greater numbers, wherever they are in a file: proof of former
    content of the disk.
    """
    data = data[: len(bytes(data).rstrip(b"\0"))]
    position = BLOCK_BYTES
    while position + HEADER_BYTES <= len(data):
        # Only a plausible header is worth a checksum.
        _, size, found, synced = _FRAME.unpack_from(data, position)
        frame = None
        if synced < found <= number + len(data) and size <= len(data) - position:
            frame = maybe_frame(data, position)
        if frame is None:
            position += _ALIGNMENT
            continue
        position = frame.end
        if frame.number > number:
            yield frame
