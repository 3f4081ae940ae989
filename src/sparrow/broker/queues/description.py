"""Descriptions of queues, for `describe` and `listing`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.broker.queues.rules.record_state import BLOCKED, DELAYED, LEASED, MOVING, READY, STATE_MASK
from sparrow.model.queues import QueueConsumerListing, QueueDescription, QueueStatistics, SubscriberStatistics

if TYPE_CHECKING:
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.rules.subscriber import SubscriberState


def describe(queue: Queue, dead: int) -> QueueDescription:
    """Return the description of a queue. `dead`: unfinished records on the dead-letter topic."""
    queue.scanner.catch_up(at_once=True)
    definition = queue.definition
    return QueueDescription(
        definition.name,
        str(definition.id),
        definition.kind,
        [*definition.topics],
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
            QueueConsumerListing(each.id, each.client_name, each.subscriber, each.leased)
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


def oldest_by_priority(queue: Queue) -> dict[int, int]:
    """Return the age in ms of the oldest ready record of each priority."""
    return _oldest_by_priority(queue, list(queue.state.subscribers.values()), queue.now()[1])


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
