"""Reading of granted records from their logs.

Records that retention deleted meanwhile are finished. Those that cannot be read are tried again
later, and their delivery counts, so that they do not keep others from being handed out; or they
stop the queue (`on_corrupt=fail`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from sparrow.base.errors import CorruptBatch, OffsetOutOfRange, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sparrow.base.clock import Clock
    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.corruption_stop import CorruptionStop
    from sparrow.broker.queues.rules.state import QueueState
    from sparrow.broker.queues.rules.subscriber import Grant
    from sparrow.broker.queues.source import QueueSource

_LOG = logging.getLogger(__name__)


class Reading(NamedTuple):
    """Result of reading granted records."""

    found: list[tuple[QueueSource, list[Grant], bytes | memoryview]]
    """For each source, the grants that can be handed out, and the batches with their records."""
    taken: list[Grant]
    left: list[Grant]
    """Grants that did not fit, or could not be read."""


class GrantReader:
    """Reader of one queue. Loop thread only.

    Args:
        sources: of the queue, by their numbers; it may grow.
    """

    def __init__(
        self, state: QueueState, sources: Sequence[QueueSource], stop: CorruptionStop, clock: Clock
    ) -> None:
        self._state = state
        self._sources = sources
        self._stop = stop
        self._clock = clock

    async def read(self, consumer: QueueConsumer, grants: list[Grant], max_bytes: int) -> Reading:
        """Read at most about `max_bytes` of what was granted, but at least a record."""
        reading = Reading([], [], [])
        for granted in _as_in_log(grants, by_level=not consumer.takes_by_offset):
            source = self._sources[granted[0].source]
            data, had = await self._read_source(consumer, source, granted, max_bytes)
            taken, left = _split(granted, had)
            reading.taken.extend(taken)
            reading.left.extend(left)
            if taken:
                max_bytes -= sum(map(len, data))
                reading.found.append((source, taken, data[0] if len(data) == 1 else b"".join(data)))
        return reading

    async def _read_source(
        self, consumer: QueueConsumer, source: QueueSource, granted: list[Grant], max_bytes: int
    ) -> tuple[list[bytes | memoryview], int]:
        if max_bytes <= 0:
            return [], 0
        try:
            data, had = await source.read([(grant.first, grant.end) for grant in granted], max_bytes)
            corrupt = await self._stop.maybe_corrupt(source, data) if self._stop.applies else None
        except OffsetOutOfRange:  # retention was faster
            self._state.lost(source.number, source.partition.start_offset)
            return [], 0
        except UnknownTopic:
            return [], 0
        except CorruptBatch as error:
            self._retry_later(consumer, source, granted, error)
            return [], 0
        if corrupt is not None:
            self._stop.halt(source, corrupt)
            before = [
                grant._replace(end=min(grant.end, corrupt.base_offset))
                for grant in granted
                if grant.first < corrupt.base_offset
            ]
            return await self._read_source(consumer, source, before, max_bytes) if before else ([], 0)
        source.measured(sum(map(len, data)), had)
        return data, had

    def _retry_later(
        self, consumer: QueueConsumer, source: QueueSource, granted: list[Grant], error: CorruptBatch
    ) -> None:
        _LOG.error(
            "queue %r cannot read what it leased of %s: %s", self._state.name, source.partition.id, error.text
        )
        subscriber = self._state.subscribers[consumer.subscriber]
        now_ms = round(self._clock.monotonic() * 1000)
        for grant in filter(subscriber.still_leased, granted):
            runs = subscriber.leased_runs(consumer.id, grant.source, grant.first, grant.end)
            subscriber.nack(grant.source, runs, now_ms, self._state.policy.lease_ms, error.text)


def _as_in_log(grants: list[Grant], *, by_level: bool) -> Collection[list[Grant]]:
    """Return the grants of each source by offset, as batches lie in the log, those of each level by
    themselves if the highest are to be read first.
    """
    if len(grants) == 1:
        return (grants,)
    groups: dict[tuple[int, int], list[Grant]] = {}
    for grant in grants:
        groups.setdefault((grant.level if by_level else 0, grant.source), []).append(grant)
    for granted in groups.values():
        granted.sort(key=lambda grant: grant.first)
    return groups.values()


def _split(granted: list[Grant], had: int) -> tuple[list[Grant], list[Grant]]:
    """Return the first `had` records of the grants, and the rest."""
    taken: list[Grant] = []
    for index, grant in enumerate(granted):
        size = grant.end - grant.first
        if had < size:
            cut = grant.first + had
            if had:
                taken.append(grant._replace(end=cut))
            return taken, [grant._replace(first=cut), *granted[index + 1 :]]
        taken.append(grant)
        had -= size
    return taken, []
