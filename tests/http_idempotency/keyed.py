"""A broker for publishes with idempotency keys; it can be copied as a kill -9 would leave it, and
started again.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence

from sparrow.base.clock import Clock
from sparrow.broker.access.authz import ANONYMOUS, SYSTEM, Principal
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.idempotency.stored_publish import IdempotencyKey
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.frontends.idempotent_publisher import IdempotentPublisher, PublishResults
from sparrow.frontends.publisher import Message, Publisher, PublishResult, Stored
from sparrow.records.batch import split
from sparrow.records.record import decode


def key_of(text: str, body: Iterable[object] = (), principal: Principal = ANONYMOUS) -> IdempotencyKey:
    return IdempotencyKey(str(principal), text, repr(list(body)).encode())


class Keyed:
    def __init__(self, path: str, clock: Clock, config: BrokerConfig) -> None:
        self.path = path
        self.clock = clock
        self.config = config
        self.broker: Broker
        self._copies = 0

    async def start(self, *, until_counted: bool = True) -> None:
        self.broker = Broker(self.path, config=self.config, clock=self.clock)
        await self.broker.start()
        self.publisher = Publisher(self.broker)
        self.once = IdempotentPublisher(self.broker, self.publisher)
        async with asyncio.timeout(10):
            while until_counted and self.broker.idempotency.is_walking:
                await asyncio.sleep(0)

    async def stop(self) -> None:
        await self.broker.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def copied(self) -> str:
        """Return a copy of the data, as a kill -9 would leave it now."""
        self._copies += 1
        path = f"{self.path}-{self._copies}"
        shutil.copytree(self.path, path)
        return path

    async def publish(
        self,
        key: str,
        messages: Sequence[Message],
        topic: str = "t",
        *,
        principal: Principal = ANONYMOUS,
        acks: int = -1,
    ) -> PublishResults:
        return await self.once.publish(
            key_of(key, messages, principal), topic, messages, principal=principal, acks=acks
        )

    async def counts(self, topic: str = "t") -> Counter[bytes | None]:
        """Return how often each value is in the log."""
        found: Counter[bytes | None] = Counter()
        for partition in range(len(self.broker.parts.topic_registry.get(topic).partitions)):
            found += Counter(await self._values(topic, partition))
        return found

    async def _values(self, topic: str, partition: int) -> list[bytes | None]:
        values: list[bytes | None] = []
        offset = self.broker.parts.topic_registry.get(topic).partition(partition).start_offset
        while True:
            (fetched,) = await self.broker.records.fetch(
                [FetchRequest(topic, partition, offset)], principal=SYSTEM
            )
            if fetched.chunk is None or not fetched.chunk.data:
                return values
            values += [r.value for _, batch in split(fetched.chunk.data) for r in decode(batch)]
            offset = fetched.chunk.next_offset


def stored(answers: PublishResults) -> list[Stored]:
    return [placed(answer) for answer in answers.results]


def placed(answer: PublishResult) -> Stored:
    assert isinstance(answer, Stored), answer
    return answer
