"""The native client: an idempotent producer, and members of a group that commit."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import ClassVar

from sparrow.base.errors import SparrowError
from sparrow.client import Message, Subscription
from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import Found, Kind
from tests.crash.histories.events import Place
from tests.crash.histories.groups import disordered, forgotten
from tests.crash.histories.logs import unread
from tests.crash.loads.topic import PAUSE_S, TopicLoad
from tests.crash.publisher import (
    PARTITIONS,
    Ledger,
    check,
    connect_eagerly,
    number_of,
    publish_until,
    read_all,
)

_SESSION_TIMEOUT_S = 2.0


class NativeProducer:
    """An idempotent native producer: every acknowledged record exists once, at the acknowledged
    offset, in order; no record exists twice.
    """

    def __init__(self, topic: str = "native", acks: str = "all") -> None:
        self.name = topic
        self._acks = acks
        self._ledger = Ledger()

    async def prepare(self, broker: RunningBroker) -> None:
        async with await connect_eagerly(broker.url) as client:
            await client.admin.create_topic(self.name, partitions=PARTITIONS)

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        async with await connect_eagerly(broker.url) as client:
            await publish_until(stop, client, self.name, self._ledger, acks=self._acks, pause_s=2 * PAUSE_S)

    async def check(self, broker: RunningBroker) -> None:
        assert len(self._ledger.acknowledged) == self._ledger.sent
        check(self._ledger, await read_all(broker.url, self.name))

    @property
    def progress(self) -> int:
        return len(self._ledger.acknowledged)


class NativeTopic(TopicLoad):
    """A topic of a native producer, for readers at other listeners."""

    partitions: ClassVar[int] = PARTITIONS
    readers: ClassVar[int] = 0

    async def publish(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        async with await connect_eagerly(broker.url) as client, client.producer(linger_ms=1) as producer:
            while not stop.is_set():
                numbers = self.burst()
                sent = [
                    await producer.send(self.name, b"%d" % n, partition=n % self.partitions) for n in numbers
                ]
                for number, delivery in zip(numbers, sent, strict=True):
                    found = await delivery
                    self.history.note(Kind.ACKNOWLEDGED, number, (found.partition, found.offset))
                await asyncio.sleep(PAUSE_S)


class NativeGroup(NativeTopic):
    """Two members that commit: no confirmed commit is forgotten, no record is skipped, each
    partition comes in order.
    """

    name = "members"
    readers: ClassVar[int] = 2

    def __init__(self) -> None:
        super().__init__()
        self._due: dict[tuple[str, int], int] = {}
        """The next offset of each member in each partition."""
        self._committed: dict[int, int] = {}
        """The committed offsets at the end."""

    async def read(self, broker: RunningBroker, by: str) -> None:
        fresh: set[int] = set()
        """Partitions from which nothing was read since they were assigned."""
        async with (
            await connect_eagerly(broker.url) as client,
            client.subscribe(
                self.name,
                start="beginning",
                group=self.name,
                session_timeout_s=_SESSION_TIMEOUT_S,
                on_assigned=lambda places: fresh.update(partition for _, partition, _ in places),
            ) as subscription,
        ):
            while True:
                await self._step(subscription, fresh, by)

    async def _step(self, subscription: Subscription, fresh: set[int], by: str) -> None:
        last: dict[int, Message] = {}
        messages = await subscription.pull(20, wait_s=0.2)
        await asyncio.sleep(0)  # `on_assigned` runs in a task
        for message in messages:
            place = (message.partition, message.offset)
            self.read_by(by, number_of(message), place, fresh)
            last[message.partition] = message
        for partition, message in last.items():
            place = (partition, message.offset + 1)
            self.history.note(Kind.COMMITTING, -1, place, by=by)
            with suppress(SparrowError):  # it may hold or not; others may own the partition
                await subscription.commit(message)
                self.history.note(Kind.COMMITTED, -1, place, by=by)

    def read_by(self, by: str, number: int, place: Place, fresh: set[int]) -> None:
        """Record a read of a member. It begins again where it was assigned the partition, or where
        others had it while the member was cut off; then only at the committed offset.
        """
        key = (by, place[0])
        if place[0] in fresh or self._due.get(key, place[1]) != place[1]:
            fresh.discard(place[0])
            self.history.note(Kind.RESUMED, -1, place, by=by)
        self.history.note(Kind.READ, number, place, by=by)
        self._due[key] = place[1] + 1

    def misread(self, found: list[Found]) -> list[str]:
        return (
            unread(self.history.numbers(Kind.ACKNOWLEDGED), self.history)
            + disordered(self.history)
            + forgotten(self.history, self._committed)
        )

    async def check(self, broker: RunningBroker) -> None:
        self._committed = await committed_offsets(broker, self.name)
        await super().check(broker)


async def committed_offsets(broker: RunningBroker, group: str) -> dict[int, int]:
    """Return the committed offsets of a group, by partition of its topic."""
    async with await connect_eagerly(broker.url) as client:
        return {each.partition: each.offset for each in await client.admin.group_offsets(group)}
