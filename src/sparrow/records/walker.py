"""One pass over the records of a batch that checks every byte of them against the format.

`walk` creates no objects of the records. It reads their numbers, skips their contents and returns
the first fault. The rules are those of `layout`, and those for publishers (KIP-98; Kafka's
LogValidator and DefaultRecord):

- A number fits its 32 or 64 bits and ends within its record. Longer than necessary is accepted.
- A record is at least 6 bytes behind its length, and no longer than the bytes left. Its attributes
  are 0: the format has none, and librdkafka takes bit 3 for the type of its timestamp.
- The timestamp, base plus delta, fits 64 bits.
- The offset delta of record n is n.
- Lengths of key, value and header values are -1 (null) or natural, and end within the record. A
  header's name is not null, and is UTF-8.
- The headers end where the record ends, and the last record where the records end.

There are two implementations. `_walker.c` (12 ns a record) is compiled where the package is built,
if a compiler is there. The one in this module serves everywhere else (0.2 to 0.5 µs a record where
records are of one size, 0.6 to 1 µs where not, 4 µs with headers). Both return equal tuples for any
input (`tests/records/test_walker.py`), so that a broker refuses the same batches wherever it runs.

Rejected: mypyc (it makes an object of every integer), Cython (one more tool for 200 lines of C),
ctypes (1 µs a call, and it takes no views), numba (not in a thin install, and it compiles at the
start).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import CorruptBatch
from sparrow.records.varint import VARINTS, decode_varint, decode_varlong

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION: Final = 2
"""Version of the rules. A compiled walker of another version is not used."""

NO_TIMESTAMP: Final = -1
MAX_LISTED: Final = 100
_MIN_RECORD_LENGTH: Final = 6
MIN_TIMESTAMP: Final = -(1 << 63)
MAX_TIMESTAMP: Final = (1 << 63) - 1
"""The range of the field, ms."""


class FaultKind(IntEnum):
    """The rule that a record breaks."""

    NONE = 0
    NUMBER = 1
    LENGTH = 2
    ATTRIBUTES = 3
    TIMESTAMP = 4
    OFFSET = 5
    KEY = 6
    VALUE = 7
    HEADER_COUNT = 8
    HEADER_NAME = 9
    HEADER_TEXT = 10
    HEADER_VALUE = 11
    RECORD_REST = 12
    BATCH_REST = 13


Walked = tuple[int, int, int, int, tuple[int, ...], tuple[int, ...]]
"""(fault kind, record number, position, greatest timestamp, untimely records, keyless records).

