"""Reads records that die, and writes their dead letters."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import CorruptBatch, OffsetOutOfRange, UnknownTopic
from sparrow.broker.queues.deadletters import Content, Death, Style, dead_letter, letter_without_content
from sparrow.broker.queues.parcels import cut, readable_records
from sparrow.broker.queues.values import MARK_SHIFT, MOVING, STATE_MASK, count_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.broker.queues.lane import Lane, Run
    from sparrow.broker.queues.parcels import Range
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.source import Source
    from sparrow.records.record import Record

_LOG = logging.getLogger(__name__)
_LETTERS_PER_TURN: Final = 200


async def write_letters(
    queue: Queue, subscriber: str, source: Source, ranges: list[Range], *, style: Style, max_bytes: int
) -> tuple[dict[int, Content], list[Range]]:
    """The dead letters of the first of the records in these ranges, by offset, and the ranges of those that are left.

    Records that are not there any more end without one. One whose batch cannot be read has a letter without content.

    Raises:
        CorruptBatch: something of several records cannot be read; ask for each by itself.
        StorageFailed, Overloaded: the disk cannot read them, or keep them, now.
    """
    if source.is_gone:
        return {}, []
    try:
        data, had = await source.read(ranges, max_bytes)
        records, broken = readable_records(data, source)
    except OffsetOutOfRange:  # retention was faster
        queue.state.lost(source.number, source.partition.start_offset)
        queue.changed()
        return {}, [run[:2] for run in dying(queue.state.lanes[subscriber], source.number, ranges)]
    except UnknownTopic:
        return {}, []
    except CorruptBatch as error:
        if sum(end - first for first, end in ranges) > 1:
            raise
        _LOG.warning("a dead letter of queue %r has no content: %s", queue.name, error.text)
        records, broken, had = {}, ranges, 1
    covered, left = cut(ranges, had)
    if not covered:
        return {}, left
    # Else, after a loss of power, there might be a letter of a record that never was, and whoever wrote that might write it again.
    await source.partition.log.durable(covered[-1][1])
    letters = await _written(queue, subscriber, source, covered, records=records, broken=broken, style=style)
    return letters, left


async def _written(
    queue: Queue,
    subscriber: str,
    source: Source,
    ranges: list[Range],
    *,
    records: dict[int, Record],
    broken: list[Range],
    style: Style,
) -> dict[int, Content]:
    lane = queue.state.lanes[subscriber]
    letters: dict[int, Content] = {}
    deaths = [
        (first, end, _death(queue, lane, subscriber, source, value))
        for first, end, value in dying(lane, source.number, ranges)
    ]
    for first, end, death in deaths:
        for offset in range(first, end):
            record = records.get(offset)
            if record is not None:
                letters[offset] = dead_letter(record, death, style)
            elif any(a <= offset < b for a, b in broken):
                letters[offset] = letter_without_content(offset, death, style)
            else:  # compaction took it
                lane.tally.lost += lane.discard(source.number, offset, offset + 1, (MOVING,))
            if len(letters) % _LETTERS_PER_TURN == 0:
                await asyncio.sleep(0)
    return letters


def _death(queue: Queue, lane: Lane, subscriber: str, source: Source, value: int) -> Death:
    mark = lane.marks[value >> MARK_SHIFT]
    return Death(
        queue.name,
        subscriber,
        source.topic,
        source.index,
        mark.reason,
        mark.error,
        count_of(value),
        mark.first_ms,
        mark.last_ms,
    )


def dying(lane: Lane, source: int, ranges: Iterable[Range]) -> list[Run]:
    """The runs of these ranges that are on their way to the dead letters."""
    return [
        run
        for first, end in ranges
        if end > lane.starts[source]
        for run in lane.maps[source].runs(max(first, lane.starts[source]), end)
        if run[2] & STATE_MASK == MOVING and not lane.is_set_aside(run[2])
    ]
