"""Descriptions of queues, for `describe` and `listing`, and of single records, for `peek`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sparrow.broker.queues.rules.record_state import BLOCKED, DELAYED, LEASED, MOVING, READY, STATE_MASK

if TYPE_CHECKING:
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.rules.subscriber import SubscriberState
    from sparrow.records.record import Record


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A connected consumer."""

    consumer_id: str
    client_name: str
    subscriber: str
    leased: int


@dataclass(frozen=True, slots=True)
class SubscriberStatistics:
    """Number of records of one subscriber, by state."""

    ready: int
    leased: int
    delayed: int
    blocked: int


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """Number of records now (of an "all of" queue: the largest number of a subscriber, where they
    differ), and of events since the broker started.
    """

    ready: int = 0
    """Includes records that were not scanned yet, which may turn out to be delayed or blocked."""
    leased: int = 0
    delayed: int = 0
    blocked: int = 0
    """Wait for unfinished parents, or for an earlier record of their key."""
    moving: int = 0
    """Being moved to the dead letters."""
    unfinished: int = 0
    """Sum of all of these."""
    oldest_ms: int = -1
    """Age of the oldest unfinished record; -1: there is none, or its log would have to be read from
    the disk.
    """
    oldest_by_priority: dict[int, int] = field(default_factory=dict)
    """Age of the oldest ready record of each priority."""
    dead: int = 0
    """Unfinished records in the queue on the dead-letter topic."""
    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0
    rejected: int = 0
    dead_lettered: int = 0
    expired: int = 0
    dropped: int = 0
    """Could not be handled, and there is no dead-letter topic."""
    lost: int = 0
    """Deleted by retention before they were finished."""
    published_rate: float = 0.0
    """Per second, over the last ten seconds or so."""
    delivered_rate: float = 0.0
    acknowledged_rate: float = 0.0
    consumers: list[ConsumerInfo] = field(default_factory=list)
    subscribers: dict[str, SubscriberStatistics] = field(default_factory=dict)
    """Statistics by subscriber, for an "all of" queue."""


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """Description of one queue."""

    name: str
    id: str
    kind: str
    """ "queue", "share" (a Kafka share group) or "dead" (of a dead-letter topic)."""
    topics: tuple[str, ...]
    policy: dict[str, object]
    is_paused: bool
    statistics: QueueStatistics


class Peeked(NamedTuple):
    """A record and its state, as `peek` returns it."""

    topic: str
    partition: int
    offset: int
    state: str
    delivery_count: int
    priority: int
    consumer: str
    """The consumer that has it leased, or had it last."""
    deliver_at_ms: int
    """0: not delayed by its publisher."""
    error: str
    """The error of the last delivery."""
    record: Record


def describe(queue: Queue, dead: int) -> QueueInfo:
    """Return the description of a queue. `dead`: unfinished records on the dead-letter topic."""
    queue.scanner.catch_up(at_once=True)
    definition = queue.definition
    return QueueInfo(
        definition.name,
        str(definition.id),
        definition.kind,
        definition.topics,
        definition.policy.settings(),
        definition.is_paused,
        _statistics(queue, dead),
    )


def _statistics(queue: Queue, dead: int) -> QueueStatistics:
    subscribers = list(queue.state.subscribers.values())
    unscanned = sum(queue.unscanned(source) for source in queue.sources if not source.is_gone)
    rates = queue.rates.per_second()
    wall_ms = queue.now()[1]
    return QueueStatistics(
        ready=_most(subscribers, READY) + unscanned,
        leased=_most(subscribers, LEASED),
        delayed=_most(subscribers, DELAYED),
        blocked=_most(subscribers, BLOCKED),
        moving=_most(subscribers, MOVING),
        unfinished=max(subscriber.unfinished for subscriber in subscribers) + unscanned,
        oldest_ms=_oldest(queue, subscribers, wall_ms),
        oldest_by_priority=_oldest_by_priority(queue, subscribers, wall_ms),
        dead=dead,
        delivered=sum(subscriber.tally.delivered for subscriber in subscribers),
        redelivered=sum(subscriber.tally.redelivered for subscriber in subscribers),
        acknowledged=sum(subscriber.tally.acknowledged for subscriber in subscribers),
        rejected=sum(subscriber.tally.rejected for subscriber in subscribers),
        dead_lettered=sum(subscriber.tally.dead for subscriber in subscribers),
        expired=sum(subscriber.tally.expired for subscriber in subscribers),
        dropped=sum(subscriber.tally.dropped for subscriber in subscribers),
        lost=sum(subscriber.tally.lost for subscriber in subscribers),
        published_rate=round(rates[0], 1),
        delivered_rate=round(rates[1], 1),
        acknowledged_rate=round(rates[2], 1),
        consumers=[
            ConsumerInfo(each.id, each.client_name, each.subscriber, each.leased)
            for each in queue.consumers.values()
        ],
        subscribers={
            name: SubscriberStatistics(
                subscriber.counts[READY] + unscanned,
                subscriber.counts[LEASED],
                subscriber.counts[DELAYED],
                subscriber.counts[BLOCKED],
            )
            for name, subscriber in queue.state.subscribers.items()
            if name
        },
    )


def _most(subscribers: list[SubscriberState], state: int) -> int:
    return max(subscriber.counts[state] for subscriber in subscribers)


def _oldest(queue: Queue, subscribers: list[SubscriberState], wall_ms: int) -> int:
    times: list[int] = []
    for source in queue.sources:
        if source.is_gone:
            continue
        first = min(subscriber.starts[source.number] for subscriber in subscribers)
        if first < source.visible_end(committed=queue.is_committed_only):
            times.append(source.timestamp_at(first))
    known = [time for time in times if time >= 0]
    return max(0, wall_ms - min(known)) if known else -1


def _oldest_by_priority(queue: Queue, subscribers: list[SubscriberState], wall_ms: int) -> dict[int, int]:
    oldest: dict[int, int] = {}
    for subscriber in subscribers:
        for level, number, offset in subscriber.ready.peek():
            source = queue.sources[number]
            if source.is_gone or subscriber.value_at(number, offset) & STATE_MASK != READY:
                continue
            time = source.timestamp_at(offset)
            if time >= 0:
                oldest[level] = max(oldest.get(level, 0), wall_ms - time)
    return dict(sorted(oldest.items(), reverse=True))
