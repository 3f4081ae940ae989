"""Topics that retention and compaction work on while the broker is killed.

A topic with a limit of bytes may lose its oldest records, in whole segments, and nothing else. A
compacted topic keeps the last value of each key.
"""

from __future__ import annotations

import asyncio

from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import kept
from tests.crash.loads.patience import AGAIN_S, PATIENCE_S
from tests.crash.loads.topic import PAUSE_S
from tests.crash.publisher import Ledger, connect_eagerly, number_of, publish_until, read_all

_KEPT_BYTES = 40_000
_SEGMENT_BYTES = 8_000
_LARGEST_SEGMENT_BYTES = 20_000
"""More than one batch, which may have a segment for itself: the producer's grow to 16 KiB while the
broker is away.
"""
_KEYS = 20


class Retained:
    """A topic with retention: a reader finds the last records without a gap, in order, once each,
    and no fewer bytes than retention keeps.
    """

    name = "retained"
    partitions = 2

    def __init__(self) -> None:
        self._ledger = Ledger()

    async def prepare(self, broker: RunningBroker) -> None:
        async with await connect_eagerly(broker.url) as client:
            await client.admin.create_topic(
                self.name,
                partitions=self.partitions,
                config={"retention.bytes": str(_KEPT_BYTES), "segment.bytes": str(_SEGMENT_BYTES)},
            )

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        async with await connect_eagerly(broker.url) as client:
            await publish_until(stop, client, self.name, self._ledger, acks="all", pause_s=PAUSE_S)

    async def check(self, broker: RunningBroker) -> None:
        assert len(self._ledger.acknowledged) == self._ledger.sent
        await until_at_rest(broker, self.name)
        async with await connect_eagerly(broker.url) as client:
            starts = {
                each.partition: each.offset for each in await client.admin.offsets(self.name, "beginning")
            }
            ends = {each.partition: each.offset for each in await client.admin.offsets(self.name, "end")}
            sizes = {
                each.partition: each.bytes
                for each in (await client.admin.describe_topic(self.name)).partitions
            }
        found = {
            (each.partition, each.offset): number_of(each) for each in await read_all(broker.url, self.name)
        }
        kept(self.breaches(starts, ends, sizes, found))

    def breaches(
        self,
        starts: dict[int, int],
        ends: dict[int, int],
        sizes: dict[int, int],
        found: dict[tuple[int, int], int],
    ) -> list[str]:
        wrong = []
        places = self._ledger.acknowledged
        for partition, end in ends.items():
            if starts[partition] and sizes[partition] < _KEPT_BYTES:
                wrong.append(
                    f"partition {partition} has {sizes[partition]} bytes; {_KEPT_BYTES} are to be kept"
                )
            wrong += [
                f"offset {offset} of partition {partition} is missing; the log begins at {starts[partition]}"
                for offset in range(starts[partition], end)
                if (partition, offset) not in found
            ]
        wrong += [
            f"{number} was acknowledged at {place}, where {found.get(place)} is"
            for number, place in places.items()
            if place[1] >= starts[place[0]] and found.get(place) != number
        ]
        if len(set(found.values())) != len(found):
            wrong.append("a message is there twice")
        return wrong

    @property
    def progress(self) -> int:
        return len(self._ledger.acknowledged)


async def until_at_rest(broker: RunningBroker, topic: str) -> None:
    """Wait until retention has nothing more to remove: it may be behind after many kills."""
    async with asyncio.timeout(PATIENCE_S), await connect_eagerly(broker.url) as client:
        while any(
            each.bytes >= _KEPT_BYTES + _LARGEST_SEGMENT_BYTES
            for each in (await client.admin.describe_topic(topic)).partitions
        ):
            await asyncio.sleep(AGAIN_S)


class Compacted:
    """A compacted topic: the last acknowledged value of each key exists, or one that was sent after
    it.
    """

    name = "compacted"

    def __init__(self) -> None:
        self._sent: dict[int, list[int]] = {key: [] for key in range(_KEYS)}
        self._acknowledged: dict[int, int] = {}
        self._count = 0

    async def prepare(self, broker: RunningBroker) -> None:
        config = {
            "cleanup.policy": "compact",
            "segment.bytes": str(_SEGMENT_BYTES),
            "min.cleanable.dirty.ratio": "0.01",
        }
        async with await connect_eagerly(broker.url) as client:
            await client.admin.create_topic(self.name, partitions=1, config=config)

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        async with (
            await connect_eagerly(broker.url) as client,
            client.producer(linger_ms=1) as producer,
            asyncio.TaskGroup() as group,
        ):
            while not stop.is_set():
                for key in range(_KEYS):
                    number, self._count = self._count, self._count + 1
                    self._sent[key].append(number)
                    delivery = await producer.send(
                        self.name, b"%d %s" % (number, b"." * 100), key=b"key-%d" % key
                    )
                    group.create_task(self._note(key, number, delivery))
                await asyncio.sleep(PAUSE_S)

    async def _note(self, key: int, number: int, delivery: asyncio.Future[object]) -> None:
        await delivery
        self._acknowledged[key] = max(number, self._acknowledged.get(key, -1))

    async def check(self, broker: RunningBroker) -> None:
        found: dict[int, list[int]] = {key: [] for key in range(_KEYS)}
        for message in await read_all(broker.url, self.name):
            assert message.key is not None
            found[int(message.key.removeprefix(b"key-"))].append(number_of(message))
        kept(self.breaches(found))
        assert sum(map(len, found.values())) < self._count, "nothing was compacted"

    def breaches(self, found: dict[int, list[int]]) -> list[str]:
        wrong = []
        for key, numbers in found.items():
            last = self._acknowledged.get(key, -1)
            if max(numbers, default=-1) < last:
                wrong.append(
                    f"of key {key} the last is {max(numbers, default=None)}; {last} was acknowledged"
                )
            if numbers != sorted(set(numbers)):
                wrong.append(f"key {key} has {numbers}: twice, or out of order")
            wrong += [
                f"{number} of key {key} was never sent" for number in set(numbers) - set(self._sent[key])
            ]
        return wrong

    @property
    def progress(self) -> int:
        return sum(self._acknowledged.values())
