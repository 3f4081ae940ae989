"""Looking at the dead letters of one queue, among those of others that share its dead-letter topic. Nothing changes by it."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import InvalidArgument
from sparrow.broker.queues import peeking
from sparrow.broker.queues.deadletters import maybe_origin
from sparrow.broker.queues.state import ONE_OF
from sparrow.broker.queues.values import STATES

if TYPE_CHECKING:
    from sparrow.broker.queues.deadletters import Origin
    from sparrow.broker.queues.description import Peeked
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.redrive import RedriveFilter

MAX_LOOKED_AT: Final = 10_000
"""Records in one call, whether they are shown or not."""
_PORTION: Final = 16
"""Records that are read at a time: each may be as large as a topic allows."""
_WANTED: Final = frozenset(STATES.index(state) for state in peeking.PEEKED_STATES)


class DeadLetter(NamedTuple):
    """A dead letter as it stands in the queue on the dead-letter topic, and what it tells of its record."""

    peeked: Peeked
    origin: Origin


class DeadLetters(NamedTuple):
    """Some dead letters. `next_skip`: how many records to leave out to see those that follow; -1: there were no more."""

    letters: list[DeadLetter]
    next_skip: int


async def browse(
    dead: Queue,
    name: str,
    where: RedriveFilter,
    max_records: int,
    *,
    skip: int = 0,
    max_bytes: int = peeking.MAX_BYTES,
) -> DeadLetters:
    """Dead letters of the queue `name` in the queue on its dead-letter topic: those that match.

    Args:
        skip: leave out so many records, of whichever queue they are.
        max_bytes: about so many bytes of records; one comes at least.

    Raises:
        InvalidArgument: too many records, a negative `skip`, or `dead` has subscribers.
    """
    dead.scanner.catch_up(at_once=True)
    lane = dead.state.lanes.get(ONE_OF)
    if not 0 < max_records <= peeking.MAX_RECORDS or skip < 0 or lane is None:
        raise InvalidArgument(
            f"{max_records} dead letters after {skip} of {dead.name!r}: 1 to {peeking.MAX_RECORDS} are shown at a time, none or more"
            " left out, of a queue without subscribers"
        )
    found: list[DeadLetter] = []
    for _ in range(0, MAX_LOOKED_AT, _PORTION):
        places = list(islice(peeking.places_in(lane, _WANTED, skip), _PORTION))
        if not places:
            return DeadLetters(found, -1)
        records = await peeking.records_of(dead, places, 1 << 62)
        for place in places:
            skip += 1
            record = records.get(place[:2])
            origin = None if record is None else maybe_origin(record)
            if record is None or origin is None or origin.queue != name:
                continue
            if where.matches(record, origin) and where.key in (None, record.key):
                found.append(DeadLetter(peeking.as_peeked(place, record), origin))
                max_bytes -= peeking.size_of(record)
                if len(found) == max_records or max_bytes <= 0:
                    return DeadLetters(found, skip)
        await asyncio.sleep(0)
    return DeadLetters(found, skip)
