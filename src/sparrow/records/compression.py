"""The five codecs of a record batch, written as Kafka's clients write them and read within a bound.

A compressed batch is compressed from its first record to its end; the header stays plain. The
numbers are those of the attributes' bits 0-2.

    none    0
    gzip    1   RFC 1952, any number of members
    snappy  2   written in xerial's framing, as the Java clients do;
                read in that and raw (librdkafka)
    lz4     3   LZ4 frame, independent blocks of 64 KiB
                (KIP-57: the Java reader takes no linked ones)
    zstd    4   RFC 8878 (KIP-110)

Xerial's framing, big-endian:

    0   magic      82 'SNAPPY' 00
    8   version    i32  1
    12  compatible i32  1
    16  blocks     (i32 size, that many bytes of raw snappy), each of at most 32 KiB
                   before compression

**Bound.** `decompress` never has more than `max_bytes` of output. A size in the data (snappy's
preamble, zstd's and lz4's frame headers) is compared first; without one the blocks are walked,
which gives an upper limit without decompressing. The output buffer is as large as that limit and no
larger than `max_bytes`; its pages are not touched before the codec writes them.
"""

from __future__ import annotations

import io
import struct
import zlib
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Final

import cramjam

from sparrow.base.errors import CorruptBatch, RecordTooLarge, UnsupportedCompression
from sparrow.records import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEFAULT_MAX_BYTES: Final = 256 * 1024 * 1024
"""Default limit of a decompressed batch."""

_GZIP_WBITS: Final = 31
_GZIP_LEVEL: Final = 6
_GZIP_STEP_BYTES: Final = 1024 * 1024
_ZSTD_LEVEL: Final = 3
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LZ4_BLOCK_BYTES: Final = 64 * 1024
# Flags 0x60 (version 1, independent blocks, no checksums: the batch has its own), block size code
# 4, and the xxHash byte of these two.
_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_PLAIN: Final = 0x80000000
_SIZE_BE: Final = struct.Struct(">i")
_SIZE_LE: Final = struct.Struct("<I")
# The library's error when the output buffer is full; any other error is the data's fault.
_BUFFER_FULL: Final = ("failed to write whole buffer", "Destination buffer is too small")


