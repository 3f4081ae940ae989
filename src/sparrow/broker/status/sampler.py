"""Samples of a broker: running totals of everything that counts, and rates between two samples.

A sample reads what the parts count anyway. Messages and bytes have totals of their own
(`Measures`), so that no sample walks over the topics; their sizes are added up now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import SparrowError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparrow.broker.composition import Parts
    from sparrow.broker.measures import Measures
    from sparrow.broker.queues.queue import Queue
    from sparrow.storage.store import LogStore

RATES: Final = ("messages_in", "messages_out", "bytes_in", "bytes_out", "delivered", "acknowledged")
"""Series that are rates of running totals."""
GAUGES: Final = ("connections", "bytes", "free_bytes", "unfinished", "dead", "sync_p50_ms", "sync_p99_ms")
QUEUE_RATES: Final = ("published", "delivered", "acknowledged")
QUEUE_GAUGES: Final = ("unfinished",)


class Totals(NamedTuple):
    """Running totals since the start of the broker."""

    counts: tuple[int, ...]
    """In the order of `RATES`."""
    syncs: tuple[int, ...]
    """Syncs by their bound, cumulative."""


class Sampler:
    """Reads the totals of a broker's parts. Loop thread only."""

    def __init__(self, parts: Parts, measures: Measures, logs: LogStore) -> None:
        self._parts = parts
        self._measures = measures
        self._logs = logs
        self._sized_at_s = float("-inf")
        self._unsized = 0
        """Published bytes that are in no open log, when sizes were added up last."""

    def totals(self) -> Totals:
        """Return the totals now."""
        delivered = acknowledged = 0
        for queue in self._parts.queue_registry:
            for subscriber in queue.state.subscribers.values():
                delivered += subscriber.tally.delivered
                acknowledged += subscriber.tally.acknowledged
        syncs = tuple(self._logs.sync_times.cumulative())
        of_all = self._measures
        counts = (of_all.messages_in, of_all.messages_out, of_all.bytes_in, of_all.bytes_out)
        return Totals((*counts, delivered, acknowledged), syncs)

    def size_bytes(self, now_s: float, max_age_s: float) -> int:
        """Return the bytes of all open logs: added up if the last time is longer ago than
        `max_age_s`, else with what was published since.
        """
        published = self._measures.bytes_in
        if now_s - self._sized_at_s > max_age_s:
            self._sized_at_s = now_s
            self._unsized = published - sum(
                partition.log.size_bytes
                for topic in self._parts.topic_registry
                for partition in topic.partitions
                if partition.is_open
            )
        return published - self._unsized

    def connections(self) -> dict[str, int]:
        """Return the number of open connections, by listener."""
        return {name: each.connections() for name, each in self._measures.frontends.items()}

    def free_bytes(self) -> int:
        """Return the free bytes of the device; -1 if it does not say."""
        try:
            return self._logs.free_bytes()
        except SparrowError:
            return -1

    def total_bytes(self) -> int:
        """Return the bytes of the device; -1 if it does not say."""
        try:
            return self._logs.total_bytes()
        except SparrowError:
            return -1

    def jobs(self) -> tuple[int, int]:
        """Return the unfinished records of all queues but those of dead letters, and the dead
        letters.
        """
        unfinished = dead = 0
        for queue in self._parts.queue_registry:
            if queue.definition.kind == "dead":
                dead += queue.unfinished
            else:
                unfinished += queue.unfinished
        return unfinished, dead

    def queues(self) -> Iterator[tuple[str, Queue, tuple[int, int, int]]]:
        """Yield each queue by its id, with its running totals in the order of `QUEUE_RATES`."""
        for queue in list(self._parts.queue_registry):
            tallies = [each.tally for each in queue.state.subscribers.values()]
            published = sum(source.partition.records_in for source in queue.sources if not source.is_gone)
            yield (
                str(queue.definition.id),
                queue,
                (published, sum(t.delivered for t in tallies), sum(t.acknowledged for t in tallies)),
            )


def rates_between(before: Totals, after: Totals, seconds: float) -> dict[str, float]:
    """Return the rates per second. A deleted queue takes its counts along: no rate is negative."""
    return {
        name: max(0, new - old) / seconds if seconds > 0 else 0.0
        for name, old, new in zip(RATES, before.counts, after.counts, strict=True)
    }


def quantile_ms(bounds_s: Sequence[float], before: Sequence[int], after: Sequence[int], part: float) -> float:
    """Return the upper bound (ms) under which a part of the values between two cumulative counts
    lie; -1 if there are none, twice the last bound if they lie above all.
    """
    counts = [new - old for old, new in zip(before, after, strict=True)]
    if not counts or counts[-1] <= 0:
        return -1.0
    for bound, count in zip(bounds_s, counts, strict=False):
        if count >= part * counts[-1]:
            return round(bound * 1000, 3)
    return round(bounds_s[-1] * 2000, 3)
