"""An idempotent producer with acks=all, and unawaited records between its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

from sparrow.broker.broker import Broker
from tests.crash.stories import Notes, batch, records_of

_TOPIC, _PARTITIONS = "orders", 2


def _publish_unsafely(broker: Broker, partition: int) -> None:
    broker.records.publish(_TOPIC, partition, batch(b"unsafe" * 20), acks=1)


class Records:
    """An idempotent producer: acknowledged records exist once, in order; repeats are recognised."""

    name = "records"

    def __init__(self) -> None:
        self.notes = Notes()

    async def live(self, broker: Broker) -> AsyncGenerator[None, Broker]:
        await broker.topics.create(_TOPIC, _PARTITIONS, {"segment.bytes": "1024"})
        producer = await broker.records.open_producer()
        self.notes.add("producer", (producer.producer_id, producer.epoch))
        for number in range(12):
            if number % 3 == 2:
                _publish_unsafely(broker, number % _PARTITIONS)
            await self._publish(broker, number)
            if number == 7:
                _publish_unsafely(broker, 0)
                broker = yield
        await asyncio.gather(*(self._publish(broker, number) for number in range(12, 18)))
        _publish_unsafely(broker, 1)

    async def _publish(self, broker: Broker, number: int) -> None:
        self.notes.add("asked", number)
        published = await self._send(broker, self.notes, number)
        self.notes.add("done", (number, published.base_offset))

    def _send(self, broker: Broker, notes: Notes, number: int) -> Any:
        producer_id, epoch = notes.all("producer")[0]
        data = batch(
            b"%d" % number,
            producer_id=producer_id,
            epoch=epoch,
            sequence=number // _PARTITIONS,
        )
        return broker.records.publish(_TOPIC, number % _PARTITIONS, data)

    async def check(self, broker: Broker, notes: Notes) -> None:
        if not notes.all("producer"):
            return
        done = dict(notes.all("done"))
        await self._compare(broker, done, set(notes.all("asked")))
        for partition in range(_PARTITIONS):
            mine = [number for number in notes.all("asked") if number % _PARTITIONS == partition]
            known = [number for number in mine if number in done]
            # The client sends unconfirmed batches again, and also the last confirmed one.
            for number in sorted({*known[-1:], *(set(mine) - set(known))}):
                published = await self._send(broker, notes, number)
                assert done.setdefault(number, published.base_offset) == published.base_offset
        await self._compare(broker, done, set(done))

    async def _compare(self, broker: Broker, done: dict[int, int], asked: set[int]) -> None:
        found = [each for each in await records_of(broker, _TOPIC) if (each.value or b"").isdigit()]
        places = {int(each.value or b""): each.offset for each in found}
        assert {number: places.get(number) for number in done} == done
        assert places.keys() <= asked
        assert set(Counter(each.value for each in found).values()) <= {1}
        for partition in range(_PARTITIONS):
            numbers = [int(each.value or b"") for each in found if each.partition == partition]
            assert numbers == sorted(numbers)
