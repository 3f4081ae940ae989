"""The kernels without numba: the same functions as in `compiled`, with the same results, on numpy
and Arrow.

Only the search for the start of each record is a loop over records; it takes most of the time. All
else is done for a whole group of batches at once. Bytes are collected by Arrow: their start and end
positions become the offsets of a binary array, and `take` copies every second element of it.

Encoding passes lists to `records.builder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sparrow.base.errors import CorruptBatch
from sparrow.records.builder import encode_headers, encode_records
from sparrow.records.layout import MIN_RECORD_BYTES
from sparrow.records.partitioner import murmur2 as murmur2_of_one
from sparrow.records.varint import decode_varint
from sparrow.spark.kernels.checksums import crcs
from sparrow.spark.kernels.contract import (
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CORRUPT,
    COUNT,
    END,
    FULL,
    HEADER_NAME_BYTES,
    HEADER_NULLS,
    HEADER_VALUE_BYTES,
    HEADERS,
    HIGH,
    KEY_BYTES,
    KEY_NULLS,
    LAST_DELTA,
    LOG_APPEND,
    LOW,
    MAX_TIMESTAMP,
    OK,
    ROWS,
    START,
    VALUE_BYTES,
    VALUE_NULLS,
)
from sparrow.spark.kernels.varints import VarintCursor, widths

if TYPE_CHECKING:
    import numpy.typing as npt

    from sparrow.spark.kernels.block import Block, ByteStrings
    from sparrow.spark.kernels.columns import BytesColumn, Rows
    from sparrow.spark.kernels.contract import Bytes, Int64s, UInt32s, Wanted

    Bools = npt.NDArray[np.bool_]

__all__ = ["crcs", "decode", "encode", "murmur2"]

_MIN_TOGETHER: Final = 64
"""Smallest number of keys of one length that are hashed together; fewer are hashed one by one."""


class _Spans(NamedTuple):
    """Ranges of the data; a length of -1 is null."""

    starts: Int64s
    lengths: Int64s

    def of(self, chosen: Bools) -> _Spans:
        return _Spans(self.starts[chosen], self.lengths[chosen])


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────


def decode(data: Bytes, table: Int64s, first: int, wanted: Wanted, block: Block) -> tuple[int, int]:
    """Decode as `compiled.decode`."""
    table = table[first:]
    if not len(table):
        return OK, first
    # Positions count from the first record, so that they fit Arrow's offsets.
    origin = int(table[0, START])
    data = data[origin : int(table[-1, END])]
    starts, ends, counts, failed = _bounds(data, table, origin)
    status = OK if failed == len(table) else CORRUPT
    batch_of = np.repeat(np.arange(failed), counts)
    cursor = VarintCursor(data, starts + 1, ends)
    timestamp_deltas = cursor.varlong()
    deltas = cursor.varint()
    _check_order(cursor, deltas, batch_of)
    key = _span(cursor)
    value = _span(cursor)
    cursor.is_bad |= cursor.at >= ends
    found = _Headers.read(cursor) if wanted.headers else None
    behind = np.flatnonzero(cursor.is_bad | (deltas > table[batch_of, LAST_DELTA]))
    if len(behind):
        status, failed = CORRUPT, int(batch_of[behind[0]])
    is_kept = (batch_of < failed) & (deltas >= table[batch_of, LOW]) & (deltas < table[batch_of, HIGH])
    if found is not None:
        room = block.header_room - int(block.used[HEADERS])
        over = np.flatnonzero(np.cumsum(found.counts * is_kept) > room)
        if len(over):
            status, failed = FULL, int(batch_of[over[0]])
            is_kept &= batch_of < failed
        _write_headers(block, data, found, is_kept)
    if wanted.key:
        _write_key(block, data, key.of(is_kept))
    if wanted.value:
        _write_value(block, data, value.of(is_kept))
    _write_numbers(block, table[batch_of[is_kept]], deltas[is_kept], timestamp_deltas[is_kept])
    return status, first + failed


def _bounds(data: Bytes, table: Int64s, origin: int) -> tuple[Int64s, Int64s, list[int], int]:
    """Return the start (after the length) and the end of each record, the number of records in each
    batch, and the number of batches before a corrupt one.
    """
    view = data.tobytes()
    starts: list[int] = []
    ends: list[int] = []
    counts = []
    for start, end, count in (table[:, (START, END, COUNT)] - (origin, origin, 0)).tolist():
        try:
            found = _walk(view, start, end, count)
        except (CorruptBatch, IndexError):
            break
        starts += found[0]
        ends += found[1]
        counts.append(count)
    return np.array(starts, np.int64), np.array(ends, np.int64), counts, len(counts)


def _walk(data: bytes, position: int, end: int, count: int) -> tuple[list[int], list[int]]:
    """Return the starts and ends of one batch."""
    starts: list[int] = []
    ends: list[int] = []
    for _ in range(count):
        length = data[position]
        if length < 0x80 and not length & 1:
            position += 1
            length >>= 1
        else:
            length, position = decode_varint(data, position)
        if length < MIN_RECORD_BYTES - 1:
            raise CorruptBatch(f"record of {length} bytes")
        starts.append(position)
        position += length
        ends.append(position)
    if position != end:
        raise CorruptBatch(f"records end at {position}, their batch at {end}")
    return starts, ends


def _check_order(cursor: VarintCursor, deltas: Int64s, batch_of: Int64s) -> None:
    """Mark records whose offsets do not rise within a batch."""
    least = np.zeros(len(deltas), np.int64)
    is_same_batch = batch_of[1:] == batch_of[:-1]
    least[1:][is_same_batch] = deltas[:-1][is_same_batch] + 1
    cursor.is_bad |= deltas < least


def _span(cursor: VarintCursor) -> _Spans:
    lengths = cursor.length()
    span = _Spans(cursor.at, lengths)
    cursor.skip(lengths)
    return span


class _Headers(NamedTuple):
    """The headers of records, one after the other."""

    counts: Int64s
    """Number of headers of each record."""
    names: _Spans
    values: _Spans

    @classmethod
    def read(cls, cursor: VarintCursor) -> _Headers:
        counts = cursor.varint()
        cursor.is_bad |= (counts < 0) | (counts * 2 > cursor.end - cursor.at)
        counts = np.where(cursor.is_bad, 0, counts)
        numbers = np.concatenate(([0], np.cumsum(counts)))
        total = int(numbers[-1])
        found = cls(counts, *(_Spans(np.zeros(total, np.int64), np.zeros(total, np.int64)) for _ in range(2)))
        for number in range(int(counts.max(initial=0))):
            found._read_next(cursor, np.flatnonzero(counts > number), numbers[:-1] + number)
        cursor.is_bad |= cursor.at != cursor.end
        found._check_names(cursor)
        return found

    def _read_next(self, cursor: VarintCursor, rows: Int64s, numbers: Int64s) -> None:
        """Read the next header of these records."""
        part = VarintCursor(cursor.data, cursor.at[rows], cursor.end[rows])
        part.is_bad = cursor.is_bad[rows]
        name = _span(part)
        part.is_bad |= name.lengths < 0
        value = _span(part)
        at = numbers[rows]
        self.names.starts[at], self.names.lengths[at] = name.starts, np.maximum(name.lengths, 0)
        self.values.starts[at], self.values.lengths[at] = value.starts, value.lengths
        cursor.at[rows], cursor.is_bad[rows] = part.at, part.is_bad

    def _check_names(self, cursor: VarintCursor) -> None:
        row_of = np.repeat(np.arange(len(self.counts)), self.counts)
        is_good = ~cursor.is_bad[row_of]
        names = self.names.of(is_good)
        content = _gather(cursor.data, names)
        ends = np.concatenate(([0], np.cumsum(names.lengths))).astype(np.int32)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(content)]
        try:
            pa.Array.from_buffers(pa.string(), len(names.lengths), buffers).validate(full=True)
        except pa.ArrowInvalid:
            for row, start, end in zip(
                row_of[is_good].tolist(), ends.tolist(), ends[1:].tolist(), strict=False
            ):
                cursor.is_bad[row] |= not _is_utf8(content[start:end].tobytes())

    def of(self, is_kept: Bools) -> _Headers:
        chosen = np.repeat(is_kept, self.counts)
        return _Headers(self.counts[is_kept], self.names.of(chosen), self.values.of(chosen))


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _gather(data: Bytes, spans: _Spans) -> Bytes:
    """Return the content of the spans, one after the other. The spans must be in order."""
    count = len(spans.starts)
    if not count:
        return np.zeros(0, np.uint8)
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = spans.starts
    edges[1::2] = spans.starts + np.maximum(spans.lengths, 0)
    every = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    content = every.take(pa.array(np.arange(0, 2 * count, 2))).buffers()[2]
    return np.zeros(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)


def _write(strings: ByteStrings, data: Bytes, spans: _Spans, rows: int, size_bytes: int) -> tuple[int, int]:
    """Write after this many rows and bytes. Return the bytes now used, and the number of nulls
    written.
    """
    count = len(spans.starts)
    lengths = np.maximum(spans.lengths, 0)
    ends = size_bytes + np.cumsum(lengths)
    strings.ends[rows + 1 : rows + 1 + count] = ends
    strings.valid[rows : rows + count] = spans.lengths >= 0
    end = int(ends[-1]) if count else size_bytes
    strings.data[size_bytes:end] = _gather(data, spans)[: end - size_bytes]
    return end, int(np.count_nonzero(spans.lengths < 0))


def _write_key(block: Block, data: Bytes, spans: _Spans) -> None:
    used = block.used
    end, nulls = _write(block.key, data, spans, int(used[ROWS]), int(used[KEY_BYTES]))
    used[KEY_BYTES] = end
    used[KEY_NULLS] += nulls


def _write_value(block: Block, data: Bytes, spans: _Spans) -> None:
    used = block.used
    end, nulls = _write(block.value, data, spans, int(used[ROWS]), int(used[VALUE_BYTES]))
    used[VALUE_BYTES] = end
    used[VALUE_NULLS] += nulls


def _write_headers(block: Block, data: Bytes, found: _Headers, is_kept: Bools) -> None:
    used, headers = block.used, block.headers
    chosen = found.of(is_kept)
    row, number = int(used[ROWS]), int(used[HEADERS])
    headers.ends[row + 1 : row + 1 + len(chosen.counts)] = number + np.cumsum(chosen.counts)
    used[HEADER_NAME_BYTES], _ = _write(
        headers.names, data, chosen.names, number, int(used[HEADER_NAME_BYTES])
    )
    used[HEADER_VALUE_BYTES], nulls = _write(
        headers.values, data, chosen.values, number, int(used[HEADER_VALUE_BYTES])
    )
    used[HEADER_NULLS] += nulls
    used[HEADERS] = number + len(chosen.names.starts)


def _write_numbers(block: Block, batches: Int64s, deltas: Int64s, timestamp_deltas: Int64s) -> None:
    """Write offsets and timestamps; `batches` has the table's row for each record."""
    row = block.rows
    end = row + len(deltas)
    is_log_append = batches[:, LOG_APPEND]
    block.offsets[row:end] = batches[:, BASE_OFFSET] + deltas
    block.timestamps[row:end] = np.where(
        is_log_append, batches[:, MAX_TIMESTAMP], batches[:, BASE_TIMESTAMP] + timestamp_deltas
    )
    block.timestamp_types[row:end] = is_log_append
    block.used[ROWS] = end


