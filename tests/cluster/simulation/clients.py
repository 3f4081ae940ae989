"""Clients of the simulation, with what they were promised; each retries until all is calm.

A request may be lost, may be carried out without its response, may come late; the client then sends
it again, to whichever broker serves, as real clients do.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sparrow.base.errors import ConcurrentTransactions, Conflict, SparrowError
from sparrow.broker.broker import Broker
from sparrow.broker.groups.offsets import NO_MEMBER, OffsetAndMetadata
from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.records.batch import split
from sparrow.records.record import decode
from tests.crash.histories import Event, History, Kind
from tests.crash.histories import queues as queue_promises
from tests.crash.stories import batch, records_of
from tests.transactions.machine import read_committed

if TYPE_CHECKING:
    from tests.cluster.simulation.world import World

T = TypeVar("T")
TIMEOUT_S = 4.0
LEASE_MS = 6000
QUEUE_LIMIT = 1_000_000
PARTITIONS = 2


class Unanswered(Exception):
    """A request whose outcome the client does not know."""


class Client(Protocol):
    """A load and its judge."""

    def __init__(self, world: World) -> None: ...

    async def prepare(self, broker: Broker) -> None:
        """Create what is needed; again after a failure."""
        ...

    async def run(self) -> None:
        """Work until `world.is_calm` and all that is under way is done."""
        ...

    async def judge(self, broker: Broker) -> None:
        """Check the promises at a broker that has taken over after everything."""
        ...


class Producer:
    """An idempotent producer: what was acknowledged is there once, where it was said to be, in
    order. A reader sees what was acknowledged before it asked, and never anything else.
    """

    topic = "orders"

    def __init__(self, world: World) -> None:
        self._world = world
        self._done: dict[int, int] = {}
        self._asked: set[int] = set()
        self._seen: dict[tuple[int, int], bytes] = {}
        self._ends: dict[int, int] = defaultdict(int)
        """The end of what was acknowledged, by partition."""

    async def prepare(self, broker: Broker) -> None:
        await broker.topics.create(self.topic, PARTITIONS, {"segment.bytes": "4096"})

    async def run(self) -> None:
        producers = [self._produce(partition) for partition in range(PARTITIONS)]
        await asyncio.gather(*producers, self._read())

    async def _produce(self, partition: int) -> None:
        world = self._world
        identity = await world.again(lambda broker: broker.records.open_producer())
        sequence, number = 0, partition
        while not world.is_calm:
            count = world.random.randint(1, 3)
            numbers = [number + PARTITIONS * each for each in range(count)]
            self._asked.update(numbers)
            data = batch(
                *(b"%d" % each + b" " * world.random.choice([0, 200]) for each in numbers),
                producer_id=identity.producer_id,
                epoch=identity.epoch,
                sequence=sequence,
            )
            published = await world.again(
                lambda broker, data=data: broker.records.publish(self.topic, partition, data)
            )
            for place, each in enumerate(numbers):
                self._done[each] = published.base_offset + place
            self._ends[partition] = max(self._ends[partition], published.base_offset + count)
            sequence, number = sequence + count, number + PARTITIONS * count
            await asyncio.sleep(world.random.random() * 0.3)

    async def _read(self) -> None:
        world, offsets = self._world, dict.fromkeys(range(PARTITIONS), 0)
        while not world.is_calm:
            partition = world.random.randrange(PARTITIONS)
            expected = self._ends[partition]
            try:
                end, found = await world.ask(lambda broker, p=partition: self._fetch(broker, p, offsets[p]))
            except Unanswered:
                await asyncio.sleep(0.2)
                continue
            assert end >= expected, f"a reader saw the end {end} after {expected} was acknowledged"
            for offset, value in found:
                known = self._seen.setdefault((partition, offset), value)
                assert known == value, f"offset {offset} was {known!r}, and is {value!r}"
                offsets[partition] = offset + 1
            await asyncio.sleep(world.random.random() * 0.5)

    async def _fetch(
        self, broker: Broker, partition: int, offset: int
    ) -> tuple[int, list[tuple[int, bytes]]]:
        found = broker.parts.topic_registry.get(self.topic).partition(partition)
        log = await found.opened()
        chunk = await log.read(offset, 4096)
        records = [
            (record.offset, record.value or b"")
            for header, data in split(chunk.data)
            for record in decode(data, self.topic, partition, min_offset=offset)
        ]
        return log.end_offset, records

    async def judge(self, broker: Broker) -> None:
        found = await records_of(broker, self.topic)
        places = {int(each.value or b""): each.offset for each in found}
        counts = Counter(int(each.value or b"") for each in found)
        assert not [number for number, count in counts.items() if count > 1], "a message is there twice"
        assert {number: places.get(number) for number in self._done} == self._done, "a message was lost"
        assert places.keys() <= self._asked
        there = {(each.partition, each.offset): each.value for each in found}
        assert {place: there.get(place) for place in self._seen} == self._seen, "a reader saw more"
        for partition in range(PARTITIONS):
            numbers = [int(each.value or b"") for each in found if each.partition == partition]
            assert numbers == sorted(numbers), "the order is another"


class Workers:
    """A work queue: what was acknowledged never comes again, leases exclude each other, each
    delivery is counted, nothing is lost.
    """

    queue = "jobs"

    def __init__(self, world: World) -> None:
        self._world = world
        self._history = History()
        self._published: set[int] = set()
        self._asked: set[int] = set()

    async def prepare(self, broker: Broker) -> None:
        await broker.queues.create(self.queue, (), {"lease_ms": LEASE_MS, "delivery_limit": 0}, partitions=1)

    async def run(self) -> None:
        await asyncio.gather(self._publish(), *(self._work(f"worker-{each}") for each in range(2)))

    def _note(self, kind: Kind, number: int = -1, **more: Any) -> None:
        self._history._add(Event(self._world.time.now, kind, number, **more))

    async def _publish(self) -> None:
        world, number, sequence = self._world, 0, 0
        identity = await world.again(lambda broker: broker.records.open_producer())
        while not world.is_calm:
            self._asked.add(number)
            data = batch(
                b"%d" % number,
                producer_id=identity.producer_id,
                epoch=identity.epoch,
                sequence=sequence,
            )
            await world.again(lambda broker, data=data: broker.records.publish(self.queue, 0, data))
            self._published.add(number)
            number, sequence = number + 1, sequence + 1
            await asyncio.sleep(world.random.random() * 0.4)

    async def _work(self, name: str) -> None:
        world = self._world
        while not world.is_calm:
            asked_s = world.time.now
            try:
                taken = await world.ask(lambda broker: self._lease(broker, name))
            except Unanswered:
                self._note(Kind.UNANSWERED, by=self.queue, asked_s=asked_s)
                await asyncio.sleep(0.3)
                continue
            for number, (_, deliveries) in taken.items():
                self._note(Kind.HANDED_OUT, number, by=self.queue, count=deliveries, asked_s=asked_s)
            for number, (offset, _) in taken.items():
                if world.random.random() < 0.2:
                    continue  # the lease ends by itself
                verb = world.random.choice([Verb.ACK, Verb.ACK, Verb.NACK, Verb.RELEASE])
                await self._settle(name, number, offset, verb)
            await asyncio.sleep(world.random.random() * 0.3)

    async def _lease(self, broker: Broker, name: str) -> dict[int, tuple[int, int]]:
        """Return offset and delivery count by number."""
        consumer = await broker.queues.open_consumer(self.queue, consumer_id=name)
        found = {}
        for leased in await consumer.lease(3):
            for _, data in split(leased.data):
                for record in decode(data):
                    for first, last, deliveries in leased.ranges:
                        if first <= record.offset <= last:
                            found[int(record.value or b"")] = (record.offset, deliveries)
        return found

    async def _settle(self, name: str, number: int, offset: int, verb: Verb) -> None:
        what = verb.name.lower()
        self._note(Kind.SETTLING, number, by=self.queue, what=what)

        async def settle(broker: Broker) -> SparrowError | None:
            consumer = await broker.queues.open_consumer(self.queue, consumer_id=name)
            settlement = Settlement(verb, self.queue, 0, offset, offset, -1, "")
            return (await consumer.settle([settlement]))[0]

        try:
            error = await self._world.ask(settle)
        except Unanswered:
            return
        if error is None:
            self._note(Kind.SETTLED, number, by=self.queue, what=what)

    async def judge(self, broker: Broker) -> None:
        found: dict[int, int] = {}
        consumer = await broker.queues.open_consumer(self.queue, consumer_id="judge")
        for _ in range(3):
            await asyncio.sleep(2 * LEASE_MS / 1000)
            while True:
                taken = await self._take(consumer)
                if not taken:
                    break
                assert taken.keys().isdisjoint(found), "a job was handed out twice at the same time"
                found |= taken
            if found:
                break
        settled = self._history.of(Kind.SETTLED)
        acknowledged = {event.number for event in settled if event.what == "ack"}
        maybe = {event.number for event in self._history.of(Kind.SETTLING) if event.what == "ack"}
        assert acknowledged.isdisjoint(found), "an acknowledged job came again"
        assert self._published - maybe <= found.keys(), "a job was lost"
        assert found.keys() <= self._asked
        counts: dict[int, int] = {}
        for event in self._history.of(Kind.HANDED_OUT):
            counts[event.number] = max(counts.get(event.number, 0), event.count)
        released = {event.number for event in self._history.of(Kind.SETTLING) if event.what == "release"}
        for number, deliveries in found.items():
            assert number in released or deliveries > counts.get(number, 0), f"{number} was not counted"
        breaches = queue_promises.redelivered(self._history) + queue_promises.leased_twice(
            self._history, LEASE_MS / 1000
        )
        assert not breaches, breaches

    async def _take(self, consumer: Any) -> dict[int, int]:
        found = {}
        for leased in await consumer.lease(1000, wait_ms=500):
            for _, data in split(leased.data):
                for record in decode(data):
                    for first, last, deliveries in leased.ranges:
                        if first <= record.offset <= last:
                            found[int(record.value or b"")] = deliveries
        return found


class Offsets:
    """A group's offsets: what was confirmed is not undone."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._confirmed = self._asked = -1

    async def prepare(self, broker: Broker) -> None:
        await broker.topics.create("read", 1)

    async def run(self) -> None:
        world, number = self._world, 0
        while not world.is_calm:
            self._asked = number
            offsets = {("read", 0): OffsetAndMetadata(number)}
            await world.again(lambda broker, o=offsets: broker.groups.commit("readers", o, NO_MEMBER))
            self._confirmed = number
            present = await world.again(self._present)
            assert present == number, f"offset {number} was confirmed, and {present} is there"
            number += 1
            await asyncio.sleep(world.random.random() * 0.5)

    async def _present(self, broker: Broker) -> int | None:
        return broker.parts.group_registry.committed_offset("readers", ("read", 0))

    async def judge(self, broker: Broker) -> None:
        present = await self._present(broker)
        assert present is None or self._confirmed <= present <= self._asked, (present, self._confirmed)
        assert present is not None or self._confirmed < 0, "the offsets were lost"


