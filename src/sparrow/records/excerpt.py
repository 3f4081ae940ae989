"""Some of a batch's records as a batch of their own.

A consumer that takes ten records out of a batch of a thousand should get ten. An excerpt has the
base offset, the offset deltas, the times and the leader epoch of its batch, so that each record
keeps its offset; it is not compressed, and has no producer fields, because its sequence would have
holes. Records are copied as bytes; nothing is decoded.

To cut, the records' positions must be known: one walk over the batch (one comparison, where records
are of one size), and one decompression. Consumers take a batch piece by piece, so an `Excerpter`
remembers both for the last few batches.

Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import BadInput, CorruptBatch
from sparrow.records.batch import HEADER_BYTES, parse_header
from sparrow.records.builder import TRANSACTIONAL, BatchFields, assemble
from sparrow.records.layout import plain_records
from sparrow.records.varint import decode_varint, decode_varlong

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from sparrow.records.batch import BatchHeader

    Range = tuple[int, int]
    """Offsets [first, end)."""

_COMPRESSION: Final = 0x07
_SMALL_BATCH_BYTES: Final = 2048
"""Cutting a smaller batch saves nothing."""
_MIN_RUN: Final = 8
_LONGEST_STRETCH: Final = 512
_MAX_BATCHES: Final = 512
_MAX_BYTES: Final = 16 << 20
_MAX_REMEMBERED_BYTES: Final = 4 << 20


def excerpt(batch: bytes | memoryview, first: int, end: int) -> bytes:
    """Return the records of a checked batch at offsets [first, end); no bytes if there are none, or
    it is a control batch.

    Raises:
        CorruptBatch, UnsupportedCompression, RecordTooLarge: its records are unreadable.
    """
    return Excerpter().excerpt(batch, ((first, end),))


def excerpts(data: bytes | memoryview, ranges: Sequence[Range]) -> bytes:
    """Cut as `Excerpter.excerpts`, once."""
    return Excerpter().excerpts(data, ranges)


class Excerpter:
    """A cutter of batches that remembers the last few: the positions of their records and, if they
    are compressed, the records. Loop thread only.

    One may serve any number of partitions.

    Args:
        max_bytes: limit of a decompressed batch.
        max_remembered_bytes: limit of everything that is remembered.
        max_batches: number of remembered batches.
    """

    def __init__(
        self,
        max_bytes: int = _MAX_BYTES,
        max_remembered_bytes: int = _MAX_REMEMBERED_BYTES,
        max_batches: int = _MAX_BATCHES,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_batches = max_batches
        self._max_remembered_bytes = max_remembered_bytes
        self._remembered: dict[Hashable, _Contents] = {}
        """The remembered batches, the latest last."""
        self._remembered_bytes = 0

    def excerpts(self, data: bytes | memoryview, ranges: Sequence[Range], source: Hashable = None) -> bytes:
        """Return batches with the records of these ranges and hardly any others.

        A batch stays as it is if nearly all of it is wanted (three quarters), if it is small, or if
        it cannot be cut (it is malformed, or too large when decompressed): the receiver skips what
        it did not request. Control batches, and batches of which nothing is wanted, are left out.

        Args:
            data: whole batches, back to back.
            ranges: of offsets, in order, not overlapping.
            source: identifies the partition of the batches; batches of one source are recognised
                when they come again.
        """
        view = memoryview(data)
        parts: list[bytes | memoryview] = []
        whole_from = position = number = 0
        while position < len(view):
            header = _maybe_header(view, position)
            if header is None:  # the following batches cannot be separated
                break
            end = position + header.size_bytes
            while number < len(ranges) and ranges[number][1] <= header.base_offset:
                number += 1
            if number == len(ranges):  # nothing behind is wanted
                view = view[:position]
                break
            part = self._part(header, view[position:end], _within(ranges, number, header), source)
            if part is not None:
                parts += (view[whole_from:position], part)
                whole_from = end
            position = end
        if not whole_from and isinstance(data, bytes) and len(view) == len(data):
            return data
        parts.append(view[whole_from:])
        return b"".join(parts)

    def _part(
        self, header: BatchHeader, batch: memoryview, wanted: list[Range], source: Hashable
    ) -> bytes | None:
        """Return the bytes that replace a batch; None: itself."""
        count = sum(end - first for first, end in wanted)
        if header.is_control or not count:
            return b""
        if len(batch) < _SMALL_BATCH_BYTES or 4 * count >= 3 * (header.last_offset_delta + 1):
            return None
        try:
            return self.excerpt(batch, wanted, source)
        except BadInput:
            return None

    def excerpt(self, batch: bytes | memoryview, ranges: Sequence[Range], source: Hashable = None) -> bytes:
        """Return the records of one checked batch in these ranges as one batch; no bytes if there
        are none, or it is a control batch.

        Args:
            ranges: as for `excerpts`.
            source: as for `excerpts`.

        Raises:
            CorruptBatch, UnsupportedCompression, RecordTooLarge: its records are unreadable.
        """
        header = parse_header(batch)
        if header.is_control or not header.record_count:
            return b""
        contents = self._contents(header, batch, source)
        body = memoryview(batch)[HEADER_BYTES:] if contents.body is None else memoryview(contents.body)
        parts = []
        count = 0
        for first, end in ranges:
            start = contents.number_at(first - header.base_offset)
            stop = max(start, contents.number_at(end - header.base_offset))
            parts.append(body[contents.starts[start] : contents.starts[stop]])
            count += stop - start
        if not count:
            return b""
        return assemble(b"".join(parts), count, header.last_offset_delta, _fields(header))

    def _contents(self, header: BatchHeader, batch: bytes | memoryview, source: Hashable) -> _Contents:
        key = (source, header.base_offset, header.batch_length, header.crc)
        found = self._remembered.pop(key, None)
        if found is None:
            found = _read(header, batch, self._max_bytes)
            self._remembered_bytes += found.size_bytes
        self._remembered[key] = found
        while (
            len(self._remembered) > self._max_batches or self._remembered_bytes > self._max_remembered_bytes
        ):
            oldest = next(iter(self._remembered))
            self._remembered_bytes -= self._remembered.pop(oldest).size_bytes
        return found


class _Contents(NamedTuple):
    """The positions of a batch's records."""

    body: bytes | None
    """The records, if they were compressed."""
    starts: array[int]
    """Start of each record in the body, and the end of the last one."""
    deltas: array[int] | None
    """The offset delta of each; None if there are no gaps, so that each is the record's number."""

    @property
    def size_bytes(self) -> int:
        """Memory that it takes."""
        return len(self.body or b"") + self.starts.itemsize * len(self.starts) * (
            1 if self.deltas is None else 2
        )

    def number_at(self, delta: int) -> int:
        """Return the number of the first record at this offset delta or behind it."""
        if self.deltas is None:
            return min(max(delta, 0), len(self.starts) - 1)
        return bisect_left(self.deltas, delta)