# ── encoding ──────────────────────────────────────────────────────────────────────────────────────


def encode(
    rows: Rows, order: Int64s, first: int, last: int, out: Bytes, *, start: int, limit: int
) -> tuple[int, int, int]:
    """Encode as `compiled.encode`."""
    # Limit the rows to the number of smallest records that fit.
    chosen = order[first : min(last, first + 1 + (limit - start) // MIN_RECORD_BYTES)]
    deltas = rows.timestamps[chosen] - rows.timestamps[chosen[0]]
    sizes = rows.sizes[chosen] + widths(deltas) + widths(np.arange(len(chosen)))
    ends = start + np.cumsum(sizes + widths(sizes))
    count = max(1, int(np.searchsorted(ends, limit, side="right")))
    end = int(ends[count - 1])
    if end > len(out):
        return first, start, end
    chosen = chosen[:count]
    records = encode_records(
        [rows.value.row(row) for row in chosen],
        [rows.key.row(row) for row in chosen],
        [_tail(rows, row) for row in chosen],
        deltas[:count].tolist(),
    )
    out[start:end] = np.frombuffer(records, np.uint8)
    return first + count, end, 0


def _tail(rows: Rows, row: int) -> bytes:
    if not rows.has_headers:
        return encode_headers(())
    headers = rows.headers
    numbers = range(headers.offsets[row], headers.offsets[row + 1])
    return encode_headers([
        ((headers.names.row(number) or b"").decode(), headers.values.row(number)) for number in numbers
    ])  # fmt: skip


# ── partitions ────────────────────────────────────────────────────────────────────────────────────


def murmur2(column: BytesColumn) -> UInt32s:
    """Return the hashes as `compiled.murmur2`, keys of one length together."""
    lengths = np.diff(column.offsets)
    found = np.empty(len(lengths), np.uint32)
    order = np.argsort(lengths, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        if len(rows) >= _MIN_TOGETHER:
            found[rows] = _murmur2_together(column, rows, int(lengths[rows[0]]))
        else:
            for row in rows:
                content = column.data[column.offsets[row] : column.offsets[row + 1]]
                found[row] = murmur2_of_one(content.tobytes())
    return found


def _murmur2_together(column: BytesColumn, rows: Int64s, length: int) -> UInt32s:
    factor = np.uint32(0x5BD1E995)
    starts = column.offsets[rows]
    folded = np.full(len(rows), 0x9747B28C ^ length, np.uint32)
    for place in range(0, length - 3, 4):
        word = _little_endian(column.data, starts + place, 4) * factor
        folded = folded * factor ^ (word ^ word >> np.uint32(24)) * factor
    rest = length % 4
    if rest:
        folded = (folded ^ _little_endian(column.data, starts + length - rest, rest)) * factor
    folded = (folded ^ folded >> np.uint32(13)) * factor
    return folded ^ folded >> np.uint32(15)


def _little_endian(data: Bytes, at: Int64s, size: int) -> UInt32s:
    word = np.zeros(len(at), np.uint32)
    for place in range(size):
        word |= data[at + place].astype(np.uint32) << np.uint32(8 * place)
    return word
