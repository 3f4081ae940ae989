"""Walks along the batches of a segment file: from header to header, never into the records.

Three walks for three needs:

* `whole_batches`: the whole batches in a block from an offset on (every read; no CRC: the reader
  checks it, and the disk has checked its own sums);
* `headers`: all headers of a range, one after the other (folding state at start, searching a time,
  compaction), optionally with the control batches;
* `validate`: every batch checked with its CRC until the first that is not whole (recovery).

A batch is followed only when its magic is 2 and its length is possible, so a walk over garbage ends
at once.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from sparrow.base.errors import CorruptBatch, CorruptStoredBatch
from sparrow.records.batch import CRC_START, HEADER_BYTES, OVERHEAD_BYTES, BatchHeader, check, parse_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparrow.storage.filesystem import FileSystem

MIN_LENGTH = HEADER_BYTES - OVERHEAD_BYTES
HEADERS_BLOCK_BYTES = 64 << 10
VALIDATE_BLOCK_BYTES = 1 << 20
MAGIC = 2

# base offset, batch length, magic, last offset delta
_STEP = struct.Struct(">qi4xb6xi")
# … and crc, attributes, max timestamp
_CHECK = struct.Struct(">qi4xbIhi8xq")
_CONTROL = 0x20


class Span(NamedTuple):
    """A part of a block. Without records: what to read instead, because the wanted batch is not
    wholly in the block.
    """

    start: int
    end: int
    base_offset: int = -1
    next_offset: int = -1
    records: int = 0


def whole_batches(
    data: memoryview, offset: int, max_bytes: int, where: str, *, expected: int = -1, is_dense: bool = False
) -> Span:
    """Return the whole batches in `data` from the one that contains `offset` on: at most
    `max_bytes`, but at least one.

    Args:
        data: begins with a batch at or before the wanted one.
        where: file and position of `data`, for the error.
        expected: the base offset of the first batch, or a bound below it; -1: unknown.
        is_dense: no offset is missing between batches, so base offsets, which no CRC covers, can be
            checked exactly.

    Raises:
        CorruptBatch: no batch where one must begin, or one whose base offset does not follow the
            batch before.
    """
    position, size = 0, len(data)
    unpack = _STEP.unpack_from
    while position + HEADER_BYTES <= size:
        base, length, magic, delta = unpack(data, position)
        if magic != MAGIC or length < MIN_LENGTH or delta < 0:
            raise _not_a_batch(where, position)
        if base != expected >= 0 and (is_dense or base < expected):
            raise _wrong_offset(where, position, base, expected)
        expected = base + delta + 1
        end = position + length + OVERHEAD_BYTES
        if expected > offset:
            break
        position = end
    else:
        return Span(position, position + HEADER_BYTES, next_offset=expected)
    if end > size:
        return Span(position, end, next_offset=base)
    start, first, next_offset, records = position, base, expected, delta + 1
    limit = min(size, start + max_bytes)
    while end + HEADER_BYTES <= limit:
        base, length, magic, delta = unpack(data, end)
        if magic != MAGIC or length < MIN_LENGTH or delta < 0:
            raise _not_a_batch(where, end)
        if base != next_offset and (is_dense or base < next_offset):
            raise _wrong_offset(where, end, base, next_offset)
        if end + length + OVERHEAD_BYTES > limit:
            break
        end += length + OVERHEAD_BYTES
        next_offset = base + delta + 1
        records += delta + 1
    return Span(start, end, first, next_offset, records)


def _wrong_offset(where: str, position: int, base: int, expected: int) -> CorruptBatch:
    return CorruptStoredBatch(
        f"the batch {position} bytes after {where} has base offset {base} where {expected} was "
        "due; the file is damaged there"
    )


def _not_a_batch(where: str, position: int) -> CorruptBatch:
    return CorruptStoredBatch(
        f"no record batch begins {position} bytes after {where}; the file is damaged there. "
        f"Stop the broker and run `sparrow doctor` on its data directory"
    )


def headers(fs: FileSystem, fd: int, start: int, limit: int, path: str) -> Iterator[tuple[int, BatchHeader]]:
    """Iterate over (position, header) of every batch in [start, limit). Blocking.

    Raises:
        CorruptBatch: no batch where one must begin, or one that ends behind `limit`.
        OSError: the file cannot be read.
    """
    position = start
    while position < limit:
        block = fs.read_at(fd, min(HEADERS_BLOCK_BYTES, limit - position), position)
        inside = 0
        while inside + HEADER_BYTES <= len(block):
            header = parse_header(block, inside)
            if header.magic != MAGIC or header.batch_length < MIN_LENGTH or header.last_offset_delta < 0:
                raise _not_a_batch(f"position {position} of {path}", inside)
            yield position + inside, header
            inside += header.size_bytes
        if not inside or position + inside > limit:
            raise _not_a_batch(f"position {position} of {path}", 0)
        position += inside


def headers_and_markers(
    fs: FileSystem, fd: int, start: int, limit: int, path: str
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Iterate as `headers`, each with the whole batch if it is a control batch, else with b"".
    Blocking.

    Raises:
        CorruptBatch, OSError: as `headers`; CorruptBatch also for a control batch whose CRC is
            wrong.
    """
    for position, header in headers(fs, fd, start, limit, path):
        data = b""
        if header.is_control:
            data = fs.read_at(fd, header.size_bytes, position)
            try:
                check(data)
            except CorruptBatch as error:
                raise CorruptStoredBatch(f"position {position} of {path}: {error.text}") from error
        yield header, data


