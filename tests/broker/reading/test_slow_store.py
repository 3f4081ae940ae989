"""A broker over a store that is slow to read and to open: one waiting partition delays no other."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sparrow.base.errors import StorageFailed, UnknownTopic
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.reading.fetch import READS_AT_ONCE, FetchRequest
from sparrow.broker.reading.reader import Problem, Reader
from sparrow.meta.memory import MemoryMetaStore
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.late import LateLogStore
from sparrow.storage.local import LocalLogStore
from sparrow.storage.store import LogId
from tests.broker.batches import batch, values

PARTITIONS = 40
TOPIC = "orders"


class SlowReads:
    """A log whose cold reads wait until it is opened; counts them."""

    def __init__(self) -> None:
        self.waiting: set[int] = set()
        self.most = 0
        self.stuck: set[int] = set()
        self.gate = asyncio.Event()

    async def __call__(self, log_id: LogId) -> None:
        self.waiting.add(log_id.partition)
        self.most = max(self.most, len(self.waiting))
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            if log_id.partition in self.stuck:
                await self.gate.wait()
        finally:
            self.waiting.discard(log_id.partition)


class Slow:
    """A broker over a slow store, which can be started again."""

    def __init__(self) -> None:
        self.fs = FaultyFileSystem(seed=1)
        self.meta = MemoryMetaStore()
        self.config = BrokerConfig(default_partitions=PARTITIONS)

    async def start(self) -> Broker:
        self.store = LateLogStore(LocalLogStore("/data", self.fs), seed=2)
        self.meta = MemoryMetaStore(self.meta.entries)
        self.broker = Broker(config=self.config, log_store=self.store, meta_store=self.meta)
        await self.broker.start()
        return self.broker

    async def fill(self, topic: str = TOPIC, partitions: int = PARTITIONS) -> None:
        await self.broker.topics.create(topic, partitions)
        for partition in range(partitions):
            await self.broker.records.publish(topic, partition, batch(b"%d" % partition))

    def make_reads_slow(self) -> SlowReads:
        reads = SlowReads()
        self.store.cold, self.store.on_read = 1.0, reads
        return reads


@pytest_asyncio.fixture
async def slow() -> AsyncIterator[Slow]:
    it = Slow()
    await it.start()
    yield it
    await it.broker.close()


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# ── fetch ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_fetch_of_many_cold_partitions_reads_some_of_them_at_once(slow: Slow) -> None:
    await slow.fill()
    reads = slow.make_reads_slow()
    found = await slow.broker.records.fetch([FetchRequest(TOPIC, each, 0) for each in range(PARTITIONS)])
    assert [values(each.chunk.data) for each in found if each.chunk] == [
        [b"%d" % each] for each in range(PARTITIONS)
    ]
    assert reads.most == READS_AT_ONCE


@pytest.mark.parametrize("seed", range(20))
async def test_limits_hold_whether_partitions_are_cold_or_not(slow: Slow, seed: int) -> None:
    dice = random.Random(seed)
    await slow.broker.topics.create(TOPIC, 12)
    sizes = [dice.choice([0, 20, 200, 2000]) for _ in range(12)]
    for partition, size in enumerate(sizes):
        if size:
            await slow.broker.records.publish(TOPIC, partition, batch(bytes(size)))
    slow.make_reads_slow()
    for max_bytes in (0, 1, 300, 900, 3000, 1 << 20):
        for cold in (0.0, 0.5, 1.0):
            slow.store.cold = cold
            found = await slow.broker.records.fetch(
                [FetchRequest(TOPIC, each, 0) for each in range(12)], max_bytes=max_bytes
            )
            got = [each.size_bytes for each in found if each.size_bytes]
            assert [each.error for each in found] == [None] * 12
            assert bool(got) == any(sizes)
            assert sum(got) <= max_bytes or len(got) == 1
            if max_bytes == 1 << 20:
                assert len(got) == sum(1 for size in sizes if size)


async def test_a_cold_partition_that_fails_fails_alone(slow: Slow) -> None:
    await slow.fill()

    async def fail(log_id: LogId) -> None:
        await asyncio.sleep(0)
        if log_id.partition == 3:
            raise StorageFailed("the device cannot read it")

    slow.store.cold, slow.store.on_read = 1.0, fail
    found = await slow.broker.records.fetch([FetchRequest(TOPIC, each, 0) for each in range(PARTITIONS)])
    assert [each.partition for each in found if each.error] == [3]
    assert sum(1 for each in found if each.size_bytes) == PARTITIONS - 1


# ── readers ───────────────────────────────────────────────────────────────────────────────────────


async def read_until(reader: Reader, partitions: set[int]) -> set[int]:
    seen: set[int] = set()
    while not partitions <= seen:
        for each in await asyncio.wait_for(reader.read(1 << 20), 5):
            assert not isinstance(each, Problem)
            seen.add(each.partition)
    return seen


@pytest.mark.parametrize("committed", [False, True])
async def test_a_cold_cursor_that_waits_holds_up_no_other(slow: Slow, *, committed: bool) -> None:
    await slow.fill()
    reads = slow.make_reads_slow()
    reads.stuck = {0, 5}
    reader = Reader(committed=committed)
    for partition in slow.broker.parts.topic_registry.get(TOPIC).partitions:
        reader.add(partition, 0)
    others = set(range(PARTITIONS)) - reads.stuck
    assert await read_until(reader, others) == others
    assert reads.most == READS_AT_ONCE
    await slow.broker.records.publish(TOPIC, 7, batch(b"new"))
    assert await read_until(reader, {7}) == {7}
    reads.gate.set()
    assert await read_until(reader, {0, 5}) == {0, 5}
    reader.close()


async def test_cursors_that_are_dropped_while_they_wait_make_room_for_others(slow: Slow) -> None:
    await slow.fill()
    reads = slow.make_reads_slow()
    reads.stuck = set(range(READS_AT_ONCE))
    reader = Reader()
    for partition in slow.broker.parts.topic_registry.get(TOPIC).partitions:
        reader.add(partition, 0)
    reading = asyncio.create_task(reader.read(1 << 20))
    await turns()
    assert not reading.done()
    for stuck in reads.stuck:
        reader.drop((TOPIC, stuck))
    seen = {each.partition for each in await asyncio.wait_for(reading, 5)}
    rest = set(range(READS_AT_ONCE, PARTITIONS))
    assert seen
    assert await read_until(reader, rest - seen) == rest - seen
    reader.close()
    await turns()
    assert not reads.waiting


async def test_a_cold_read_that_fails_is_the_problem_of_its_partition(slow: Slow) -> None:
    await slow.fill(partitions=3)

    async def fail(log_id: LogId) -> None:
        await asyncio.sleep(0)
        if log_id.partition == 1:
            raise StorageFailed("the device cannot read it")

    slow.store.cold, slow.store.on_read = 1.0, fail
    reader = Reader()
    for partition in slow.broker.parts.topic_registry.get(TOPIC).partitions:
        reader.add(partition, 0)
    found = []
    while len(found) < 3:
        found += await asyncio.wait_for(reader.read(1 << 20), 5)
    assert {each.partition: isinstance(each, Problem) for each in found} == {0: False, 1: True, 2: False}
    reader.close()


# ── opening ───────────────────────────────────────────────────────────────────────────────────────


class SlowOpening:
    """A store that opens one partition only on request; the loop must never wait for it."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.is_asked, self.gate = threading.Event(), threading.Event()
        self.loop_thread = threading.get_ident()
        self.on_loop: list[LogId] = []

    def __call__(self, log_id: LogId) -> None:
        if threading.get_ident() == self.loop_thread:
            self.on_loop.append(log_id)
        if log_id.partition == self.partition:
            self.is_asked.set()
            assert self.gate.wait(20)


