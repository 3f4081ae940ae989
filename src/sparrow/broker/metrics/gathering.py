"""Gathers the values of all metrics, in slices: the loop does something else every two milliseconds, however many partitions there are.

What the scraper may not describe is left out. The number of values is bounded: the first `max_names` topics, groups, queues and endpoints, by name,
have values of their own, what the others have is summed under the empty name; partitions are summed, unless they are asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from time import perf_counter
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import SparrowError
from sparrow.base.version import version
from sparrow.broker.access.authz import CLUSTER_NAME, Operation, Principal, ResourceType, require
from sparrow.broker.groups.description import GroupType
from sparrow.broker.metrics import table
from sparrow.broker.queues.values import BLOCKED, DELAYED, LEASED, MOVING, READY

if TYPE_CHECKING:
    from sparrow.base.histogram import Histogram
    from sparrow.broker.broker import Broker
    from sparrow.broker.metrics.table import Metric
    from sparrow.broker.partition import Partition
    from sparrow.broker.queues.lane import Lane
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.topics import Topic
    from sparrow.meta.store import MetaStore
    from sparrow.storage.store import LogId, LogStore

MAX_NAMES: Final = 1_000
MAX_DETAILS: Final = 20_000
"""Values by partition of each metric, at most."""
_SLICE_S: Final = 0.002
_SORTED_AT_ONCE: Final = 2_000
_SHOWN: Final = {"ready": READY, "leased": LEASED, "delayed": DELAYED, "blocked": BLOCKED, "moving": MOVING}

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram as it was: (upper bound, values up to it), the last without a bound; and the sum."""

    buckets: tuple[tuple[float, int], ...]
    total: float


Values = dict[Labels, "float | Distribution"]
Gathered = dict["Metric", Values]
"""By metric the values by labels. Metrics without a value are there, too."""


class Slices:
    """Lets others have the loop now and then."""

    def __init__(self, slice_s: float = _SLICE_S) -> None:
        self._slice_s = slice_s
        self._over_at = perf_counter() + slice_s

    async def pause(self) -> None:
        """Go on, or let others go first if this slice is over."""
        if perf_counter() >= self._over_at:
            await asyncio.sleep(0)
            self._over_at = perf_counter() + self._slice_s


