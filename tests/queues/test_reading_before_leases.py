"""Records are read before their lease is written, so that no lease is written in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.queues.held import Then, unwritten
from tests.queues.work import Work, records, take, values

from sparrow.broker.queues.queue import Queue
from sparrow.broker.queues.source import QueueSource
from sparrow.meta.store import Write
from sparrow.storage.store import PartitionLog


def steps_of(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by "write" and "read" with each of them."""
    steps: list[str] = []
    append, read = queue.writer._store.append_then, QueueSource.read

    def noted_append(writes: Sequence[Write], then: Then) -> None:
        steps.append("write")
        append(writes, then)

    async def noted_read(*arguments: object) -> object:
        steps.append("read")
        return await read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(queue.writer._store, "append_then", noted_append)
    monkeypatch.setattr(QueueSource, "read", noted_read)
    return steps


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("policy", [{}, {"lease_durability": "buffered"}])
async def test_records_are_read_before_their_lease_is_written(
    work: Work, monkeypatch, count: int, policy: dict[str, object]
) -> None:
    queue = await work.create("jobs", **policy)
    await work.publish("jobs", [b"%d" % n for n in range(count)])
    consumer = await work.consumer("jobs")
    await asyncio.sleep(0.02)  # what the scan changed is written
    steps = steps_of(queue, monkeypatch)
    assert len(await take(consumer)) == count
    await asyncio.sleep(0.02)
    assert steps[:2] == ["read", "write"]


async def test_records_wait_for_their_lease_however_early_they_are_read(work: Work) -> None:
    queue = await work.create("jobs")
    await work.publish("jobs", [b"0"])
    consumer = await work.consumer("jobs")
    with unwritten(queue) as gate:
        waiting = asyncio.create_task(consumer.lease(1, wait_ms=500))
        await gate.reached.wait()
        await asyncio.sleep(0.05)
        assert not waiting.done()
        gate.opened.set()
        assert values(await waiting) == [b"0"]


class FullMemory:
    """Memory of which nothing is free."""

    async def take(self, wanted_bytes: int, least_bytes: int = 0) -> int:
        raise AssertionError(f"{wanted_bytes} bytes were asked for, at least {least_bytes}")

    def resize(self, size_bytes: int) -> None:
        assert size_bytes == 0


@pytest.mark.parametrize("wait_ms", [0, 10])
async def test_a_lease_of_an_empty_queue_takes_no_memory(work: Work, wait_ms: int) -> None:
    await work.create("jobs")
    consumer = await work.consumer("jobs")
    assert await consumer.lease(1, wait_ms=wait_ms, memory=FullMemory()) == []


async def test_records_that_do_not_fit_were_not_delivered(work: Work) -> None:
    await work.create("jobs")
    for number in range(4):
        await work.publish("jobs", [b"%d" % number * 2000])
    consumer = await work.consumer("jobs")
    assert [len(each) for each in values(await consumer.lease(4, max_bytes=2500, wait_ms=500))] == [2000]
    assert work.statistics("jobs").leased == 1
    await work.broker.parts.queue_registry.get("jobs").writer.flushed()
    await work.crash()
    again = await (await work.consumer("jobs")).lease(4, wait_ms=500)
    assert [record.offset for record in records(again)] == [1, 2, 3]
    assert {count for each in again for _, _, count in each.ranges} == {1}


async def test_a_lease_whose_topic_is_deleted_meanwhile_has_no_records(work: Work) -> None:
    queue = await work.create("jobs", ["events"])
    await work.publish("events", [b"0"])
    consumer = await work.consumer("jobs")
    with unwritten(queue) as gate:
        waiting = asyncio.create_task(consumer.lease(1, wait_ms=50))
        await asyncio.sleep(0)
        await work.broker.topics.delete("events")
        gate.opened.set()
        assert await waiting == []


async def test_a_record_that_is_not_synced_yet_shares_the_sync_of_its_lease(work: Work, monkeypatch) -> None:
    queue = await work.create("jobs")
    consumer = await work.consumer("jobs")
    await work.publish("jobs", [b"0"])
    kind = type(queue.sources[0].partition.log)
    waited: list[int] = []
    durable = kind.durable

    def noted(log: PartitionLog, offset: int) -> asyncio.Future[None]:
        waited.append(offset)
        return durable(log, offset)

    monkeypatch.setattr(kind, "durable", noted)
    monkeypatch.setattr(kind, "durable_offset", 0)
    with unwritten(queue) as gate:
        waiting = asyncio.create_task(consumer.lease(1, wait_ms=500))
        await gate.reached.wait()
        assert 1 in waited  # asked for before the lease is written, not behind it
        gate.opened.set()
        assert values(await waiting) == [b"0"]
