"""Looking at the records of a queue without taking them."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.broker.queues.description import Peeked
from sparrow.broker.queues.values import (
    MARK_SHIFT,
    STATE_MASK,
    STATES,
    count_of,
    level_of,
)
from sparrow.records.batch import split
from sparrow.records.compression import DEFAULT_MAX_BYTES
from sparrow.records.record import decode
from sparrow.records.wellknown import DELIVER_AT, parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sparrow.broker.queues.lane import Lane
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.source import Source
    from sparrow.records.record import Record

PEEKED_STATES: Final = ("ready", "leased", "delayed", "blocked", "moving")
MAX_RECORDS: Final = 10_000
MAX_BYTES: Final = 16 << 20
"""Of the records of one peek; one comes at least."""
MAX_PLAIN_BYTES: Final = 64 << 20
"""What the records of a batch that is shown may become when decompressed; larger ones are left out."""
_PORTION: Final = 256
"""Records that are read between two turns of the loop."""


class Place(NamedTuple):
    """Where a record is, and how it stands."""

    source: int
    offset: int
    value: int
    consumer: str
    error: str


async def peek(
    queue: Queue,
    max_records: int,
    states: Sequence[str],
    *,
    subscriber: str = "",
    skip: int = 0,
    max_bytes: int = MAX_BYTES,
) -> list[Peeked]:
    """The records that are in one of the states: ready ones in the order in which they will be leased, then the others by offset.

    Args:
        subscriber: one that the queue has.
        max_bytes: about so many bytes of records: fewer records where they are large, but one at least.

    Raises:
        InvalidArgument: no such state, too many records, or a negative `skip`.
    """
    if not 0 < max_records <= MAX_RECORDS:
        raise InvalidArgument(f"peek shows 1 to {MAX_RECORDS} records at a time, not {max_records}")
    if skip < 0:
        raise InvalidArgument(f"peek leaves out 0 records or more, not {skip}")
    unknown = [state for state in states if state not in PEEKED_STATES]
    if unknown:
        raise InvalidArgument(
            f"there is no state {unknown[0]!r} to peek at; there are {', '.join(PEEKED_STATES)}"
        )
    queue.scanner.catch_up(at_once=True)
    lane = queue.state.lanes[subscriber]
    wanted = frozenset(STATES.index(state) for state in states)
    places = list(islice(places_in(lane, wanted, skip), max_records))
    peeked: list[Peeked] = []
    for start in range(0, len(places), _PORTION):
        portion = places[start : start + _PORTION]
        records = await records_of(queue, portion, max_bytes)
        peeked += [as_peeked(place, records[place[:2]]) for place in portion if place[:2] in records]
        max_bytes -= sum(map(size_of, records.values()))
        if max_bytes <= 0:
            break
        await asyncio.sleep(0)
    return peeked


def places_in(lane: Lane, wanted: frozenset[int], skip: int) -> Iterator[Place]:
    """The records in these states, but for the first so many. The queue may not change meanwhile."""
    for source, first, end, value in _runs(lane, wanted):
        if skip >= end - first:
            skip -= end - first
            continue
        mark = lane.marks.get(value >> MARK_SHIFT)
        consumer, error = (mark.consumer, mark.error) if mark is not None else ("", "")
        for offset in range(first + skip, end):
            yield Place(source, offset, value, consumer, error)
        skip = 0


def _runs(lane: Lane, wanted: frozenset[int]) -> Iterator[tuple[int, int, int, int]]:
    """Source, first offset, the one behind the last, value."""
    ready = STATES.index("ready")
    if ready in wanted:
        for _, source, first, end in lane.ready.ranges():
            for a, b, value in lane.maps[source].runs(first, end):
                if value & STATE_MASK == ready:
                    yield source, a, b, value
    others = wanted - {ready}
    for source, runs in enumerate(lane.maps) if others else ():
        for page in runs.pages():
            for a, b, value in runs.page_runs(page):
                first = max(a, lane.starts[source])
                if value & STATE_MASK in others and first < b:
                    yield source, first, b, value


async def records_of(queue: Queue, places: Iterable[Place], max_bytes: int) -> dict[tuple[int, int], Record]:
    """The records that are there, by source and offset, of about so many bytes."""
    by_source: dict[int, list[int]] = {}
    for place in places:
        by_source.setdefault(place.source, []).append(place.offset)
    found: dict[tuple[int, int], Record] = {}
    for number, offsets in by_source.items():
        records = await records_at(queue.sources[number], sorted(offsets), max_bytes)
        found |= {(number, offset): record for offset, record in records.items()}
        max_bytes -= sum(map(size_of, records.values()))
        if max_bytes <= 0:
            break
    return found


async def records_at(
    source: Source, offsets: Sequence[int], max_bytes: int, *, max_plain_bytes: int = MAX_PLAIN_BYTES
) -> dict[int, Record]:
    """The records at these offsets (in order), by offset; without those that are gone or cannot be read.

    Args:
        max_bytes: when about so many bytes were read no more are; one record comes at least.
    """
    found: dict[int, Record] = {}
    if source.is_gone:
        return found
    left = list(offsets)
    while left and max_bytes > 0:
        try:
            parts, had = await source.read(_joined(left), max_bytes)
            found |= _decoded(source, parts, frozenset(left[:had]), max_plain_bytes)
            max_bytes -= sum(map(len, parts))
        except SparrowError:  # one of them at least: the others are read by themselves
            if len(left) > 1:
                found |= await records_at(source, left[:1], max_bytes, max_plain_bytes=max_plain_bytes)
            had = 1
        left = left[had:]
    return found


def _joined(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Offsets as ranges [first, end)."""
    ranges: list[tuple[int, int]] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return ranges


def _decoded(
    source: Source, parts: Iterable[bytes | memoryview], wanted: frozenset[int], max_plain_bytes: int
) -> dict[int, Record]:
    return {
        record.offset: record
        for data in parts
        for _, batch in split(data)
        for record in decode(batch, source.topic, source.index, max_bytes=max_plain_bytes)
        if record.offset in wanted
    }


def as_peeked(place: Place, record: Record) -> Peeked:
    """What is shown of a record."""
    deliver_at_ms = next((parse_time_ms(v) for name, v in record.headers if name == DELIVER_AT and v), 0)
    return Peeked(
        record.topic,
        record.partition,
        place.offset,
        STATES[place.value & STATE_MASK],
        count_of(place.value),
        level_of(place.value),
        place.consumer,
        deliver_at_ms,
        place.error,
        record,
    )


def size_of(record: Record) -> int:
    """Bytes of its content."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


async def record_at(source: Source, offset: int) -> Record | None:
    """The record at an offset; None if it is gone or cannot be read."""
    found = await records_at(source, (offset,), 1, max_plain_bytes=DEFAULT_MAX_BYTES)
    return found.get(offset)
