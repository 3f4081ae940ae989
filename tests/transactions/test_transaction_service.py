"""Transactions as frontends use them: stored entries, refusals, and timeouts."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from sparrow.base.errors import (
    ConcurrentTransactions,
    DiskFull,
    DuplicateSequence,
    InvalidArgument,
    InvalidRecord,
    InvalidRegularExpression,
    NotAuthorized,
    NotInTransaction,
    OutOfOrderSequence,
    ProducerFenced,
    ProducerMismatch,
    UnknownPartition,
    UnknownProducer,
    UnknownTopic,
    UnknownTransaction,
)
from sparrow.broker.access.authz import ANONYMOUS, AllowAll, Operation, Principal, ResourceType
from sparrow.broker.broker import Broker
from sparrow.broker.groups.offsets import NO_MEMBER, Committer, OffsetAndMetadata
from sparrow.broker.producer_ids import ProducerIdentity
from sparrow.broker.producers import ProducerStates
from sparrow.broker.publishes import Published
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.broker.topics import name_matches
from sparrow.broker.transactions.service import TransactionFilter
from sparrow.broker.transactions.state import LAST_EPOCH, Transaction, TransactionState
from tests.transactions.machine import Machine, read_committed

ID = "loader"


class Producer:
    """A transactional producer whose steps are made by hand."""

    def __init__(self, machine: Machine, broker: Broker, transactional_id: str = ID) -> None:
        self.machine, self.broker, self.id = machine, broker, transactional_id
        self.identity = ProducerIdentity(-1, -1)
        self.sequences: dict[str, int] = {}

    async def initialize(self, timeout_ms: int = 60_000) -> Producer:
        self.identity = await self.broker.transactions.initialize(self.id, timeout_ms)
        self.sequences.clear()
        return self

    async def send(self, topic: str, *values: bytes, add: bool = True) -> Published:
        if add:
            refused = await self.broker.transactions.add_partitions(self.id, self.identity, [(topic, 0)])
            assert refused == {}
        sequence = self.sequences.get(topic, 0)
        batch = self.machine.batch(self.identity, sequence, *values)
        published = await self.broker.records.publish(
            topic, 0, batch, admit=self.broker.transactions.admission(self.id)
        )
        self.sequences[topic] = sequence + len(values)
        return published

    async def offsets(self, group: str, offset: int, committer: Committer = NO_MEMBER) -> None:
        service = self.broker.transactions
        await service.add_group(self.id, self.identity, group)
        refused = await service.commit_offsets(
            self.id, self.identity, group, {("a", 0): OffsetAndMetadata(offset, "note")}, committer=committer
        )
        assert refused == {}

    async def end(self, *, commit: bool, bumps_epoch: bool = False) -> None:
        ended = await self.broker.transactions.end(
            self.id, self.identity, commit=commit, bumps_epoch=bumps_epoch
        )
        if ended != self.identity:
            self.sequences.clear()
        self.identity = ended


@pytest.fixture
def producer(machine: Machine, broker: Broker) -> Producer:
    return Producer(machine, broker)


# ── readers ──


async def test_open_transactions_hold_readers_back_and_their_end_wakes_them(
    producer: Producer, broker: Broker
) -> None:
    await producer.initialize()
    await producer.send("a", b"1")
    partition = broker.parts.topic_registry.get("a").partition(0)
    assert (partition.last_stable_offset, partition.visible_end) == (0, 1)
    reading = asyncio.create_task(_read_when_there(broker))
    await asyncio.sleep(0)
    await producer.end(commit=True)
    async with asyncio.timeout(30):
        assert await reading == [b"1"]
    assert partition.last_stable_offset == partition.visible_end == 2


async def _read_when_there(broker: Broker) -> list[bytes]:
    (fetched,) = await broker.records.fetch([FetchRequest("a", 0, 0)], committed=True, max_wait_ms=30_000)
    assert fetched.chunk is not None
    assert len(fetched.chunk.data) > 0
    return await read_committed(broker, "a")


async def test_aborted_records_are_seen_by_readers_of_everything_only(
    producer: Producer, broker: Broker
) -> None:
    await producer.initialize()
    for number in range(4):
        await producer.send("a", b"%d" % number)
        await producer.end(commit=number % 2 == 0)
    assert await read_committed(broker, "a") == [b"0", b"2"]
    assert broker.parts.topic_registry.get("a").partition(0).visible_end == 8


async def test_transactions_of_several_producers_interleave(machine: Machine, broker: Broker) -> None:
    one, two = Producer(machine, broker, "one"), Producer(machine, broker, "two")
    await one.initialize()
    await two.initialize()
    for each, value in ((one, b"1"), (two, b"2"), (one, b"1"), (two, b"2")):
        await each.send("a", value)
    await one.end(commit=False)
    assert await read_committed(broker, "a") == []
    await two.end(commit=True)
    assert await read_committed(broker, "a") == [b"2", b"2"]
    assert [
        each.first_offset
        for each in broker.parts.topic_registry.get("a").partition(0).aborted_transactions(0, 9)
    ] == [0]


# ── what producers may send ──


async def test_a_batch_outside_of_its_transaction_is_refused(
    producer: Producer, machine: Machine, broker: Broker
) -> None:
    await producer.initialize()
    with pytest.raises(NotInTransaction):
        await producer.send("a", b"x", add=False)
    await producer.send("a", b"1")
    with pytest.raises(NotInTransaction):
        await producer.send("b", b"x", add=False)
    await producer.end(commit=True)
    with pytest.raises(NotInTransaction):
        await producer.send("a", b"x", add=False)
    with pytest.raises(NotInTransaction):  # a publisher that has no transactions
        broker.records.publish("a", 0, machine.batch(producer.identity, 1, b"x"))


async def test_a_transactional_batch_needs_a_producer_id_and_a_sequence(
    producer: Producer, machine: Machine, broker: Broker
) -> None:
    await producer.initialize()
    admit = broker.transactions.admission(ID)
    for identity, sequence in ((ProducerIdentity(-1, -1), -1), (producer.identity, -1)):
        with pytest.raises(InvalidRecord):
            broker.records.publish("a", 0, machine.batch(identity, sequence, b"x"), admit=admit)


async def test_a_transactional_producer_writes_in_transactions_alone(
    producer: Producer, machine: Machine, broker: Broker
) -> None:
    await producer.initialize()
    await producer.send("a", b"1")
    with pytest.raises(UnknownProducer, match="was not given to"):
        broker.records.publish("a", 0, machine.batch(producer.identity, 1, b"x", transactional=False))
    await producer.end(commit=True)
    with pytest.raises(UnknownProducer, match="was not given to"):
        broker.records.publish("a", 0, machine.batch(producer.identity, 1, b"x", transactional=False))
    assert await read_committed(broker, "a") == [b"1"]


async def test_a_zombie_writes_nothing_after_its_successor_began(machine: Machine, broker: Broker) -> None:
    zombie, successor = Producer(machine, broker), Producer(machine, broker)
    await zombie.initialize()
    await zombie.send("a", b"zombie")
    await successor.initialize()
    for step in (
        zombie.send("a", b"x", add=False),
        zombie.send("a", b"x"),
        zombie.end(commit=True),
        zombie.end(commit=False),
        zombie.offsets("g", 1),
    ):
        with pytest.raises(ProducerFenced):
            await step
    await successor.send("a", b"new")
    await successor.end(commit=True)
    assert await read_committed(broker, "a") == [b"new"]


async def test_a_batch_sent_again_is_answered_with_the_first_answer(
    producer: Producer, machine: Machine, broker: Broker
) -> None:
    await producer.initialize()
    first = await producer.send("a", b"1")
    producer.sequences["a"] = 0
    assert await producer.send("a", b"1") == first
    with pytest.raises(OutOfOrderSequence):
        broker.records.publish(
            "a", 0, machine.batch(producer.identity, 5, b"x"), admit=broker.transactions.admission(ID)
        )


async def test_sequences_go_on_over_the_ends_of_one_epoch_and_begin_again_with_the_next(
    producer: Producer, machine: Machine, broker: Broker
) -> None:
    await producer.initialize()
    for bumps_epoch in (False, False, True, True):
        await producer.send("a", b"x")
        await producer.end(commit=True, bumps_epoch=bumps_epoch)
    assert producer.identity.epoch == 2
    await broker.transactions.add_partitions(ID, producer.identity, [("a", 0)])
    for sequence, error in ((1, OutOfOrderSequence), (7, OutOfOrderSequence)):
        with pytest.raises((error, DuplicateSequence)):
            broker.records.publish(
                "a",
                0,
                machine.batch(producer.identity, sequence, b"x"),
                admit=broker.transactions.admission(ID),
            )


async def test_requests_of_ids_that_nobody_began_are_refused(broker: Broker) -> None:
    service, nobody = broker.transactions, ProducerIdentity(7, 0)
    for step in (
        service.add_partitions("x", nobody, [("a", 0)]),
        service.add_group("x", nobody, "g"),
        service.end("x", nobody, commit=True),
        service.commit_offsets("x", nobody, "g", {("a", 0): OffsetAndMetadata(1)}, committer=NO_MEMBER),
    ):
        with pytest.raises(ProducerMismatch):
            await step
    with pytest.raises(UnknownTransaction):
        service.describe("x")
    with pytest.raises(InvalidArgument):
        await service.initialize("", 1000)


async def test_if_one_partition_cannot_take_part_none_does(producer: Producer, broker: Broker) -> None:
    await producer.initialize()
    refused = await broker.transactions.add_partitions(
        ID, producer.identity, [("a", 0), ("a", 5), ("nowhere", 0)]
    )
    assert {key: type(error) for key, error in refused.items()} == {
        ("a", 5): UnknownPartition,
        ("nowhere", 0): UnknownTopic,
    }
    assert broker.transactions.describe(ID).state is TransactionState.EMPTY


async def test_a_producer_whose_epochs_are_used_up_goes_on_with_a_new_id(
    producer: Producer, machine: Machine, broker: Broker
) -> None:
    await producer.initialize()
    coordinator = broker.parts.transaction_coordinator
    await coordinator._table.keep(replace(coordinator.find(ID), epoch=LAST_EPOCH))
    producer.identity = used_up = ProducerIdentity(producer.identity.producer_id, LAST_EPOCH)
    await producer.send("a", b"1")
    await producer.end(commit=True, bumps_epoch=True)
    fresh = producer.identity
    assert (fresh.producer_id != used_up.producer_id, fresh.epoch) == (True, 0)
    assert await broker.transactions.end(ID, used_up, commit=True, bumps_epoch=True) == fresh
    await producer.send("a", b"2")
    await producer.end(commit=False, bumps_epoch=True)
    await producer.send("a", b"3")
    await machine.stop(broker)
    again = await machine.start()
    producer.broker = again
    await producer.end(commit=True, bumps_epoch=True)
    assert await read_committed(again, "a") == [b"1", b"3"]
    await again.close()


# ── offsets ──


async def test_offsets_become_visible_with_the_commit_and_are_dropped_with_the_abort(
    producer: Producer, broker: Broker
) -> None:
    await producer.initialize()
    await producer.offsets("g", 1)
    assert list(broker.parts.group_registry.pending("g")) == [("a", 0)]
    assert broker.parts.group_registry.fetch_offsets("g") == {}
    await producer.offsets("g", 2)
    await producer.end(commit=True)
    (committed,) = broker.parts.group_registry.fetch_offsets("g").values()
    assert (committed.offset, committed.metadata) == (2, "note")
    await producer.offsets("g", 9)
    await producer.end(commit=False)
    assert broker.parts.group_registry.committed_offset("g", ("a", 0)) == 2
    assert not broker.parts.group_registry.pending("g")


async def test_offsets_of_a_group_that_was_not_added_are_refused(producer: Producer, broker: Broker) -> None:
    await producer.initialize()
    offsets = {("a", 0): OffsetAndMetadata(1)}
    with pytest.raises(NotInTransaction):
        await broker.transactions.commit_offsets(ID, producer.identity, "g", offsets, committer=NO_MEMBER)
    await broker.transactions.commit_offsets(
        ID, producer.identity, "g", offsets, committer=NO_MEMBER, adds_group=True
    )
    await producer.end(commit=True, bumps_epoch=True)
    assert broker.parts.group_registry.committed_offset("g", ("a", 0)) == 1


async def test_offsets_that_cannot_be_kept_are_named_and_the_others_kept(
    producer: Producer, broker: Broker
) -> None:
    await producer.initialize()
    await broker.transactions.add_group(ID, producer.identity, "g")
    offsets = {
        ("a", 0): OffsetAndMetadata(1),
        ("nowhere", 0): OffsetAndMetadata(1),
        ("b", 0): OffsetAndMetadata(1, "x" * 5000),
    }
    refused = await broker.transactions.commit_offsets(
        ID, producer.identity, "g", offsets, committer=NO_MEMBER
    )
    assert set(refused) == {("nowhere", 0), ("b", 0)}
    await producer.end(commit=True)
    assert set(broker.parts.group_registry.fetch_offsets("g")) == {("a", 0)}


# ── by itself ──


async def test_a_transaction_that_is_open_for_too_long_is_aborted(
    producer: Producer, machine: Machine, broker: Broker
) -> None:
    await producer.initialize(timeout_ms=5_000)
    await producer.send("a", b"1")
    machine.clock.advance(5)
    await broker.parts.transaction_coordinator.tick()
    assert broker.transactions.describe(ID).state is TransactionState.ONGOING
    machine.clock.advance(0.001)
    await broker.parts.transaction_coordinator.tick()
    assert broker.transactions.describe(ID).state is TransactionState.COMPLETE_ABORT
    assert await read_committed(broker, "a") == []
    with pytest.raises(ProducerFenced):
        await producer.end(commit=True)
    await producer.initialize()
    await producer.send("a", b"2")
    await producer.end(commit=True)
    assert await read_committed(broker, "a") == [b"2"]


async def test_an_id_that_nobody_uses_is_forgotten_after_a_week(
    producer: Producer, machine: Machine, broker: Broker
) -> None:
    await producer.initialize()
    await Producer(machine, broker, "busy").initialize(timeout_ms=900_000)
    machine.clock.advance(7 * 86_400 + 1)
    busy = broker.parts.transaction_coordinator.find("busy")
    await broker.transactions.add_partitions(
        "busy", ProducerIdentity(busy.producer_id, busy.epoch), [("a", 0)]
    )
    await broker.parts.transaction_coordinator.tick()
    assert [each.transactional_id for each in await broker.transactions.list()] == ["busy"]
    with pytest.raises(ProducerMismatch):
        await producer.end(commit=True)
    assert ("transaction", ID) not in machine.meta.entries


async def test_markers_that_a_full_disk_refused_follow_when_there_is_room(
    producer: Producer, machine: Machine, broker: Broker
) -> None:
    await producer.initialize()
    await producer.send("a", b"1")
    await producer.send("b", b"1")
    machine.fs.capacity_bytes = machine.fs.used_bytes
    await producer.end(commit=True)
    assert broker.transactions.describe(ID).state is TransactionState.PREPARE_COMMIT
    with pytest.raises(ConcurrentTransactions):
        await producer.send("a", b"2")
    with pytest.raises(ConcurrentTransactions):
        await broker.transactions.initialize(ID, 1000)
    assert await read_committed(broker, "a") == []
    machine.fs.capacity_bytes = 1 << 40
    machine.clock.advance(10)
    await broker.parts.transaction_coordinator.tick()
    assert await read_committed(broker, "a") == await read_committed(broker, "b") == [b"1"]
    await producer.send("a", b"2")
    await producer.end(commit=True)
    assert await read_committed(broker, "a") == [b"1", b"2"]


async def test_a_full_meta_store_decides_nothing(
    producer: Producer, machine: Machine, broker: Broker
) -> None:
    await producer.initialize()
    await producer.send("a", b"1")
    machine.meta.full = True
    with pytest.raises(DiskFull):
        await producer.end(commit=True)
    machine.clock.advance(61)
    await broker.parts.transaction_coordinator.tick()
    assert broker.transactions.describe(ID).state is TransactionState.ONGOING
    assert await read_committed(broker, "a") == []
    machine.meta.full = False
    await producer.end(commit=True)
    assert await read_committed(broker, "a") == [b"1"]


async def test_an_end_is_carried_out_though_its_caller_went_away(producer: Producer, broker: Broker) -> None:
    await producer.initialize()
    await producer.send("a", b"1")
    ending = asyncio.create_task(producer.end(commit=True))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    await broker.parts.transaction_coordinator.close()
    assert await read_committed(broker, "a") == [b"1"]


async def test_a_transaction_that_no_id_knows_of_does_not_hold_readers_for_ever(
    producer: Producer, machine: Machine, broker: Broker
) -> None:
    await producer.initialize()
    await producer.send("a", b"1")
    await machine.stop(broker)
    for kind, key in list(machine.meta.entries):
        if kind == "transaction":
            del machine.meta.entries[kind, key]
    broker = await machine.start()
    partition = broker.parts.topic_registry.get("a").partition(0)
    assert partition.last_stable_offset == 0
    await broker._maintenance.walk()
    assert partition.last_stable_offset == partition.visible_end == 2
    assert await read_committed(broker, "a") == []
    await broker.close()


# ── looking ──


async def test_other_tasks_run_while_many_transactions_are_listed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = [Transaction(f"id-{number}", 1, 0, 60_000) for number in range(40)]
    monkeypatch.setattr(broker.parts.transaction_coordinator, "all", lambda: table)
    monkeypatch.setattr(name_matches, "SLICE", 10)
    listing = asyncio.ensure_future(broker.transactions.list(TransactionFilter(pattern="id-.*[05]")))
    pauses = 0
    while not listing.done():
        await asyncio.sleep(0)
        pauses += 1
    assert pauses >= len(table) // 10
    assert [each.transactional_id for each in listing.result()] == [f"id-{n}" for n in range(0, 40, 5)]


async def test_transactions_are_listed_by_state_producer_duration_and_pattern(
    machine: Machine, broker: Broker
) -> None:
    one = await Producer(machine, broker, "load-1").initialize(900_000)
    await one.send("a", b"1")
    machine.clock.advance(10)
    two = await Producer(machine, broker, "load-2").initialize(900_000)
    await two.send("a", b"1")
    three = await Producer(machine, broker, "other").initialize()

    async def listed(wanted: TransactionFilter) -> list[str]:
        return [each.transactional_id for each in await broker.transactions.list(wanted)]

    assert await listed(TransactionFilter()) == ["load-1", "load-2", "other"]
    assert await listed(TransactionFilter(states={TransactionState.EMPTY})) == ["other"]
    assert await listed(TransactionFilter(producer_ids={two.identity.producer_id})) == ["load-2"]
    assert await listed(TransactionFilter(states={TransactionState.ONGOING}, min_duration_ms=9_999)) == [
        "load-1"
    ]
    assert await listed(TransactionFilter(pattern="load-.*")) == ["load-1", "load-2"]
    assert await listed(TransactionFilter(pattern="load")) == []
    with pytest.raises(InvalidRegularExpression):
        await listed(TransactionFilter(pattern="("))
    described = broker.transactions.describe("load-1")
    assert (described.partitions, described.timeout_ms) == ({("a", 0)}, 900_000)
    assert described.started_ms == machine.clock.wall_ms() - 10_000
    found = {each.producer_id: each for each in broker.transactions.producers("a", 0)}
    assert found[one.identity.producer_id].transaction_start == 0
    assert found[two.identity.producer_id].transaction_start == 1
    assert three.identity.producer_id not in found
    await one.end(commit=True)
    found = {each.producer_id: each for each in broker.transactions.producers("a", 0)}
    ended = found[one.identity.producer_id]
    assert (ended.transaction_start, ended.coordinator_epoch, ended.last_sequence) == (-1, 0, 0)


class Rules(AllowAll):
    """An authorizer that allows everything except the listed rights."""

    def __init__(self) -> None:
        self.denied: set[tuple[Operation, ResourceType, str]] = set()

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> bool:
        return (operation, resource_type, resource) not in self.denied


async def test_each_operation_checks_its_right(producer: Producer, broker: Broker) -> None:
    await producer.initialize()
    await producer.send("a", b"1")
    service, who, rules = broker.transactions, producer.identity, Rules()
    broker.access.authorizer = rules
    offsets = {("a", 0): OffsetAndMetadata(1)}
    write_id = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, ID)
    read_group = (Operation.READ, ResourceType.GROUP, "g")

    async def refused(rule: tuple[Operation, ResourceType, str], step: object) -> None:
        rules.denied = {rule}
        with pytest.raises(NotAuthorized) as caught:
            await step if asyncio.iscoroutine(step) else step()  # type: ignore[operator]
        assert caught.value.resource_type == rule[1].value

    await refused(write_id, service.initialize(ID, 1000))
    await refused(write_id, service.add_partitions(ID, who, [("a", 0)]))
    await refused(write_id, service.add_group(ID, who, "g"))
    await refused(read_group, service.add_group(ID, who, "g"))
    await refused(
        write_id, service.commit_offsets(ID, who, "g", offsets, committer=NO_MEMBER, adds_group=True)
    )
    await refused(
        read_group, service.commit_offsets(ID, who, "g", offsets, committer=NO_MEMBER, adds_group=True)
    )
    await refused(write_id, service.end(ID, who, commit=True))
    await refused(write_id, lambda: service.admission(ID, principal=ANONYMOUS))
    await refused((Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, ID), lambda: service.describe(ID))
    await refused((Operation.READ, ResourceType.TOPIC, "a"), lambda: service.producers("a", 0))
    rules.denied = {(Operation.WRITE, ResourceType.TOPIC, "a")}
    assert [type(e) for e in (await service.add_partitions(ID, who, [("a", 0)])).values()] == [NotAuthorized]
    rules.denied = {(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, ID)}
    assert await service.list() == []
    rules.denied = {(Operation.DESCRIBE, ResourceType.TOPIC, "a")}
    assert service.describe(ID).partitions == frozenset()


# ── what is kept ──


def test_the_state_of_producers_that_the_first_version_saved_can_be_read() -> None:
    saved = msgspec.msgpack.encode([1, [[7, 0, 1000, [[0, 2, 10, 12, -1]]]]])
    states = ProducerStates.load(saved)
    assert [(p.producer_id, p.last_sequence) for p in states.active()] == [(7, 2)]
    assert states.transactions.last_stable(13) == 13
