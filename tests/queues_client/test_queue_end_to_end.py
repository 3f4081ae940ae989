"""The queue client and workers against a real broker: cut connections, kills, competing
consumers.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio

import sparrow
import sparrow.testing
from sparrow.base.errors import InvalidArgument, NotLeased, UnknownQueue
from sparrow.client.client import Client
from sparrow.client.job import Job
from tests.client.frontends import Frontend, Proxy, client_of
from tests.queues_client.test_jobs_settled import take


@pytest_asyncio.fixture
async def proxy(frontend: Frontend) -> AsyncIterator[Proxy]:
    opened = Proxy(frontend.port, seed=7, min_bytes=1500, max_bytes=9000)
    await opened.start()
    yield opened
    await opened.stop()


async def fill(client: Client, topic: str, count: int) -> None:
    async with client.producer(batch_bytes=2000) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number)


async def test_a_queue_is_made_published_to_and_worked_off(client: Client) -> None:
    async with client.queue("emails") as queue:
        placed = await queue.publish(
            b"to: alice", key=b"alice", headers={"message-id": b"m-1", "kind": b"welcome"}
        )
        async for job in queue:
            assert (job.topic, job.partition, job.offset) == (placed.topic, placed.partition, placed.offset)
            assert (job.value, job.key, job.message_id) == (b"to: alice", b"alice", "m-1")
            assert dict(job.headers)["kind"] == b"welcome"
            assert abs(job.timestamp - time.time() * 1000) < 60_000
            await job.ack()
            break
        statistics = await queue.statistics()
        assert (statistics.acknowledged, statistics.unfinished) == (1, 0)


async def test_an_acknowledgement_and_the_next_lease_are_one_sync(client: Client, frontend: Frontend) -> None:
    await client.admin.create_queue("q", partitions=1)
    syncs = frontend.broker.parts.queue_registry.sync_times
    begun = 0
    async with client.queue("q", prefetch=1) as queue:
        for number in range(32):
            await queue.publish(b"%d" % number)
        taken = 0
        async for job in queue:
            await job.ack()
            taken += 1
            if taken == 1:
                begun = syncs.count
            if taken == 31:
                break
    assert syncs.count - begun <= 40  # one for each message; some more, where the machine was slow


async def test_messages_say_when_and_how_urgently_they_are_delivered(client: Client) -> None:
    await client.admin.create_queue("q", partitions=1)
    async with client.queue("q", prefetch=1) as queue:
        await queue.publish(b"low", priority=1)
        await queue.publish(b"high", priority=9)
        await queue.publish(b"delayed", delay_ms=150)
        jobs: list[bytes | None] = []
        async for job in queue:
            jobs.append(job.value)
            await job.ack()
            if len(jobs) == 3:
                break
    assert jobs == [b"high", b"low", b"delayed"]


async def test_a_poison_message_is_tried_exactly_as_often_as_the_limit_says_and_blocks_nobody(
    client: Client,
) -> None:
    await client.admin.create_queue(
        "q", policy={"delivery_limit": 3, "dead_letter_topic": None}, partitions=1
    )
    queue = client.queue("q")
    calls: Counter[bytes | None] = Counter()

    @client.worker("q", concurrency=2)
    async def handle(job: Job) -> None:
        calls[job.value] += 1
        assert job.delivery_count == calls[job.value]
        if job.value == b"poison":
            raise ValueError("always")

    working = asyncio.create_task(client.run_workers())
    for value in (b"one", b"poison", b"two"):
        await queue.publish(value)

    async with asyncio.timeout(30):
        while (await queue.statistics()).unfinished:
            await asyncio.sleep(0.01)
    await client.stop_workers()
    await working
    assert calls == {b"one": 1, b"poison": 3, b"two": 1}
    assert (await queue.statistics()).dropped == 1


async def test_competing_consumers_get_each_record_once(client: Client, frontend: Frontend) -> None:
    await client.admin.create_queue("q")
    await fill(client, "q", 600)
    seen: list[tuple[int, int]] = []

    async def work(url: str) -> int:
        mine = 0
        async with client_of(url) as other, other.queue("q", prefetch=20) as queue:
            while batch := await queue.lease(7, wait_s=0.2):
                seen.extend((job.partition, job.offset) for job in batch)
                mine += len(batch)
                await batch.ack()
                await asyncio.sleep(0)
        return mine

    shares = await asyncio.gather(*(work(frontend.url) for _ in range(3)))
    assert len(seen) == len(set(seen)) == 600
    assert all(shares)


@pytest.mark.slow
async def test_over_connections_cut_at_random_every_record_is_acknowledged_and_none_comes_after_its_ack(
    client: Client, proxy: Proxy
) -> None:
    await client.admin.create_queue("q", policy={"lease_ms": 400, "delivery_limit": 0})
    await fill(client, "q", 500)
    acknowledged: set[tuple[int, int]] = set()
    after_ack: list[Job] = []
    async with (
        client_of(proxy.url, connect_timeout_s=10) as cut_client,
        cut_client.queue("q", prefetch=20) as queue,
    ):

        async def work() -> None:
            async for job in queue:
                place = (job.partition, job.offset)
                if place in acknowledged:
                    after_ack.append(job)
                with suppress(NotLeased):
                    await job.ack()
                    acknowledged.add(place)
                if len(acknowledged) == 500:
                    queue.stop()

        async with asyncio.timeout(60):
            await asyncio.gather(*(work() for _ in range(8)))
        proxy.never_cut()
    assert proxy.cuts > 2
    assert after_ack == []
    statistics = (await client.admin.describe_queue("q")).statistics
    assert (statistics.unfinished, statistics.acknowledged) == (0, 500)


@pytest.mark.slow
async def test_jobs_in_hand_at_a_kill_are_acknowledged_when_the_broker_returns() -> None:
    with sparrow.testing.broker(process=True, default_partitions=1) as broker:
        async with client_of(broker.url) as client, client.queue("q") as queue:
            await queue.publish(b"one")
            await queue.publish(b"two")
            jobs = await take(queue, 2)
            await jobs[0].ack()
            await asyncio.to_thread(broker.kill)
            late = jobs[1].ack()
            await asyncio.to_thread(broker.restart)
            await late
            assert not await queue.lease(1, wait_s=0.05)
            assert (await queue.statistics()).unfinished == 0


WORKER = """
import asyncio, sys, sparrow

