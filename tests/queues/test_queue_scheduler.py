"""Records that are scanned together, and changes that go into the same write: fewer slices and
writes for the same guarantees.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest
from tests.queues.held import counted, unwritten
from tests.queues.work import Work, ack, records, take

from sparrow.broker.queues.persistence import state_store
from sparrow.broker.queues.persistence.pages import PAGE
from sparrow.broker.queues.rules.record_state import READY
from sparrow.broker.queues.scan import scanner
from sparrow.meta.store import Write
from sparrow.storage.durability import Durability
from sparrow.storage.local_journal import LocalJournal
from sparrow.storage.log import LocalLog


def counted_looks(work: Work, name: str) -> list[int]:
    """Return a list that grows with each look at the log."""
    found, looks = work.queue(name).state.found, []

    def counting(source: int, first: int, end: int, *rest: object, **options: object) -> None:
        looks.append(end - first)
        found(source, first, end, *rest, **options)

    work.queue(name).state.found = counting  # type: ignore[assignment]
    return looks


async def publish_singly(work: Work, topic: str, count: int) -> None:
    for number in range(count):
        await work.publish(topic, [b"%d" % number])


async def test_records_that_no_consumer_asks_for_are_scanned_together(work: Work, monkeypatch) -> None:
    monkeypatch.setattr(scanner, "_LATEST_S", 60.0)
    await work.create("jobs")
    looks = counted_looks(work, "jobs")
    await publish_singly(work, "jobs", 20)
    assert looks == []
    consumer = await work.consumer("jobs")
    assert len(records(await consumer.lease(100))) == 20  # although it does not wait
    assert looks == [20]


async def test_records_that_no_consumer_asks_for_are_scanned_soon_all_the_same(work: Work) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"1"])
    async with asyncio.timeout(5):
        while not work.queue("jobs").state.has_ready(1):
            await asyncio.sleep(0.001)


async def test_more_than_a_few_records_are_looked_at_at_once(work: Work, monkeypatch) -> None:
    monkeypatch.setattr(scanner, "_LATEST_S", 60.0)
    await work.create("jobs")
    await work.publish("jobs", [b"m"] * 100)
    async with asyncio.timeout(5):
        while not work.queue("jobs").state.has_ready(1):
            await asyncio.sleep(0)


async def test_just_published_records_are_peeked_at_and_counted(work: Work, monkeypatch) -> None:
    monkeypatch.setattr(scanner, "_LATEST_S", 60.0)
    await work.create("jobs")
    await work.publish("jobs", [b"1"])
    (peeked,) = await work.broker.queues.peek("jobs")
    assert peeked.value == b"1"
    await work.publish("jobs", [b"2"], headers=[("priority", b"9")])
    assert work.broker.queues.describe("jobs").statistics.ready == 2
    assert work.queue("jobs").state.subscribers[""].counts[READY] == 2


async def test_a_waiting_consumer_gets_records_that_came_during_a_write_when_it_has_ended(
    work: Work, monkeypatch
) -> None:
    monkeypatch.setattr(scanner, "_LATEST_S", 60.0)
    await work.create("jobs")
    await work.publish("jobs", [b"0", b"0"])
    busy, idle = await work.consumer("jobs"), await work.consumer("jobs")
    taken = await take(busy)
    queue = work.queue("jobs")
    looks = counted_looks(work, "jobs")
    with unwritten(queue):
        acknowledging = []
        for message in taken:
            acknowledging.append(asyncio.ensure_future(ack(busy, [message])))
            await asyncio.sleep(0.01)
        assert queue.writer.is_writing
        waiting = asyncio.create_task(idle.lease(10, wait_ms=30_000))
        await asyncio.sleep(0)
        await publish_singly(work, "jobs", 5)
        assert looks == []
    assert len(records(await waiting)) == 5
    assert looks == [5]
    await asyncio.gather(*acknowledging)


async def test_lease_without_waiting_gets_unscanned_records_that_retention_left(
    work: Work, monkeypatch
) -> None:
    monkeypatch.setattr(scanner, "_LATEST_S", 60.0)
    await work.create("jobs")
    await publish_singly(work, "jobs", 6)
    await work.broker.topics.delete_records("jobs", {0: 4})
    consumer = await work.consumer("jobs")
    assert [record.offset for record in records(await consumer.lease(100))] == [4, 5]


async def test_a_topic_that_is_deleted_while_its_records_wait_to_be_scanned_does_no_harm(
    work: Work, monkeypatch
) -> None:
    monkeypatch.setattr(scanner, "_LATEST_S", 60.0)
    await work.create("jobs", topics=("one", "two"))
    await work.publish("one", [b"1"])
    await work.broker.topics.delete("one")
    await work.publish("two", [b"2"])
    consumer = await work.consumer("jobs")
    assert [record.value for record in await take(consumer)] == [b"2"]


@pytest.mark.parametrize("policy", [{"order": "key"}, {"order": "parented"}, {"prefetch": 1}], ids=str)
async def test_an_acknowledgement_and_the_lease_that_it_makes_possible_are_one_write(
    work: Work, policy: dict[str, object]
) -> None:
    await work.create("jobs", **policy)
    await work.publish("jobs", [b"1"], keys=[b"k"], headers=[("message-id", b"1")])
    await work.publish("jobs", [b"2"], keys=[b"k"], headers=[("message-id", b"2"), ("parent-id", b"1")])
    one, two = await work.consumer("jobs"), await work.consumer("jobs")
    first = await take(one)
    assert [each.value for each in first] == [b"1"]
    if "prefetch" in policy:  # the second record is ready; the same consumer waits for room
        two = one
    waiting = asyncio.create_task(two.lease(10, wait_ms=30_000))
    await asyncio.sleep(0.01)
    with counted(work.queue("jobs")) as writes:
        acknowledging = asyncio.ensure_future(ack(one, first))
        assert [each.value for each in records(await waiting)] == [b"2"]
        await acknowledging
    assert len(writes) == 1


async def test_queues_at_work_write_nothing_to_the_meta_store(work: Work) -> None:
    await work.create("jobs")
    consumer = await work.consumer("jobs")
    await work.publish("jobs", [b"first"])
    await ack(consumer, await take(consumer))  # the first write says that the journal is in use
    meta, batches = work.queue("jobs").writer._store._meta, list[set[str]]()
    write = meta.write

    async def note(writes: Sequence[Write]) -> None:
        batches.append({each.kind for each in writes})
        await write(writes)

    meta.write = note  # type: ignore[method-assign]
    with counted(work.queue("jobs")) as appended:
        for number in range(100):
            await work.publish("jobs", [b"%d" % number])
            taken = await take(consumer, 1)
            assert [each.value for each in taken] == [b"%d" % number]
            await ack(consumer, taken)
    assert len(appended) >= 200  # leases and acknowledgements
    checkpoints = [kinds for kinds in batches if state_store.KIND in kinds]
    of_queues = [kinds for kinds in batches if any(kind.startswith("queue") for kind in kinds)]
    assert [kinds for kinds in of_queues if kinds not in checkpoints] == []
    assert len(checkpoints) <= 1  # the journal has room for more than this
    await work.restart()
    assert {state_store.KIND, PAGE} <= batches[-1]  # the last checkpoint has the state
    assert work.statistics("jobs").unfinished == 0


async def test_a_record_is_leased_before_its_sync(work: Work, monkeypatch) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"0"])
    one = await work.consumer("jobs")
    await ack(one, await take(one))
    waiting = asyncio.create_task(one.lease(10, wait_ms=30_000))
    await asyncio.sleep(0.01)
    log = work.queue("jobs").sources[0].partition.log
    assert isinstance(log, LocalLog)
    while not log._resources.redo.max_bytes:
        await asyncio.sleep(0.001)
    await log._durability.files_synced()  # a sync under way would cover the record that comes
    sync, sync_files, may_sync = LocalJournal.sync, Durability.sync, threading.Event()

    def held(journal: LocalJournal) -> int:
        may_sync.wait(30)
        return sync(journal)

    def held_files(files: Durability) -> int:
        may_sync.wait(30)
        return sync_files(files)

    monkeypatch.setattr(LocalJournal, "is_short", False)  # not on the loop
    monkeypatch.setattr(LocalJournal, "sync", held)
    monkeypatch.setattr(Durability, "sync", held_files)
    with counted(work.queue("jobs")) as writes:
        publishing = asyncio.ensure_future(work.publish("jobs", [b"1"]))
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(writes) == 1
        assert log.durable_offset < log.end_offset
        assert not waiting.done()
        may_sync.set()
        assert [each.value for each in records(await waiting)] == [b"1"]
        assert log.durable_offset == log.end_offset
        await publishing


async def test_a_consumer_that_does_not_wait_gets_records_that_are_about_to_be_scanned(
    work: Work, monkeypatch
) -> None:
    monkeypatch.setattr(scanner, "_LATEST_S", 60.0)
    await work.create("jobs")
    await publish_singly(work, "jobs", 2)
    work.queue("jobs").scanner._schedule()  # the time is over; the slice comes next
    assert len(await work.broker.queues.peek("jobs")) == 2
