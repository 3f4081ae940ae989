"""Workers of queues that acknowledge while their broker dies."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable
from typing import ClassVar

from sparrow.base.errors import SparrowError
from sparrow.client import Client, Producer
from sparrow.client.job import Job
from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import History, Kind, kept
from tests.crash.histories.logs import doubled, lost
from tests.crash.histories.queues import (
    ACK,
    children_first,
    leased_twice,
    redelivered,
    unfinished,
)
from tests.crash.loads.patience import AGAIN_S, until_empty
from tests.crash.loads.topic import PAUSE_S, in_topic
from tests.crash.publisher import PARTITIONS, connect_eagerly

_WORKERS = 3
_LEASE_S = 3.0
"""Short, so that leases that a crash leaves end within the test."""


class Workers:
    """Publishes numbered jobs, lets workers lease and settle them, and records deliveries and
    confirmed settlements.
    """

    name: ClassVar[str]
    policy: ClassVar[dict[str, object]] = {}
    subscribers: ClassVar[tuple[str, ...]] = ("",)
    partitions: ClassVar[int] = PARTITIONS
    batch: ClassVar[int] = 8
    """Jobs that are published at a time."""
    lease_s: ClassVar[float] = _LEASE_S

    def __init__(self) -> None:
        self.history = History()
        self.published: set[int] = set()

    async def prepare(self, broker: RunningBroker) -> None:
        async with await connect_eagerly(broker.url) as client:
            policy = {"lease_ms": round(self.lease_s * 1000), "delivery_limit": 0, **self.policy}
            await client.admin.create_queue(self.name, policy=policy, partitions=self.partitions)

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        async with (
            await connect_eagerly(broker.url) as publisher,
            await connect_eagerly(broker.url) as worker,
        ):
            over = asyncio.Event()
            workers = [
                asyncio.create_task(self._work(worker, subscriber, over))
                for subscriber in self.subscribers
                for _ in range(_WORKERS)
            ]
            await self._publish_until(stop, publisher)
            await self.until_done(broker)
            over.set()
            await asyncio.gather(*workers)

    async def _publish_until(self, stop: asyncio.Event, client: Client) -> None:
        """Publish until stopped; return when everything is acknowledged."""
        async with client.producer(linger_ms=1) as producer:
            first = 0
            while not stop.is_set():
                numbers = range(first, first + self.batch)
                first += self.batch
                await self.publish(producer, numbers)
                await producer.flush()
                for number in numbers:
                    self.history.note(Kind.ACKNOWLEDGED, number)
                await asyncio.sleep(PAUSE_S)

    async def publish(self, producer: Producer, numbers: Iterable[int]) -> None:
        """Publish these jobs, and record it."""
        for number in numbers:
            self.send_noted(number)
            await producer.send(self.name, b"%d" % number)

    def send_noted(self, number: int) -> None:
        self.published.add(number)
        self.history.note(Kind.SENT, number)

    async def until_done(self, broker: RunningBroker) -> None:
        """Wait until everything is settled; with a time limit, because the check finds what is
        left.
        """
        await until_empty(broker, self.name)

    async def _work(self, client: Client, subscriber: str, over: asyncio.Event) -> None:
        while not over.is_set():
            try:
                async with client.queue(self.name, subscriber=subscriber) as queue:
                    while not over.is_set():
                        asked_s = time.monotonic()
                        batch = await queue.lease(20, wait_s=0.1)
                        await asyncio.gather(*(self._handle(job, subscriber, asked_s) for job in batch.jobs))
            except SparrowError:  # the broker is down, or accepts nothing for now
                await asyncio.sleep(AGAIN_S)

    async def _handle(self, job: Job, by: str, asked_s: float) -> None:
        number = int((job.value or b"").split(b" ")[0])
        self.history.note(Kind.HANDED_OUT, number, by=by, asked_s=asked_s, count=job.delivery_count)
        what = self.outcome(number)
        self.history.note(Kind.SETTLING, number, by=by, what=what)
        try:
            await getattr(job, what)()
        except SparrowError:
            return  # the settlement may hold or not; if not, the job comes again
        self.history.note(Kind.SETTLED, number, by=by, what=what)

    def outcome(self, number: int) -> str:
        """Return the settlement of a job: ack, nack, reject or release."""
        return ACK

    async def check(self, broker: RunningBroker) -> None:
        found = await in_topic(broker, self.name)
        kept(
            lost(self.history, found),
            doubled(self.history, found),
            redelivered(self.history),
            leased_twice(self.history, self.lease_s),
            self.breaches(),
        )
        await self.check_empty(broker)

    def breaches(self) -> list[str]:
        """Return the breaches of the other promises."""
        return [
            breach for each in self.subscribers for breach in unfinished(self.history, self.published, each)
        ]

    async def check_empty(self, broker: RunningBroker) -> None:
        async with await connect_eagerly(broker.url) as client:
            left = await client.queue(self.name).statistics()
        counts = (left.ready, left.leased, left.delayed, left.blocked, left.moving)
        assert counts == (0, 0, 0, 0, 0), counts

    @property
    def progress(self) -> int:
        return self.history.count(Kind.SETTLED)


class QueueWorkers(Workers):
    """Workers of a queue: acknowledged jobs are never leased again, and every published one is
    handled in the end.
    """

    name = "jobs"


class ParentedWorkers(Workers):
    """Parented jobs: no record is delivered before its parents are finished, and no parent is
    delivered after a child.
    """

    name = "build"
    policy: ClassVar[dict[str, object]] = {"order": "parented"}

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = random.Random(seed)
        self._parents: dict[int, list[int]] = {}

    async def publish(self, producer: Producer, numbers: Iterable[int]) -> None:
        chosen = list(numbers)
        for number in chosen:
            self._parents[number] = self._choose_parents(number)
        # Children come before their parents, too: then they wait.
        for number in self._dice.sample(chosen, len(chosen)):
            self.send_noted(number)
            parents = [f"m{parent}" for parent in self._parents[number]]
            await producer.send(self.name, b"%d" % number, message_id=f"m{number}", parents=parents)

    def _choose_parents(self, number: int) -> list[int]:
        older = range(max(0, number - 15), number)
        return self._dice.sample(older, min(number, self._dice.choice((0, 1, 1, 2, 3))))

    def breaches(self) -> list[str]:
        return super().breaches() + children_first(self.history, self._parents)


class AllOfWorkers(Workers):
    """Each subscriber gets each record, and none again that it acknowledged."""

    name = "orders"
    subscribers: ClassVar[tuple[str, ...]] = ("billing", "shipping")
    policy: ClassVar[dict[str, object]] = {"subscribers": list(subscribers)}
