"""Look at the records of a queue without taking them."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.broker.queues.rules.record_state import (
    LEASE_SHIFT,
    STATE_MASK,
    STATES,
    count_of,
    level_of,
)
from sparrow.model.queues import PeekedRecord
from sparrow.records.compression import DEFAULT_MAX_BYTES
from sparrow.records.readable import decode_batches
from sparrow.records.wellknown import DELIVER_AT, parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.rules.subscriber import SubscriberState
    from sparrow.broker.queues.source import QueueSource
    from sparrow.records.record import Record

PEEKED_STATES: Final = ("ready", "leased", "delayed", "blocked", "moving")
MAX_RECORDS: Final = 10_000
MAX_BYTES: Final = 16 << 20
"""Maximum size of the records of one peek. At least one record is returned."""
MAX_PLAIN_BYTES: Final = 64 << 20
"""Maximum decompressed size of a batch. Records of larger batches are left out."""
_RECORDS_PER_READ: Final = 256
"""Number of records to read before other tasks run."""


class RecordPosition(NamedTuple):
    """Position and state of a record."""

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
) -> list[PeekedRecord]:
    """Return the records that are in one of the states: ready ones in the order in which they will
    be leased, then the others by offset.

    Args:
        subscriber: one that the queue has.
        max_bytes: estimated maximum size of the records; at least one is returned.

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
    subscriber_state = queue.state.subscribers[subscriber]
    wanted = frozenset(STATES.index(state) for state in states)
    positions = list(islice(positions_in(subscriber_state, wanted, skip), max_records))
    peeked: list[PeekedRecord] = []
    for start in range(0, len(positions), _RECORDS_PER_READ):
        portion = positions[start : start + _RECORDS_PER_READ]
        records = await records_of(queue, portion, max_bytes)
        peeked += [
            as_peeked(position, records[position[:2]]) for position in portion if position[:2] in records
        ]
        max_bytes -= sum(map(size_of, records.values()))
        if max_bytes <= 0:
            break
        await asyncio.sleep(0)
    return peeked


def positions_in(
    subscriber_state: SubscriberState, wanted: frozenset[int], skip: int
) -> Iterator[RecordPosition]:
    """Yield the records in these states, except the first `skip` ones. The queue must not change
    meanwhile.
    """
    for source, first, end, value in _runs(subscriber_state, wanted):
        if skip >= end - first:
            skip -= end - first
            continue
        lease = subscriber_state.leases.by_number.get(value >> LEASE_SHIFT)
        consumer, error = (lease.consumer, lease.error) if lease is not None else ("", "")
        for offset in range(first + skip, end):
            yield RecordPosition(source, offset, value, consumer, error)
        skip = 0


def _runs(subscriber_state: SubscriberState, wanted: frozenset[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield (source, first offset, end, value)."""
    ready = STATES.index("ready")
    if ready in wanted:
        for _, source, first, end in subscriber_state.ready.ranges():
            for a, b, value in subscriber_state.maps[source].runs(first, end):
                if value & STATE_MASK == ready:
                    yield source, a, b, value
    others = wanted - {ready}
    for source, runs in enumerate(subscriber_state.maps) if others else ():
        for page in runs.pages():
            for a, b, value in runs.page_runs(page):
                first = max(a, subscriber_state.starts[source])
                if value & STATE_MASK in others and first < b:
                    yield source, first, b, value


async def records_of(
    queue: Queue, positions: Iterable[RecordPosition], max_bytes: int
) -> dict[tuple[int, int], Record]:
    """Return the records that can be read, by source and offset, of about this many bytes."""
    by_source: dict[int, list[int]] = {}
    for position in positions:
        by_source.setdefault(position.source, []).append(position.offset)
    found: dict[tuple[int, int], Record] = {}
    for number, offsets in by_source.items():
        records = await records_at(queue.sources[number], sorted(offsets), max_bytes)
        found |= {(number, offset): record for offset, record in records.items()}
        max_bytes -= sum(map(size_of, records.values()))
        if max_bytes <= 0:
            break
    return found


async def records_at(
    source: QueueSource, offsets: Sequence[int], max_bytes: int, *, max_plain_bytes: int = MAX_PLAIN_BYTES
) -> dict[int, Record]:
    """Return the records at these offsets (sorted), by offset, without those that are gone or
    cannot be read.

    Args:
        max_bytes: stop after about this many bytes; at least one record is returned.
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
    """Return offsets as ranges [first, end)."""
    ranges: list[tuple[int, int]] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return ranges


def _decoded(
    source: QueueSource, parts: Iterable[bytes | memoryview], wanted: frozenset[int], max_plain_bytes: int
) -> dict[int, Record]:
    return {
        record.offset: record
        for data in parts
        for record in decode_batches(data, source.topic, source.index, max_bytes=max_plain_bytes).records
        if record.offset in wanted
    }


def as_peeked(position: RecordPosition, record: Record) -> PeekedRecord:
    """Return what `peek` shows of a record."""
    deliver_at_ms = next((parse_time_ms(v) for name, v in record.headers if name == DELIVER_AT and v), 0)
    return PeekedRecord(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        record.headers,
        STATES[position.value & STATE_MASK],
        count_of(position.value),
        level_of(position.value),
        position.consumer,
        deliver_at_ms,
        position.error,
    )


def size_of(record: Record) -> int:
    """Return the number of bytes of its content."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


async def record_at(source: QueueSource, offset: int) -> Record | None:
    """Return the record at an offset; None if it is gone or cannot be read."""
    found = await records_at(source, (offset,), 1, max_plain_bytes=DEFAULT_MAX_BYTES)
    return found.get(offset)
