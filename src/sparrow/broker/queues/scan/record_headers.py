"""Delivery options of records, read from the batches in the log.

Most batches ask nothing of a queue: their records are ready as soon as they are there, in the order
of their offsets. Such batches are *plain*, and a whole stretch of them is one piece that costs
nothing per record. A batch is plain if none of the well-known header names (`records/wellknown.py`)
occurs in it (`batches.py` finds that out).

The others are read record by record: key, times, priority, ids. No record objects are made, and
values are skipped.

Nothing here raises for what the log contains. A batch that is malformed, or becomes too large when
decompressed, counts as plain: its records are delivered as they are, rather than never.

Pure, and in steps: finding a piece takes a few milliseconds at most (decompressing one batch
aside), so that the caller can let other tasks run between two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import CorruptBatch
from sparrow.broker.queues.rules.delivery_info import DeliveryInfo
from sparrow.broker.queues.scan.batches import Batches, are_plain
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

    from sparrow.broker.queues.scan.batches import Batch

PIECE_RECORDS: Final = 256
"""Maximum number of records that one piece describes one by one (half a millisecond of work)."""
DEFAULT_MAX_BYTES: Final = 16 << 20
"""Maximum size of a batch when it is decompressed."""

_NULL_LENGTH: Final = 1
"""The varint of -1, still zigzag encoded."""
_PIECE_WORK_BYTES: Final = 512 << 10
"""A plain piece ends when it took more work than that (see `Batches.work_bytes`), some 2 ms."""
_PIECE_HEADERS_BYTES: Final = 64 << 10
"""A piece ends when it has more headers than that: they take longer than their record."""
_MAX_REMEMBERED: Final = 256
_MAX_REMEMBERED_BYTES: Final = 128
_new: Final = tuple.__new__
"""Makes `DeliveryInfo` of a tuple, in half of the time that its own constructor takes."""

Piece = tuple[int, int, list[DeliveryInfo] | None]
"""Offsets [first, end), and their records. None: all are plain. A list: each record by itself; at
offsets that are not in it there is no record.
"""


class Interest(NamedTuple):
    """Fields that a queue must know of every record, so that no batch is plain."""

    keys: bool = False
    """The key, for a queue with order by key."""
    ids: bool = False
    """The id, for a parented queue."""
    ages: bool = False
    """The timestamp, as records expire at an age."""


NO_INTEREST: Final = Interest()


def hash_of(content: bytes) -> int:
    """Return the hash by which a queue knows a key or an id: signed 64 bit, never 0. Another
    process hashes differently.
    """
    return hash(content) or 1


def look(
    data: bytes | memoryview,
    first: int,
    next_offset: int,
    interest: Interest = NO_INTEREST,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Iterator[Piece]:
    """Return the records of [first, next_offset), in pieces that cover exactly these offsets in
    order.

    Args:
        data: whole batches, back to back, as in the log. Some may be missing (aborted ones): there
            are no records then. Offsets before `first` or from `next_offset` on are left out.
        max_bytes: a batch that becomes larger when it is decompressed counts as plain.
    """
    looks_always = any(interest)
    if not looks_always and are_plain(data, first, next_offset):
        return iter(((first, next_offset, None),))
    return _pieces(Batches(data, max_bytes, looks_always=looks_always), first, next_offset)


def _pieces(batches: Batches, first: int, next_offset: int) -> Iterator[Piece]:
    """Yield pieces as `look`: plain neighbours are joined."""
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
    """Yield pieces as `look`, but do not join plain neighbours."""
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
    """Yield the records of one batch at offsets [start, end), each by itself. Records from a
    malformed one on count as plain.
    """
    try:
        for piece_end, infos in _walk(body, batch, start, end):
            if start < piece_end:
                yield start, piece_end, infos
            start = piece_end
    except (CorruptBatch, IndexError):
        yield start, end, None


def _walk(  # noqa: C901, PLR0912, PLR0915 - one loop without calls is the point
    data: bytes, batch: Batch, first: int, end: int
) -> Iterator[tuple[int, list[DeliveryInfo]]]:
    """Yield the records at offsets [first, end), piece by piece: the end of the piece, and its
    records.

    Raises:
        CorruptBatch, IndexError: they are malformed.
    """
    infos: list[DeliveryInfo] = []
    options_by: dict[bytes, _Options] = {}
    size, base_offset, base_timestamp = len(data), batch.base_offset, batch.base_timestamp
    common_timestamp = batch.timestamp
    timestamp = common_timestamp or 0
    position = headers_bytes = 0
    due = base_offset
    for _ in range(batch.record_count):
        start = position
        # Numbers stay zigzag encoded (twice themselves when natural, odd when negative) as long as
        # that will do.
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
        # one of three bytes, or a negative one
        if (length | stamp | delta) > 0x3FFF or (length | delta) & 1:
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
            infos.append(_new(DeliveryInfo, (offset, timestamp, key, 0, DEFAULT_PRIORITY, 0, 0, (), "")))
        else:
            headers = data[position:record_end]
            headers_bytes += len(headers)
            options = options_by.get(headers) or _cached_options(options_by, headers)
            infos.append(_new(DeliveryInfo, (offset, timestamp, key, *options)))
        if len(infos) == PIECE_RECORDS or headers_bytes > _PIECE_HEADERS_BYTES:
            yield due, infos
            infos, headers_bytes = [], 0
        position = record_end
    yield end, infos


def _numbers(data: bytes, position: int) -> tuple[int, int, int, int, int]:
    """Return length, timestamp delta and offset delta of a record, zigzag encoded; the position of
    its attributes and the length of its key.
    """
    length, attributes_at = decode_varint(data, position)
    stamp, position = decode_varlong(data, attributes_at + 1)
    delta, position = decode_varint(data, position)
    if length < 0 or delta < 0:
        raise CorruptBatch(f"record of {length} bytes before byte {position}")
    return length << 1, stamp << 1 if stamp >= 0 else (-stamp << 1) - 1, delta << 1, attributes_at, position


def _folded(data: bytes, position: int) -> tuple[int, int]:
    """Return a length that is not negative, and the position behind it."""
    number, position = decode_varint(data, position)
    if number < 0:
        raise CorruptBatch(f"length {number} before byte {position}")
    return number << 1, position


# ── headers ───────────────────────────────────────────────────────────────────────────────────────

_Options = tuple[int, int, int, int, tuple[int, ...], str]
"""Delivery options of headers: the fields of `DeliveryInfo` from `deliver_at_ms` on."""

_NOTHING: Final[_Options] = (0, DEFAULT_PRIORITY, 0, 0, (), "")


def _cached_options(options_by: dict[bytes, _Options], headers: bytes) -> _Options:
    """Return the options of these headers. They are cached unless they have ids: the next record
    likely has the same headers.
    """
    options = _options_in(headers)
    if not options[3] and len(headers) <= _MAX_REMEMBERED_BYTES and len(options_by) < _MAX_REMEMBERED:
        options_by[headers] = options
    return options


def _options_in(data: bytes) -> _Options:  # noqa: C901, PLR0912 - one loop without calls is the point
    """Return the delivery options in the headers of one record."""
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
    """Return name, value and end of a header whose value is null, or that has a length of more than
    a byte.
    """
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
