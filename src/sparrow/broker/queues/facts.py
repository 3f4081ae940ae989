"""What a queue must know of records, found in the batches as they lie in the log.

Most batches have nothing to say to a queue: their records are ready as soon as they are there, in the order of their offsets. Such batches are *plain*, and a
whole stretch of them is one piece that costs nothing per record. A batch is plain if none of the well-known header names (`records/wellknown.py`)
occurs in it (`batches.py` has how that is found out).

The others are looked into, record by record: key, times, priority, ids. No record objects are made, and values are skipped.

Nothing here raises for what the log holds. A batch that is malformed, or becomes too large when decompressed, counts as plain: its records are
delivered as they are, rather than held back for ever.

Pure, and in steps: finding a piece takes a few milliseconds at most (decompressing one batch aside), so that the caller can give the loop a turn between two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import CorruptBatch
from sparrow.broker.queues.batches import Batches
from sparrow.records.varint import decode_varint, decode_varlong
from sparrow.records.wellknown import (
    DEFAULT_PRIORITY,
    DELIVER_AT_BYTES,
    EXPIRES_AT_BYTES,
    MESSAGE_ID_BYTES,
    PARENT_ID_BYTES,
    PRIORITY_BYTES,
    REDRIVE_QUEUE_BYTES,
    maybe_parse_priority,
    parse_text,
    parse_time_ms,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.broker.queues.batches import Batch

PIECE_RECORDS: Final = 256
"""The most records that one piece describes by themselves (half a millisecond of work)."""
DEFAULT_MAX_BYTES: Final = 16 << 20
"""What a batch may become when it is decompressed to be looked into."""

_NULL_LENGTH: Final = 1
"""The varint of -1, not unfolded."""
_PIECE_WORK_BYTES: Final = 512 << 10
"""A plain piece ends when it took more work than that (see `Batches.work_bytes`), some 2 ms."""
_PIECE_HEADERS_BYTES: Final = 64 << 10
"""A piece ends when it holds more headers than that: they take longer than their record."""
_MAX_REMEMBERED: Final = 256
_MAX_REMEMBERED_BYTES: Final = 128
_new: Final = tuple.__new__
"""Makes `Facts` of a tuple, in half of the time that its own constructor takes."""


class Facts(NamedTuple):
    """What a queue must know of one record. Times in ms since the epoch; 0 (or nothing) where the record does not say."""

    offset: int
    timestamp: int
    key: int = 0
    """Hash of the key (see `hash_of`); 0 of a record without."""
    deliver_at_ms: int = 0
    level: int = DEFAULT_PRIORITY
    """Its priority."""
    expires_at_ms: int = 0
    message_id: int = 0
    """Hash, as the key's."""
    parents: tuple[int, ...] = ()
    """Hashes of the ids that it names, in their order, as often as it names them."""
    only_queue: str = ""
    """The only queue that takes it."""


Piece = tuple[int, int, list[Facts] | None]
"""Offsets [first, end). None: there is nothing to know of these records. A list: each record by itself; at offsets that are not in it there is no record."""


class Interest(NamedTuple):
    """What a queue must know of every record, so that every batch is looked into."""

    keys: bool = False
    """It orders per key."""
    ids: bool = False
    """It is parented."""
    ages: bool = False
    """Records expire at an age."""


NO_INTEREST: Final = Interest()


def hash_of(content: bytes) -> int:
    """The hash by which a queue knows a key or an id: signed 64 bit, never 0. Another process hashes differently."""
    return hash(content) or 1