With a fault: the number of its record, counted from 0, and the position of the wrong field; the
timestamp is -1 and no record is listed. Without one: the record count, the end, the greatest
timestamp (ms) of the records that have one (not -1) or -1, and the first `MAX_LISTED` records of
each kind.
"""


class _Fault(Exception):
    def __init__(self, kind: FaultKind, position: int) -> None:
        super().__init__(kind, position)
        self.kind = kind
        self.position = position


def walk(  # noqa: PLR0917 - as the compiled one, which takes no names
    data: bytes | memoryview,
    start: int,
    end: int,
    record_count: int,
    base_timestamp: int,
    earliest: int,
    latest: int,
    needs_keys: bool,
    release_gil: bool,  # noqa: ARG001 - the compiled one lets other threads run
    /,
) -> Walked:
    """Walk over the records at [start, end), which are not compressed.

    Args:
        earliest: ms; records with a timestamp before it, or after `latest`, are listed as untimely.
        needs_keys: True lists records without a key.
        release_gil: True lets other threads run meanwhile.

    Raises:
        ValueError: there are no such bytes.
    """
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"records at [{start}, {end}) of {len(data)} bytes")
    state = _Walk(bytes(data[:end]), start, _Terms(base_timestamp, earliest, latest, needs_keys))
    try:
        state.walk(record_count)
    except _Fault as fault:
        return fault.kind, state.index, fault.position, NO_TIMESTAMP, (), ()
    untimely, keyless = state.untimely[:MAX_LISTED], state.keyless[:MAX_LISTED]
    return FaultKind.NONE, record_count, end, state.max_timestamp, tuple(untimely), tuple(keyless)


class _Terms(NamedTuple):
    base_timestamp: int
    earliest: int
    latest: int
    needs_keys: bool


class _Walk:
    """The state of one walk; `index` is the number of the record that starts at `position`."""

    __slots__ = (
        "data",
        "has_timestamp",
        "index",
        "keyless",
        "max_timestamp",
        "position",
        "terms",
        "untimely",
    )

    def __init__(self, data: bytes, position: int, terms: _Terms) -> None:
        self.data = data
        self.position = position
        self.terms = terms
        self.index = 0
        self.max_timestamp = NO_TIMESTAMP
        self.has_timestamp = False
        self.untimely: list[int] = []
        self.keyless: list[int] = []

    def walk(self, count: int) -> None:
        """Walk over this many records, to the end of the data."""
        stretch = 1
        while self.index < count:
            self._records(min(stretch, count - self.index))
            found = self._run(count - self.index)
            stretch = 1 if found else min(stretch * 4, _LONGEST_STRETCH)
        if self.position != len(self.data):
            raise _Fault(FaultKind.BATCH_REST, self.position)

    def _records(self, count: int) -> None:  # noqa: C901, PLR0915 - one loop without calls is the point
        """Walk over this many records; those with headers, a longer number or anything unusual by
        `_record`.
        """
        data, size, terms = self.data, len(self.data), self.terms
        position, first = self.position, self.index
        accepted_stamp = -1  # a folded delta whose timestamp is in `max_timestamp` already
        for index in range(first, first + count):
            self.position, self.index = position, index
            try:
                # Numbers are left folded: twice themselves if natural, odd if negative.
                length = data[position]
                position += 1
                if length > 0x7F:
                    length += (data[position] << 7) - 0x80
                    position += 1
                end = position + (length >> 1)
                odd = data[position] or length & 1
                stamp = data[position + 1]
                position += 2
                if stamp > 0x7F:
                    stamp += (data[position] << 7) - 0x80
                    position += 1
                offset = data[position]
                position += 1
                if offset > 0x7F:
                    offset += (data[position] << 7) - 0x80
                    position += 1
                key = data[position]
                position += 1
                if key == 1:
                    odd = odd or terms.needs_keys
                else:
                    if key > 0x7F:
                        key += (data[position] << 7) - 0x80
                        position += 1
                    odd = odd or key & 1
                    position += key >> 1
                value = data[position]
                position += 1
                if value != 1:
                    if value > 0x7F:
                        value += (data[position] << 7) - 0x80
                        position += 1
                    odd = odd or value & 1
                    position += value >> 1
                # A third byte of a number shows as a bit above the fourteenth. A number that ends
                # where the record ends stayed within it.
                if (
                    odd
                    or (length | stamp | offset | key | value) > 0x3FFF
                    or offset != index + index
                    or position + 1 != end
                    or end > size
                    or data[position]
                    or (stamp != accepted_stamp and not self._accepts(stamp))
                ):
                    self._record()
                    position = self.position
                else:
                    accepted_stamp = stamp
                    position = end
            except IndexError:
                self._record()
                position = self.position
        self.position, self.index = position, first + count

    def _accepts(self, folded: int) -> bool:
        """Record a timestamp delta. Return False if it needs the full check."""
        timestamp = self.terms.base_timestamp + ((folded >> 1) ^ -(folded & 1))
        least, greatest = max(self.terms.earliest, MIN_TIMESTAMP), min(self.terms.latest, MAX_TIMESTAMP)
        if timestamp == NO_TIMESTAMP or not least <= timestamp <= greatest:
            return False
        self._stamp(timestamp)
        return True

    def _record(self) -> None:
        """Walk over the record at `position`, with every check; raise `_Fault` if it is wrong."""
        data = self.data
        length, at = _number(decode_varint, data, self.position, len(data))
        end = at + length
        if length < _MIN_RECORD_LENGTH or end > len(data):
            raise _Fault(FaultKind.LENGTH, self.position)
        if data[at]:
            raise _Fault(FaultKind.ATTRIBUTES, at)
        timestamp_at = at + 1
        delta, at = _number(decode_varlong, data, timestamp_at, end)
        timestamp = self.terms.base_timestamp + delta
        if not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
            raise _Fault(FaultKind.TIMESTAMP, timestamp_at)
        offset_at = at
        delta, at = _number(decode_varint, data, at, end)
        if delta != self.index:
            raise _Fault(FaultKind.OFFSET, offset_at)
        length, at = _passed(data, at, end, FaultKind.KEY)
        if length < 0 and self.terms.needs_keys:
            self.keyless.append(self.index)
        _, at = _passed(data, at, end, FaultKind.VALUE)
        if end - at != 1 or data[at]:
            _headers(data, at, end)
        if timestamp != NO_TIMESTAMP:
            if not self.terms.earliest <= timestamp <= self.terms.latest:
                self.untimely.append(self.index)
            self._stamp(timestamp)
        self.position = end
        self.index += 1

    def _stamp(self, timestamp: int) -> None:
        if timestamp > self.max_timestamp or not self.has_timestamp:
            self.max_timestamp = timestamp
            self.has_timestamp = True

    def _run(self, max_count: int) -> bool:
        """Skip records of one size without headers, if enough of them come."""
        shape = _maybe_shape(self.data, self.position) if max_count >= _MIN_RUN else None
        if shape is None or (shape.is_keyless and self.terms.needs_keys):
            return False
        run = _maybe_run(self.data, self.position, shape, self.index, max_count)
        if run is None:
            return False
        # Timestamps that must be listed or refused, or are none, are left to the loop.
        terms = self.terms
        stamps = [terms.base_timestamp + delta for delta in run.timestamp_deltas]
        least, greatest = max(terms.earliest, MIN_TIMESTAMP), min(terms.latest, MAX_TIMESTAMP)
        if min(stamps) < least or max(stamps) > greatest or NO_TIMESTAMP in stamps:
            return False
        self._stamp(max(stamps))
        self.index += run.record_count
        self.position += run.record_count * shape.stride
        return True


def _number(
    decode: Callable[[bytes, int], tuple[int, int]], data: bytes, position: int, end: int
) -> tuple[int, int]:
    """Return the number at `position`, which must end before `end`, and the position behind it."""
    try:
        number, after = decode(data, position)
    except CorruptBatch:
        raise _Fault(FaultKind.NUMBER, position) from None
    if after > end:
        raise _Fault(FaultKind.NUMBER, position)
    return number, after


def _passed(data: bytes, position: int, end: int, kind: FaultKind) -> tuple[int, int]:
    """Return the length at `position`, and the position behind the bytes that it counts."""
    length, start = _number(decode_varint, data, position, end)
    if length < -1 or length > end - start:
        raise _Fault(kind, position)
    return length, start + max(length, 0)


def _headers(data: bytes, position: int, end: int) -> None:
    count, at = _number(decode_varint, data, position, end)
    # A header takes two bytes at least: a wrong count is found before the headers are read.
    if count < 0 or count > (end - at) // 2:
        raise _Fault(FaultKind.HEADER_COUNT, position)
    for _ in range(count):
        name_at = at
        length, at = _passed(data, at, end, FaultKind.HEADER_NAME)
        if length < 0:
            raise _Fault(FaultKind.HEADER_NAME, name_at)
        if not _is_utf8(data[at - length : at]):
            raise _Fault(FaultKind.HEADER_TEXT, name_at)
        _, at = _passed(data, at, end, FaultKind.HEADER_VALUE)
    if at != end:
        raise _Fault(FaultKind.RECORD_REST, at)


def _is_utf8(name: bytes) -> bool:
    if not name.isascii():
        try:
            name.decode()
        except UnicodeDecodeError:
            return False
    return True


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────
# Records of one size repeat every `stride` bytes. A byte with one meaning in all of them is one
# strided slice of the data, and one comparison of the slice proves it for all. A run is taken only
# if everything that the loop checks is proved; all else is left to the loop.

_MIN_RUN: Final = 16
_LONGEST_STRETCH: Final = 512
_MAX_TIMESTAMP_BYTES: Final = 4
"""Numbers of at most this many bytes always fit."""
_ONE_BYTE: Final = 64
"""Offset deltas below this take one byte, those below the length of `VARINTS` two."""
_TWO_BYTES: Final = (
    b"".join(each[:1] for each in VARINTS),
    b"".join(each[1:] for each in VARINTS[_ONE_BYTE:]),
)
"""First bytes of all offset deltas, and second bytes of those that have two."""
_CONTINUED: Final = bytes(range(0x80, 0x100))


class _Shape(NamedTuple):
    """Positions of the parts of a record, counted from its first byte."""

    attributes_at: int
    offset_at: int
    key_length_at: int
    key_at: int
    value_length_at: int
    value_at: int
    header_count_at: int
    is_keyless: bool

    @property
    def stride(self) -> int:
        return self.header_count_at + 1


class _Run(NamedTuple):
    record_count: int
    timestamp_deltas: set[int]


def _maybe_shape(data: bytes, position: int) -> _Shape | None:
    """Return the shape of a record without headers; None if there is none at `position`."""
    try:
        length, attributes_at = decode_varint(data, position)
        _, offset_at = decode_varlong(data, attributes_at + 1)
        _, key_length_at = decode_varint(data, offset_at)
        key_bytes, key_at = decode_varint(data, key_length_at)
        value_length_at = key_at + max(key_bytes, 0)
        value_bytes, value_at = decode_varint(data, value_length_at)
    except CorruptBatch:
        return None
    header_count_at = value_at + max(value_bytes, 0)
    end = header_count_at + 1
    if (
        key_bytes < -1
        or value_bytes < -1
        or end != attributes_at + length
        or end > len(data)
        or data[attributes_at]
        or data[header_count_at]
        or offset_at - attributes_at - 1 > _MAX_TIMESTAMP_BYTES
        or key_length_at - offset_at > 2
    ):
        return None
    return _Shape(
        attributes_at - position,
        offset_at - position,
        key_length_at - position,
        key_at - position,
        value_length_at - position,
        value_at - position,
        header_count_at - position,
        key_bytes < 0,
    )


def _maybe_run(data: bytes, position: int, shape: _Shape, index: int, max_count: int) -> _Run | None:
    """Return the run of right records from `position` on; None if it is short."""
    stride = shape.stride
    is_short = shape.key_length_at - shape.offset_at == 1
    ends_at = _ONE_BYTE if is_short else len(VARINTS)
    count = min(max_count, (len(data) - position) // stride, ends_at - index)
    if not is_short and index < _ONE_BYTE:
        return None

    def column(at: int) -> bytes:
        return data[position + at : position + count * stride : stride]

    same = (
        *range(shape.attributes_at + 1),
        *range(shape.key_length_at, shape.key_at),
        *range(shape.value_length_at, shape.value_at),
        shape.header_count_at,
    )
    for at in same:
        if count < _MIN_RUN:  # nearly all calls for records of unlike sizes end here
            return None
        found = column(at)
        if found != found[:1] * count:
            count = len(found) - len(found.lstrip(found[:1]))
    if count < _MIN_RUN or not _are_offsets(column, shape, index, count):
        return None
    deltas = _timestamp_deltas([column(at) for at in range(shape.attributes_at + 1, shape.offset_at)])
    return None if deltas is None else _Run(count, deltas)


def _are_offsets(column: Callable[[int], bytes], shape: _Shape, index: int, count: int) -> bool:
    first, second = _TWO_BYTES
    if column(shape.offset_at) != first[index : index + count]:
        return False
    start = index - _ONE_BYTE
    return shape.key_length_at - shape.offset_at == 1 or (
        column(shape.offset_at + 1) == second[start : start + count]
    )


def _timestamp_deltas(columns: list[bytes]) -> set[int] | None:
    """Return the distinct numbers in columns of their bytes; None if some are of another width."""
    *continued, last = columns
    if not last.isascii() or any(each.translate(None, _CONTINUED) for each in continued):
        return None
    return {decode_varlong(bytes(number), 0)[0] for number in set(zip(*columns, strict=True))}