class Compression(IntEnum):
    """A codec, numbered as in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def parse(cls, name: str) -> Compression:
        """Return the codec of that name, in any case: `Compression.parse("zstd")`. "uncompressed",
        a value of the topic configuration, is none.

        Raises:
            UnsupportedCompression: the error names the five codecs.
        """
        try:
            return cls["NONE" if name.lower() == "uncompressed" else name.upper()]
        except KeyError:
            known = ", ".join(codec.name.lower() for codec in cls)
            raise UnsupportedCompression(f"compression {name!r} is not known; use one of {known}") from None


def compress(codec: int, data: bytes) -> bytes:
    """Return `data` in that codec's form; unchanged for `Compression.NONE`.

    Raises:
        UnsupportedCompression: no such codec.
    """
    return _COMPRESSORS[_known(codec)](data)


def decompress(
    codec: int, data: bytes | memoryview, max_bytes: int = DEFAULT_MAX_BYTES, *, one_stream: bool = False
) -> bytes:
    """Decompress at most `max_bytes`.

    Args:
        one_stream: True refuses forms that clients do not write and some cannot read. librdkafka
            reads the first of several gzip members (and ends its process if that is empty) and none
            of several xerial headers or lz4 frames; Java clients read no linked lz4 blocks (KIP-57)
            and no older version of xerial's framing.

    Raises:
        UnsupportedCompression: no such codec.
        CorruptBatch: the data is not in that codec's form, is cut, or has something behind its end.
        RecordTooLarge: the result would exceed `max_bytes`.
    """
    known = _known(codec)
    decompressor = _DECOMPRESSORS[known]
    if one_stream:
        decompressor = _ONE_STREAM.get(known, decompressor)
    try:
        return decompressor(data, max_bytes)
    except (cramjam.DecompressionError, zlib.error) as error:
        raise CorruptBatch(
            f"records said to be {known.name.lower()} cannot be decompressed: {error}"
        ) from None


def _known(codec: int) -> Compression:
    try:
        return Compression(codec)
    except ValueError:
        raise UnsupportedCompression(
            f"compression number {codec} is not known; a batch uses 0 (none) to 4 (zstd)"
        ) from None


def _too_large(name: str, max_bytes: int) -> RecordTooLarge:
    return RecordTooLarge(f"records compressed by {name} would become more than {max_bytes} bytes")


# ── none ──────────────────────────────────────────────────────────────────────────────────────────


def _same(data: bytes) -> bytes:
    return data


def _copy(data: bytes | memoryview, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise RecordTooLarge(f"records of {len(data)} bytes, more than {max_bytes}")
    return bytes(data)


# ── gzip ──────────────────────────────────────────────────────────────────────────────────────────


def _gzip(data: bytes) -> bytes:
    return zlib.compress(data, _GZIP_LEVEL, _GZIP_WBITS)


def _gunzip(data: bytes | memoryview, max_bytes: int) -> bytes:
    out = io.BytesIO()
    rest: bytes | memoryview = data
    while rest:
        rest = _gunzip_member(rest, out, max_bytes)
    if not len(data):
        raise CorruptBatch("records said to be gzip are empty")
    return out.getvalue()


def _gunzip_one(data: bytes | memoryview, max_bytes: int) -> bytes:
    out = io.BytesIO()
    if len(_gunzip_member(data, out, max_bytes)):
        raise CorruptBatch("records said to be gzip have more behind their first member")
    return out.getvalue()


def _gunzip_member(data: bytes | memoryview, out: io.BytesIO, max_bytes: int) -> bytes:
    """Append one member's content to `out`. Return the bytes behind the member."""
    member = zlib.decompressobj(_GZIP_WBITS)
    while True:
        # One byte over the limit distinguishes "full" from "more than full".
        step = member.decompress(data, min(_GZIP_STEP_BYTES, max_bytes + 1 - out.tell()))
        out.write(step)
        if out.tell() > max_bytes:
            raise _too_large("gzip", max_bytes)
        if member.eof:
            return member.unused_data
        if not step:
            raise CorruptBatch("records said to be gzip are cut")
        data = member.unconsumed_tail


# ── snappy ────────────────────────────────────────────────────────────────────────────────────────


def _snappy(data: bytes) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_SIZE_BE.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(data: bytes | memoryview, max_bytes: int) -> bytes:
    view = memoryview(data)
    return _unsnappy_all(list(_xerial_blocks(view)) if _is_xerial(view) else [view], max_bytes)


def _unsnappy_one(data: bytes | memoryview, max_bytes: int) -> bytes:
    view = memoryview(data)
    if not _is_xerial(view):
        return _unsnappy_all([view], max_bytes)
    header_bytes = len(_XERIAL_HEADER)
    if view[:header_bytes] != _XERIAL_HEADER:
        raise CorruptBatch("records said to be snappy are of another version of the framing than 1")
    blocks = list(_xerial_blocks(view[header_bytes:]))
    if sum(map(len, blocks)) + _SIZE_BE.size * len(blocks) + header_bytes != len(view):
        raise CorruptBatch("records said to be snappy have a second header")
    return _unsnappy_all(blocks, max_bytes)


def _unsnappy_all(blocks: list[memoryview], max_bytes: int) -> bytes:
    sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    if sum(sizes) > max_bytes:
        raise _too_large("snappy", max_bytes)
    return _into_buffer(sum(sizes), partial(_unsnappy_blocks, blocks, sizes))


