"""A broker with queues, and steps of tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence

from sparrow.base.clock import ManualClock
from sparrow.base.errors import SparrowError
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.queues.consumer import QueueConsumer
from sparrow.broker.queues.queue import Queue
from sparrow.broker.queues.rules.settlement import Leased, Settlement, Verb
from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from sparrow.records.record import Record, decode
from sparrow.storage.directory import LOGS_DIRECTORY


class Work:
    """A broker over a directory that can be stopped, crashed and started again."""

    def __init__(self, path: str, clock: ManualClock, config: BrokerConfig) -> None:
        self.path = path
        self.clock = clock
        self.config = config
        self.broker: Broker
        self._copies = 0

    async def start(self) -> None:
        self.broker = Broker(self.path, config=self.config, clock=self.clock)
        await self.broker.start()

    async def stop(self) -> None:
        await self.broker.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def crash(self, *, loses_since: str | None = None) -> None:
        """Start again with what is on stable storage now, as after a kill -9.

        Args:
            loses_since: a copy of the directory; what the logs got since then is lost, as when the
                machine's power fails. For tests with `large_appends`: the journal has short ones.
        """
        copied = self.copied()
        await self.stop()
        if loses_since is not None:
            shutil.rmtree(f"{copied}/{LOGS_DIRECTORY}")
            shutil.copytree(f"{loses_since}/{LOGS_DIRECTORY}", f"{copied}/{LOGS_DIRECTORY}")
        self.path = copied
        await self.start()

    def copied(self) -> str:
        """Return a copy of the directory as it is now."""
        self._copies += 1
        path = f"{self.path}-{self._copies}"
        shutil.copytree(self.path, path)
        return path

    # ── publishing ────────────────────────────────────────────────────────────────────────────────

    async def publish(
        self,
        topic: str,
        values: Iterable[bytes],
        *,
        headers: Sequence[tuple[str, bytes]] = (),
        keys: Sequence[bytes | None] | None = None,
        partition: int = 0,
    ) -> int:
        """Publish one batch. Return the offset of its first record."""
        listed = list(values)
        batch = build_batch(
            listed,
            keys,
            [headers] * len(listed) if headers else None,
            self.clock.wall_ms(),
        )
        return (await self.broker.records.publish(topic, partition, batch)).base_offset

    # ── queues ────────────────────────────────────────────────────────────────────────────────────

    async def create(self, name: str, topics: Sequence[str] = (), **policy: object) -> Queue:
        await self.broker.queues.create(name, topics, policy)
        return self.queue(name)

    def queue(self, name: str) -> Queue:
        return self.broker.parts.queue_registry.get(name)

    async def consumer(self, name: str, consumer_id: str = "", **options: object) -> QueueConsumer:
        return await self.broker.queues.open_consumer(name, consumer_id=consumer_id, **options)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for queue in self.broker.parts.queue_registry:
            queue.tick()

    def statistics(self, name: str):
        return self.broker.queues.describe(name).statistics


def records(leased: Sequence[Leased]) -> list[Record]:
    """Return the records that were leased, in order."""
    found: list[Record] = []
    for each in leased:
        decoded = {
            record.offset: record
            for _, batch in split(each.data)
            for record in decode(batch, each.topic, each.partition)
        }
        for first, last, _ in each.ranges:
            found += [decoded[offset] for offset in range(first, last + 1) if offset in decoded]
    return found


def values(leased: Sequence[Leased]) -> list[bytes]:
    return [record.value or b"" for record in records(leased)]


async def take(consumer: QueueConsumer, count: int = 1000, **options: object) -> list[Record]:
    """Lease what there is within half a second."""
    return records(await consumer.lease(count, **{"wait_ms": 500, **options}))


async def settle(
    consumer: QueueConsumer, verb: Verb, taken: Sequence[Record], *, delay_ms: int = -1, text: str = ""
) -> list[SparrowError | None]:
    return await consumer.settle(
        [Settlement(verb, r.topic, r.partition, r.offset, r.offset, delay_ms, text) for r in taken]
    )


async def ack(consumer: QueueConsumer, taken: Sequence[Record]) -> None:
    for error in await settle(consumer, Verb.ACK, taken):
        if error is not None:
            raise error
