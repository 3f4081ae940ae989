"""Collection of the values of all metrics, in slices: other tasks run every two milliseconds, for
any number of partitions.

Resources that the scraper may not describe are left out. The number of values is bounded: the first
`max_names` topics, groups, queues and endpoints, by name, have values of their own; those of the
others are summed under the empty name. Partitions are summed, unless they are asked for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from sparrow.base.errors import SparrowError
from sparrow.base.version import VERSION
from sparrow.broker.access.authz import Operation, Principal, ResourceType
from sparrow.broker.audit.event import AuditOutcome
from sparrow.broker.groups.description import GroupType
from sparrow.broker.metrics import table
from sparrow.broker.queues.rules.record_state import BLOCKED, DELAYED, LEASED, MOVING, READY

if TYPE_CHECKING:
    from sparrow.base.histogram import Histogram
    from sparrow.broker.access.access import Access
    from sparrow.broker.composition import Parts
    from sparrow.broker.idempotency.keys import IdempotencyKeys
    from sparrow.broker.measures import Measures
    from sparrow.broker.metrics.table import Metric
    from sparrow.broker.partition import Partition
    from sparrow.broker.pipelines.service import PipelineService
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.rules.subscriber import SubscriberState
    from sparrow.broker.topics.registry import Topic
    from sparrow.meta.store import MetaStore
    from sparrow.storage.store import LogId, LogStore

MAX_NAMES: Final = 1_000
MAX_DETAILS: Final = 20_000
"""The limit of values by partition of each metric."""
_SLICE_S: Final = 0.002
_SORTED_AT_ONCE: Final = 2_000
_SHOWN: Final = {"ready": READY, "leased": LEASED, "delayed": DELAYED, "blocked": BLOCKED, "moving": MOVING}

Labels = tuple[str, ...]


class Distribution(Struct, frozen=True):
    """A histogram at one moment: (upper bound, values up to it), the last without a bound; and the
    sum.
    """

    buckets: tuple[tuple[float, int], ...]
    total: float


Values = dict[Labels, "float | Distribution"]
Collected = dict["Metric", Values]
"""Values by labels, by metric; includes metrics without a value."""


class Slices:
    """Slices of time, between which other tasks run."""

    def __init__(self, slice_s: float = _SLICE_S) -> None:
        self._slice_s = slice_s
        self._over_at = perf_counter() + slice_s

    async def pause(self) -> None:
        """Return at once, or let other tasks run if this slice is over."""
        if perf_counter() >= self._over_at:
            await asyncio.sleep(0)
            self._over_at = perf_counter() + self._slice_s


class Observed(Protocol):
    """The parts of a broker that have metrics."""

    access: Access
    idempotency: IdempotencyKeys
    measures: Measures
    parts: Parts
    pipelines: PipelineService
    started_at_ms: int


class MetricsCollector:
    """The collector of metrics, `broker.metrics`. Loop thread only.

    Args:
        written: logs that had data when the broker started; others that are not open are empty.
    """

    def __init__(self, broker: Observed, logs: LogStore, meta: MetaStore, written: frozenset[LogId]) -> None:
        self._broker = broker
        self._logs = logs
        self._meta = meta
        self._written = written
        self.extra: Callable[[], Mapping[Metric, float]] = dict
        """Values of the server, which the broker does not know."""

    async def collect(
        self, principal: Principal, *, max_names: int = MAX_NAMES, by_partition: bool = False
    ) -> Collected:
        """Return all values that the principal may see.

        Raises:
            NotAuthorized: it may not describe the cluster.
        """
        self._broker.access.require_cluster(principal, Operation.DESCRIBE)
        collection = _Collection(self._broker, self._written, principal, max_names, by_partition=by_partition)
        self._collect_stores(collection)
        for metric, value in self.extra().items():
            collection.add(metric, (), value)
        await collection.collect()
        return collection.values

    def _collect_stores(self, to: _Collection) -> None:
        to.put(table.SYNC_SECONDS, (), _distribution(self._logs.sync_times))
        to.put(table.META_COMMIT_SECONDS, (), _distribution(self._meta.commit_times))
        to.put(table.JOURNAL_SYNC_SECONDS, (), _distribution(self._broker.parts.queue_registry.sync_times))
        to.add(table.DISK_REFUSES, (), self._logs.refusal() is not None)
        damages = self._logs.damages
        to.add(table.DAMAGED_PARTITIONS, (), damages.closed_logs)
        to.add(table.LOG_DAMAGES, (), len(damages.known()))
        to.add(table.CORRUPT_READS, (), damages.corrupt_reads)
        try:
            to.add(table.DISK_FREE, (), self._logs.free_bytes())
            to.add(table.DISK_SIZE, (), self._logs.total_bytes())
        except SparrowError:  # the device does not report it: the metric has no value
            return


class _Collection:
    """One collection."""

    def __init__(
        self,
        broker: Observed,
        written: frozenset[LogId],
        principal: Principal,
        max_names: int,
        *,
        by_partition: bool,
    ) -> None:
        self.values: Collected = {metric: {} for metric in table.ALL}
        self._broker = broker
        self._parts = broker.parts
        self._written = written
        self._principal = principal
        self._max_names = max_names
        self._by_partition = by_partition
        self._slices = Slices()
        self._visible: dict[str, bool] = {}

    def put(self, metric: Metric, labels: Labels, value: Distribution) -> None:
        self.values[metric][labels] = value

    def add(self, metric: Metric, labels: Labels, value: float) -> None:
        """Add a value; values of the same labels are summed, or the largest is taken."""
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
        """Return names in order, each with its label: the name itself, or "" behind the limit."""
        unsorted = list(names)
        pieces: list[list[str]] = []
        for start in range(0, len(unsorted), _SORTED_AT_ONCE):
            pieces.append(sorted(unsorted[start : start + _SORTED_AT_ONCE]))
            await self._slices.pause()
        return (
            (name, name if number < self._max_names else "") for number, name in enumerate(merge(*pieces))
        )

    def _may_describe(self, kind: ResourceType, name: str) -> bool:
        return self._broker.access.allows(self._principal, Operation.DESCRIBE, kind, name)

    def _sees_topic(self, name: str) -> bool:
        visible = self._visible.get(name)
        if visible is None:
            visible = self._visible[name] = self._may_describe(ResourceType.TOPIC, name)
        return visible

    async def collect(self) -> None:
        self._broker_itself()
        await self._topics()
        await self._groups()
        await self._queues()
        await self._transactions()
        await self._sinks()
        await self._webhooks()
        await self._schedules()
        await self._pipelines()

    # ── the broker ────────────────────────────────────────────────────────────────────────────────

    def _broker_itself(self) -> None:
        broker, measures = self._broker, self._broker.measures
        self.add(table.BUILD, (VERSION,), 1)
        self.add(table.START_TIME, (), broker.started_at_ms / 1000)
        self.add(table.IDEMPOTENCY_KEYS, (), len(broker.idempotency))
        self.put(table.APPEND_SECONDS, (), _distribution(measures.append))
        self.put(table.PUBLISH_SECONDS, (), _distribution(measures.publish))
        for labels, count in sorted(measures.corrupt_batches.counts.items()):
            self.add(table.CORRUPT_BATCHES, labels, count)
        self.add(table.SEND_BUDGET, (), measures.send_budget())
        for reason in ("credentials", "waiting"):
            self.add(table.FAILED_LOGINS, (reason,), measures.failed_logins[reason])
        for outcome in AuditOutcome:
            self.add(table.AUDIT_EVENTS, (outcome.value,), measures.audit_events[outcome.value])
        for reason in ("limited", "queue_full", "write_failed"):
            self.add(table.LOST_AUDIT_EVENTS, (reason,), measures.lost_audit_events[reason])
        for frontend in measures.frontends.values():
            self.add(table.CONNECTIONS, (frontend.name,), frontend.connections())
            for reason in ("limit", "address", "files", "stranger"):
                self.add(table.REFUSED_CONNECTIONS, (frontend.name, reason), frontend.refusals[reason])
            for request, times in sorted(frontend.requests.items()):
                self.put(table.REQUEST_SECONDS, (frontend.name, request), _distribution(times))
                self.add(table.REQUEST_FAILURES, (frontend.name, request), frontend.failures[request])

    async def _transactions(self) -> None:
        for found in self._parts.transaction_coordinator.all():
            await self._slices.pause()
            if self._may_describe(ResourceType.TRANSACTIONAL_ID, found.transactional_id):
                self.add(table.TRANSACTIONS, (found.state.value,), 1)

    async def _sinks(self) -> None:
        coordinator = self._parts.sink_coordinator
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
        topics = self._parts.topic_registry
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
        """Return start, end and size; a log that is not open and was never written to stays
        closed.
        """
        if not partition.is_open and partition.id not in self._written:
            return 0, 0, 0
        try:
            log = partition.log
        except SparrowError:  # deleted meanwhile, or it cannot be opened now
            return 0, 0, 0
        return log.start_offset, log.end_offset, log.size_bytes

    # ── groups ────────────────────────────────────────────────────────────────────────────────────

    async def _groups(self) -> None:
        groups = self._parts.group_registry
        for name, label in await self._named(groups.names()):
            await self._slices.pause()
            try:
                info = groups.info(name)
            except SparrowError:  # deleted meanwhile
                continue
            self.add(table.GROUPS, (info.type, info.state), 1)
            self.add(table.GROUP_MEMBERS, (label,), info.members)
            if info.type is not GroupType.SHARE:
                await self._lags(name, label)

    async def _lags(self, group: str, label: str) -> None:
        for (name, index), committed in self._parts.group_registry.fetch_offsets(group).items():
            await self._slices.pause()
            topic = self._parts.topic_registry.find(name)
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
        registry = self._parts.queue_registry
        for name, label in await self._named(queue.name for queue in registry):
            await self._slices.pause()
            queue = registry.find(name)
            if queue is not None and self._may_describe(ResourceType.GROUP, name):
                await self._queue(queue, label)

    async def _queue(self, queue: Queue, label: str) -> None:
        unscanned, oldest_ms = await self._sources(queue)
        subscribers = queue.state.subscribers
        for state, value in _SHOWN.items():
            new = unscanned if value == READY else 0
            self.add(
                table.QUEUE_MESSAGES,
                (label, state),
                max(subscriber.counts[value] for subscriber in subscribers.values()) + new,
            )
            for name, subscriber in subscribers.items():
                if name and label:
                    self.add(table.SUBSCRIBER_MESSAGES, (label, name, state), subscriber.counts[value] + new)
        labels = (label,)
        self.add(
            table.QUEUE_UNFINISHED,
            labels,
            max(subscriber.unfinished for subscriber in subscribers.values()) + unscanned,
        )
        self.add(table.QUEUE_DEAD, labels, self._dead(queue))
        self.add(table.QUEUE_OLDEST, labels, oldest_ms / 1000)
        self.add(table.QUEUE_CONSUMERS, labels, len(queue.consumers))
        self.add(table.QUEUE_PAUSED, labels, queue.definition.is_paused)
        self._events(list(subscribers.values()), labels)

    def _events(self, subscribers: Sequence[SubscriberState], labels: Labels) -> None:
        for subscriber in subscribers:
            tally = subscriber.tally
            self.add(table.QUEUE_DELIVERIES, labels, tally.delivered)
            self.add(table.QUEUE_REDELIVERIES, labels, tally.redelivered)
            self.add(table.QUEUE_ACKNOWLEDGED, labels, tally.acknowledged)
            self.add(table.QUEUE_REJECTED, labels, tally.rejected)
            self.add(table.QUEUE_DEAD_LETTERED, labels, tally.dead)
            self.add(table.QUEUE_EXPIRED, labels, tally.expired)
            self.add(table.QUEUE_DROPPED, labels, tally.dropped)
            self.add(table.QUEUE_LOST, labels, tally.lost)

    async def _sources(self, queue: Queue) -> tuple[int, int]:
        """Return the number of records that the queue has not scanned yet, and the age (ms) of the
        oldest unfinished one.
        """
        unscanned, oldest_ms = 0, 0
        subscribers, now_ms = list(queue.state.subscribers.values()), queue.now()[1]
        for source in list(queue.sources):
            await self._slices.pause()
            if source.is_gone:
                continue
            try:
                unscanned += queue.unscanned(source)
                first = min(subscriber.starts[source.number] for subscriber in subscribers)
                if first < source.visible_end(committed=queue.is_committed_only):
                    time_ms = source.timestamp_at(first)
                    oldest_ms = max(oldest_ms, now_ms - time_ms if time_ms >= 0 else 0)
            except SparrowError:  # deleted meanwhile
                continue
        return unscanned, oldest_ms

    def _dead(self, queue: Queue) -> int:
        topic = queue.definition.policy.dead_letters_of(queue.name)
        dead = self._parts.queue_registry.find(topic) if topic is not None else None
        return dead.unfinished if dead is not None else 0

    # ── webhooks ──────────────────────────────────────────────────────────────────────────────────

    async def _webhooks(self) -> None:
        registry = self._parts.webhook_registry
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

    # ── schedules ─────────────────────────────────────────────────────────────────────────────────

    async def _schedules(self) -> None:
        counts: Counter[str] = Counter()
        for entry in self._parts.schedule_registry:
            await self._slices.pause()
            if self._may_describe(ResourceType.GROUP, entry.definition.settings.queue):
                counts[self._parts.schedule_targets.state(entry)] += 1
        for state, count in sorted(counts.items()):
            self.add(table.SCHEDULES, (state,), count)
        self.put(table.SCHEDULE_LATENESS, (), _distribution(self._broker.measures.schedule_lateness))

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