def _is_xerial(view: memoryview) -> bool:
    return bytes(view[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    position = 0
    while position < len(view):
        # Streams may be joined, so the header may come again where a block's size is due.
        if _is_xerial(view[position:]):
            position += len(_XERIAL_HEADER)
            if position > len(view):
                raise CorruptBatch("records said to be snappy are cut in their header")
            continue
        start = position + _SIZE_BE.size
        if start > len(view):
            raise CorruptBatch("records said to be snappy are cut in a block's size")
        position = start + _SIZE_BE.unpack_from(view, position)[0]
        if not start <= position <= len(view):
            raise CorruptBatch("records said to be snappy have a block that runs over their end")
        yield view[start:position]


def _unsnappy_blocks(blocks: list[memoryview], sizes: list[int], buffer: memoryview) -> int:
    end = 0
    for block, size in zip(blocks, sizes, strict=True):
        end += cramjam.snappy.decompress_raw_into(block, buffer[end : end + size])
    return end


# ── lz4 ───────────────────────────────────────────────────────────────────────────────────────────


def _lz4(data: bytes) -> bytes:
    view = memoryview(data)
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (_SIZE_LE.pack(len(block)), block)
        else:
            parts += (_SIZE_LE.pack(len(plain) | _LZ4_PLAIN), bytes(plain))
    parts.append(_SIZE_LE.pack(0))
    return b"".join(parts)


def _unlz4(data: bytes | memoryview, max_bytes: int) -> bytes:
    return _within(frames.lz4_limits(data), max_bytes, "lz4", partial(cramjam.lz4.decompress_into, data))


def _unlz4_one(data: bytes | memoryview, max_bytes: int) -> bytes:
    if not frames.is_plain_lz4(data):
        raise CorruptBatch("records said to be lz4 are not one frame of independent blocks")
    return _unlz4(data, max_bytes)


# ── zstd ──────────────────────────────────────────────────────────────────────────────────────────


def _zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def _unzstd(data: bytes | memoryview, max_bytes: int) -> bytes:
    return _within(frames.zstd_limits(data), max_bytes, "zstd", partial(cramjam.zstd.decompress_into, data))


# ── output buffers ────────────────────────────────────────────────────────────────────────────────


def _within(limits: frames.SizeLimits, max_bytes: int, name: str, fill: Callable[[memoryview], int]) -> bytes:
    """Return what `fill` writes into a buffer of at most `max_bytes`."""
    if limits.at_least > max_bytes:
        raise _too_large(name, max_bytes)
    try:
        return _into_buffer(min(limits.at_most, max_bytes), fill)
    except cramjam.DecompressionError as error:
        if limits.at_most > max_bytes and any(text in str(error) for text in _BUFFER_FULL):
            raise _too_large(name, max_bytes) from None
        raise


def _into_buffer(size_bytes: int, fill: Callable[[memoryview], int]) -> bytes:
    """Return what `fill` writes into a zeroed buffer of that size; `fill` returns how many bytes it
    wrote.

    `BytesIO` takes over the zeros (there is no other reference to them) and returns the same
    object, cut to size: no copy is made, and the pages of a large buffer cost nothing until they
    are written.
    """
    out = io.BytesIO(bytes(size_bytes))
    with out.getbuffer() as buffer:
        written = fill(buffer)
    out.truncate(written)
    return out.getvalue()


_COMPRESSORS: Final[dict[Compression, Callable[[bytes], bytes]]] = {
    Compression.NONE: _same,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
_DECOMPRESSORS: Final[dict[Compression, Callable[[bytes | memoryview, int], bytes]]] = {
    Compression.NONE: _copy,
    Compression.GZIP: _gunzip,
    Compression.SNAPPY: _unsnappy,
    Compression.LZ4: _unlz4,
    Compression.ZSTD: _unzstd,
}
_ONE_STREAM: Final[dict[Compression, Callable[[bytes | memoryview, int], bytes]]] = {
    Compression.GZIP: _gunzip_one,
    Compression.SNAPPY: _unsnappy_one,
    Compression.LZ4: _unlz4_one,
}
"""zstd is not among them: every client reads several frames."""
