"""A queue at work: sources in, leases out, every change persisted.

The rules are in `rules/state.py`; this module gives them what they need: the logs that are scanned
and read, the clock, the meta store, and the consumers that wait. A lease is handed out once it is
on stable storage, and so is the response to an acknowledgement. So after a crash what was
acknowledged stays so, what was leased stays leased until its lease ends, and every delivery that a
consumer saw was counted.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from sparrow.base.errors import (
    InvalidArgument,
    NotLeased,
    OffsetOutOfRange,
    SparrowError,
    UnknownQueue,
    UnknownTopic,
)
from sparrow.broker.queues.corruption_stop import CorruptionStop
from sparrow.broker.queues.delivery_rates import DeliveryRates
from sparrow.broker.queues.grant_reader import GrantReader
from sparrow.broker.queues.persistence.definition import SHARE, Definition
from sparrow.broker.queues.persistence.snapshot import StateSnapshot
from sparrow.broker.queues.persistence.state_writer import StateWriter
from sparrow.broker.queues.rates import Rates
from sparrow.broker.queues.rules.settlement import Leased, Settlement, Verb
from sparrow.broker.queues.rules.state import QueueState
from sparrow.broker.queues.rules.timers import NEVER
from sparrow.broker.queues.scan.scanner import Scanner
from sparrow.broker.queues.source import QueueSource
from sparrow.broker.queues.waiters import Waiters

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sparrow.base.clock import Clock
    from sparrow.broker.corrupt_batches import CorruptBatches
    from sparrow.broker.partition import Partition
    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.persistence.state_store import StateStore
    from sparrow.broker.queues.rules.subscriber import DeadRecords, Grant, SubscriberState
    from sparrow.broker.queues.scheduler import CooperativeScheduler
    from sparrow.broker.queues.source import ReadCaches
    from sparrow.broker.reading.fetch import ReadMemory
    from sparrow.meta.store import Write
    from sparrow.records.topic_partition import TopicPartition

_LOG = logging.getLogger(__name__)

MAX_LEASE_MS: Final = 43_200_000
_PURGED: Final = 1 << 16
"""Maximum number of records that are purged before other tasks run."""
_PURGED_SINGLY: Final = 1 << 11
"""The same for queues with an order, where each record is handled by itself."""
_USUAL_BYTES: Final = 256
"""Assumed size of a record of a queue without sources."""
_BATCH_BYTES: Final = 1 << 20
"""Memory that a lease waits for, if it has to: the size of the largest batch, by default."""
_LONGEST_SLEEP_S: Final = 1.0
"""The wall clock may jump, so timers for wall time are checked at least this often."""


class DeadLetterMover(Protocol):
    """Interface of the part that moves records to the dead letters."""

    def take(self, dead_records: Sequence[tuple[str, DeadRecords]]) -> None:
        """Move these (subscriber, records), then call `Queue.finish_move`."""
        ...

    def stop(self) -> None:
        """Move nothing more; the queue ends, or is replaced."""
        ...


@dataclass(slots=True, eq=False)
class _Delivery:
    """Grants that are not handed out yet."""

    subscriber: SubscriberState
    grants: list[Grant]


class Queue:
    """A queue. Made by `QueueRegistry`. Loop thread only."""

    def __init__(
        self,
        definition: Definition,
        store: StateStore,
        clock: Clock,
        caches: ReadCaches,
        scheduler: CooperativeScheduler,
    ) -> None:
        self.definition = definition
        self.name = definition.name
        self._clock = clock
        self._caches = caches
        self._scheduler = scheduler
        self.sources: list[QueueSource] = []
        self._by_key: dict[TopicPartition, QueueSource] = {}
        self.consumers: dict[str, QueueConsumer] = {}
        self.state = self._new_state(definition)
        self.scanner = self._new_scanner()
        self.snapshot = StateSnapshot(definition.id, self.state, self.sources, self.now)
        self.writer = StateWriter(store, self.snapshot.collect, self.scanner.go_on)
        self.state.is_behind = lambda: not self.scanner.is_idle
        self._stop = CorruptionStop(definition.name, definition.policy, self.wake_all)
        self._grant_reader = GrantReader(self.state, self.sources, self._stop, clock)
        self._waiters = {name: Waiters(self.wake) for name in self.state.subscribers}
        self._delivery_rates = DeliveryRates(clock)
        self._deliveries: set[_Delivery] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._timer_due = (NEVER, NEVER)
        """The (monotonic, wall) time in ms at which the timer ticks."""
        self.dead_letters: DeadLetterMover | None = None
        self.rates = Rates()
        self.is_closed = False
        self.successor: asyncio.Future[Queue] | None = None
        """The same queue with a new state, when this one is being replaced."""

    def _new_state(self, definition: Definition) -> QueueState:
        return QueueState(
            definition.name,
            definition.policy,
            has_dead_letters=definition.policy.dead_letters_of(definition.name) is not None,
        )

    def _new_scanner(self) -> Scanner:
        committed = self.definition.policy.isolation == "read_committed"
        return Scanner(
            self.state,
            self._clock,
            committed=committed,
            found=self.changed,
            is_awaited=lambda: any(map(len, self._waiters.values())),
            is_writing=lambda: self.writer.is_writing,
            scheduler=self._scheduler,
        )

    @property
    def is_committed_only(self) -> bool:
        """True if records of open transactions wait until these end."""
        return self.definition.policy.isolation == "read_committed"

    # ── sources ───────────────────────────────────────────────────────────────────────────────────

    def source(self, key: TopicPartition) -> QueueSource | None:
        """Return the source of (topic, partition), or None."""
        return self._by_key.get(key)

    def add_source(self, partition: Partition, starts: dict[str, int], log_start: int) -> QueueSource:
        """Add a partition. `starts` has, for each subscriber, the offset before which everything is
        finished. Call `begin` once all partitions are added.
        """
        number = self.state.add_source(log_start, starts)
        source = QueueSource(number, partition, self.scanner.woken, self._caches)
        self.sources.append(source)
        self._by_key[source.key] = source
        return source

    def begin(self, source: QueueSource) -> None:
        """Start to scan a source."""
        if not self.is_closed:
            self.scanner.add(source)

    def topic_deleted(self, topic: str) -> None:
        """Forget the sources of a topic that was deleted."""
        for source in self.sources:
            if source.topic == topic and not source.is_gone:
                source.is_gone = True
                source.forget()
                self.scanner.drop(source)
                self._by_key.pop(source.key, None)
                self.state.forget_source(source.number)
                self.writer.add(self.snapshot.forgotten(source))
                self.writer.changed()
        self.changed()

    # ── leasing ───────────────────────────────────────────────────────────────────────────────────

    async def lease(
        self,
        consumer: QueueConsumer,
        max_records: int,
        max_bytes: int,
        *,
        wait_ms: int,
        sources: Collection[TopicPartition] | None,
        memory: ReadMemory | None = None,
    ) -> list[Leased]:
        """Lease records. See `QueueConsumer.lease`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        may_take = partial(self._may_take, consumer, sources)
        while True:
            self.scanner.catch_up(at_once=not wait_ms)
            room_bytes = max_bytes
            # a consumer that waits for records must not hold memory for them
            if memory is not None and may_take():
                taken_bytes = await memory.take(max(max_bytes, _BATCH_BYTES), _BATCH_BYTES)
                room_bytes = max(1, min(max_bytes, taken_bytes))
            grants: list[Grant] = []
            leased: list[Leased] = []
            try:
                grants = self._grant(consumer, max_records, room_bytes, sources)
                leased = await self._deliver(consumer, grants, room_bytes) if grants else []
            finally:
                if memory is not None:
                    memory.resize(_size_of(leased))
            if leased or not wait_ms:
                return leased
            if grants:  # could not be read: let other consumers try
                if loop.time() >= deadline:
                    return []
                await asyncio.sleep(0)
            elif not await self._waiters[consumer.subscriber].wait(may_take, deadline - loop.time()):
                return []

    def _grant(
        self,
        consumer: QueueConsumer,
        max_records: int,
        max_bytes: int,
        sources: Collection[TopicPartition] | None,
    ) -> list[Grant]:
        self._check_may_lease(consumer)
        if self.definition.is_paused or self._stop.error is not None:
            return []
        now_ms, wall_ms = self.now()
        self.state.tick(now_ms, wall_ms)
        subscriber = self.state.subscribers[consumer.subscriber]
        limit = min(
            max_records,
            subscriber.room(consumer.id, consumer.prefetch),
            max(1, max_bytes // self._mean_bytes()),
        )
        rate = self.definition.policy.rate
        if rate and limit > 0:
            limit = self._delivery_rates.allowance(consumer.subscriber, rate, limit)
            if limit <= 0:
                self._arm()
        if limit <= 0:
            return []
        numbers = None
        if sources is not None:
            numbers = {self._by_key[key].number for key in sources if key in self._by_key}
        grants = subscriber.grant(
            consumer.id,
            limit,
            now_ms=now_ms,
            wall_ms=wall_ms,
            lease_ms=self.definition.policy.lease_ms,
            sources=numbers,
        )
        if grants:
            self.scanner.consumed()
            if rate:
                taken = sum(grant.end - grant.first for grant in grants)
                self._delivery_rates.take(consumer.subscriber, taken)
        return grants

    def _mean_bytes(self) -> int:
        mean = 0.0
        for source in self.sources:
            if source.mean_bytes > mean and not source.is_gone:
                mean = source.mean_bytes
        return int(mean) or _USUAL_BYTES

    async def _deliver(self, consumer: QueueConsumer, grants: list[Grant], max_bytes: int) -> list[Leased]:
        """Read what was granted, persist the leases, then return the records. Records that could
        not be read are ready again. A buffered lease is written with the next changes.
        """
        subscriber = self.state.subscribers[consumer.subscriber]
        granted_s = self._clock.monotonic()
        delivery = _Delivery(subscriber, grants)
        self._deliveries.add(delivery)
        try:
            reading = await self._grant_reader.read(consumer, grants, max_bytes)
            delivery.grants = reading.taken
            subscriber.release_grants(reading.left)
            if reading.taken:
                leases = self.writer.flushed() if self._syncs_leases else None
                await self._synced(reading.taken)
                if leases is not None:
                    await leases
            is_whole = not reading.left
            # closed, or replaced by a consumer of the same id, which would never get them
            if not consumer.is_open:
                subscriber.release_grants(reading.taken)
                is_whole = False
        except BaseException:
            subscriber.release_grants(delivery.grants)
            self.changed()
            raise
        finally:
            self._deliveries.discard(delivery)
        if is_whole and self._syncs_leases:
            self._arm()
        else:
            self.changed()
        since_ms = round((self._clock.monotonic() - granted_s) * 1000)
        lease_ms = max(1, self.definition.policy.lease_ms - since_ms)
        found: list[Leased] = []
        for source, taken, data in reading.found:
            # Return only records that are still leased: anything may have happened meanwhile.
            ranges = [(g.first, g.end - 1, g.deliveries) for g in taken if subscriber.still_leased(g)]
            if ranges:
                found.append(Leased(source.topic, source.index, ranges, data, lease_ms))
        return found

    @property
    def _syncs_leases(self) -> bool:
        return self.definition.policy.lease_durability == "synced"

    async def _synced(self, grants: list[Grant]) -> None:
        """Wait until granted records are on stable storage: else, after a power failure, others
        could take the offsets of records that were handled. It takes no time where each publish
        waits for its sync (acks=all), or the topic does without.
        """
        ends: dict[int, int] = {}
        for grant in grants:
            ends[grant.source] = max(grant.end, ends.get(grant.source, 0))
        syncs: list[asyncio.Future[None]] = []
        for number, end in ends.items():
            partition = self.sources[number].partition
            try:
                if partition.config.syncs and end > partition.log.durable_offset:
                    syncs.append(partition.log.durable(end))
            except (UnknownTopic, OffsetOutOfRange):
                continue  # reading finds that out, too
        for synced in syncs:
            try:
                await synced
            except SparrowError:
                # A log that cannot be synced reports that to its publishers; its records can be
                # read and handled nevertheless.
                continue

    def resume_reading(self) -> None:
        """Lease again: the batch that stopped the queue may be gone."""
        if self._stop.error is not None:
            self._stop.error = None
            for source in self.sources:
                source.forget()
            self.wake_all()
            self.changed()

    def _check_may_lease(self, consumer: QueueConsumer) -> None:
        """Raise UnknownQueue, StaleMember or NotAuthorized if the queue or the consumer has ended,
        or the error that stopped the queue, unless the consumer still has leased records to settle.
        """
        self.check_open()
        consumer.check_open()
        if self._stop.error is not None:
            self._stop.check(self.state.subscribers[consumer.subscriber], consumer.id)

    @property
    def corrupt_batches(self) -> CorruptBatches:
        """Counters of batches that cannot be read. The queue must have a source."""
        return self.sources[0].partition.corrupt_batches

    async def wait(self, consumer: QueueConsumer, wait_ms: int) -> bool:
        """Wait for records. See `QueueConsumer.wait`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        may_take = partial(self._may_take, consumer, None)
        self._check_may_lease(consumer)
        self.scanner.catch_up()
        while not may_take():
            if not await self._waiters[consumer.subscriber].wait(may_take, deadline - loop.time()):
                return False
            self._check_may_lease(consumer)
        return True

    def _may_take(self, consumer: QueueConsumer, sources: Collection[TopicPartition] | None) -> bool:
        """Return True if there may be something that the consumer could lease now."""
        if self.is_closed:
            return False
        subscriber = self.state.subscribers[consumer.subscriber]
        if self._stop.error is not None:
            return self._stop.refuses(subscriber, consumer.id)
        if (
            self.definition.is_paused
            or not subscriber.ready.records
            or subscriber.room(consumer.id, consumer.prefetch) <= 0
        ):
            return False
        rate = self.definition.policy.rate
        if rate and not self._delivery_rates.allowance(consumer.subscriber, rate, 1):
            return False
        if sources is None:
            return True
        return any(self.sources[number].key in sources for _, number, _ in subscriber.ready.peek())

    def wake(self) -> None:
        """Wake waiting consumers for whom there is something, in the order in which they came."""
        if not self.definition.is_paused:
            for name, subscriber in self.state.subscribers.items():
                if subscriber.ready.records:
                    self._waiters[name].wake(subscriber.ready.records)

    def end_consumers(self, refusal: SparrowError) -> None:
        """Close all consumers with an error."""
        for consumer in list(self.consumers.values()):
            consumer.end(refusal)

    def wake_all(self) -> None:
        """Wake all waiting consumers: something other than records changed."""
        for waiters in self._waiters.values():
            waiters.wake_all()

    # ── settling ──────────────────────────────────────────────────────────────────────────────────

    def settle(
        self, consumer: QueueConsumer, settlements: Sequence[Settlement]
    ) -> asyncio.Future[list[SparrowError | None]]:
        """Settle leased records. See `QueueConsumer.settle`."""
        self.check_open()
        now_ms, wall_ms = self.now()
        self.state.tick(now_ms, wall_ms)
        subscriber = self.state.subscribers[consumer.subscriber]
        outcomes: list[SparrowError | None] = []
        for each in settlements:
            try:
                self._settle(subscriber, consumer.id, each, now_ms)
                outcomes.append(None)
            except SparrowError as error:
                outcomes.append(error)
        self.state.settled()
        # Consumers that it lets have records are woken first, so that their leases go into the same
        # write.
        self.changed()
        response = self.writer.flushed(outcomes)
        if self._stop.applies:
            self._stop.settled(response)
        return response

    def _settle(self, subscriber: SubscriberState, consumer: str, each: Settlement, now_ms: int) -> None:
        number = self._source_of(each).number
        runs = subscriber.leased_runs(consumer, number, each.first, each.last + 1, each.delivery)
        if each.verb == Verb.ACK:
            subscriber.ack(number, runs)
        elif each.verb == Verb.NACK:
            subscriber.nack(number, runs, now_ms, min(each.delay_ms, MAX_LEASE_MS * 60), each.text)
        elif each.verb == Verb.REJECT:
            subscriber.reject(number, runs, each.text)
        elif each.verb == Verb.EXTEND:
            lease_ms = self.definition.policy.lease_ms if each.delay_ms < 0 else each.delay_ms
            subscriber.extend(number, runs, now_ms + min(lease_ms, MAX_LEASE_MS))
        elif each.verb == Verb.RELEASE:
            subscriber.release(number, runs)
        else:
            raise InvalidArgument(f"there is no verb {each.verb} for leased records")

    def _source_of(self, each: Settlement) -> QueueSource:
        source = self._by_key.get((each.topic, each.partition))
        if source is None:
            raise NotLeased(f"the queue {self.name!r} has no partition {each.topic!r}-{each.partition}")
        return source

    def refusal_of(self, consumer: QueueConsumer, settlements: Sequence[Settlement]) -> SparrowError | None:
        """Return why settlements would fail. See `QueueConsumer.refusal_of`."""
        now_ms, wall_ms = self.now()
        self.state.tick(now_ms, wall_ms)
        subscriber = self.state.subscribers[consumer.subscriber]
        try:
            for each in settlements:
                number = self._source_of(each).number
                subscriber.leased_runs(consumer.id, number, each.first, each.last + 1, each.delivery)
        except SparrowError as error:
            return error
        return None

    async def release_all(self, consumer: QueueConsumer, *, counts: bool) -> None:
        """Make everything that the consumer has leased ready again. Durable when it returns.

        Args:
            counts: True if these deliveries count.
        """
        subscriber = self.state.subscribers.get(consumer.subscriber)
        if subscriber is None or self.is_closed:
            return
        now_ms, _ = self.now()
        for source, run in subscriber.leased_by(consumer.id):
            if counts:
                subscriber.nack(source, [run], now_ms, 0, "the consumer went away")
            else:
                subscriber.release(source, [run])
        self.changed()
        await self.writer.flushed()

    def finish_move(
        self, subscriber: str, records: Iterable[DeadRecords], also: Sequence[Write] = ()
    ) -> asyncio.Future[None]:
        """Finish records whose copies are on stable storage, and write `also` together with that.
        The future is done when it is persisted.
        """
        state = self.state.subscribers.get(subscriber)
        if state is not None:
            for source, first, end in records:
                state.finish_move(source, first, end)
        self.writer.add(also)
        flushed = self.writer.flushed()
        self.changed()
        return flushed

    # ── what changes by itself ────────────────────────────────────────────────────────────────────

    def now(self) -> tuple[int, int]:
        """Return (monotonic, wall) time in ms."""
        return round(self._clock.monotonic() * 1000), self._clock.wall_ms()

    def changed(self) -> None:
        """React to a changed state: wake waiting consumers, persist the change, and arm the
        timer.
        """
        dead_records = self.state.take_dead_records()
        if dead_records and self.dead_letters is not None:
            self.dead_letters.take(dead_records)
        self.scanner.consumed()
        self.wake()
        for subscriber in self.state.subscribers.values():
            if subscriber.dirty:
                self.writer.changed()
                break
        self._arm()

    def tick(self) -> None:
        """Do what is due by now."""
        if self.is_closed:
            return
        self._timer = None
        self.state.tick(*self.now())
        self.changed()

    def _arm(self) -> None:
        due_ms, due_wall_ms = self.state.next_times()
        delays = self._delivery_rates.delays(self._with_ready()) if self.definition.policy.rate else []
        if not delays:
            if due_ms == NEVER and due_wall_ms == NEVER:
                return
            if self._timer is not None and self._timer_due[0] <= due_ms and self._timer_due[1] <= due_wall_ms:
                return
        now_ms, wall_ms = self.now()
        delay_s = min(_LONGEST_SLEEP_S, (due_ms - now_ms) / 1000, (due_wall_ms - wall_ms) / 1000, *delays)
        delay_s = max(0.0, delay_s)
        loop = asyncio.get_running_loop()
        at = loop.time() + delay_s
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer_due = now_ms + round(delay_s * 1000), wall_ms + round(delay_s * 1000)
        self._timer = loop.call_at(at, self.tick)

    def _with_ready(self) -> list[str]:
        """Return the subscribers that have ready records."""
        return [name for name, subscriber in self.state.subscribers.items() if subscriber.ready.records]

    def housekeep(self) -> None:
        """Sample the rates, and finish records that retention deleted. Call it periodically."""
        self.rates.sample(self._clock.monotonic(), self._published(), self.state)
        self.state.sweep()
        for source in self.sources:
            source.forget()
            if source.is_gone or not source.partition.is_open:
                continue
            start = source.partition.start_offset
            if any(
                subscriber.starts[source.number] < start for subscriber in self.state.subscribers.values()
            ):
                self.state.lost(source.number, start)
                self.changed()

    def _published(self) -> int:
        return sum(
            source.partition.visible_end
            for source in self.sources
            if not source.is_gone and source.partition.is_open
        )

    # ── life ──────────────────────────────────────────────────────────────────────────────────────

    def check_open(self) -> None:
        """Raise UnknownQueue if the queue was deleted, or the broker stops."""
        if self.is_closed:
            raise UnknownQueue(f"there is no queue {self.name!r} any more")

    def redefine(self, definition: Definition) -> None:
        """Set a policy that needs no new state."""
        self.definition = definition
        self.state.reconfigure(
            definition.policy,
            has_dead_letters=definition.policy.dead_letters_of(definition.name) is not None,
        )
        self._stop.redefine(definition.policy)
        self.wake_all()
        self.changed()

    def stop(self) -> None:
        """Stop scanning and leasing."""
        self.is_closed = True
        if self.dead_letters is not None:
            self.dead_letters.stop()
        self.scanner.close()
        for source in self.sources:
            if not source.is_gone:
                source.stop_waiting()
        if self._timer is not None:
            self._timer.cancel()
        self.wake_all()

    def adopt(self, old: Queue) -> None:
        """Take over the consumers and rates of the queue that this one replaces."""
        self.rates = old.rates
        for consumer in list(old.consumers.values()):
            if consumer.subscriber in self.state.subscribers:
                consumer.queue = self
                self.consumers[consumer.id] = consumer
            else:
                consumer.end(
                    UnknownQueue(f"queue {self.name!r} has no subscriber {consumer.subscriber!r} any more")
                )
        for name, subscriber in self.state.subscribers.items():
            if name in old.state.subscribers:
                subscriber.tally = old.state.subscribers[name].tally

    def restart_source(self, source: QueueSource, start: int) -> None:
        """Begin again at an offset of a source."""
        source.pieces = None
        self.state.restart_source(source.number, start)
        self.scanner.add(source)
        self.changed()

    async def purge(self) -> int:
        """Finish all records that are there and not leased, and return their number. Durable when
        it returns.
        """
        ends = {
            source: source.visible_end(committed=self.is_committed_only)
            for source in self.sources
            if not source.is_gone
        }
        count = 0
        for source, end in ends.items():
            position = min(subscriber.starts[source.number] for subscriber in self.state.subscribers.values())
            while position < end and not source.is_gone:
                stop = self._purged_until(source, position, end)
                if position < stop:
                    count += self.state.purge_range(source.number, position, stop)
                    position = stop
                    self.changed()
                await asyncio.sleep(0 if position == stop else 0.001)
                self.check_open()
        await self.writer.flushed()
        return count

    def _purged_until(self, source: QueueSource, position: int, end: int) -> int:
        """Return the offset at which to let other tasks run."""
        if self.state.tells_ids:  # ids of parents must be known before they can be finished
            return min(position + _PURGED_SINGLY, end, self.state.scanned[source.number])
        source.pieces = None
        count = _PURGED if self.definition.policy.order == "none" else _PURGED_SINGLY
        return min(position + count, end)

    async def close(self) -> None:
        """Stop, release what was granted and not handed out, and persist what is not persisted
        yet.
        """
        self.stop()
        for delivery in self._deliveries:
            delivery.subscriber.release_grants(delivery.grants)
        await self.writer.close()

    @property
    def unfinished(self) -> int:
        """Number of records that are not done, including those that were not scanned yet."""
        subscribers = self.state.subscribers.values()
        return max(subscriber.unfinished for subscriber in subscribers) + sum(
            self.unscanned(source) for source in self.sources if not source.is_gone
        )

    def unscanned(self, source: QueueSource) -> int:
        """Return the number of records of a source that were not scanned yet, at most. Those whose
        state was kept over a restart are known, and not among them.
        """
        subscribers, number = self.state.subscribers.values(), source.number
        seen = max(self.state.scanned[number], min(subscriber.starts[number] for subscriber in subscribers))
        known = min(subscriber.kept_from(number, seen) for subscriber in subscribers)
        return max(0, source.visible_end(committed=self.is_committed_only) - seen - known)

    @property
    def is_share_group(self) -> bool:
        return self.definition.kind == SHARE


def _size_of(leased: list[Leased]) -> int:
    """Return the size of all batches in bytes."""
    size = 0
    for each in leased:
        size += len(each.data)
    return size