class Gathering:
    """`broker.metrics`. Loop thread only.

    Args:
        written: logs that had data when the broker started; others that are not open are empty.
    """

    def __init__(self, broker: Broker, logs: LogStore, meta: MetaStore, written: frozenset[LogId]) -> None:
        self._broker = broker
        self._logs = logs
        self._meta = meta
        self._written = written

    async def gather(
        self, principal: Principal, *, max_names: int = MAX_NAMES, by_partition: bool = False
    ) -> Gathered:
        """Everything, as the principal may see it.

        Raises:
            NotAuthorized: it may not describe the cluster.
        """
        require(self._broker.authorizer, principal, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        round_ = _Round(self._broker, self._written, principal, max_names, by_partition=by_partition)
        self._gather_stores(round_)
        await round_.gather()
        return round_.values

    def _gather_stores(self, to: _Round) -> None:
        to.put(table.SYNC_SECONDS, (), _distribution(self._logs.sync_times))
        to.put(table.META_COMMIT_SECONDS, (), _distribution(self._meta.commit_times))
        to.add(table.DISK_REFUSES, (), self._logs.refusal() is not None)
        try:
            to.add(table.DISK_FREE, (), self._logs.free_bytes())
            to.add(table.DISK_SIZE, (), self._logs.total_bytes())
        except SparrowError:  # the device says nothing; then neither do we
            return


class _Round:
    """One gathering."""

    def __init__(
        self,
        broker: Broker,
        written: frozenset[LogId],
        principal: Principal,
        max_names: int,
        *,
        by_partition: bool,
    ) -> None:
        self.values: Gathered = {metric: {} for metric in table.ALL}
        self._broker = broker
        self._written = written
        self._principal = principal
        self._max_names = max_names
        self._by_partition = by_partition
        self._slices = Slices()
        self._visible: dict[str, bool] = {}

    def put(self, metric: Metric, labels: Labels, value: Distribution) -> None:
        self.values[metric][labels] = value

    def add(self, metric: Metric, labels: Labels, value: float) -> None:
        """Values of the same labels are summed, or the largest is taken."""
        values = self.values[metric]
        old = values.get(labels)
        if old is None:
            values[labels] = value
        elif not isinstance(old, Distribution):
            values[labels] = max(old, value) if metric.is_largest else old + value

    def _detail(self, metric: Metric, labels: Labels, value: float) -> None:
        if self._by_partition and len(self.values[metric]) < MAX_DETAILS:
            self.values[metric][labels] = value

    async def _named(self, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Names in order, with the label that they have: their own, or none any more."""
        unsorted = list(names)
        pieces: list[list[str]] = []
        for start in range(0, len(unsorted), _SORTED_AT_ONCE):
            pieces.append(sorted(unsorted[start : start + _SORTED_AT_ONCE]))
            await self._slices.pause()
        return (
            (name, name if number < self._max_names else "") for number, name in enumerate(merge(*pieces))
        )

    def _may_describe(self, kind: ResourceType, name: str) -> bool:
        return self._broker.authorizer.allows(self._principal, Operation.DESCRIBE, kind, name)

    def _sees_topic(self, name: str) -> bool:
        visible = self._visible.get(name)
        if visible is None:
            visible = self._visible[name] = self._may_describe(ResourceType.TOPIC, name)
        return visible

    async def gather(self) -> None:
        self._broker_itself()
        await self._topics()
        await self._groups()
        await self._queues()
        await self._transactions()
        await self._sinks()
        await self._webhooks()
        await self._pipelines()

    # ── the broker ────────────────────────────────────────────────────────────────────────────────

    def _broker_itself(self) -> None:
        broker, measures = self._broker, self._broker.measures
        self.add(table.BUILD, (version(),), 1)
        self.add(table.START_TIME, (), broker.started_at_ms / 1000)
        self.add(table.IDEMPOTENCY_KEYS, (), len(broker.idempotency))
        self.put(table.APPEND_SECONDS, (), _distribution(measures.append))
        self.put(table.PUBLISH_SECONDS, (), _distribution(measures.publish))
        for door in measures.doors.values():
            self.add(table.CONNECTIONS, (door.name,), door.connections())
            for request, times in sorted(door.requests.items()):
                self.put(table.REQUEST_SECONDS, (door.name, request), _distribution(times))
                self.add(table.REQUEST_FAILURES, (door.name, request), door.failures[request])

    async def _transactions(self) -> None:
        for found in self._broker.transactions.coordinator.all():
            await self._slices.pause()
            if self._may_describe(ResourceType.TRANSACTIONAL_ID, found.transactional_id):
                self.add(table.TRANSACTIONS, (found.state.value,), 1)

    async def _sinks(self) -> None:
        coordinator = self._broker.sinks.coordinator
        stages = 0
        for found in coordinator.all():
            await self._slices.pause()
            if self._may_describe(ResourceType.TRANSACTIONAL_ID, found.sink_id):
                self.add(table.SINKS, (found.kind,), 1)
                stages += len(coordinator.stages.of_sink(found.sink_id))
        self.add(table.SINK_STAGES, (), stages)
        counts = coordinator.counts
        self.add(table.SINK_COMMITS, (), counts.committed_batches)
        for how, count in (
            ("committed", counts.committed_stages),
            ("aborted", counts.aborted_stages),
            ("expired", counts.expired_stages),
        ):
            self.add(table.SINK_STAGES_ENDED, (how,), count)

    # ── topics ────────────────────────────────────────────────────────────────────────────────────

    async def _topics(self) -> None:
        topics = self._broker.topics
        self.add(table.TOPICS, (), 0)
        for name, label in await self._named(topic.name for topic in topics):
            await self._slices.pause()
            topic = topics.find(name)
            if topic is not None and self._sees_topic(name):
                await self._topic(topic, label)

    async def _topic(self, topic: Topic, label: str) -> None:
        self.add(table.TOPICS, (), 1)
        self.add(table.PARTITIONS, (label,), len(topic.partitions))
        for partition in list(topic.partitions):
            await self._slices.pause()
            start, end, size = self._extent(partition)
            self.add(table.TOPIC_MESSAGES, (label,), end - start)
            self.add(table.TOPIC_BYTES, (label,), size)
            self.add(table.MESSAGES_IN, (label,), partition.records_in)
            self.add(table.BYTES_IN, (label,), partition.bytes_in)
            self.add(table.MESSAGES_OUT, (label,), partition.records_out)
            self.add(table.BYTES_OUT, (label,), partition.bytes_out)
            if label:
                labels = (label, str(partition.id.partition))
                self._detail(table.PARTITION_START, labels, start)
                self._detail(table.PARTITION_END, labels, end)
                self._detail(table.PARTITION_BYTES, labels, size)

    def _extent(self, partition: Partition) -> tuple[int, int, int]:
        """Start, end and size; a log that is open nowhere and was never written to stays closed."""
        if not partition.is_open and partition.id not in self._written:
            return 0, 0, 0
        try:
            log = partition.log
        except SparrowError:  # deleted meanwhile, or it cannot be opened now
            return 0, 0, 0
        return log.start_offset, log.end_offset, log.size_bytes

    # ── groups ────────────────────────────────────────────────────────────────────────────────────

    async def _groups(self) -> None:
        groups = self._broker.groups
        for name, label in await self._named(groups.names()):
            await self._slices.pause()
            try:
                info = groups.info(name)
            except SparrowError:  # forgotten meanwhile
                continue
            self.add(table.GROUPS, (info.type.value, info.state.value), 1)
            self.add(table.GROUP_MEMBERS, (label,), info.members)
            if info.type is not GroupType.SHARE:
                await self._lags(name, label)

    async def _lags(self, group: str, label: str) -> None:
        for (name, index), committed in self._broker.groups.fetch_offsets(group).items():
            await self._slices.pause()
            topic = self._broker.topics.find(name)
            if topic is None or index >= len(topic.partitions) or not self._sees_topic(name):
                continue
            start, end, _ = self._extent(topic.partitions[index])
            lag = max(0, end - max(committed.offset, start))
            self.add(table.GROUP_LAG, (label, name if label else ""), lag)
            if label:
                self._detail(table.PARTITION_LAG, (label, name, str(index)), lag)
                self._detail(table.PARTITION_COMMITTED, (label, name, str(index)), committed.offset)

    # ── queues ────────────────────────────────────────────────────────────────────────────────────

    async def _queues(self) -> None:
        registry = self._broker.queues.registry
        for name, label in await self._named(queue.name for queue in registry):
            await self._slices.pause()
            queue = registry.find(name)
            if queue is not None and self._may_describe(ResourceType.GROUP, name):
                await self._queue(queue, label)

    async def _queue(self, queue: Queue, label: str) -> None:
        unscanned, oldest_ms = await self._sources(queue)
        lanes = queue.state.lanes
        for state, value in _SHOWN.items():
            new = unscanned if value == READY else 0
            self.add(
                table.QUEUE_MESSAGES,
                (label, state),
                max(lane.counts[value] for lane in lanes.values()) + new,
            )
            for subscriber, lane in lanes.items():
                if subscriber and label:
                    self.add(table.SUBSCRIBER_MESSAGES, (label, subscriber, state), lane.counts[value] + new)
        labels = (label,)
        self.add(table.QUEUE_UNFINISHED, labels, max(lane.unfinished for lane in lanes.values()) + unscanned)
        self.add(table.QUEUE_DEAD, labels, self._dead(queue))
        self.add(table.QUEUE_OLDEST, labels, oldest_ms / 1000)
        self.add(table.QUEUE_CONSUMERS, labels, len(queue.consumers))
        self.add(table.QUEUE_PAUSED, labels, queue.definition.is_paused)
        self._events(list(lanes.values()), labels)

    def _events(self, lanes: Sequence[Lane], labels: Labels) -> None:
        for lane in lanes:
            tally = lane.tally
            self.add(table.QUEUE_DELIVERIES, labels, tally.delivered)
            self.add(table.QUEUE_REDELIVERIES, labels, tally.redelivered)
            self.add(table.QUEUE_ACKNOWLEDGED, labels, tally.acknowledged)
            self.add(table.QUEUE_REJECTED, labels, tally.rejected)
            self.add(table.QUEUE_DEAD_LETTERED, labels, tally.dead)
            self.add(table.QUEUE_EXPIRED, labels, tally.expired)
            self.add(table.QUEUE_DROPPED, labels, tally.dropped)
            self.add(table.QUEUE_LOST, labels, tally.lost)

    async def _sources(self, queue: Queue) -> tuple[int, int]:
        """Records that the queue did not look at yet, and the age (ms) of the oldest that is not finished."""
        unscanned, oldest_ms = 0, 0
        lanes, now_ms = list(queue.state.lanes.values()), queue.now()[1]
        for source in list(queue.sources):
            await self._slices.pause()
            if source.is_gone:
                continue
            try:
                unscanned += queue.unscanned(source)
                first = min(lane.starts[source.number] for lane in lanes)
                if first < source.visible_end(committed=queue.is_committed_only):
                    time_ms = source.timestamp_at(first)
                    oldest_ms = max(oldest_ms, now_ms - time_ms if time_ms >= 0 else 0)
            except SparrowError:  # deleted meanwhile
                continue
        return unscanned, oldest_ms

    def _dead(self, queue: Queue) -> int:
        topic = queue.definition.policy.dead_letters_of(queue.name)
        dead = self._broker.queues.registry.find(topic) if topic is not None else None
        return dead.unfinished if dead is not None else 0

    # ── webhooks ──────────────────────────────────────────────────────────────────────────────────

    async def _webhooks(self) -> None:
        registry = self._broker.webhooks.registry
        for number, (queue, name) in enumerate(sorted((each.queue, each.name) for each in registry)):
            await self._slices.pause()
            if registry.find(queue, name) is None or not self._may_describe(ResourceType.GROUP, queue):
                continue
            labels = (queue, name) if number < self._max_names else ("", "")
            found = registry.statistics((queue, name))
            self.add(table.WEBHOOK_DELIVERED, labels, found.delivered)
            self.add(table.WEBHOOK_FAILED, labels, found.failed)
            self.add(table.WEBHOOK_SECONDS, labels, found.seconds)
            self.add(table.WEBHOOK_IN_FLIGHT, labels, found.in_flight)
            self.add(table.WEBHOOK_STATE, (*labels, found.state), 1)

    # ── pipelines ─────────────────────────────────────────────────────────────────────────────────

    async def _pipelines(self) -> None:
        for number, report in enumerate(self._broker.pipelines.listing(principal=self._principal)):
            await self._slices.pause()
            labels = (report.name, report.flow) if number < self._max_names else ("", "")
            self.add(table.PIPELINE_ROWS, labels, report.rows)
            self.add(table.PIPELINE_RATE, labels, report.rows_per_second)
            self.add(table.PIPELINE_BATCH, labels, report.batch_ms / 1000)
            if report.lag is not None:
                self.add(table.PIPELINE_LAG, labels, report.lag)
            self.add(table.PIPELINE_STATE, (*labels, report.state), 1)


def _distribution(times: Histogram) -> Distribution:
    bounds = (*times.bounds, float("inf"))
    return Distribution(tuple(zip(bounds, times.cumulative(), strict=True)), times.total)
