"""Steps of tests of dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sparrow.broker.broker import Broker
from sparrow.broker.queues.consumer import QueueConsumer
from sparrow.broker.queues.rules.settlement import Verb
from sparrow.records.batch import split
from sparrow.records.record import Record, decode
from tests.queues.work import Work, settle, take


async def until(is_so: Callable[[], object], what: str = "") -> None:
    """Wait for something that the broker does by itself."""
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.005)


async def in_topic(broker: Broker, topic: str) -> list[Record]:
    """Return every record of a topic."""
    found: list[Record] = []
    described = broker.parts.topic_registry.find(topic)
    for partition in described.partitions if described is not None else ():
        offset = partition.start_offset
        while offset < partition.visible_end:
            chunk = await partition.log.read(offset, 1 << 20)
            for header, batch in split(chunk.data):
                found += decode(batch, topic, partition.id.partition, min_offset=offset)
                offset = header.next_offset
    return found


def headers_of(record: Record) -> dict[str, bytes | None]:
    return dict(record.headers)


async def reject_all(work: Work, consumer: QueueConsumer, reason: str = "bad") -> list[Record]:
    """Lease what there is and reject it."""
    taken = await take(consumer)
    assert not any(await settle(consumer, Verb.REJECT, taken, text=reason))
    return taken


async def moved(work: Work, queue: str) -> None:
    """Wait until nothing is on its way to the dead letters."""
    await until(lambda: work.statistics(queue).moving == 0)


def values_of(records: Sequence[Record]) -> list[bytes | None]:
    return [record.value for record in records]


async def take_all(consumer: QueueConsumer, count: int) -> list[Record]:
    """Lease this many, and any others that are there."""
    taken: list[Record] = []
    async with asyncio.timeout(30):
        while len(taken) < count:
            taken += await take(consumer)
    return taken + await take(consumer, wait_ms=0)
