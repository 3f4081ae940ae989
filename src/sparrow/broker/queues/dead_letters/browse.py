"""Read the dead letters of one queue, among those of others that share its dead-letter topic,
without changing them.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import InvalidArgument
from sparrow.broker.queues import peek
from sparrow.broker.queues.dead_letters.format import DEAD_LETTER_PREFIX, maybe_origin
from sparrow.broker.queues.rules.record_state import STATE_MASK, STATES
from sparrow.broker.queues.rules.state import ONE_OF
from sparrow.model.queues import DeadLetter, DeadLetterGroup, DeadLetterSummary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sparrow.broker.queues.dead_letters.format import Origin
    from sparrow.broker.queues.dead_letters.redrive import RedriveFilter
    from sparrow.broker.queues.queue import Queue
    from sparrow.records.record import Record

MAX_LOOKED_AT: Final = 10_000
"""Maximum number of records that one call looks at, shown or not."""
MAX_GROUPS: Final = 200
MAX_TOPICS: Final = 20
_PURGED_AT_ONCE: Final = 500
_RECORDS_PER_READ: Final = 16
"""Number of records to read at a time: each may be as large as a topic allows."""
_WANTED: Final = frozenset(STATES.index(state) for state in peek.PEEKED_STATES)


class DeadLetterPage(NamedTuple):
    """Some dead letters. `next_skip`: number of records to skip to see those that follow; -1: there
    are no more.
    """

    dead_letters: list[DeadLetter]
    next_skip: int


async def browse(
    dead: Queue,
    name: str,
    where: RedriveFilter,
    max_records: int,
    *,
    skip: int = 0,
    max_bytes: int = peek.MAX_BYTES,
) -> DeadLetterPage:
    """Return the dead letters of the queue `name` that match, from the queue on its dead-letter
    topic.

    Args:
        skip: number of records to leave out, whichever queue they came from.
        max_bytes: estimated maximum size of the records; at least one is returned.

    Raises:
        InvalidArgument: too many records, a negative `skip`, or `dead` has subscribers.
    """
    dead.scanner.catch_up(at_once=True)
    subscriber_state = dead.state.subscribers.get(ONE_OF)
    if not 0 < max_records <= peek.MAX_RECORDS or skip < 0 or subscriber_state is None:
        raise InvalidArgument(
            f"{max_records} dead letters after {skip} of {dead.name!r}: 1 to {peek.MAX_RECORDS} "
            "are shown at a time, none or more"
            " left out, of a queue without subscribers"
        )
    found: list[DeadLetter] = []
    for _ in range(0, MAX_LOOKED_AT, _RECORDS_PER_READ):
        positions = list(islice(peek.positions_in(subscriber_state, _WANTED, skip), _RECORDS_PER_READ))
        if not positions:
            return DeadLetterPage(found, -1)
        records = await peek.records_of(dead, positions, 1 << 62)
        for position in positions:
            skip += 1
            record = records.get(position[:2])
            origin = None if record is None else maybe_origin(record)
            if record is None or origin is None or origin.queue != name:
                continue
            if where.matches(record, origin) and where.key in (None, record.key):
                found.append(_dead_letter(STATES[position.value & STATE_MASK], record, origin))
                max_bytes -= peek.size_of(record)
                if len(found) == max_records or max_bytes <= 0:
                    return DeadLetterPage(found, skip)
        await asyncio.sleep(0)
    return DeadLetterPage(found, skip)


async def summarize(dead: Queue, name: str, *, skip: int = 0) -> DeadLetterSummary:
    """Return the dead letters of the queue `name` by reason and error, of the next
    `MAX_LOOKED_AT` records of the queue on its dead-letter topic.

    Errors beyond `MAX_GROUPS` are one group.
    """
    groups: dict[tuple[str, str], DeadLetterGroup] = {}
    looked_at = 0
    async for _, letter, origin in _letters(dead, name, skip):
        looked_at += 1
        if letter is None or origin is None:
            continue
        key = (origin.reason, origin.error)
        if key not in groups and len(groups) >= MAX_GROUPS:
            key = ("", "others")
        old = groups.get(key) or DeadLetterGroup(*key, 0, letter.timestamp, letter.timestamp)
        groups[key] = DeadLetterGroup(
            *key,
            old.count + 1,
            min(old.first_ms, letter.timestamp),
            max(old.last_ms, letter.timestamp),
            old.topics if origin.topic in old.topics else [*old.topics, origin.topic][:MAX_TOPICS],
        )
        if looked_at >= MAX_LOOKED_AT:
            break
    next_skip = skip + looked_at if looked_at >= MAX_LOOKED_AT else -1
    ordered = sorted(groups.values(), key=lambda each: -each.count)
    return DeadLetterSummary(ordered, looked_at, next_skip)


async def purge(dead: Queue, name: str, where: RedriveFilter) -> int:
    """Finish the dead letters of the queue `name` that match and are not leased, among those that
    are there now. Return their number; durable when it returns.
    """
    chosen = [
        (position.source, letter.offset)
        async for position, letter, origin in _letters(dead, name, 0)
        if letter is not None
        and origin is not None
        and where.matches(letter, origin)
        and where.key in (None, letter.key)
    ]
    purged = 0
    for start in range(0, len(chosen), _PURGED_AT_ONCE):
        for source, offset in chosen[start : start + _PURGED_AT_ONCE]:
            purged += dead.state.purge_range(source, offset, offset + 1)
        dead.changed()
        await asyncio.sleep(0)
        dead.check_open()
    await dead.writer.flushed()
    return purged


async def _letters(
    dead: Queue, name: str, skip: int
) -> AsyncIterator[tuple[peek.RecordPosition, Record | None, Origin | None]]:
    """Yield all records on a dead-letter topic that are not finished; without record and origin
    those of other queues.
    """
    dead.scanner.catch_up(at_once=True)
    subscriber_state = dead.state.subscribers[ONE_OF]
    positions = list(peek.positions_in(subscriber_state, _WANTED, skip))
    for start in range(0, len(positions), _RECORDS_PER_READ):
        portion = positions[start : start + _RECORDS_PER_READ]
        records = await peek.records_of(dead, portion, 1 << 62)
        for position in portion:
            record = records.get(position[:2])
            origin = None if record is None else maybe_origin(record)
            is_ours = origin is not None and origin.queue == name
            yield (position, record, origin) if is_ours else (position, None, None)
        await asyncio.sleep(0)


def _dead_letter(state: str, letter: Record, origin: Origin) -> DeadLetter:
    """Return a dead letter as it is shown, without the headers that repeat its origin."""
    return DeadLetter(
        letter.topic,
        letter.partition,
        letter.offset,
        letter.timestamp,
        letter.key,
        letter.value,
        tuple(each for each in letter.headers if not each[0].startswith(DEAD_LETTER_PREFIX)),
        state,
        origin.reason,
        origin.error,
        origin.delivery_count,
        origin.subscriber,
        origin.topic,
        origin.partition,
        origin.offset,
        origin.timestamp_ms,
        origin.first_delivery_ms,
        origin.last_delivery_ms,
    )