def batches(
    fs: FileSystem, fd: int, start: int, limit: int, path: str
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Iterate over every batch in [start, limit) with its bytes, its CRC checked. Blocking.

    Raises:
        CorruptBatch: a batch is damaged; the message has file and position.
        OSError: the file cannot be read.
    """
    blocks, position = _Blocks(fs, fd, limit), start
    while position < limit:
        inside = blocks.at(position, HEADER_BYTES)
        try:
            size = parse_header(blocks.data, inside).size_bytes
            inside = blocks.at(position, max(size, HEADER_BYTES))
            data = blocks.data[inside : inside + size]
            header = check(data)
        except CorruptBatch as error:
            raise CorruptStoredBatch(
                f"position {position} of {path}: {error.text}; run `sparrow doctor`"
            ) from error
        yield header, data
        position += size


class Validated(NamedTuple):
    """The good part of a file."""

    position: int
    """End of the whole batches."""
    next_offset: int
    first_timestamp: int
    """Largest timestamp of the first batch that was checked, -1 if none was."""
    damage: str
    """The fault at `position`; empty when the file is good to its end."""


def validate(
    fs: FileSystem,
    fd: int,
    *,
    start: int,
    size: int,
    next_offset: int,
    add: Callable[[int, int, int, int], None],
    max_base_offset: int = -1,
    until: int | None = None,
    headers_only: bool = False,
) -> Validated:
    """Check batch after batch from `start` to the end of the file or to the first that is not
    whole. Blocking.

    The stamped base offset is outside the CRC, so it is checked against the batch before: offsets
    are contiguous.

    Args:
        size: the file's size in bytes.
        next_offset: the base offset that the first batch must have.
        add: called with last offset, position, size and largest timestamp of each good batch
            (`SegmentIndex.add`).
        until: stop at the first batch that begins at this position or behind it.
        max_base_offset: the file was compacted: base offsets may leave holes, but not beyond this
            one. -1: it was not.
        headers_only: of the CRCs, check those of control batches alone.

    Raises:
        OSError: the file cannot be read.
    """
    position, first_timestamp, damage = start, -1, ""
    stop = size if until is None else min(size, until)
    # No more is read than requested: the scrubber's rate is one of reads.
    blocks = _Blocks(fs, fd, size, min(VALIDATE_BLOCK_BYTES, max(stop - start, HEADER_BYTES)))
    crc32c, unpack = google_crc32c.value, _CHECK.unpack_from
    while position < stop:
        inside = blocks.at(position, HEADER_BYTES)
        if size - position < HEADER_BYTES:
            damage = f"{size - position} bytes are left, fewer than a header"
            break
        base, length, magic, crc, attributes, delta, timestamp = unpack(blocks.data, inside)
        whole = length + OVERHEAD_BYTES
        if magic != MAGIC or length < MIN_LENGTH or delta < 0:
            damage = "no batch begins there"
        elif base != next_offset and not next_offset < base <= max_base_offset:
            damage = f"base offset {base} where {next_offset} was due"
        elif whole > size - position:
            damage = f"the batch is {whole} bytes long, {size - position} are there"
        elif not headers_only or attributes & _CONTROL:
            inside = blocks.at(position, whole)
            if crc32c(blocks.data[inside + CRC_START : inside + whole]) != crc:
                damage = "the batch's CRC does not fit its bytes"
        if damage:
            break
        if position == start:
            first_timestamp = timestamp
        next_offset = base + delta + 1
        add(next_offset - 1, position, whole, timestamp)
        position += whole
    return Validated(position, next_offset, first_timestamp, damage)


class _Blocks:
    """A file read in large blocks."""

    __slots__ = ("_block_bytes", "_end", "_fd", "_fs", "_size", "_start", "data")

    def __init__(self, fs: FileSystem, fd: int, size: int, block_bytes: int = VALIDATE_BLOCK_BYTES) -> None:
        self._fs, self._fd, self._size, self._block_bytes = fs, fd, size, block_bytes
        self._start = self._end = 0
        self.data = b""

    def at(self, position: int, length: int) -> int:
        """Return the index in `data` of the file's `position`; `length` bytes follow there unless
        the file ends.
        """
        if position + length > self._end:
            wanted = min(max(self._block_bytes, length), self._size - position)
            self.data = self._fs.read_at(self._fd, wanted, position)
            self._start, self._end = position, position + len(self.data)
        return position - self._start
