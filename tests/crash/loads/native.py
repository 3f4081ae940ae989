"""An idempotent producer of the native client."""

from __future__ import annotations

import asyncio

from sparrow.testing.running import RunningBroker
from tests.crash.publisher import PARTITIONS, Ledger, check, connect_eagerly, publish_until, read_all


class NativeProducer:
    """Everything acknowledged is there once, where the acknowledgement says, in order; nothing is there twice."""

    def __init__(self, topic: str = "native") -> None:
        self.name = topic
        self._ledger = Ledger()

    async def prepare(self, broker: RunningBroker) -> None:
        async with await connect_eagerly(broker.url) as client:
            await client.admin.create_topic(self.name, partitions=PARTITIONS)

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        async with await connect_eagerly(broker.url) as client:
            await publish_until(stop, client, self.name, self._ledger, acks="all")

    async def check(self, broker: RunningBroker) -> None:
        assert len(self._ledger.acknowledged) == self._ledger.sent
        check(self._ledger, await read_all(broker.url, self.name))

    @property
    def progress(self) -> int:
        return len(self._ledger.acknowledged)