def look(
    data: bytes | memoryview,
    first: int,
    next_offset: int,
    interest: Interest = NO_INTEREST,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Iterator[Piece]:
    """The records of [first, next_offset), in pieces that cover exactly these offsets in their order.

    Args:
        data: whole batches, back to back, as they lie in the log. Some may be missing (aborted ones): there are no records then. What lies
            before `first` or from `next_offset` on is left out.
        max_bytes: a batch that becomes larger when it is decompressed counts as plain.
    """
    batches = Batches(data, max_bytes, looks_always=any(interest))
    plain_from = plain_to = first
    for piece in _single_pieces(batches, first, next_offset):
        is_plain = piece[2] is None
        if is_plain:
            plain_to = piece[1]
        if plain_from < plain_to and not (is_plain and batches.work_bytes < _PIECE_WORK_BYTES):
            yield plain_from, plain_to, None
            plain_from, batches.work_bytes = plain_to, 0
        if not is_plain:
            yield piece
            plain_from = plain_to = piece[1]
    if plain_from < plain_to:
        yield plain_from, plain_to, None


def _single_pieces(batches: Batches, first: int, next_offset: int) -> Iterator[Piece]:
    """As `look`, but neighbours that are plain each by itself."""
    at = first
    for batch in batches.before(next_offset):
        start, end = max(batch.base_offset, at), min(batch.next_offset, next_offset)
        if start >= end:
            continue
        if at < start:
            yield at, start, []
        at = end
        if not batch.has_records:
            yield start, end, []
            continue
        body = batches.maybe_body(batch)
        if body is None:
            yield start, end, None
        else:
            yield from _looked_into(body, batch, start, end)
    if at < next_offset:
        yield at, next_offset, None if batches.is_broken else []


# ── records ───────────────────────────────────────────────────────────────────────────────────────


def _looked_into(body: bytes, batch: Batch, start: int, end: int) -> Iterator[Piece]:
    """The records of one batch at offsets [start, end), each by itself; from a malformed one on they count as plain."""
    try:
        for piece_end, facts in _walk(body, batch, start, end):
            if start < piece_end:
                yield start, piece_end, facts
            start = piece_end
    except (CorruptBatch, IndexError):
        yield start, end, None


def _walk(data: bytes, batch: Batch, first: int, end: int) -> Iterator[tuple[int, list[Facts]]]:  # noqa: C901, PLR0912, PLR0915 - one loop without calls is the point
    """The records at offsets [first, end), piece by piece: up to which offset, and the records.

    Raises:
        CorruptBatch, IndexError: they are malformed.
    """
    facts: list[Facts] = []
    said_by: dict[bytes, _Said] = {}
    size, base_offset, base_timestamp = len(data), batch.base_offset, batch.base_timestamp
    common_timestamp = batch.timestamp
    timestamp = common_timestamp or 0
    position = headers_bytes = 0
    due = base_offset
    for _ in range(batch.record_count):
        start = position
        # Numbers stay folded (twice themselves when natural, odd when negative) as long as that will do.
        length = data[position]
        position += 1
        if length > 0x7F:
            length += (data[position] << 7) - 0x80
            position += 1
        attributes_at = position
        stamp = data[position + 1]
        position += 2
        if stamp > 0x7F:
            stamp += (data[position] << 7) - 0x80
            position += 1
        delta = data[position]
        position += 1
        if delta > 0x7F:
            delta += (data[position] << 7) - 0x80
            position += 1
        if (length | stamp | delta) > 0x3FFF or (length | delta) & 1:  # one of three bytes, or a negative one
            length, stamp, delta, attributes_at, position = _numbers(data, start)
        record_end = attributes_at + (length >> 1)
        offset = base_offset + (delta >> 1)
        if not due <= offset < batch.next_offset or record_end > size:
            raise CorruptBatch(f"record at byte {start}")
        due = offset + 1
        if offset < first:
            position = record_end
            continue
        if offset >= end:
            break
        number = data[position]
        position += 1
        if number == _NULL_LENGTH:
            key = 0
        else:
            if number > 0x7F or number & 1:
                number, position = _folded(data, position - 1)
            at = position
            position += number >> 1
            key = hash(data[at:position]) or 1
        number = data[position]
        position += 1
        if number != _NULL_LENGTH:
            if number > 0x7F:
                number += (data[position] << 7) - 0x80
                position += 1
                if number > 0x3FFF:
                    number, position = _folded(data, position - 2)
            position += number >> 1
        if common_timestamp is None:
            timestamp = base_timestamp + ((stamp >> 1) ^ -(stamp & 1))
        if position + 1 == record_end and not data[position]:
            facts.append(_new(Facts, (offset, timestamp, key, 0, DEFAULT_PRIORITY, 0, 0, (), "")))
        else:
            headers = data[position:record_end]
            headers_bytes += len(headers)
            said = said_by.get(headers) or _remembered(said_by, headers)
            facts.append(_new(Facts, (offset, timestamp, key, *said)))
        if len(facts) == PIECE_RECORDS or headers_bytes > _PIECE_HEADERS_BYTES:
            yield due, facts
            facts, headers_bytes = [], 0
        position = record_end
    yield end, facts


def _numbers(data: bytes, position: int) -> tuple[int, int, int, int, int]:
    """Length, timestamp delta and offset delta of a record, folded; where its attributes are and its key's length."""
    length, attributes_at = decode_varint(data, position)
    stamp, position = decode_varlong(data, attributes_at + 1)
    delta, position = decode_varint(data, position)
    if length < 0 or delta < 0:
        raise CorruptBatch(f"record of {length} bytes before byte {position}")
    return length << 1, stamp << 1 if stamp >= 0 else (-stamp << 1) - 1, delta << 1, attributes_at, position


def _folded(data: bytes, position: int) -> tuple[int, int]:
    """A length that is not negative, and the position behind it."""
    number, position = decode_varint(data, position)
    if number < 0:
        raise CorruptBatch(f"length {number} before byte {position}")
    return number << 1, position


# ── headers ───────────────────────────────────────────────────────────────────────────────────────

_Said = tuple[int, int, int, int, tuple[int, ...], str]
"""What headers say: the fields of `Facts` from `deliver_at_ms` on."""

_NOTHING: Final[_Said] = (0, DEFAULT_PRIORITY, 0, 0, (), "")


def _remembered(said_by: dict[bytes, _Said], headers: bytes) -> _Said:
    """What these headers say; without ids, the next record likely has the same."""
    said = _said(headers)
    if not said[3] and len(headers) <= _MAX_REMEMBERED_BYTES and len(said_by) < _MAX_REMEMBERED:
        said_by[headers] = said
    return said


def _said(data: bytes) -> _Said:  # noqa: C901, PLR0912 - one loop without calls is the point
    """What the headers of one record say."""
    deliver_at_ms, level, expires_at_ms, message_id, _, only_queue = _NOTHING
    parents: list[int] = []
    count = data[0]
    position = 1
    if count > 0x7F or count & 1:
        count, position = _folded(data, 0)
    if count > len(data) - position:
        raise CorruptBatch(f"record that counts {count >> 1} headers in {len(data)} bytes")
    for _ in range(count >> 1):
        name_length = data[position]
        name_end = position + 1 + (name_length >> 1)
        value_length = data[name_end]
        if (name_length | value_length) > 0x7F or (name_length | value_length) & 1:
            name, value, position = _odd_header(data, position)
        else:
            name = data[position + 1 : name_end]
            position = name_end + 1 + (value_length >> 1)
            value = data[name_end + 1 : position]
        if not value:
            continue
        if name == PARENT_ID_BYTES:
            if value.isascii() or parse_text(value):
                parents.append(hash(value) or 1)
        elif name == MESSAGE_ID_BYTES:
            if value.isascii() or parse_text(value):
                message_id = hash(value) or 1
        elif name == DELIVER_AT_BYTES:
            deliver_at_ms = parse_time_ms(value) or deliver_at_ms
        elif name == PRIORITY_BYTES:
            level = _level(value, level)
        elif name == EXPIRES_AT_BYTES:
            expires_at_ms = parse_time_ms(value) or expires_at_ms
        elif name == REDRIVE_QUEUE_BYTES:
            only_queue = parse_text(value) or only_queue
    if position != len(data):
        raise CorruptBatch(f"headers of {len(data)} bytes that end at byte {position}")
    return deliver_at_ms, level, expires_at_ms, message_id, tuple(parents) if parents else (), only_queue


def _odd_header(data: bytes, position: int) -> tuple[bytes, bytes, int]:
    """A header whose value is null, or that has a length of more than a byte: name, value, the position behind."""
    number, position = _folded(data, position)
    name = data[position : position + (number >> 1)]
    position += number >> 1
    if data[position] == _NULL_LENGTH:
        return name, b"", position + 1
    number, position = _folded(data, position)
    return name, data[position : position + (number >> 1)], position + (number >> 1)


def _level(value: bytes, otherwise: int) -> int:
    found = maybe_parse_priority(value)
    return otherwise if found is None else found