def _read(header: BatchHeader, batch: bytes | memoryview, max_bytes: int) -> _Contents:
    body = plain_records(header, batch, max_bytes)
    starts = _starts(body, header.record_count)
    deltas = None
    if header.record_count != header.last_offset_delta + 1:
        deltas = array("I", (_offset_delta(body, start) for start in starts[:-1]))
    return _Contents(body if header.compression else None, starts, deltas)


def _starts(data: bytes, count: int) -> array[int]:
    """Return the start of each of `count` records in `data`, and the end of the last one, which is
    the end of the data.

    Raises:
        CorruptBatch: there are fewer or more.
    """
    starts = array("I", (0,))
    stretch = 1
    try:
        while len(starts) <= count:
            _walk(data, starts, min(stretch, count + 1 - len(starts)))
            found = _run(data, starts[-1], count + 1 - len(starts))
            starts.extend(found)
            stretch = 1 if found else min(stretch * 4, _LONGEST_STRETCH)
    except IndexError:
        raise CorruptBatch(f"record {len(starts)} of the batch runs over its end") from None
    if starts[-1] != len(data):
        raise CorruptBatch(f"{count} records of {starts[-1]} bytes in a batch that has {len(data)}")
    return starts


def _walk(data: bytes, starts: array[int], count: int) -> None:
    """Walk over this many records, one by one."""
    position = starts[-1]
    for _ in range(count):
        length = data[position]
        if length < 0x80 and not length & 1:
            position += 1 + (length >> 1)
        else:
            length, position = decode_varint(data, position)
            if length < 0:
                raise CorruptBatch(f"record before byte {position} says it is {length} bytes long")
            position += length
        starts.append(position)


def _run(data: bytes, position: int, max_count: int) -> range:
    """Return the ends of the records that are as long as the one at `position` and follow each
    other from there on; no range if they are few.

    A byte of the length of all of them is one strided slice; if it is the same in all, each ends
    where the next one starts.
    """
    if max_count < _MIN_RUN:
        return range(0)
    length, at = decode_varint(data, position)
    stride = at - position + length
    count = min(max_count, (len(data) - position) // stride) if length > 0 else 0
    if count < _MIN_RUN or not data.startswith(data[position:at], position + stride):
        return range(0)
    for place in range(position, at):
        column = data[place : position + count * stride : stride]
        if column != column[:1] * count:
            count = len(column) - len(column.lstrip(column[:1]))
    return range(position + stride, position + count * stride + 1, stride)


def _offset_delta(data: bytes, position: int) -> int:
    _, position = decode_varint(data, position)
    _, position = decode_varlong(data, position + 1)
    delta, position = decode_varint(data, position)
    if delta < 0:
        raise CorruptBatch(f"offset delta {delta} before byte {position}")
    return delta


def _fields(header: BatchHeader) -> BatchFields:
    return BatchFields(
        header.base_timestamp,
        header.max_timestamp,
        header.attributes & ~(_COMPRESSION | TRANSACTIONAL),
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
    )


def _maybe_header(view: memoryview, position: int) -> BatchHeader | None:
    """Return the header at `position`, if its whole batch is there."""
    try:
        header = parse_header(view, position)
    except CorruptBatch:
        return None
    fits = header.size_bytes >= HEADER_BYTES and position + header.size_bytes <= len(view)
    return header if fits and header.last_offset_delta >= 0 else None


def _within(ranges: Sequence[Range], number: int, header: BatchHeader) -> list[Range]:
    """Return the parts of the ranges from that number on that lie in the batch."""
    found = []
    while number < len(ranges) and ranges[number][0] < header.next_offset:
        first, end = ranges[number]
        found.append((max(first, header.base_offset), min(end, header.next_offset)))
        number += 1
    return found