class Transactions:
    """Transactions over two topics and a group's offsets: all of one is there, or nothing."""

    topics = ("left", "right")
    id, group = "loader", "loaders"

    def __init__(self, world: World) -> None:
        self._world = world
        self._done: set[int] = set()
        self._asked: set[int] = set()

    async def prepare(self, broker: Broker) -> None:
        for topic in self.topics:
            if broker.parts.topic_registry.find(topic) is None:
                await broker.topics.create(topic, 1)

    async def run(self) -> None:
        world = self._world
        for number in range(1000):
            if world.is_calm:
                return
            commit = world.random.random() < 0.7
            producer = await world.again(lambda broker: broker.transactions.initialize(self.id, 60_000))
            try:
                for topic in self.topics:
                    await self._write(producer, topic, number)
                await self._commit_offset(producer, number)
                if commit:
                    self._asked.add(number)
                await world.ask(
                    lambda broker, p=producer, c=commit: broker.transactions.end(
                        self.id, p, commit=c, bumps_epoch=False
                    )
                )
                if commit:
                    self._done.add(number)
            except (Unanswered, Conflict):
                continue
            finally:
                await asyncio.sleep(world.random.random() * 0.4)

    async def _write(self, producer: Any, topic: str, number: int) -> None:
        async def write(broker: Broker) -> None:
            transactions = broker.transactions
            assert await transactions.add_partitions(self.id, producer, [(topic, 0)]) == {}
            data = batch(
                b"%d" % number,
                producer_id=producer.producer_id,
                epoch=producer.epoch,
                sequence=0,
                transactional=True,
            )
            await broker.records.publish(topic, 0, data, admit=transactions.admission(self.id))

        await self._world.ask(write)

    async def _commit_offset(self, producer: Any, number: int) -> None:
        async def commit(broker: Broker) -> None:
            offsets = {(self.topics[0], 0): OffsetAndMetadata(number)}
            await broker.transactions.add_group(self.id, producer, self.group)
            refused = await broker.transactions.commit_offsets(
                self.id, producer, self.group, offsets, committer=NO_MEMBER, adds_group=False
            )
            assert refused == {}

        await self._world.ask(commit)

    async def judge(self, broker: Broker) -> None:
        for _ in range(100):
            try:
                await broker.transactions.initialize(self.id, 60_000)
                break
            except ConcurrentTransactions:
                await asyncio.sleep(0.1)
        left, right = [[int(value) for value in await read_committed(broker, topic)] for topic in self.topics]
        assert left == right == sorted(set(left)), (left, right)
        assert self._done <= set(left) <= self._asked, "a transaction was lost, or is there without a commit"
        committed = broker.parts.group_registry.committed_offset(self.group, (self.topics[0], 0))
        assert committed == (left[-1] if left else None), "the offsets are of another transaction"


CLIENTS: tuple[Callable[[Any], Client], ...] = (Producer, Workers, Offsets, Transactions)
Work = Callable[[Broker], Awaitable[T]]