async def restarted(slow: Slow, partition: int = 1) -> SlowOpening:
    """Return the broker started again after a clean end, so that no log is open."""
    await slow.fill(partitions=3)
    await slow.broker.close()
    await slow.start()
    opening = SlowOpening(partition)
    slow.store.on_open = opening
    return opening


async def asked(opening: SlowOpening) -> None:
    assert await asyncio.to_thread(opening.is_asked.wait, 20)


async def test_publishing_to_a_log_that_opens_slowly_waits_in_order_and_holds_up_nobody(slow: Slow) -> None:
    opening = await restarted(slow)
    promises = [slow.broker.records.publish(TOPIC, 1, batch(b"%d" % number)) for number in range(5)]
    await asked(opening)
    assert (await slow.broker.records.publish(TOPIC, 0, batch(b"x"))).base_offset == 1
    promises.append(slow.broker.records.publish(TOPIC, 1, batch(b"5")))
    assert not any(each.done() for each in promises)
    opening.gate.set()
    assert [each.base_offset for each in await asyncio.gather(*promises)] == [1, 2, 3, 4, 5, 6]
    assert opening.on_loop == []


async def test_reading_a_log_that_opens_slowly_holds_up_nobody(slow: Slow) -> None:
    opening = await restarted(slow)
    reader = Reader()
    for partition in slow.broker.parts.topic_registry.get(TOPIC).partitions:
        reader.add(partition, 0)
    fetching = asyncio.create_task(
        slow.broker.records.fetch([FetchRequest(TOPIC, each, 0) for each in range(3)])
    )
    assert await read_until(reader, {0, 2}) == {0, 2}
    await asked(opening)
    assert not fetching.done()
    (other,) = await slow.broker.records.fetch([FetchRequest(TOPIC, 2, 0)])
    assert other.size_bytes
    opening.gate.set()
    assert await read_until(reader, {1}) == {1}
    assert all(each.size_bytes for each in await fetching)
    reader.close()
    assert opening.on_loop == []


