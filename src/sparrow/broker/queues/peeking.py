"""Looking at the records of a queue without taking them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.broker.queues.description import Peeked
from sparrow.broker.queues.values import (
    MARK_SHIFT,
    STATE_MASK,
    STATES,
    count_of,
    level_of,
)
from sparrow.records.batch import parse_header
from sparrow.records.record import decode
from sparrow.records.wellknown import DELIVER_AT, parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparrow.broker.queues.lane import Lane
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.source import Source
    from sparrow.records.record import Record

PEEKED_STATES: Final = ("ready", "leased", "delayed", "blocked", "moving")
MAX_RECORDS: Final = 10_000
_READ_BYTES: Final = 64 << 10

_Place = tuple[int, int, int]
"""Source, offset, value."""


async def peek(
    queue: Queue, max_records: int, states: Sequence[str], subscriber: str, skip: int = 0
) -> list[Peeked]:
    """The records that are in one of the states: ready ones in the order in which they will be leased, then the others by offset.

    Raises:
        InvalidArgument: no such state or subscriber, or too many records.
    """
    if not 0 < max_records <= MAX_RECORDS:
        raise InvalidArgument(f"peek shows 1 to {MAX_RECORDS} records at a time, not {max_records}")
    unknown = [state for state in states if state not in PEEKED_STATES]
    if unknown:
        raise InvalidArgument(
            f"there is no state {unknown[0]!r} to peek at; there are {', '.join(PEEKED_STATES)}"
        )
    lane = queue.state.lanes.get(subscriber)
    if lane is None:
        raise InvalidArgument(f"queue {queue.name!r} has no subscriber {subscriber!r}")
    wanted = frozenset(STATES.index(state) for state in states)
    places: list[_Place] = []
    for place in _places(lane, wanted):
        if skip:
            skip -= 1
            continue
        places.append(place)
        if len(places) == max_records:
            break
    shown = [await _peeked(queue, lane, place) for place in places]
    return [each for each in shown if each is not None]


def _places(lane: Lane, wanted: frozenset[int]) -> Iterator[_Place]:
    ready = STATES.index("ready")
    if ready in wanted:
        for _, source, first, end in lane.ready.ranges():
            for a, b, value in lane.maps[source].runs(first, end):
                if value & STATE_MASK == ready:
                    yield from ((source, offset, value) for offset in range(a, b))
    others = wanted - {ready}
    for source, runs in enumerate(lane.maps) if others else ():
        for page in runs.pages():
            for a, b, value in runs.page_runs(page):
                if value & STATE_MASK in others:
                    yield from ((source, offset, value) for offset in range(max(a, lane.starts[source]), b))


async def _peeked(queue: Queue, lane: Lane, place: _Place) -> Peeked | None:
    number, offset, value = place
    source = queue.sources[number]
    mark = lane.marks.get(value >> MARK_SHIFT)
    consumer, error = (mark.consumer, mark.error) if mark is not None else ("", "")
    record = None if source.is_gone else await record_at(source, offset)
    if record is None:
        return None
    deliver_at_ms = next((parse_time_ms(v) for name, v in record.headers if name == DELIVER_AT and v), 0)
    return Peeked(
        source.topic,
        source.index,
        offset,
        STATES[value & STATE_MASK],
        count_of(value),
        level_of(value),
        consumer,
        deliver_at_ms,
        error,
        record,
    )


async def record_at(source: Source, offset: int) -> Record | None:
    """The record at an offset; None if it is gone or cannot be read."""
    try:
        chunk = source.partition.log.read_nowait(offset, _READ_BYTES)
        if chunk is None:
            chunk = await source.partition.log.read(offset, _READ_BYTES)
        if not chunk.data:
            return None
        first = parse_header(chunk.data)
        records = decode(
            memoryview(chunk.data)[: first.size_bytes], source.topic, source.index, min_offset=offset
        )
    except SparrowError:
        return None
    return records[0] if records and records[0].offset == offset else None
