"""A queue as it runs: sources in, leases out, everything kept.

The rules are in `state.py`; here is what they need of the world: the logs that are scanned and read, the clock, the meta store, and the
consumers that wait. A lease is handed out when it is on stable storage, an acknowledgement is answered when it is. So after a crash what
was acknowledged stays so, what was leased stays leased until its time is over, and a delivery that anybody saw was counted.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sparrow.base.errors import (
    CorruptBatch,
    InvalidArgument,
    NotLeased,
    OffsetOutOfRange,
    SparrowError,
    UnknownQueue,
    UnknownTopic,
)
from sparrow.broker.queues.bookkeeping import Bookkeeping
from sparrow.broker.queues.definition import SHARE, Definition
from sparrow.broker.queues.journal import Journal
from sparrow.broker.queues.rates import Rates
from sparrow.broker.queues.scanner import Scanner
from sparrow.broker.queues.settlement import Leased, Settlement, Verb
from sparrow.broker.queues.source import Source
from sparrow.broker.queues.state import QueueState
from sparrow.broker.queues.waiters import Waiters

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sparrow.base.clock import Clock
    from sparrow.broker.fetch import ReadMemory
    from sparrow.broker.partition import Partition
    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.lane import Doomed, Grant, Lane
    from sparrow.broker.queues.turns import Turns
    from sparrow.meta.store import MetaStore, Write
    from sparrow.records.excerpt import Excerpter

_LOG = logging.getLogger(__name__)

Key = tuple[str, int]
MAX_LEASE_MS: Final = 43_200_000
_PURGED: Final = 1 << 16
"""Records that are purged in one turn of the loop."""
_PURGED_SINGLY: Final = 1 << 11
"""… of queues with an order, where each is looked at."""
_LONGEST_SLEEP_S: Final = 1.0
"""The wall clock may jump: whoever waits for it looks so often."""


class DeadLetters(Protocol):
    """Who moves records to the dead letters."""

    def take(self, doomed: Sequence[tuple[str, Doomed]]) -> None:
        """These (subscriber, records) are to be moved; `Queue.moved` when it is done."""
        ...

    def stop(self) -> None:
        """Move nothing more; the queue ends, or is replaced."""
        ...


class _Reading(NamedTuple):
    """What was read of what was granted."""

    found: list[tuple[Source, list[Grant], bytes | memoryview]]
    """Of each source what can be handed out, and the batches with it."""
    taken: list[Grant]
    left: list[Grant]
    """What did not fit, or could not be had."""


@dataclass(slots=True, eq=False)
class _Delivery:
    """What was granted and is not handed out yet."""

    lane: Lane
    grants: list[Grant]


class Queue:
    """One queue. Made by `Queues`. Loop thread only."""

    def __init__(
        self, definition: Definition, meta: MetaStore, clock: Clock, excerpter: Excerpter, turns: Turns
    ) -> None:
        self.definition = definition
        self.name = definition.name
        self._clock = clock
        self._excerpter = excerpter
        self._turns = turns
        self.sources: list[Source] = []
        self._by_key: dict[Key, Source] = {}
        self.consumers: dict[str, QueueConsumer] = {}
        self.state = self._new_state(definition)
        self.scanner = self._new_scanner()
        self.books = Bookkeeping(definition.id, self.state, self.sources, self.now)
        self.journal = Journal(meta, self.books.collect, self.scanner.go_on)
        self.state.is_behind = lambda: not self.scanner.is_idle
        self._waiters = {name: Waiters(self.wake) for name in self.state.lanes}
        self._deliveries: set[_Delivery] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self.dead_letters: DeadLetters | None = None
        self.rates = Rates()
        self.is_closed = False
        self.successor: asyncio.Future[Queue] | None = None
        """The same queue with a new state, when this one is replaced."""

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
            is_writing=lambda: self.journal.is_writing,
            turns=self._turns,
        )

    @property
    def is_committed_only(self) -> bool:
        """Whether records of open transactions wait until these end."""
        return self.definition.policy.isolation == "read_committed"

    # ── sources ───────────────────────────────────────────────────────────────────────────────────

    def source(self, key: Key) -> Source | None:
        """The source of (topic, partition), or None."""
        return self._by_key.get(key)

    def add_source(self, partition: Partition, starts: dict[str, int], log_start: int) -> Source:
        """One more partition; before `starts` (of each lane) everything is finished. Call `begin` when all are there."""
        number = self.state.add_source(log_start, starts)
        source = Source(number, partition, self.scanner.woken, self._excerpter)
        self.sources.append(source)
        self._by_key[source.key] = source
        return source

    def begin(self, source: Source) -> None:
        """Start to scan a source."""
        if not self.is_closed:
            self.scanner.add(source)

    def topic_deleted(self, topic: str) -> None:
        """Its records are gone."""
        for source in self.sources:
            if source.topic == topic and not source.is_gone:
                source.is_gone = True
                self.scanner.drop(source)
                self._by_key.pop(source.key, None)
                self.state.forget_source(source.number)
                self.journal.add(self.books.forgotten(source))
                self.journal.changed()
        self.changed()

    # ── leasing ───────────────────────────────────────────────────────────────────────────────────

    async def lease(
        self,
        consumer: QueueConsumer,
        max_records: int,
        max_bytes: int,
        *,
        wait_ms: int,
        sources: Collection[Key] | None,
        memory: ReadMemory | None = None,
    ) -> list[Leased]:
        """See `QueueConsumer.lease`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        may_take = partial(self._may_take, consumer, sources)
        while True:
            self.scanner.catch_up(at_once=not wait_ms)
            granted_bytes = max_bytes if memory is None else memory.take(max_bytes)
            try:
                grants = self._grant(consumer, max_records, max(granted_bytes, 1), sources)
                leased = await self._deliver(consumer, grants, max(granted_bytes, 1)) if grants else []
            finally:
                if memory is not None:
                    memory.give_back(granted_bytes)
            if leased or not wait_ms:
                return leased
            if grants:  # they could not be had: others get their turn
                if loop.time() >= deadline:
                    return []
                await asyncio.sleep(0)
            elif not await self._waiters[consumer.subscriber].wait(may_take, deadline - loop.time()):
                return []

    def _grant(
        self, consumer: QueueConsumer, max_records: int, max_bytes: int, sources: Collection[Key] | None
    ) -> list[Grant]:
        self.check_open()
        consumer.check_open()
        if self.definition.is_paused:
            return []
        now_ms, wall_ms = self.now()
        self.state.tick(now_ms, wall_ms)
        lane = self.state.lanes[consumer.subscriber]
        limit = min(
            max_records, lane.room(consumer.id, consumer.prefetch), max(1, max_bytes // self._mean_bytes())
        )
        if limit <= 0:
            return []
        numbers = None
        if sources is not None:
            numbers = {self._by_key[key].number for key in sources if key in self._by_key}
        grants = lane.grant(
            consumer.id,
            limit,
            now_ms=now_ms,
            wall_ms=wall_ms,
            lease_ms=self.definition.policy.lease_ms,
            sources=numbers,
        )
        if grants:
            self.scanner.consumed()
        return grants

    def _mean_bytes(self) -> int:
        return (
            max((int(source.mean_bytes) for source in self.sources if not source.is_gone), default=256) or 1
        )

    async def _deliver(self, consumer: QueueConsumer, grants: list[Grant], max_bytes: int) -> list[Leased]:
        """Read what was granted, keep that it is leased, then hand it out. What could not be read is ready again."""
        lane = self.state.lanes[consumer.subscriber]
        granted_ms = self.now()[0]
        delivery = _Delivery(lane, grants)
        self._deliveries.add(delivery)
        try:
            reading = await self._read(consumer, grants, max_bytes)
            delivery.grants = reading.taken
            lane.undo(reading.left)
            if reading.taken:
                flushed = self.journal.flushed()
                for synced in _start_syncs(reading):
                    # A log that cannot be synced says so to its publishers; what it holds can be read and handled all the same.
                    with suppress(SparrowError):
                        await synced
                await flushed
            if not consumer.is_open:  # or lost its place to another, who would never get them
                lane.undo(reading.taken)
        except BaseException:
            lane.undo(delivery.grants)
            self.changed()
            raise
        finally:
            self._deliveries.discard(delivery)
        self.changed()
        lease_ms = max(1, self.definition.policy.lease_ms - (self.now()[0] - granted_ms))
        found: list[Leased] = []
        for source, taken, data in reading.found:
            # Whatever happened meanwhile: nobody gets what is not leased to him any more.
            ranges = [(g.first, g.end - 1, g.deliveries) for g in taken if lane.still_leased(g)]
            if ranges:
                found.append(Leased(source.topic, source.index, ranges, data, lease_ms))
        return found

    async def _read(self, consumer: QueueConsumer, grants: list[Grant], max_bytes: int) -> _Reading:
        # What is more urgent comes first; of one priority and source by offset, as batches lie in the log.
        by_place: dict[tuple[int, int], list[Grant]] = {}
        for grant in grants:
            level = 0 if consumer.takes_by_offset else grant.level
            by_place.setdefault((level, grant.source), []).append(grant)
        reading = _Reading([], [], [])
        for (_, number), granted in by_place.items():
            granted.sort(key=lambda grant: grant.first)
            source = self.sources[number]
            data, had = await self._read_source(consumer, source, granted, max_bytes)
            taken, left = _split(granted, had)
            reading.taken.extend(taken)
            reading.left.extend(left)
            if taken:
                max_bytes -= sum(map(len, data))
                reading.found.append((source, taken, data[0] if len(data) == 1 else b"".join(data)))
        return reading

    async def _read_source(
        self, consumer: QueueConsumer, source: Source, granted: list[Grant], max_bytes: int
    ) -> tuple[list[bytes | memoryview], int]:
        if max_bytes <= 0:
            return [], 0
        try:
            data, had = await source.read([(grant.first, grant.end) for grant in granted], max_bytes)
        except OffsetOutOfRange:  # retention was faster
            self.state.lost(source.number, source.partition.start_offset)
            return [], 0
        except UnknownTopic:
            return [], 0
        except CorruptBatch as error:
            self._unreadable(consumer, source, granted, error)
            return [], 0
        source.measured(sum(map(len, data)), had)
        return data, had

    def _unreadable(
        self, consumer: QueueConsumer, source: Source, granted: list[Grant], error: CorruptBatch
    ) -> None:
        """Records that nobody can read must not keep the others from being handed out: they are tried again later, and counted."""
        _LOG.error(
            "queue %r cannot read what it leased of %s: %s", self.name, source.partition.id, error.text
        )
        lane = self.state.lanes[consumer.subscriber]
        now_ms, _ = self.now()
        for grant in filter(lane.still_leased, granted):
            runs = lane.leased_runs(consumer.id, grant.source, grant.first, grant.end)
            lane.back(grant.source, runs, now_ms, self.definition.policy.lease_ms, error.text)

    async def wait(self, consumer: QueueConsumer, wait_ms: int) -> bool:
        """See `QueueConsumer.wait`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        may_take = partial(self._may_take, consumer, None)
        self.check_open()
        consumer.check_open()
        self.scanner.catch_up()
        while not may_take():
            if not await self._waiters[consumer.subscriber].wait(may_take, deadline - loop.time()):
                return False
            self.check_open()
            consumer.check_open()
        return True

    def _may_take(self, consumer: QueueConsumer, sources: Collection[Key] | None) -> bool:
        """Whether there is something that the consumer could lease now."""
        lane = self.state.lanes[consumer.subscriber]
        if self.definition.is_paused or not len(lane.ready) or lane.room(consumer.id, consumer.prefetch) <= 0:
            return False
        if sources is None:
            return True
        return any(self.sources[number].key in sources for _, number, _ in lane.ready.peek())

    def wake(self) -> None:
        """Let those look again for whom there is something, in the order in which they came."""
        if not self.definition.is_paused:
            for name, lane in self.state.lanes.items():
                if len(lane.ready) and len(self._waiters[name]):
                    self._waiters[name].wake(len(lane.ready))

    def end_consumers(self, refusal: SparrowError) -> None:
        """Close all consumers, and tell them why."""
        for consumer in list(self.consumers.values()):
            consumer.end(refusal)

    def wake_all(self) -> None:
        """Let everybody who waits look again: something else than records changed."""
        for waiters in self._waiters.values():
            waiters.wake_all()

    # ── settling ──────────────────────────────────────────────────────────────────────────────────

    def settle(
        self, consumer: QueueConsumer, settlements: Sequence[Settlement]
    ) -> asyncio.Future[list[SparrowError | None]]:
        """See `QueueConsumer.settle`."""
        self.check_open()
        now_ms, wall_ms = self.now()
        self.state.tick(now_ms, wall_ms)
        lane = self.state.lanes[consumer.subscriber]
        outcomes: list[SparrowError | None] = []
        for each in settlements:
            try:
                self._settle(lane, consumer.id, each, now_ms)
                outcomes.append(None)
            except SparrowError as error:
                outcomes.append(error)
        self.state.settled()
        answer: asyncio.Future[list[SparrowError | None]] = asyncio.get_running_loop().create_future()
        self.journal.flushed().add_done_callback(partial(_answer, answer, outcomes))
        self.changed()
        return answer

    def _settle(self, lane: Lane, consumer: str, each: Settlement, now_ms: int) -> None:
        number = self._source_of(each).number
        runs = lane.leased_runs(consumer, number, each.first, each.last + 1, each.delivery)
        if each.verb == Verb.ACK:
            lane.acknowledge(number, runs)
        elif each.verb == Verb.NACK:
            lane.back(number, runs, now_ms, min(each.delay_ms, MAX_LEASE_MS * 60), each.text)
        elif each.verb == Verb.REJECT:
            lane.reject(number, runs, each.text)
        elif each.verb == Verb.EXTEND:
            lease_ms = self.definition.policy.lease_ms if each.delay_ms < 0 else each.delay_ms
            lane.extend(number, runs, now_ms + min(lease_ms, MAX_LEASE_MS))
        elif each.verb == Verb.RETURN:
            lane.take_back(number, runs)
        else:
            raise InvalidArgument(f"there is no verb {each.verb} for leased records")

    def _source_of(self, each: Settlement) -> Source:
        source = self._by_key.get((each.topic, each.partition))
        if source is None:
            raise NotLeased(f"the queue {self.name!r} has no partition {each.topic!r}-{each.partition}")
        return source

    def refusal_of(self, consumer: QueueConsumer, settlements: Sequence[Settlement]) -> SparrowError | None:
        """See `QueueConsumer.refusal_of`."""
        now_ms, wall_ms = self.now()
        self.state.tick(now_ms, wall_ms)
        lane = self.state.lanes[consumer.subscriber]
        try:
            for each in settlements:
                number = self._source_of(each).number
                lane.leased_runs(consumer.id, number, each.first, each.last + 1, each.delivery)
        except SparrowError as error:
            return error
        return None

    async def give_back(self, consumer: QueueConsumer, *, counts: bool) -> None:
        """Everything that the consumer holds is ready again; durable when it returns.

        Args:
            counts: whether these deliveries count; else it is as if they had not been.
        """
        lane = self.state.lanes.get(consumer.subscriber)
        if lane is None or self.is_closed:
            return
        now_ms, _ = self.now()
        for source, run in lane.held_by(consumer.id):
            if counts:
                lane.back(source, [run], now_ms, 0, "the consumer went away")
            else:
                lane.take_back(source, [run])
        self.changed()
        await self.journal.flushed()

    def moved(
        self, subscriber: str, records: Iterable[Doomed], also: Sequence[Write] = ()
    ) -> asyncio.Future[None]:
        """Dead letters of these are on stable storage; `also` is written together with that. Done when it is kept."""
        lane = self.state.lanes.get(subscriber)
        if lane is not None:
            for source, first, end in records:
                lane.moved(source, first, end)
        self.journal.add(also)
        flushed = self.journal.flushed()
        self.changed()
        return flushed

    # ── what changes by itself ────────────────────────────────────────────────────────────────────

    def now(self) -> tuple[int, int]:
        """(monotonic, wall) time in ms."""
        return round(self._clock.monotonic() * 1000), self._clock.wall_ms()

    def changed(self) -> None:
        """The state is another one: wake who waits for it, keep it, and come again when something is due."""
        doomed = self.state.take_doomed()
        if doomed and self.dead_letters is not None:
            self.dead_letters.take(doomed)
        self.scanner.consumed()
        self.wake()
        if any(lane.dirty for lane in self.state.lanes.values()):
            self.journal.changed()
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
        if due_ms is None and due_wall_ms is None:
            return
        now_ms, wall_ms = self.now()
        delays = [_LONGEST_SLEEP_S]
        if due_ms is not None:
            delays.append((due_ms - now_ms) / 1000)
        if due_wall_ms is not None:
            delays.append((due_wall_ms - wall_ms) / 1000)
        loop = asyncio.get_running_loop()
        at = loop.time() + max(0.0, min(delays))
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = loop.call_at(at, self.tick)

    def housekeep(self) -> None:
        """Now and then: rates, and what retention took."""
        self.rates.sample(self._clock.monotonic(), self._published(), self.state)
        self.state.sweep()
        for source in self.sources:
            if source.is_gone or not source.partition.is_open:
                continue
            start = source.partition.start_offset
            if any(lane.starts[source.number] < start for lane in self.state.lanes.values()):
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
        """Raise UnknownQueue when the queue was deleted, or the broker stops."""
        if self.is_closed:
            raise UnknownQueue(f"there is no queue {self.name!r} any more")

    def redefine(self, definition: Definition) -> None:
        """A new policy that needs no new state."""
        self.definition = definition
        self.state.reconfigure(
            definition.policy,
            has_dead_letters=definition.policy.dead_letters_of(definition.name) is not None,
        )
        self.wake_all()
        self.changed()

    def stop(self) -> None:
        """Nothing is scanned or handed out from here on."""
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
        """Take over what is not in the records' state: who consumes, what was counted."""
        self.rates = old.rates
        for consumer in list(old.consumers.values()):
            if consumer.subscriber in self.state.lanes:
                consumer.queue = self
                self.consumers[consumer.id] = consumer
            else:
                consumer.end(
                    UnknownQueue(f"queue {self.name!r} has no subscriber {consumer.subscriber!r} any more")
                )
        for name, lane in self.state.lanes.items():
            if name in old.state.lanes:
                lane.tally = old.state.lanes[name].tally

    def restart_source(self, source: Source, start: int) -> None:
        """Begin anew at an offset."""
        source.pieces = None
        self.state.restart_source(source.number, start)
        self.scanner.add(source)
        self.changed()

    async def purge(self) -> int:
        """Finish all records that are there and not leased; returns how many. Durable when it returns."""
        ends = {
            source: source.visible_end(committed=self.is_committed_only)
            for source in self.sources
            if not source.is_gone
        }
        count = 0
        for source, end in ends.items():
            position = min(lane.starts[source.number] for lane in self.state.lanes.values())
            while position < end and not source.is_gone:
                stop = self._purged_until(source, position, end)
                if position < stop:
                    count += self.state.purge_range(source.number, position, stop)
                    position = stop
                    self.changed()
                await asyncio.sleep(0 if position == stop else 0.001)
                self.check_open()
        await self.journal.flushed()
        return count

    def _purged_until(self, source: Source, position: int, end: int) -> int:
        """Where to stop for a turn of the loop."""
        if self.state.tells_ids:  # ids of parents must be known before they can be finished
            return min(position + _PURGED_SINGLY, end, self.state.scanned[source.number])
        source.pieces = None
        per_turn = _PURGED if self.definition.policy.order == "none" else _PURGED_SINGLY
        return min(position + per_turn, end)

    async def close(self) -> None:
        """Stop, and keep what is not kept yet. What was granted and not handed out is ready again."""
        self.stop()
        for delivery in self._deliveries:
            delivery.lane.undo(delivery.grants)
        await self.journal.close()

    @property
    def unfinished(self) -> int:
        """Records that are not done, those included that were not looked at yet."""
        lanes = self.state.lanes.values()
        return max(lane.unfinished for lane in lanes) + sum(
            self.unscanned(source) for source in self.sources if not source.is_gone
        )

    def unscanned(self, source: Source) -> int:
        """Records of a source that were not looked at yet, at most."""
        first = min(lane.starts[source.number] for lane in self.state.lanes.values())
        seen = max(self.state.scanned[source.number], first)
        return max(0, source.visible_end(committed=self.is_committed_only) - seen)

    @property
    def is_share_group(self) -> bool:
        return self.definition.kind == SHARE


def _start_syncs(reading: _Reading) -> list[asyncio.Future[None]]:
    """Make the records stable that are not yet: else, after a power failure, others could take the places of records that were handled.
    Nothing to do where each publish waits for its sync (acks=all), or the topic does without."""
    syncs: list[asyncio.Future[None]] = []
    for source, taken, _ in reading.found:
        log, end = source.partition.log, max(grant.end for grant in taken)
        if source.partition.config.syncs and end > log.durable_offset:
            syncs.append(log.durable(end))
    return syncs


def _split(granted: list[Grant], had: int) -> tuple[list[Grant], list[Grant]]:
    """The first `had` records of the grants, and the rest."""
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


def _answer(
    answer: asyncio.Future[list[SparrowError | None]],
    outcomes: list[SparrowError | None],
    flushed: asyncio.Future[None],
) -> None:
    if answer.done():
        return
    if flushed.cancelled():
        answer.cancel()
        return
    error = flushed.exception()
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(outcomes)
