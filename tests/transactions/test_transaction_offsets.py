"""Offsets that are pending in transactions, beside commits, deletions and changing members."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sparrow.base.errors import StaleMember, StorageFailed, UnknownMember
from sparrow.broker.broker import Broker
from sparrow.broker.groups.offsets import Committer, OffsetAndMetadata
from sparrow.broker.producer_ids import ProducerIdentity
from sparrow.meta.store import Write
from tests.transactions.machine import Machine

ID = "loader"
A, B = ("a", 0), ("b", 0)


async def with_pending(
    broker: Broker, offset: int = 1, committer: Committer | None = None
) -> ProducerIdentity:
    """Begin a transaction that will commit an offset of both topics for group g."""
    identity = await broker.transactions.initialize(ID, 60_000)
    refused = await broker.transactions.commit_offsets(
        ID,
        identity,
        "g",
        {A: OffsetAndMetadata(offset), B: OffsetAndMetadata(offset)},
        committer=committer or Committer(is_transactional=True),
        adds_group=True,
    )
    assert refused == {}
    return identity


async def committed(broker: Broker) -> dict[tuple[str, int], int]:
    return {key: value.offset for key, value in broker.parts.group_registry.fetch_offsets("g").items()}


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_later_commit_is_not_undone_by_the_end_of_a_transaction(
    machine: Machine, broker: Broker, restarts: bool
) -> None:
    identity = await with_pending(broker, 1)
    await broker.parts.group_registry.commit("g", {A: OffsetAndMetadata(7)})
    assert set(broker.parts.group_registry.pending("g")) == {B}
    if restarts:
        await machine.stop(broker)
        broker = await machine.start()
    await broker.transactions.end(ID, identity, commit=True)
    assert await committed(broker) == {A: 7, B: 1}
    if restarts:
        await broker.close()


async def test_a_later_commit_in_the_transaction_itself_stands(broker: Broker) -> None:
    identity = await with_pending(broker, 1)
    await broker.parts.group_registry.commit("g", {A: OffsetAndMetadata(7)})
    await broker.transactions.commit_offsets(
        ID, identity, "g", {A: OffsetAndMetadata(9)}, committer=Committer(is_transactional=True)
    )
    assert set(broker.parts.group_registry.pending("g")) == {A, B}
    await broker.transactions.end(ID, identity, commit=True)
    assert await committed(broker) == {A: 9, B: 1}
    assert not broker.parts.group_registry.pending("g")


async def test_failed_commit_leaves_pending_offsets(machine: Machine, broker: Broker) -> None:
    identity = await with_pending(broker, 1)
    machine.fs.calls_left = 0
    with pytest.raises(StorageFailed):
        await broker.parts.group_registry.commit("g", {A: OffsetAndMetadata(7)})
    machine.fs.calls_left = None
    await broker.transactions.end(ID, identity, commit=True)
    assert await committed(broker) == {A: 1, B: 1}


async def test_a_deleted_group_does_not_come_back_with_the_end_of_a_transaction(broker: Broker) -> None:
    identity = await with_pending(broker)
    await broker.parts.group_registry.commit("g", {A: OffsetAndMetadata(0)})
    await broker.groups.delete("g")
    await broker.transactions.end(ID, identity, commit=True)
    assert await committed(broker) == {}
    assert "g" not in {info.group for info in broker.parts.group_registry.list_groups()}


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_topic_made_again_has_no_offsets_of_transactions_of_the_former(
    machine: Machine, broker: Broker, restarts: bool
) -> None:
    identity = await with_pending(broker)
    await broker.topics.delete("a")
    if restarts:
        await machine.stop(broker)
        broker = await machine.start()
    await broker.topics.create("a", 1)
    await broker.transactions.end(ID, identity, commit=True)
    assert await committed(broker) == {B: 1}
    if restarts:
        await broker.close()


async def test_a_commit_on_its_way_does_not_outlive_the_deletion_of_its_topic(broker: Broker) -> None:
    for delay in range(6):  # steps of the loop between the beginnings of both
        deletion = asyncio.create_task(broker.topics.delete("a"))
        for _ in range(delay):
            await asyncio.sleep(0)
        commit = asyncio.create_task(broker.parts.group_registry.commit("g", {A: OffsetAndMetadata(5)}))
        await asyncio.gather(deletion, commit, return_exceptions=True)
        await broker.topics.create("a", 1)
        assert await committed(broker) == {}


async def test_offsets_count_as_undecided_while_they_are_on_their_way_to_the_store(
    machine: Machine, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[tuple[str, int]]] = []
    write = machine.meta.write

    async def look(writes: Sequence[Write]) -> None:
        if any(each.kind == "pending-offset" for each in writes):
            seen.append(set(broker.parts.group_registry.pending("g")))
        await write(list(writes))

    monkeypatch.setattr(machine.meta, "write", look)
    identity = await with_pending(broker)
    assert seen[0] == {A, B}
    await broker.transactions.end(ID, identity, commit=False)
    machine.fs.calls_left = 2  # the identity and what is pending would be two writes
    identity = await broker.transactions.initialize(ID, 60_000)
    machine.fs.calls_left = 0
    with pytest.raises(StorageFailed):
        await broker.transactions.commit_offsets(
            ID,
            identity,
            "g",
            {A: OffsetAndMetadata(1)},
            committer=Committer(is_transactional=True),
            adds_group=True,
        )
    machine.fs.calls_left = None
    assert not broker.parts.group_registry.pending("g")


async def test_the_group_is_asked_when_the_offsets_are_written_not_when_they_wait(broker: Broker) -> None:
    identity = await with_pending(broker)
    zombie = Committer("gone", 3, is_transactional=True, knows_member_epochs=False)
    with pytest.raises(StaleMember):
        await broker.transactions.commit_offsets(
            ID, identity, "g", {A: OffsetAndMetadata(9)}, committer=zombie
        )
    release = asyncio.Event()
    locks = broker.parts.transaction_coordinator._locks
    before = asyncio.create_task(locks.run(ID, release.wait))
    is_member = True

    def check() -> None:
        if not is_member:
            raise UnknownMember("gone meanwhile")

    late = asyncio.create_task(
        broker.parts.transaction_coordinator.commit_offsets(
            ID, identity, "g", {A: OffsetAndMetadata(9)}, adds_group=False, check=check
        )
    )
    await asyncio.sleep(0)
    is_member = False
    release.set()
    await before
    with pytest.raises(UnknownMember):
        await late
    await broker.transactions.end(ID, identity, commit=True)
    assert await committed(broker) == {A: 1, B: 1}
