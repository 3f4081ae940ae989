"""Limits of the decompressed size of an lz4 or zstd stream, found without decompressing it.

A stream is frames back to back; a frame is a header and blocks, each with its own length, so that a
walk from block to block costs a few steps per 64 or 128 KiB. A frame's declared content size is
trusted (the codec checks it later). In a frame without one, a plain block becomes its own length
and a compressed block at most the format's block size.

    zstd (RFC 8878)  magic u32, descriptor u8, [window u8], [dictionary 0-4], [content size 0-8],
                     blocks (u24: bit 0 last, bits 1-2 kind, bits 3- size), [checksum u32]
    lz4              magic u32, flags u8, block descriptor u8, [content size u64],
                     [dictionary u32], header checksum u8,
                     blocks (u32: bit 31 plain, bits 0-30 size; [checksum u32]),
                     0 u32, [checksum u32]
    both             skippable frame: magic 184D2A50-5F, u32 size, that many bytes

All little-endian. Checksums and reserved bits, which the walk does not need, are left to the codec.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sparrow.base.errors import CorruptBatch

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_ZSTD_RLE: Final = 1
_ZSTD_COMPRESSED: Final = 2
_LZ4_MAGIC: Final = 0x184D2204
_LZ4_BLOCK_BYTES: Final = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}
_LZ4_MAX_RATIO: Final = 255
"""A byte of an lz4 block gives at most this many bytes: the match length is extended by bytes that
count up to 255 each.
"""
_LZ4_INDEPENDENT: Final = 0x20
_SKIPPABLE: Final = 0x184D2A50


class SizeLimits(NamedTuple):
    """Limits of a stream's decompressed size, in bytes: `at_least` as declared by the stream,
    `at_most` by the rules of its format.
    """

    at_least: int
    at_most: int


def zstd_limits(data: bytes | memoryview) -> SizeLimits:
    """Return the limits of a zstd stream.

    Raises:
        CorruptBatch: not zstd, or cut.
    """
    view = memoryview(data)
    position = at_least = at_most = 0
    while position < len(view):
        if _is_skippable(view, position):
            position = _behind_skippable(view, position)
            continue
        low, high, position = _zstd_frame(view, position)
        at_least += low
        at_most += high
    return SizeLimits(at_least, at_most)


def lz4_limits(data: bytes | memoryview) -> SizeLimits:
    """Return the limits of an lz4 stream.

    Raises:
        CorruptBatch: not lz4, or cut.
    """
    view = memoryview(data)
    position = at_least = at_most = 0
    while position < len(view):
        if _is_skippable(view, position):
            position = _behind_skippable(view, position)
            continue
        low, high, position = _lz4_frame(view, position)
        at_least += low
        at_most += high
    return SizeLimits(at_least, at_most)


def is_plain_lz4(data: bytes | memoryview) -> bool:
    """Return True if an lz4 stream is one frame, with blocks that are independent of each other.

    Raises:
        CorruptBatch: not lz4, or cut.
    """
    view = memoryview(data)
    if _is_skippable(view, 0):
        return False
    _, _, end = _lz4_frame(view, 0)
    return end == len(view) and bool(view[4] & _LZ4_INDEPENDENT)


def _number(view: memoryview, position: int, size: int) -> int:
    if position + size > len(view):
        raise CorruptBatch(
            f"compressed records are cut: {len(view)} bytes, more than {position + size} needed"
        )
    return int.from_bytes(view[position : position + size], "little")


def _is_skippable(view: memoryview, position: int) -> bool:
    return _number(view, position, 4) & 0xFFFFFFF0 == _SKIPPABLE


def _behind_skippable(view: memoryview, position: int) -> int:
    return position + 8 + _number(view, position + 4, 4)


def _zstd_frame(view: memoryview, position: int) -> tuple[int, int, int]:
    if _number(view, position, 4) != _ZSTD_MAGIC:
        raise CorruptBatch("records said to be zstd have no zstd frame")
    descriptor = _number(view, position + 4, 1)
    single_segment = descriptor >> 5 & 1
    dictionary_bytes = (0, 1, 2, 4)[descriptor & 3]
    content_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    content_at = position + 5 + (1 - single_segment) + dictionary_bytes
    content = _number(view, content_at, content_bytes) + (256 if content_bytes == 2 else 0)
    low, high, end = _zstd_blocks(view, content_at + content_bytes)
    end += 4 * (descriptor >> 2 & 1)
    return (content, content, end) if content_bytes else (low, high, end)


def _zstd_blocks(view: memoryview, position: int) -> tuple[int, int, int]:
    low = high = 0
    last = False
    while not last:
        header = _number(view, position, 3)
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        position += 3 + (1 if kind == _ZSTD_RLE else size)
        if kind == _ZSTD_COMPRESSED:
            high += _ZSTD_BLOCK_BYTES
        else:
            low += size
            high += size
    return low, high, position


def _lz4_frame(view: memoryview, position: int) -> tuple[int, int, int]:
    if _number(view, position, 4) != _LZ4_MAGIC:
        raise CorruptBatch("records said to be lz4 have no lz4 frame")
    flags = _number(view, position + 4, 1)
    block_bytes = _LZ4_BLOCK_BYTES.get(_number(view, position + 5, 1) >> 4 & 7)
    if block_bytes is None:
        raise CorruptBatch("records said to be lz4 have a frame of an unknown block size")
    content_bytes = 8 * (flags >> 3 & 1)
    blocks_at = position + 7 + content_bytes + 4 * (flags & 1)
    low, high, end = _lz4_blocks(view, blocks_at, block_bytes, 4 * (flags >> 4 & 1))
    end += 4 * (flags >> 2 & 1)
    if content_bytes:
        content = _number(view, position + 6, 8)
        return content, content, end
    return low, high, end


def _lz4_blocks(
    view: memoryview, position: int, block_bytes: int, checksum_bytes: int
) -> tuple[int, int, int]:
    low = high = 0
    while header := _number(view, position, 4):
        size = header & 0x7FFFFFFF
        position += 4 + size + checksum_bytes
        if header >> 31:
            low += size
            high += size
        else:
            high += min(block_bytes, size * _LZ4_MAX_RATIO)
    return low, high, position + 4
