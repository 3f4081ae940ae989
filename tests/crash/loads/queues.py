"""Workers of queues that acknowledge while their broker dies."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import ClassVar

from sparrow.base.errors import SparrowError
from sparrow.client import Client
from sparrow.client.job import Job
from sparrow.testing.running import RunningBroker
from tests.crash.publisher import PARTITIONS, connect_eagerly

_WORKERS = 3
_LEASE_S = 3
"""Short, so that what a crash leaves leased comes again within the test."""


class _Workers:
    """Publishes numbered jobs, has workers lease and acknowledge them, and notes when which was handed out and which acknowledgement was confirmed."""

    name: str
    policy: ClassVar[dict[str, object]]

    def __init__(self) -> None:
        self.published: set[int] = set()
        self.acknowledged: set[int] = set()
        self.handed_out: Counter[int] = Counter()
        self.wrong: list[str] = []

    async def prepare(self, broker: RunningBroker) -> None:
        async with await connect_eagerly(broker.url) as client:
            policy = {"lease_ms": _LEASE_S * 1000, "delivery_limit": 0, **self.policy}
            await client.admin.create_queue(self.name, policy=policy, partitions=PARTITIONS)

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        async with (
            await connect_eagerly(broker.url) as publisher,
            await connect_eagerly(broker.url) as worker,
        ):
            over = asyncio.Event()
            workers = [asyncio.create_task(self._work(worker, over)) for _ in range(_WORKERS)]
            await self.publish(publisher, stop)
            try:
                async with asyncio.timeout(60):
                    while self.acknowledged != self.published:
                        await asyncio.sleep(0.02)
            except TimeoutError:
                left = sorted(self.published - self.acknowledged)[:20]
                self.wrong.append(f"{left} were never acknowledged, though nothing went wrong any more")
            over.set()
            await asyncio.gather(*workers)

    async def publish(self, client: Client, stop: asyncio.Event) -> None:
        """Publish until told to stop; returns when all of it is acknowledged."""
        raise NotImplementedError

    def look(self, number: int) -> None:
        """A job was handed out: is that right?"""
        if number in self.acknowledged:
            self.wrong.append(f"{number} was handed out again after its acknowledgement was confirmed")

    async def _work(self, client: Client, over: asyncio.Event) -> None:
        while not over.is_set():
            try:
                async with client.queue(self.name) as queue:
                    while not over.is_set():
                        batch = await queue.lease(20, wait_s=0.1)
                        await asyncio.gather(*(self._handle(job) for job in batch.jobs))
            except SparrowError:  # the broker is gone, or takes no more just now
                await asyncio.sleep(0.02)

    async def _handle(self, job: Job) -> None:
        number = int((job.value or b"").split(b" ")[0])
        self.look(number)
        self.handed_out[number] += 1
        try:
            await job.ack()
        except SparrowError:
            return  # it may hold or not; if not, it comes again
        self.acknowledged.add(number)

    async def check(self, broker: RunningBroker) -> None:
        assert self.wrong == []
        assert self.acknowledged == self.published
        async with await connect_eagerly(broker.url) as client:
            left = await client.queue(self.name).statistics()
            assert (left.ready, left.leased, left.delayed, left.blocked) == (0, 0, 0, 0)

    @property
    def progress(self) -> int:
        return len(self.acknowledged)


class QueueWorkers(_Workers):
    """What was acknowledged is never handed out again; everything published is handled in the end."""

    name = "jobs"
    policy: ClassVar[dict[str, object]] = {}

    async def publish(self, client: Client, stop: asyncio.Event) -> None:
        async with client.producer(linger_ms=1) as producer:
            number = 0
            while not stop.is_set():
                for _ in range(10):
                    self.published.add(number)
                    await producer.send(self.name, b"%d" % number)
                    number += 1
                await producer.flush()
                await asyncio.sleep(0.01)


class ParentedWorkers(_Workers):
    """No record is handed out before its parents are finished: once a child was handed out, none of its parents comes again."""

    name = "build"
    policy: ClassVar[dict[str, object]] = {"order": "parented"}

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = random.Random(seed)
        self._parents: dict[int, list[int]] = {}
        self._children: dict[int, list[int]] = defaultdict(list)
        self._asked: set[int] = set()
        """Whose acknowledgement was sent at least once."""

    async def publish(self, client: Client, stop: asyncio.Event) -> None:
        async with client.producer(linger_ms=1) as producer:
            first = 0
            while not stop.is_set():
                numbers = range(first, first + 10)
                first += 10
                for number in numbers:
                    self._choose_parents(number)
                # Children come before their parents, too: then they wait.
                for number in self._dice.sample(numbers, len(numbers)):
                    self.published.add(number)
                    parents = [f"m{parent}" for parent in self._parents[number]]
                    await producer.send(self.name, b"%d" % number, message_id=f"m{number}", parents=parents)
                await producer.flush()
                await asyncio.sleep(0.02)

    def _choose_parents(self, number: int) -> None:
        older: Iterable[int] = range(max(0, number - 15), number)
        chosen = self._dice.sample(list(older), min(number, self._dice.choice((0, 1, 1, 2, 3))))
        self._parents[number] = chosen
        for parent in chosen:
            self._children[parent].append(number)

    def look(self, number: int) -> None:
        super().look(number)
        early = [parent for parent in self._parents[number] if parent not in self._asked]
        if early:
            self.wrong.append(f"{number} was handed out before its parents {early} were finished")
        late = [child for child in self._children[number] if self.handed_out[child]]
        if late:
            self.wrong.append(f"{number} was handed out after its children {late}")
        self._asked.add(number)
