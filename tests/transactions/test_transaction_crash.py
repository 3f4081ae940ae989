"""A broker that stops at every step of its transactions: readers of committed records see exactly
the committed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from sparrow.base.errors import ConcurrentTransactions, SparrowError
from sparrow.broker.broker import Broker
from sparrow.broker.groups.offsets import NO_MEMBER, OffsetAndMetadata
from sparrow.broker.producer_ids import ProducerIdentity
from tests.transactions.machine import Machine, read_committed

ID, GROUP = "loader", "readers"
TOPICS = ("a", "b")


async def initialize(broker: Broker, expected: ProducerIdentity | None = None) -> ProducerIdentity:
    with suppress(ConcurrentTransactions):
        return await broker.transactions.initialize(ID, 60_000, expected)
    return await broker.transactions.initialize(ID, 60_000, expected)


class Client:
    """Runs transactions and knows which of them were confirmed. Transaction n writes n to two
    topics and commits offset n.
    """

    def __init__(self, machine: Machine, *, bumps_epoch: bool) -> None:
        self.machine = machine
        self.bumps_epoch = bumps_epoch
        self.committed: list[int] = []
        self.unsure: int | None = None

    async def run(self, broker: Broker, first: int, count: int) -> None:
        producer = await initialize(broker)
        sequence = 0
        for number in range(first, first + count):
            ended = await self.transaction(broker, producer, sequence, number)
            sequence = sequence + 1 if ended == producer else 0
            producer = ended

    async def transaction(
        self, broker: Broker, producer: ProducerIdentity, sequence: int, number: int
    ) -> ProducerIdentity:
        service = broker.transactions
        for topic in TOPICS:
            assert await service.add_partitions(ID, producer, [(topic, 0)]) == {}
            batch = self.machine.batch(producer, sequence, b"%d" % number)
            await broker.records.publish(topic, 0, batch, admit=service.admission(ID))
        if not self.bumps_epoch:
            await service.add_group(ID, producer, GROUP)
        offsets = {("a", 0): OffsetAndMetadata(number)}
        refused = await service.commit_offsets(
            ID, producer, GROUP, offsets, committer=NO_MEMBER, adds_group=self.bumps_epoch
        )
        assert refused == {}
        commit = number % 3 != 1
        self.unsure = number if commit else None
        ended = await service.end(ID, producer, commit=commit, bumps_epoch=self.bumps_epoch)
        if commit:
            self.committed.append(number)
        self.unsure = None
        return ended

    async def check(self, broker: Broker) -> None:
        """Check the records; call it when nothing is open any more."""
        seen = [[int(value) for value in await read_committed(broker, topic)] for topic in TOPICS]
        assert seen[0] == seen[1]
        if self.unsure is not None and seen[0][-1:] == [self.unsure]:
            self.committed.append(self.unsure)
        self.unsure = None
        assert seen[0] == self.committed
        committed = broker.parts.group_registry.committed_offset(GROUP, ("a", 0))
        assert committed == (self.committed[-1] if self.committed else None)
        assert not broker.parts.group_registry.pending(GROUP)
        for topic in TOPICS:
            partition = broker.parts.topic_registry.get(topic).partition(0)
            assert partition.last_stable_offset == partition.visible_end


async def prepared(seed: int) -> tuple[Machine, Broker]:
    machine = Machine(seed)
    broker = await machine.start()
    for topic in TOPICS:
        await broker.topics.create(topic, 1)
    return machine, broker


Scenario = Callable[[Client, Broker], Coroutine[Any, Any, None]]


async def stopped_after(steps: int, *, bumps_epoch: bool, power_fails: bool) -> bool:
    """Run with this many steps allowed, stop, start, continue. Return True if the run ended before
    the stop.
    """
    machine, broker = await prepared(steps)
    client = Client(machine, bumps_epoch=bumps_epoch)
    await client.run(broker, 0, 1)
    machine.fs.calls_left = steps
    is_done = False
    with suppress(SparrowError):
        await client.run(broker, 1, 3)
        await broker.parts.transaction_coordinator.tick()
        is_done = machine.fs.calls_left > 0
    await machine.stop(broker, power_fails=power_fails)
    broker = await machine.start()
    await initialize(broker)  # the producer comes back, and fences itself
    await client.check(broker)
    await client.run(broker, 10, 2)
    await client.check(broker)
    await machine.stop(broker, power_fails=power_fails)
    broker = await machine.start()
    await client.check(broker)
    await broker.close()
    broker = await machine.start()
    await client.check(broker)
    await broker.close()
    return is_done


@pytest.mark.parametrize("power_fails", [False, True])
@pytest.mark.parametrize("bumps_epoch", [False, True])
async def test_exactly_the_committed_records_are_read_after_a_stop_at_any_step(
    *, bumps_epoch: bool, power_fails: bool
) -> None:
    steps = 0
    while not await stopped_after(steps, bumps_epoch=bumps_epoch, power_fails=power_fails):
        steps += 1
    assert steps > 20


@pytest.mark.parametrize("bumps_epoch", [False, True])
async def test_an_open_transaction_goes_on_after_a_restart(*, bumps_epoch: bool) -> None:
    machine, broker = await prepared(0)
    producer = await initialize(broker)
    service = broker.transactions
    await service.add_partitions(ID, producer, [("a", 0)])
    await broker.records.publish("a", 0, machine.batch(producer, 0, b"1"), admit=service.admission(ID))
    await machine.stop(broker)
    broker = await machine.start()
    service = broker.transactions
    assert await read_committed(broker, "a") == []
    await broker.records.publish("a", 0, machine.batch(producer, 1, b"2"), admit=service.admission(ID))
    await service.end(ID, producer, commit=True, bumps_epoch=bumps_epoch)
    assert await read_committed(broker, "a") == [b"1", b"2"]
    await broker.close()


async def test_a_transaction_whose_time_ran_out_while_the_broker_was_down_is_aborted() -> None:
    machine, broker = await prepared(0)
    producer = await initialize(broker)
    await broker.transactions.add_partitions(ID, producer, [("a", 0)])
    await broker.records.publish(
        "a", 0, machine.batch(producer, 0, b"1"), admit=broker.transactions.admission(ID)
    )
    await machine.stop(broker)
    machine.clock.advance(61)
    broker = await machine.start()
    partition = broker.parts.topic_registry.get("a").partition(0)
    assert partition.last_stable_offset == 0
    await broker.parts.transaction_coordinator.tick()
    assert partition.last_stable_offset == 2
    assert await read_committed(broker, "a") == []
    await broker.close()


async def test_topics_that_are_deleted_meanwhile_are_skipped() -> None:
    machine, broker = await prepared(0)
    client = Client(machine, bumps_epoch=False)
    producer = await initialize(broker)
    service = broker.transactions
    await service.add_partitions(ID, producer, [("a", 0), ("b", 0)])
    await service.add_group(ID, producer, GROUP)
    offsets = {("a", 0): OffsetAndMetadata(5), ("b", 0): OffsetAndMetadata(6)}
    await service.commit_offsets(ID, producer, GROUP, offsets, committer=NO_MEMBER)
    for topic in TOPICS:
        await broker.records.publish(
            topic, 0, client.machine.batch(producer, 0, b"x"), admit=service.admission(ID)
        )
    await broker.topics.delete("a")
    await service.end(ID, producer, commit=True)
    assert await read_committed(broker, "b") == [b"x"]
    assert set(broker.parts.group_registry.fetch_offsets(GROUP)) == {("b", 0)}
    await broker.close()


async def test_aborted_records_stay_hidden_after_retention_compaction_and_a_crash() -> None:
    machine, broker = await prepared(0)
    await broker.topics.create("c", 1, {"cleanup.policy": "compact", "segment.bytes": "1024"})
    client = Client(machine, bumps_epoch=False)
    await client.run(broker, 0, 6)
    start = broker.parts.topic_registry.get("a").partition(0).start_offset + 3
    await broker.topics.delete_records("a", {0: start})
    await machine.stop(broker, power_fails=True)
    broker = await machine.start()
    assert await read_committed(broker, "a") == [b"2", b"3", b"5"]
    await broker.close()
