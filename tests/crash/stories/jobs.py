"""Work queues: one in order of arrival whose jobs are acknowledged, released and rejected; one
whose jobs have parents.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Sequence

from sparrow.broker.broker import Broker
from sparrow.broker.queues.consumer import QueueConsumer
from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.records.batch import split
from sparrow.records.record import decode
from sparrow.records.wellknown import MESSAGE_ID, PARENT_ID
from tests.crash.stories import Notes, batch, records_of

_LEASE_MS = 1000
_sentinels = itertools.count(1)


class _Queue:
    """Jobs are numbers in one partition."""

    name: str
    policy: dict[str, object]

    def __init__(self) -> None:
        self.notes = Notes()
        self._offsets: dict[int, int] = {}

    async def create(self, broker: Broker) -> None:
        policy = {"lease_ms": _LEASE_MS, "delivery_limit": 0, **self.policy}
        await broker.queues.create(self.name, (), policy, partitions=1)
        self.notes.add("created")

    async def publish(
        self, broker: Broker, number: int, parents: Sequence[int] = (), *, acks: int = -1
    ) -> None:
        headers = [(MESSAGE_ID, b"m%d" % number), *((PARENT_ID, b"m%d" % parent) for parent in parents)]
        self.notes.add("sent", number)
        await broker.records.publish(self.name, 0, batch(b"%d" % number, headers=[headers]), acks=acks)
        if acks == -1:
            self.notes.add("published", number)

    async def lease(self, consumer: QueueConsumer, count: int) -> list[int]:
        """Lease jobs, and note their delivery counts."""
        found: dict[int, int] = {}
        async with asyncio.timeout(10):
            while len(found) < count:
                found |= await self._take(consumer, count - len(found))
        for number, deliveries in found.items():
            self.notes.add("leased", (number, deliveries))
        return list(found)

    async def settle(self, consumer: QueueConsumer, verb: Verb, *numbers: int) -> None:
        for number in numbers:
            self.notes.add(f"asked {verb.name}", number)
        offsets = [self._offsets[number] for number in numbers]
        answers = await consumer.settle(
            [Settlement(verb, self.name, 0, offset, offset, -1, "") for offset in offsets]
        )
        assert not any(answers)
        for number in numbers:
            self.notes.add(verb.name, number)

    async def _take(self, consumer: QueueConsumer, count: int) -> dict[int, int]:
        """Lease jobs; return number → delivery count. Sentinels have negative numbers."""
        found: dict[int, int] = {}
        for leased in await consumer.lease(count, wait_ms=1000):
            for _, data in split(leased.data):
                for record in decode(data):
                    for first, last, deliveries in leased.ranges:
                        if first <= record.offset <= last:
                            number = int(record.value or b"")
                            found[number] = deliveries
                            self._offsets[number] = record.offset
        return found

    async def take_all(self, broker: Broker) -> dict[int, int]:
        """Return everything that is ready after a restart, up to a record that is published now:
        number → delivery count.
        """
        sentinel, found = -next(_sentinels), Counter[int]()
        await broker.records.publish(self.name, 0, batch(b"%d" % sentinel))
        consumer = await broker.queues.open_consumer(self.name)
        async with asyncio.timeout(20):
            while sentinel not in found:
                taken = await self._take(consumer, 1000)
                assert taken.keys().isdisjoint(found), "a job was handed out twice at the same time"
                found.update(taken)
        return {number: deliveries for number, deliveries in found.items() if number >= 0}

    async def compare(
        self, broker: Broker, notes: Notes, found: dict[int, int], ready: Collection[int]
    ) -> None:
        """Check leases: no acknowledged job, every job that is surely ready, each with its delivery
        count.
        """
        assert found.keys().isdisjoint(notes.all("ACK"))
        assert set(ready) - set(notes.all("asked ACK")) - set(notes.all("asked REJECT")) <= found.keys()
        assert found.keys() <= set(notes.all("sent"))
        there = {int(each.value or b"") for each in await records_of(broker, self.name)}
        assert {number for number, _ in notes.all("leased")} <= there, "what was handed out is gone"
        for number, deliveries in notes.all("leased"):
            assert number not in found or found[number] > deliveries, (
                f"a delivery of {number} was not counted"
            )


class Jobs(_Queue):
    """Acknowledged jobs never come again; rejected ones are dead letters once; all others are
    delivered, with correct delivery counts.
    """

    name = "jobs"
    policy: dict[str, object] = {}  # noqa: RUF012 - of the class, and never changed

    async def live(self, broker: Broker) -> AsyncGenerator[None, Broker]:
        await self.create(broker)
        for number in range(6):
            await self.publish(broker, number)
        consumer = await broker.queues.open_consumer(self.name)
        await self.lease(consumer, 3)
        await self.settle(consumer, Verb.ACK, 0, 1)
        await self.settle(consumer, Verb.REJECT, 2)
        await self._moved(broker)
        broker = yield
        consumer = await broker.queues.open_consumer(self.name)
        await self.lease(consumer, 2)
        await self.settle(consumer, Verb.NACK, 3)
        await self.settle(consumer, Verb.EXTEND, 4)
        await self.publish(broker, 6, acks=1)  # the lease is its first promise
        await self.lease(consumer, 3)
        await self.settle(consumer, Verb.REJECT, 3, 5)
        await self.settle(consumer, Verb.ACK, 4, 6)
        await self._moved(broker)

    async def _moved(self, broker: Broker) -> None:
        async with asyncio.timeout(20):
            while broker.queues.describe(self.name).statistics.moving:
                await asyncio.sleep(0.001)

    async def check(self, broker: Broker, notes: Notes) -> None:
        if not notes.all("created"):
            return
        await self._moved(broker)
        found = await self.take_all(broker)
        await self.compare(broker, notes, found, notes.all("published"))
        dead = Counter(int(each.value or b"") for each in await records_of(broker, f"{self.name}.dead"))
        assert set(dead.values()) <= {1}, "a letter was written twice"
        assert set(notes.all("REJECT")) <= dead.keys() <= set(notes.all("asked REJECT"))
        assert dead.keys().isdisjoint(found)
        lost = set(notes.all("published")) - found.keys() - dead.keys() - set(notes.all("asked ACK"))
        assert not lost


class Family(_Queue):
    """A child is delivered when all its parents are acknowledged, and not before."""

    name = "family"
    policy: dict[str, object] = {"order": "parented"}  # noqa: RUF012
    _PARENTS: dict[int, tuple[int, ...]] = {0: (), 1: (), 2: (0, 1), 3: (2,), 4: (0,), 5: (3, 4), 6: (2, 5)}  # noqa: RUF012

    async def live(self, broker: Broker) -> AsyncGenerator[None, Broker]:
        await self.create(broker)
        for number in (5, 2, 0, 4, 1, 3):
            await self.publish(broker, number, self._PARENTS[number])
        consumer = await broker.queues.open_consumer(self.name, consumer_id="worker")
        await self.lease(consumer, 2)
        await self.settle(consumer, Verb.ACK, 0)
        broker = yield
        consumer = await broker.queues.open_consumer(self.name, consumer_id="worker")
        await self.settle(consumer, Verb.ACK, 1)
        await self.lease(consumer, 2)
        await self.publish(broker, 6, self._PARENTS[6])
        await self.settle(consumer, Verb.ACK, 2, 4)
        await self.settle(consumer, Verb.ACK, *await self.lease(consumer, 1))
        await self.settle(consumer, Verb.ACK, *await self.lease(consumer, 1))
        await self.lease(consumer, 1)

    async def check(self, broker: Broker, notes: Notes) -> None:
        if not notes.all("created"):
            return
        found = await self.take_all(broker)
        acknowledged, asked = set(notes.all("ACK")), set(notes.all("asked ACK"))
        published = notes.all("published")
        ready = [
            number
            for number in published
            if acknowledged.issuperset(self._PARENTS[number])
            and set(published).issuperset(self._PARENTS[number])
        ]
        await self.compare(broker, notes, found, ready)
        for number in found:
            assert asked.issuperset(self._PARENTS[number]), (
                f"{number} was handed out before its parents were finished"
            )
