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
from sparrow.model.queues import DeadLetter

if TYPE_CHECKING:
    from sparrow.broker.queues.dead_letters.format import Origin
    from sparrow.broker.queues.dead_letters.redrive import RedriveFilter
    from sparrow.broker.queues.queue import Queue
    from sparrow.records.record import Record

MAX_LOOKED_AT: Final = 10_000
"""Maximum number of records that one call looks at, shown or not."""
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
