"""Base of the loads that publish to a topic of their own, and optionally read it."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import Found, History, Kind, kept
from tests.crash.histories.logs import doubled, gaps, invented, lost, reordered, unread
from tests.crash.loads.patience import again_until, soon
from tests.crash.publisher import connect_eagerly, number_of, read_all

BURST = 5
PAUSE_S = 0.04
"""Pause after each burst: there are many loads at a time, and none of them has to be fast."""


class TopicLoad:
    """Publishes numbered messages until stopped; readers continue until they have every
    acknowledged message. Unacknowledged messages are not sent again.
    """

    name: str
    partitions: ClassVar[int] = 1
    readers: ClassVar[int] = 1
    """The number of tasks that read."""
    is_read: ClassVar[bool] = True
    """True if each message is noted when a reader has it."""

    def __init__(self) -> None:
        self.history = History()
        self._sent = 0

    async def prepare(self, broker: RunningBroker) -> None:
        async with await connect_eagerly(broker.url) as client:
            await client.admin.create_topic(self.name, partitions=self.partitions)

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:  # whose unexpected errors end it
            reading = [
                group.create_task(again_until(over, lambda by=f"r{number}": self.read(broker, by)))
                for number in range(self.readers)
            ]
            await again_until(stop, lambda: self.publish(broker, stop))
            await self.until_done(broker)
            for each in reading:
                each.cancel()

    def burst(self) -> list[int]:
        """Return the numbers of the next messages; the caller sends them."""
        numbers = list(range(self._sent, self._sent + BURST))
        self._sent += BURST
        for number in numbers:
            self.history.note(Kind.SENT, number)
        return numbers

    async def publish(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        """Publish over one connection until it is lost, or for a while."""
        raise NotImplementedError

    async def read(self, broker: RunningBroker, by: str) -> None:
        """Read over one connection until it is lost, or for a while."""
        raise NotImplementedError

    async def until_done(self, broker: RunningBroker) -> None:
        """Wait until readers have all messages; with a time limit, because the check finds missing
        ones.
        """
        await soon(self.is_done)

    def is_done(self) -> bool:
        """Return True if readers have all acknowledged messages."""
        if not self.is_read:
            return True
        return self.history.numbers(Kind.ACKNOWLEDGED) <= self.history.numbers(Kind.READ)

    async def check(self, broker: RunningBroker) -> None:
        found = await in_topic(broker, self.name)
        kept(
            lost(self.history, found),
            invented(self.history, found),
            doubled(self.history, found),
            reordered(found),
            gaps(found),
            self.misread(found),
        )

    def misread(self, found: list[Found]) -> list[str]:
        """Return the errors of readers; here only acknowledged messages that were not read."""
        return unread(self.history.numbers(Kind.ACKNOWLEDGED), self.history) if self.is_read else []

    @property
    def progress(self) -> int:
        kinds = [Kind.ACKNOWLEDGED, Kind.READ] if self.is_read else [Kind.ACKNOWLEDGED]
        return min(map(self.history.count, kinds))


async def in_topic(broker: RunningBroker, topic: str) -> list[Found]:
    """Return all values in a topic."""
    return [Found(number_of(each), each.partition, each.offset) for each in await read_all(broker.url, topic)]