async def main(url):
    async with sparrow.connect(url) as client:
        @client.worker("q", concurrency=2)
        async def handle(job):
            print("began", job.value.decode(), flush=True)
            if job.value == b"hangs":
                await asyncio.sleep(600)
        await client.run_workers()

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.slow
async def test_the_messages_of_a_worker_that_is_killed_come_back_once_after_their_lease(
    client: Client, frontend: Frontend
) -> None:
    await client.admin.create_queue("q", policy={"lease_ms": 1000}, partitions=1)
    queue = client.queue("q")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, frontend.url, stdout=subprocess.PIPE
    )
    await queue.publish(b"quick")
    await queue.publish(b"hangs")
    assert process.stdout is not None
    async with asyncio.timeout(60):
        assert {await process.stdout.readline() for _ in range(2)} == {b"began quick\n", b"began hangs\n"}
        while not (await queue.statistics()).acknowledged:
            await asyncio.sleep(0.01)
        process.kill()
        await process.wait()
        (job,) = await queue.lease(10, wait_s=30)
    assert (job.value, job.delivery_count) == (b"hangs", 2)
    await job.ack()
    assert not await queue.lease(10, wait_s=0)
    await queue.close()


async def test_each_subscriber_of_an_all_of_queue_gets_every_message(client: Client) -> None:
    await client.admin.create_queue("q", policy={"subscribers": ["a", "b"]}, partitions=1)
    first, second = client.queue("q", subscriber="a"), client.queue("q", subscriber="b")
    await first.publish(b"one")
    for queue in (first, second):
        (job,) = await queue.lease(5, wait_s=10)
        assert job.value == b"one"
        await job.ack()
    assert (await first.statistics()).unfinished == 0
    await first.close()
    await second.close()


async def test_a_queue_that_must_not_be_made_is_unknown(client: Client) -> None:
    queue = client.queue("nowhere", create=False)
    with pytest.raises(UnknownQueue):
        await queue.publish(b"one")
    with pytest.raises(UnknownQueue):
        await queue.lease(1)
    assert await client.admin.list_queues() == []


async def test_a_queue_can_be_looked_at_paused_and_purged(client: Client) -> None:
    async with client.queue("q") as queue:
        await queue.publish(b"one")
        await queue.pause()
        assert (await queue.describe()).is_paused
        assert not await queue.lease(1, wait_s=0.05)
        assert [record.value for record in await queue.peek()] == [b"one"]
        assert await queue.purge() == 1
        await queue.resume()
        assert not await queue.lease(1, wait_s=0)


async def test_a_message_goes_to_the_topic_that_is_named(client: Client) -> None:
    await client.admin.create_queue("q", ["a", "b"], partitions=1)
    async with client.queue("q") as queue:
        assert (await queue.publish(b"one")).topic == "a"
        assert (await queue.publish(b"two", topic="b")).topic == "b"
        found = {job.topic: job.value for job in await queue.lease(10, wait_s=10)}
        while len(found) < 2:
            found |= {job.topic: job.value for job in await queue.lease(10, wait_s=10)}
        assert found == {"a": b"one", "b": b"two"}
    with pytest.raises(InvalidArgument):
        await queue.publish(b"x", priority=11)


async def test_compressed_and_transactional_batches_are_read_as_others_are(client: Client) -> None:
    await client.admin.create_queue("q", partitions=1)
    async with client.producer(compression="zstd") as producer:
        for number in range(100):
            await producer.send("q", b"%d" % number, headers={"n": b"%d" % number})
    async with client.queue("q") as queue:
        batch = await queue.lease(30, wait_s=10)
        assert batch.values == [b"%d" % i for i in range(30)]
        await batch.release()
        again = await queue.lease(100, wait_s=10)
        assert [(job.offset, job.delivery_count) for job in again] == [(i, 1) for i in range(100)]
        await again.ack()
