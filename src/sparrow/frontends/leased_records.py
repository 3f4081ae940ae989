"""The records of a lease, for frontends that deliver records instead of batches."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.records.batch import parse_header
from sparrow.records.readable import decode_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparrow.base.errors import CorruptBatch
    from sparrow.broker.corrupt_batches import CorruptBatches
    from sparrow.broker.queues.rules.settlement import Leased, LeasedRange
    from sparrow.records.record import Record

MAX_PLAIN_BYTES: Final = 64 << 20
"""The largest decompressed size of the records of one batch."""
_LARGE_BYTES: Final = 64 << 10
"""Larger data, and compressed data of any size, are decoded in a thread."""
_offset_of = attrgetter("offset")


class DeliveredRecord(NamedTuple):
    """A leased record and the number of its deliveries, this one included."""

    record: Record
    delivery_count: int


class Unreadable(NamedTuple):
    """A batch that cannot be read, and its leased ranges as (first, last, delivery count)."""

    error: CorruptBatch
    ranges: list[LeasedRange]


class LeasedRecords(NamedTuple):
    """The decoded contents of a lease."""

    records: list[DeliveredRecord]
    """Ordered by offset."""
    missing: list[LeasedRange]
    """Ranges (first, last, delivery count) of leased offsets without records in the log, as
    compaction leaves them. There is nothing to deliver, so they should be acknowledged.
    """
    unreadable: list[Unreadable]
    """Input of `settle_unreadable`."""


async def read_leased(leased: Leased) -> LeasedRecords:
    """Decode the leased records, in a thread if that takes long, and report unreadable batches."""
    if len(leased.data) <= _LARGE_BYTES and not is_compressed(leased):
        return decode_leased(leased)
    return await asyncio.to_thread(decode_leased, leased)


def decode_leased(leased: Leased) -> LeasedRecords:
    """Decode as `read_leased` does, on the calling thread."""
    if not leased.ranges:
        return LeasedRecords([], [], [])
    least, most = leased.ranges[0][0], leased.ranges[-1][1]
    readable = decode_batches(leased.data, leased.topic, leased.partition, max_bytes=MAX_PLAIN_BYTES)
    records = [record for record in readable.records if least <= record.offset <= most]
    ranges, unreadable = _without_unreadable(leased.ranges, readable.corrupt)
    found = LeasedRecords([], [], unreadable)
    position = 0
    for first, last, count in ranges:
        expected = first
        position = bisect_left(records, first, position, key=_offset_of)
        while position < len(records) and records[position].offset <= last:
            record = records[position]
            if record.offset > expected:
                found.missing.append((expected, record.offset - 1, count))
            found.records.append(DeliveredRecord(record, count))
            expected = record.offset + 1
            position += 1
        if expected <= last:
            found.missing.append((expected, last, count))
    return found


def _without_unreadable(
    ranges: list[LeasedRange], corrupt: Iterable[CorruptBatch]
) -> tuple[list[LeasedRange], list[Unreadable]]:
    """Return the ranges without the offsets of corrupt batches, and those that were cut out."""
    unreadable: list[Unreadable] = []
    for error in corrupt:
        inside: list[LeasedRange] = []
        outside: list[LeasedRange] = []
        for first, last, count in ranges:
            start, end = max(first, error.base_offset), min(last, error.next_offset - 1)
            if start > end:
                outside.append((first, last, count))
                continue
            inside.append((start, end, count))
            outside += [
                each for each in ((first, start - 1, count), (end + 1, last, count)) if each[0] <= each[1]
            ]
        if inside:
            unreadable.append(Unreadable(error, inside))
        ranges = outside
    return ranges, unreadable


def settle_unreadable(
    leased: Leased,
    unreadable: Iterable[Unreadable],
    corrupt_batches: CorruptBatches,
    delay_ms: Callable[[int], int] | None = None,
) -> list[Settlement]:
    """Return settlements for unreadable records: they become dead letters at once, as no later
    delivery can succeed.

    Records that are only too large for this listener, or damaged on the disk, count as a failed
    delivery. They are retried after the lease time, or after `delay_ms` of the delivery count.
    """
    settlements: list[Settlement] = []
    for error, ranges in unreadable:
        verb = verb_for_unreadable(error)
        corrupt_batches.met("queue", verb.name.lower(), error)
        settlements += [
            Settlement(
                verb,
                leased.topic,
                leased.partition,
                first,
                last,
                -1 if verb is not Verb.NACK else delay_ms(count) if delay_ms else leased.lease_ms,
                f"{error.code}: {error.text}",
                count,
            )
            for first, last, count in ranges
        ]
    return settlements


def verb_for_unreadable(error: CorruptBatch) -> Verb:
    """Return REJECT for records that no reader can decode, NACK if another attempt or another
    reader may succeed.
    """
    return Verb.REJECT if error.offset >= 0 else Verb.NACK


def is_compressed(leased: Leased) -> bool:
    """Return True if a leased batch is compressed, so that it may grow far beyond its size."""
    return any(parse_header(leased.data, position).compression for position, _ in _batch_spans(leased.data))


def split_by_batch(leased: Leased) -> list[Leased]:
    """Split a lease by batch. Ranges outside of all batches go with the next batch, or the last
    one.
    """
    spans = list(_batch_spans(leased.data))
    view, parts = memoryview(leased.data), []
    waiting = list(reversed(leased.ranges))
    for number, (position, end) in enumerate(spans, 1):
        last = parse_header(leased.data, position).last_offset if number < len(spans) else 1 << 63
        ranges: list[LeasedRange] = []
        while waiting and waiting[-1][0] <= last:
            first, until, count = waiting.pop()
            ranges.append((first, min(until, last), count))
            if until > last:
                waiting.append((last + 1, until, count))
        if ranges:
            parts.append(leased._replace(ranges=ranges, data=view[position:end]))
    return parts


def _batch_spans(data: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each batch in `data`."""
    position = 0
    while position < len(data):
        end = position + parse_header(data, position).size_bytes
        yield position, end
        position = end
