"""Transactions in logs that are compacted, rewritten, rolled and recovered."""

from __future__ import annotations

import pytest

from sparrow.broker.broker import Broker
from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from tests.transactions.machine import Machine, read_committed
from tests.transactions.test_transaction_service import ID, Producer


def keyed(machine: Machine, producer: Producer, sequence: int, key: bytes, value: bytes) -> bytes:
    return build_batch(
        [value],
        [key],
        timestamps=machine.clock.wall_ms(),
        producer_id=producer.identity.producer_id,
        producer_epoch=producer.identity.epoch,
        base_sequence=sequence,
        transactional=True,
    )


async def with_compacted_topic(machine: Machine, broker: Broker) -> None:
    """Write committed and aborted values of two keys, and compact them."""
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": "1024",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "0",
    }
    await broker.topics.create("c", 1, config)
    producer = await Producer(machine, broker).initialize()
    for number in range(60):
        await broker.transactions.add_partitions(ID, producer.identity, [("c", 0)])
        batch = keyed(machine, producer, number, b"k%d" % (number % 2), b"%d" % number)
        await broker.records.publish("c", 0, batch, admit=broker.transactions.admission(ID))
        await producer.end(commit=number % 3 == 0)
    log = broker.parts.topic_registry.get("c").partition(0).log
    await log.durable(log.end_offset)
    machine.clock.advance(3600)
    assert await log.compact(machine.clock.wall_ms()) > 0


@pytest.mark.parametrize("knows_state", [True, False])
async def test_compaction_and_recovery_leak_nothing_aborted_and_lose_nothing_committed(
    machine: Machine, broker: Broker, *, knows_state: bool
) -> None:
    await with_compacted_topic(machine, broker)

    async def last_values(running: Broker) -> list[bytes]:
        values = await read_committed(running, "c")
        assert all(int(value) % 3 == 0 for value in values)
        return values[-2:]

    assert await last_values(broker) == [b"54", b"57"]
    if knows_state:
        await broker.parts.topic_registry.get("c").partition(0).checkpoint()
    await machine.stop(broker, power_fails=True)
    again = await machine.start()
    assert await last_values(again) == [b"54", b"57"]
    await again.close()


@pytest.mark.parametrize(
    "config", [{"compression.type": "zstd"}, {"message.timestamp.type": "LogAppendTime"}, {"segment.ms": "1"}]
)
async def test_batches_that_the_broker_rewrites_stay_in_their_transaction(
    machine: Machine, broker: Broker, config: dict[str, str]
) -> None:
    await broker.topics.create("r", 1, config)
    producer = await Producer(machine, broker).initialize()
    for number in range(4):
        await producer.send("r", b"%d" % number * 100)
        machine.clock.advance(1)
        await producer.end(commit=number % 2 == 0)
    assert await read_committed(broker, "r") == [b"0" * 100, b"2" * 100]
    await machine.stop(broker)
    again = await machine.start()
    assert await read_committed(again, "r") == [b"0" * 100, b"2" * 100]
    await again.close()


async def test_markers_are_kafkas_own(machine: Machine, broker: Broker) -> None:
    producer = await Producer(machine, broker).initialize()
    await producer.send("a", b"x")
    await producer.end(commit=True)
    chunk = broker.parts.topic_registry.get("a").partition(0).log.read_nowait(0, 1 << 20)
    assert chunk is not None
    data, marker = split(chunk.data)
    assert (data[0].is_transactional, data[0].is_control) == (True, False)
    header = marker[0]
    assert (header.is_transactional, header.is_control, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch) == (producer.identity.producer_id, 0)
    assert bytes(marker[1][61:]) == b"\x20\x00\x00\x00\x08\x00\x00\x00\x01\x0c\x00\x00\x00\x00\x00\x00\x00"


async def test_aborted_transactions_that_retention_took_are_forgotten(
    machine: Machine, broker: Broker
) -> None:
    producer = await Producer(machine, broker).initialize()
    for _ in range(5):
        await producer.send("a", b"x")
        await producer.end(commit=False)
    partition = broker.parts.topic_registry.get("a").partition(0)
    assert len(partition.aborted_transactions(0, 10)) == 5
    await broker.topics.delete_records("a", {0: 5})
    await broker._maintenance.walk()
    assert [each.first_offset for each in partition.aborted_transactions(0, 10)] == [4, 6, 8]


async def test_a_producer_with_an_open_transaction_is_not_forgotten(machine: Machine, broker: Broker) -> None:
    producer = await Producer(machine, broker).initialize()
    await producer.send("a", b"x")
    partition = broker.parts.topic_registry.get("a").partition(0)
    partition.forget_silent_producers(machine.clock.wall_ms() + 1)
    assert [each.transaction_start for each in partition.producers()] == [0]
    await producer.end(commit=True)
    partition.forget_silent_producers(machine.clock.wall_ms() + 1)
    assert partition.producers() == []