async def test_offsets_descriptions_and_housekeeping_open_logs_in_threads(slow: Slow) -> None:
    opening = await restarted(slow)
    opening.gate.set()
    assert [each[1] for each in await slow.broker.records.offsets(TOPIC, "end")] == [1, 1, 1]
    for act in ("watch", "describe", "weigh", "walk"):
        await slow.broker.close()
        await slow.start()
        slow.store.on_open = opening
        if act == "watch":
            await slow.broker.records.watch([TOPIC], {})
        elif act == "describe":
            await slow.broker.topics.open(TOPIC)
            slow.broker.topics.describe(TOPIC)
        elif act == "weigh":
            await slow.broker.records.estimate_sizes(TOPIC, [(1, 0, 1)])
        else:
            await slow.broker._maintenance.walk()
        assert opening.on_loop == [], act


async def test_log_that_cannot_be_opened_refuses_waiting_requests_and_is_retried(slow: Slow) -> None:
    opening = await restarted(slow)
    is_broken = True

    def fail(log_id: LogId) -> None:
        opening(log_id)
        if log_id.partition == 1 and is_broken:
            raise StorageFailed("the store does not know it")

    slow.store.on_open = fail
    promises = [slow.broker.records.publish(TOPIC, 1, batch(b"x")) for _ in range(2)]
    opening.gate.set()
    for each in promises:
        with pytest.raises(StorageFailed, match="does not know"):
            await each
    is_broken = False
    assert (await slow.broker.records.publish(TOPIC, 1, batch(b"x"))).base_offset == 1


async def test_a_topic_that_is_deleted_while_its_log_opens_is_gone(slow: Slow) -> None:
    opening = await restarted(slow)
    promise = slow.broker.records.publish(TOPIC, 1, batch(b"x"))
    await asked(opening)
    deleting = asyncio.create_task(slow.broker.topics.delete(TOPIC))
    while slow.broker.parts.topic_registry.find(TOPIC) is not None:
        await asyncio.sleep(0)
    opening.gate.set()
    await deleting
    with pytest.raises(UnknownTopic):
        await promise
    assert slow.store.ids() == []
