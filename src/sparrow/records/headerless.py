"""Test whether no record of a batch has a header, without making objects of the records.

Two ways, alternating:

- Records of one size repeat every `stride` bytes. A byte that means the same in each of them (a
  length, part of a number, the header count) is one strided slice of the data, and one comparison
  of the slice proves it for all. Some 35 ns per record.
- Others are read one by one: six numbers, contents are skipped. Some 500 ns per record, however
  large.

(Searching bytes for the name of a header costs 0.5 ns per byte and name: less for small records of
unlike sizes, more for all others.)
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sparrow.base.errors import CorruptBatch
from sparrow.records.varint import decode_varint, decode_varlong

_MIN_RUN: Final = 16
"""Fewer records are read one by one."""
_LONGEST_STRETCH: Final = 512
_NULL_LENGTH: Final = 1
"""The varint of -1, still folded."""
_CONTINUED: Final = bytes(range(0x80, 0x100))
_LAST: Final = bytes(range(0x80))


class _Shape(NamedTuple):
    """Positions of the parts of a record, counted from its first byte."""

    attributes_at: int
    timestamp_at: int
    offset_at: int
    key_length_at: int
    key_at: int
    value_length_at: int
    value_at: int
    header_count_at: int


def is_headerless(data: bytes, start: int, end: int, record_count: int, max_single: int) -> bool:
    """Return True if it is certain that the records of [start, end), which are not compressed, are
    `count` and that none has a header.

    For malformed records the result may be either.

    Args:
        max_single: give up (False) rather than read more records than that one by one.
    """
    position, left, stretch = start, record_count, 1
    try:
        while left:
            steps = min(stretch, left)
            max_single -= steps
            position = _one_by_one(data, position, steps) if max_single >= 0 else -1
            if not start < position <= end:
                return False
            left -= steps
            count, stride = _run(data, position, end, left) if left >= _MIN_RUN else (0, 0)
            position += count * stride
            left -= count
            stretch = 1 if count else min(stretch * 4, _LONGEST_STRETCH)
    except (CorruptBatch, IndexError):
        return False
    return position == end


def _one_by_one(data: bytes, position: int, count: int) -> int:  # noqa: C901 - one loop without calls is the point
    """Return the position behind this many records; -1 if one has headers."""
    for _ in range(count):
        number = data[position]
        position += 1
        # Numbers stay folded (twice themselves) as long as that is enough.
        if number > 0x7F:
            number += (data[position] << 7) - 0x80
            position += 1
            if number > 0x3FFF:
                number, position = _folded(data, position - 2)
        record_end = position + (number >> 1)
        position += 1
        while data[position] > 0x7F:  # the timestamp delta
            position += 1
        position += 1
        while data[position] > 0x7F:  # the offset delta
            position += 1
        number = data[position + 1]  # the key's length
        position += 2
        if number != _NULL_LENGTH:
            if number > 0x7F or number & 1:
                number, position = _folded(data, position - 1)
            position += number >> 1
        number = data[position]  # the value's length
        position += 1
        if number != _NULL_LENGTH:
            if number > 0x7F:
                number += (data[position] << 7) - 0x80
                position += 1
                if number > 0x3FFF:
                    number, position = _folded(data, position - 2)
            position += number >> 1
        if data[position] or position + 1 != record_end:
            return -1
        position = record_end
    return position


def _folded(data: bytes, position: int) -> tuple[int, int]:
    """Return the length at `position`, 0 for null, and the position behind it."""
    number, position = decode_varint(data, position)
    if number < -1:
        raise CorruptBatch(f"length {number} before byte {position} of the records")
    return (number << 1 if number >= 0 else 0), position


def _run(data: bytes, position: int, end: int, max_count: int) -> tuple[int, int]:
    """Return how many records from `position` on have the shape and size of the first and no
    headers, and that size; (0, 0) if too few.
    """
    shape = _shape(data, position)
    stride = shape.header_count_at + 1
    count = min(max_count, (end - position) // stride)
    prefix = data[position : position + shape.attributes_at]
    # nearly all calls end here
    if count < _MIN_RUN or not data.startswith(prefix, position + stride):
        return 0, 0
    same = (
        *range(shape.attributes_at),
        *range(shape.key_length_at, shape.key_at),
        *range(shape.value_length_at, shape.value_at),
        shape.header_count_at,
    )
    for at in same:
        column = data[position + at : position + count * stride : stride]
        if column != column[:1] * count:
            count = _leading(column, column[:1])
    for at in range(shape.timestamp_at, shape.key_length_at):
        column = data[position + at : position + count * stride : stride]
        if at + 1 not in {shape.offset_at, shape.key_length_at}:
            count = _leading(column, _CONTINUED)
        elif not column.isascii():
            count = _leading(column, _LAST)
    return (count, stride) if count >= _MIN_RUN else (0, 0)


def _leading(column: bytes, allowed: bytes) -> int:
    """Return how many bytes at the beginning are all among those allowed."""
    return len(column) - len(column.lstrip(allowed)) if column.translate(None, allowed) else len(column)


def _shape(data: bytes, position: int) -> _Shape:
    """Return the shape of a record without headers.

    Raises:
        CorruptBatch: it has some, or is malformed.
    """
    length, attributes_at = decode_varint(data, position)
    _, offset_at = decode_varlong(data, attributes_at + 1)
    _, key_length_at = decode_varint(data, offset_at)
    key_bytes, key_at = decode_varint(data, key_length_at)
    value_length_at = key_at + max(key_bytes, 0)
    value_bytes, value_at = decode_varint(data, value_length_at)
    header_count_at = value_at + max(value_bytes, 0)
    if header_count_at + 1 != attributes_at + length or data[header_count_at]:
        raise CorruptBatch(f"the record at byte {position} has headers, or is malformed")
    places = (
        attributes_at,
        attributes_at + 1,
        offset_at,
        key_length_at,
        key_at,
        value_length_at,
        value_at,
        header_count_at,
    )
    return _Shape(*(place - position for place in places))
