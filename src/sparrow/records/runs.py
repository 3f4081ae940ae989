"""Runs of records that differ in content only, cut into columns at the speed of C.

Records of one key length and one value length, without headers, with consecutive offsets and
timestamps of one width, repeat every `stride` bytes. Such a run is cut by one `struct` format into
columns (the bytes before the offset, offset, key, value, and the lengths between); a few set and
byte-string comparisons then prove that every record has the assumed form. Nothing is assumed
without a comparison.

The presence of a run is guessed from the record at its start and from the place where its last
record would have to be: if there is one, the columns are cut; else half as many are tried. A wrong
guess costs some hundred nanoseconds, a refuted one the cut.

A cut begins one byte early, at the zero that ends the record before (its header count), so that the
numbers between two values are one column.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import CorruptBatch
from sparrow.records.varint import TABLE_SIZE, VARINTS, decode_varint, decode_varlong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MIN_RUN: Final = 8
"""Shorter runs are not worth the set-up."""

_ONE_BYTE: Final = 64
"""Offset deltas below this take one byte, those up to `TABLE_SIZE` two."""
_OFFSETS: Final = (b"".join(VARINTS[:_ONE_BYTE]), b"".join(VARINTS[_ONE_BYTE:]))


class Run(NamedTuple):
    """Columns of `record_count` records; `end` is the position behind the last."""

    record_count: int
    end: int
    timestamps: Iterable[int]
    keys: Iterable[bytes | None]
    values: Iterable[bytes]


class _Shape(NamedTuple):
    """The common properties of a run's records."""

    prefix: bytes
    """Length and attributes."""
    timestamp_bytes: int
    offset_bytes: int
    key_length: bytes
    key_bytes: int
    value_length: bytes
    value_bytes: int


def maybe_run(
    data: bytes, position: int, offset_delta: int, max_count: int, timestamp_of: Callable[[int], int]
) -> Run | None:
    """Return the run that starts with the record at `position`, whose offset delta should be
    `offset_delta`; None if there is none.

    Args:
        timestamp_of: makes a timestamp (ms) of a timestamp delta; called once for each distinct
            delta.
    """
    shape = _shape(data, position)
    if shape is None or offset_delta >= TABLE_SIZE:
        return None
    stride = _stride(shape)
    first_of_next_width = _ONE_BYTE if offset_delta < _ONE_BYTE else TABLE_SIZE
    count = min(max_count, first_of_next_width - offset_delta, (len(data) - position) // stride)
    while count >= MIN_RUN:
        if _stands_at(data, position + (count - 1) * stride, shape, offset_delta + count - 1):
            end = position + count * stride
            # The last record's own zero is not in the cut, whose first byte is the one before.
            rows = data[position - 1 : end - 1] if position and not data[end - 1] else b""
            columns = _cut(rows, shape, offset_delta, timestamp_of)
            return columns and Run(count, end, *columns)
        count //= 2
    return None


def _shape(data: bytes, position: int) -> _Shape | None:
    """Return the shape of one record; None if it cannot begin a run."""
    try:
        length, at = decode_varint(data, position)
        end = at + length
        prefix = data[position : at + 1]
        _, offset_at = decode_varlong(data, at + 1)
        _, key_length_at = decode_varint(data, offset_at)
        key_bytes, key_at = decode_varint(data, key_length_at)
        value_length_at = key_at + max(key_bytes, 0)
        value_bytes, value_at = decode_varint(data, value_length_at)
    except CorruptBatch:
        return None
    if key_bytes < -1 or value_bytes < 0 or value_at + value_bytes + 1 != end or end > len(data):
        return None
    return _Shape(
        prefix,
        offset_at - at - 1,
        key_length_at - offset_at,
        data[key_length_at:key_at],
        key_bytes,
        data[value_length_at:value_at],
        value_bytes,
    )


def _stride(shape: _Shape) -> int:
    return (
        len(shape.prefix)
        + shape.timestamp_bytes
        + shape.offset_bytes
        + len(shape.key_length)
        + max(shape.key_bytes, 0)
        + len(shape.value_length)
        + shape.value_bytes
        + 1
    )


def _stands_at(data: bytes, position: int, shape: _Shape, offset_delta: int) -> bool:
    offset_at = position + len(shape.prefix) + shape.timestamp_bytes
    expected = VARINTS[offset_delta] + shape.key_length
    return data.startswith(shape.prefix, position) and data.startswith(expected, offset_at)


@lru_cache(maxsize=64)
def _format(shape: _Shape) -> struct.Struct:
    head = f"{1 + len(shape.prefix) + shape.timestamp_bytes}s{shape.offset_bytes}s"
    if shape.key_bytes < 0:
        return struct.Struct(f"{head}{len(shape.key_length + shape.value_length)}s{shape.value_bytes}s")
    return struct.Struct(
        f"{head}{len(shape.key_length)}s{shape.key_bytes}s{len(shape.value_length)}s{shape.value_bytes}s"
    )


_Columns = tuple["Iterable[int]", "Iterable[bytes | None]", "Iterable[bytes]"]


def _cut(
    rows: bytes, shape: _Shape, offset_delta: int, timestamp_of: Callable[[int], int]
) -> _Columns | None:
    """Return timestamps, keys and values; None if a record is not of the shape."""
    columns = tuple(zip(*_format(shape).iter_unpack(rows), strict=True))
    if not columns:
        return None
    heads, offsets, values = columns[0], columns[1], columns[-1]
    stamps = _timestamps(set(heads), shape, timestamp_of)
    if stamps is None or b"".join(offsets) != _offset_bytes(offset_delta, len(offsets)):
        return None
    keys: Iterable[bytes | None] = repeat(None)
    if shape.key_bytes < 0:
        lengths_agree = set(columns[2]) == {shape.key_length + shape.value_length}
    else:
        keys = columns[3]
        lengths_agree = set(columns[2]) == {shape.key_length} and set(columns[4]) == {shape.value_length}
    timestamps = repeat(stamps[heads[0]]) if len(stamps) == 1 else map(stamps.__getitem__, heads)
    return (timestamps, keys, values) if lengths_agree else None


def _offset_bytes(offset_delta: int, count: int) -> bytes:
    if offset_delta < _ONE_BYTE:
        return _OFFSETS[0][offset_delta : offset_delta + count]
    start = 2 * (offset_delta - _ONE_BYTE)
    return _OFFSETS[1][start : start + 2 * count]


def _timestamps(
    heads: set[bytes], shape: _Shape, timestamp_of: Callable[[int], int]
) -> dict[bytes, int] | None:
    """Return the timestamp of each distinct head; None if one is not a zero, the prefix and one
    number to its end.
    """
    start = b"\x00" + shape.prefix
    timestamps = {}
    for head in heads:
        if not head.startswith(start):
            return None
        delta = _timestamp_delta(head, len(start))
        if delta is None:
            return None
        timestamps[head] = timestamp_of(delta)
    return timestamps


def _timestamp_delta(head: bytes, position: int) -> int | None:
    """Return the number from `position` to the end of `head`; None if there is no such number."""
    last = head[-1]
    # Two bytes, the width of all but the first 64 ms of a batch.
    if len(head) == position + 2 and head[position] > 0x7F >= last:
        folded = (head[position] & 0x7F) | (last << 7)
        return (folded >> 1) ^ -(folded & 1)
    try:
        delta, end = decode_varlong(head, position)
    except CorruptBatch:
        return None
    return delta if end == len(head) else None
