"""A broker whose process is killed: its state besides the records."""

from __future__ import annotations

from contextlib import suppress

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import DiskFull, OutOfOrderSequence
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.meta.memory import MemoryMetaStore
from sparrow.meta.store import Delete, Put
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions
from tests.broker.batches import batch, values

HOUR_MS = 3_600_000
NEVER_MS = 1 << 40
QUIET = BrokerConfig(tick_interval_ms=NEVER_MS, retention_check_interval_ms=NEVER_MS)
ON_THE_LOOP = StorageOptions(flush_threads=0, worker_threads=0)


class Machine:
    """A disk and a clock that outlive the brokers on them."""

    def __init__(self) -> None:
        self.fs = FaultyFileSystem(0)
        self.meta = MemoryMetaStore()
        self.clock = ManualClock()
        self.producer_id = -1

    async def start(self) -> Broker:
        self.meta._closed = False  # opened again
        logs = LocalLogStore("/data", self.fs, self.clock, ON_THE_LOOP)
        broker = Broker(config=QUIET, clock=self.clock, log_store=logs, meta_store=self.meta)
        await broker.start()
        return broker

    async def kill(self, broker: Broker) -> None:
        await broker._maintenance.stop()
        self.fs.kill()

    async def open_producer(self, broker: Broker) -> None:
        """Get the id of `numbered`."""
        self.producer_id = (await broker.records.open_producer()).producer_id

    def numbered(self, sequence: int) -> bytes:
        return batch(
            b"x",
            timestamp_ms=self.clock.wall_ms(),
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )


@pytest.mark.parametrize("by", ["delete_records", "retention"])
async def test_producers_are_known_after_a_crash_though_their_records_are_deleted(by: str) -> None:
    machine = Machine()
    broker = await machine.start()
    await broker.topics.create("orders", 1, {"retention.ms": str(HOUR_MS), "segment.ms": "60000"})
    await machine.open_producer(broker)
    for sequence in range(5):
        await broker.records.publish("orders", 0, machine.numbered(sequence))
    if by == "delete_records":
        await broker.topics.delete_records("orders", {0: -1})
    else:
        machine.clock.advance(2 * 3600)
        await broker.records.publish("orders", 0, batch(b"new", timestamp_ms=machine.clock.wall_ms()))
        await broker._maintenance.walk()
    assert broker.topics.describe("orders").partitions[0].start_offset == 5
    await machine.kill(broker)

    broker = await machine.start()
    with pytest.raises(OutOfOrderSequence):
        broker.records.publish("orders", 0, machine.numbered(7))
    assert (await broker.records.publish("orders", 0, machine.numbered(4))).base_offset == 4
    end = broker.topics.describe("orders").partitions[0].end_offset
    assert (await broker.records.publish("orders", 0, machine.numbered(5))).base_offset == end
    await broker.close()


async def test_acknowledged_records_survive_power_loss() -> None:
    machine = Machine()
    broker = await machine.start()
    await broker.topics.create("orders", 1)
    await machine.open_producer(broker)
    for sequence in range(5):
        await broker.records.publish("orders", 0, machine.numbered(sequence), acks=-1)
    broker.records.publish("orders", 0, machine.numbered(5), acks=1)
    await broker._maintenance.stop()
    machine.fs.crash()
    broker = await machine.start()
    assert broker.topics.describe("orders").partitions[0].end_offset >= 5
    assert (await broker.records.publish("orders", 0, machine.numbered(4))).base_offset == 4
    await broker.close()


async def test_logs_that_the_meta_store_does_not_know_are_kept() -> None:
    machine = Machine()
    broker = await machine.start()
    await broker.topics.create("orders", 1)
    await machine.open_producer(broker)
    await broker.records.publish("orders", 0, machine.numbered(0))
    await broker.close()
    kept, machine.meta = machine.meta, MemoryMetaStore()
    broker = await machine.start()
    assert broker.topics.listing() == []
    await broker.close()
    machine.meta = kept
    broker = await machine.start()
    assert broker.topics.describe("orders").partitions[0].end_offset == 1
    await broker.close()


async def test_a_deletion_that_a_crash_cut_short_is_finished_at_the_next_start() -> None:
    machine = Machine()
    broker = await machine.start()
    await broker.topics.create("orders", 1)
    await machine.open_producer(broker)
    await broker.records.publish("orders", 0, machine.numbered(0))
    (log_id,) = broker._logs.ids()
    await machine.kill(broker)
    await machine.meta.write([Delete("topic", "orders"), Put("deleted-topic", log_id.topic_id.hex, b"")])
    broker = await machine.start()
    assert broker._logs.ids() == []
    assert await machine.meta.scan("deleted-topic") == []
    await broker.close()


async def test_a_full_disk_refuses_messages_keeps_reading_and_committing_and_recovers_by_itself() -> None:
    machine = Machine()
    machine.fs = FaultyFileSystem(0, capacity_bytes=2 << 20)
    broker = await machine.start()
    await broker.topics.create("big", 1)
    await broker.topics.create("small", 1)
    one, acknowledged = batch(bytes(50_000), timestamp_ms=machine.clock.wall_ms()), 0
    with suppress(DiskFull):
        while acknowledged < 100:
            await broker.records.publish("big", 0, one)
            acknowledged += 1
    assert 20 < acknowledged < 100
    with pytest.raises(DiskFull, match="free some space"):
        broker.records.publish("big", 0, one)
    offset = 0
    while offset < acknowledged:
        (fetched,) = await broker.records.fetch([FetchRequest("big", 0, offset)])
        assert fetched.chunk is not None
        assert values(fetched.chunk.data, offset) == [bytes(50_000)] * (fetched.chunk.next_offset - offset)
        offset = fetched.chunk.next_offset
    await broker.groups.commit_offsets("g", {("big", 0): (offset, "")})
    await broker.topics.delete("big")
    machine.clock.advance(2)
    assert (
        await broker.records.publish("small", 0, batch(b"x", timestamp_ms=machine.clock.wall_ms()))
    ).base_offset == 0
    await broker.close()
