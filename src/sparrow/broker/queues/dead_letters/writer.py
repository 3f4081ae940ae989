"""Read dead records, and write their dead letters."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import CorruptBatch, OffsetOutOfRange, UnknownTopic
from sparrow.broker.queues.dead_letters.batches import cut, readable_records
from sparrow.broker.queues.dead_letters.format import (
    Content,
    Death,
    Style,
    dead_letter,
    dead_letter_without_content,
)
from sparrow.broker.queues.rules.record_state import LEASE_SHIFT, MOVING, STATE_MASK, count_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.broker.queues.dead_letters.batches import Range
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.rules.subscriber import Run, SubscriberState
    from sparrow.broker.queues.source import QueueSource
    from sparrow.records.record import Record

_LOG = logging.getLogger(__name__)
_DEAD_LETTERS_AT_ONCE: Final = 200


async def write_dead_letters(
    queue: Queue, subscriber: str, source: QueueSource, ranges: list[Range], *, style: Style, max_bytes: int
) -> tuple[dict[int, Content], list[Range]]:
    """Return the dead letters of the first records in these ranges, by offset, and the ranges of
    the records that are left.

    A record that is gone has no dead letter. One whose batch cannot be read has a dead letter
    without content.

    Raises:
        CorruptBatch: one of several records cannot be read; call it for each by itself.
        StorageFailed, Overloaded: the disk cannot read them, or write them, now.
    """
    if source.is_gone:
        return {}, []
    try:
        data, had = await source.read(ranges, max_bytes)
        records, broken = readable_records(data, source)
    except OffsetOutOfRange:  # retention was faster
        queue.state.lost(source.number, source.partition.start_offset)
        queue.changed()
        return {}, [run[:2] for run in dying(queue.state.subscribers[subscriber], source.number, ranges)]
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
    # Else, after a power failure, there might be a dead letter of a record that was never written,
    # and its producer might write it again.
    await source.partition.log.durable(covered[-1][1])
    dead_letters = await _written(
        queue, subscriber, source, covered, records=records, broken=broken, style=style
    )
    return dead_letters, left


async def _written(
    queue: Queue,
    subscriber: str,
    source: QueueSource,
    ranges: list[Range],
    *,
    records: dict[int, Record],
    broken: list[Range],
    style: Style,
) -> dict[int, Content]:
    subscriber_state = queue.state.subscribers[subscriber]
    dead_letters: dict[int, Content] = {}
    deaths = [
        (first, end, _death(queue, subscriber_state, subscriber, source, value))
        for first, end, value in dying(subscriber_state, source.number, ranges)
    ]
    for first, end, death in deaths:
        for offset in range(first, end):
            record = records.get(offset)
            if record is not None:
                dead_letters[offset] = dead_letter(record, death, style)
            elif any(a <= offset < b for a, b in broken):
                dead_letters[offset] = dead_letter_without_content(offset, death, style)
            else:  # compaction took it
                subscriber_state.tally.lost += subscriber_state.discard(
                    source.number, offset, offset + 1, (MOVING,)
                )
            if len(dead_letters) % _DEAD_LETTERS_AT_ONCE == 0:
                await asyncio.sleep(0)
    return dead_letters


def _death(
    queue: Queue, subscriber_state: SubscriberState, subscriber: str, source: QueueSource, value: int
) -> Death:
    lease = subscriber_state.leases.by_number[value >> LEASE_SHIFT]
    return Death(
        queue.name,
        subscriber,
        source.topic,
        source.index,
        lease.reason,
        lease.error,
        count_of(value),
        lease.first_ms,
        lease.last_ms,
    )


def dying(subscriber_state: SubscriberState, source: int, ranges: Iterable[Range]) -> list[Run]:
    """Return the runs of these ranges that are on their way to the dead letters."""
    return [
        run
        for first, end in ranges
        if end > subscriber_state.starts[source]
        for run in subscriber_state.maps[source].runs(max(first, subscriber_state.starts[source]), end)
        if run[2] & STATE_MASK == MOVING and not subscriber_state.is_redriving(run[2])
    ]
