"""The records that a lease brought, for doors that hand out records and not batches."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.records.batch import parse_header
from sparrow.records.record import Record, decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.broker.queues.settlement import Leased

MAX_PLAIN_BYTES: Final = 64 << 20
"""What the records of one batch may become when decompressed."""
_LARGE_BYTES: Final = 64 << 10
"""More than this is decoded in a thread, and so is what is compressed."""
_offset_of = attrgetter("offset")


class Handed(NamedTuple):
    """A record that was leased, and which delivery of it this is."""

    record: Record
    delivery_count: int


class LeasedRecords(NamedTuple):
    """What a lease brought."""

    records: list[Handed]
    """By offset."""
    missing: list[tuple[int, int, int]]
    """(first, last, delivery count) of offsets that are leased and that the log has no records for, as compaction leaves them: nothing is to be
    done there, so they are to be acknowledged."""


async def read_leased(leased: Leased) -> LeasedRecords:
    """The records that were leased.

    Raises:
        CorruptBatch, UnsupportedCompression, RecordTooLarge: nobody can read them.
    """
    if len(leased.data) <= _LARGE_BYTES and not is_compressed(leased):
        return decode_leased(leased)
    return await asyncio.to_thread(decode_leased, leased)


def decode_leased(leased: Leased) -> LeasedRecords:
    """As `read_leased`, on the thread that calls."""
    if not leased.ranges:
        return LeasedRecords([], [])
    view = memoryview(leased.data)
    least, most = leased.ranges[0][0], leased.ranges[-1][1]
    records = [
        record
        for position, end in _places(leased.data)
        for record in decode(view[position:end], leased.topic, leased.partition, max_bytes=MAX_PLAIN_BYTES)
        if least <= record.offset <= most
    ]
    found = LeasedRecords([], [])
    position = 0
    for first, last, count in leased.ranges:
        expected = first
        position = bisect_left(records, first, position, key=_offset_of)
        while position < len(records) and records[position].offset <= last:
            record = records[position]
            if record.offset > expected:
                found.missing.append((expected, record.offset - 1, count))
            found.records.append(Handed(record, count))
            expected = record.offset + 1
            position += 1
        if expected <= last:
            found.missing.append((expected, last, count))
    return found


def is_compressed(leased: Leased) -> bool:
    """Whether what was leased may become far larger than it is."""
    return any(parse_header(leased.data, position).compression for position, _ in _places(leased.data))


def parts_of(leased: Leased) -> list[Leased]:
    """The same by the batches that it is in; what is in none goes with the one after it, or the last."""
    places = list(_places(leased.data))
    view, parts = memoryview(leased.data), []
    waiting = list(reversed(leased.ranges))
    for number, (position, end) in enumerate(places, 1):
        last = parse_header(leased.data, position).last_offset if number < len(places) else 1 << 63
        ranges: list[tuple[int, int, int]] = []
        while waiting and waiting[-1][0] <= last:
            first, until, count = waiting.pop()
            ranges.append((first, min(until, last), count))
            if until > last:
                waiting.append((last + 1, until, count))
        if ranges:
            parts.append(leased._replace(ranges=ranges, data=view[position:end]))
    return parts


def _places(data: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Where each batch begins and ends."""
    position = 0
    while position < len(data):
        end = position + parse_header(data, position).size_bytes
        yield position, end
        position = end
