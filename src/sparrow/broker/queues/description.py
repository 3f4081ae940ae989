"""What can be known of a queue: for `describe` and `listing`, and what `peek` shows of single records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sparrow.broker.queues.values import BLOCKED, DELAYED, LEASED, MOVING, READY, STATE_MASK

if TYPE_CHECKING:
    from sparrow.broker.queues.lane import Lane
    from sparrow.broker.queues.queue import Queue
    from sparrow.records.record import Record


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A consumer that is connected."""

    consumer_id: str
    client_name: str
    subscriber: str
    leased: int


@dataclass(frozen=True, slots=True)
class LaneStatistics:
    """Records of one subscriber, by state."""

    ready: int
    leased: int
    delayed: int
    blocked: int


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """Counts of records now (of an "all of" queue: the largest of its subscribers', where they differ), and of events since the
    broker started."""

    ready: int = 0
    """With those that were not looked at yet, which may turn out to be delayed or blocked."""
    leased: int = 0
    delayed: int = 0
    blocked: int = 0
    """By parents that are not finished, or by an earlier record of their key."""
    moving: int = 0
    """On their way to the dead letters."""
    unfinished: int = 0
    """All of these together."""
    oldest_ms: int = -1
    """Age of the oldest unfinished record; -1: there is none, or its log would have to be read from the disk."""
    oldest_by_priority: dict[int, int] = field(default_factory=dict)
    """Age of the oldest ready record of each priority."""
    dead: int = 0
    """Records in the queue on the dead-letter topic that are not finished."""
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
    """Per second, over the last ten seconds about."""
    delivered_rate: float = 0.0
    acknowledged_rate: float = 0.0
    consumers: list[ConsumerInfo] = field(default_factory=list)
    subscribers: dict[str, LaneStatistics] = field(default_factory=dict)
    """Of an "all of" queue."""


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """What is known of one queue."""

    name: str
    id: str
    kind: str
    """ "queue", "share" (a Kafka share group) or "dead" (of a dead-letter topic)."""
    topics: tuple[str, ...]
    policy: dict[str, object]
    is_paused: bool
    statistics: QueueStatistics


class Peeked(NamedTuple):
    """A record, and how it stands; to look at it changes nothing."""

    topic: str
    partition: int
    offset: int
    state: str
    delivery_count: int
    priority: int
    consumer: str
    """Who has it leased, or had it last."""
    deliver_at_ms: int
    """0: it is not delayed by its publisher."""
    error: str
    """What went wrong the last time."""
    record: Record


def describe(queue: Queue, dead: int) -> QueueInfo:
    """Everything that is known now; `dead`: unfinished records on the dead-letter topic."""
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
    lanes = list(queue.state.lanes.values())
    unscanned = sum(queue.unscanned(source) for source in queue.sources if not source.is_gone)
    rates = queue.rates.per_second()
    wall_ms = queue.now()[1]
    return QueueStatistics(
        ready=_most(lanes, READY) + unscanned,
        leased=_most(lanes, LEASED),
        delayed=_most(lanes, DELAYED),
        blocked=_most(lanes, BLOCKED),
        moving=_most(lanes, MOVING),
        unfinished=max(lane.unfinished for lane in lanes) + unscanned,
        oldest_ms=_oldest(queue, lanes, wall_ms),
        oldest_by_priority=_oldest_by_priority(queue, lanes, wall_ms),
        dead=dead,
        delivered=sum(lane.tally.delivered for lane in lanes),
        redelivered=sum(lane.tally.redelivered for lane in lanes),
        acknowledged=sum(lane.tally.acknowledged for lane in lanes),
        rejected=sum(lane.tally.rejected for lane in lanes),
        dead_lettered=sum(lane.tally.dead for lane in lanes),
        expired=sum(lane.tally.expired for lane in lanes),
        dropped=sum(lane.tally.dropped for lane in lanes),
        lost=sum(lane.tally.lost for lane in lanes),
        published_rate=round(rates[0], 1),
        delivered_rate=round(rates[1], 1),
        acknowledged_rate=round(rates[2], 1),
        consumers=[
            ConsumerInfo(each.id, each.client_name, each.subscriber, each.leased)
            for each in queue.consumers.values()
        ],
        subscribers={
            name: LaneStatistics(
                lane.counts[READY] + unscanned,
                lane.counts[LEASED],
                lane.counts[DELAYED],
                lane.counts[BLOCKED],
            )
            for name, lane in queue.state.lanes.items()
            if name
        },
    )


def _most(lanes: list[Lane], state: int) -> int:
    return max(lane.counts[state] for lane in lanes)


def _oldest(queue: Queue, lanes: list[Lane], wall_ms: int) -> int:
    times: list[int] = []
    for source in queue.sources:
        if source.is_gone:
            continue
        first = min(lane.starts[source.number] for lane in lanes)
        if first < source.visible_end(committed=queue.is_committed_only):
            times.append(source.timestamp_at(first))
    known = [time for time in times if time >= 0]
    return max(0, wall_ms - min(known)) if known else -1


def _oldest_by_priority(queue: Queue, lanes: list[Lane], wall_ms: int) -> dict[int, int]:
    oldest: dict[int, int] = {}
    for lane in lanes:
        for level, number, offset in lane.ready.peek():
            source = queue.sources[number]
            if source.is_gone or lane.value_at(number, offset) & STATE_MASK != READY:
                continue
            time = source.timestamp_at(offset)
            if time >= 0:
                oldest[level] = max(oldest.get(level, 0), wall_ms - time)
    return dict(sorted(oldest.items(), reverse=True))
