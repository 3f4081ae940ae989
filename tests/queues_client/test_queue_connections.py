"""Consumers of a queue under lost connections, missing responses and restarts."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from sparrow.base.errors import ConnectionLost, LeasedByAnother, LeaseExpired
from sparrow.client.client import Client
from sparrow.client.job import Job
from sparrow.client.queue import Queue
from sparrow.protocol.native.messages import Close, Error, Goodbye, Lease, OpenQueue, QueueCredit, Settle
from tests.client.frontends import client_of
from tests.queues_client.fake_broker import FakeBroker
from tests.queues_client.test_jobs_settled import take, until


async def in_hand(fake: FakeBroker, queue: Queue, count: int) -> list[Job]:
    jobs = await take(queue, count)
    await until(lambda: fake.held == [job.offset for job in jobs])
    return jobs


def opened(fake: FakeBroker) -> list[OpenQueue]:
    return [head for head in fake.heads if isinstance(head, OpenQueue)]


async def test_a_job_is_acknowledged_on_the_next_connection_by_the_same_consumer(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"one")
    async with fake_client.queue("jobs") as queue:
        (job,) = await take(queue, 1)
        fake.cut()
        await job.ack()
        assert fake.done == [0]
    first, second = opened(fake)
    assert first.consumer_id == second.consumer_id != ""
    assert (first.create, second.create) == (True, False)


async def test_an_unconfirmed_ack_is_sent_again_and_counts_as_done(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"one", b"two", b"three")
    async with fake_client.queue("jobs") as queue:
        jobs = await take(queue, 3)
        fake.is_silent = True  # it takes effect, but the response is lost
        acks = [job.ack() for job in jobs]
        await until(lambda: fake.done == [0, 1, 2])
        fake.is_silent = False
        fake.cut()
        await asyncio.gather(*acks)
        assert fake.counts["ACK"] == 3
        assert len(fake.settles()) > 1


async def test_an_ack_that_was_lost_with_its_connection_is_sent_again(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"one")
    async with fake_client.queue("jobs") as queue:
        (job,) = await take(queue, 1)
        fake.is_deaf = True
        ack = job.ack()
        await until(fake.settles)
        fake.is_deaf = False
        fake.cut()
        await ack
        assert fake.done == [0]


async def test_a_lease_that_ended_meanwhile_is_an_error_even_for_a_repetition(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"one", b"two")
    queue = fake_client.queue("jobs", prefetch=2)
    first, second = await in_hand(fake, queue, 2)
    fake.is_deaf = True
    acks = first.ack(), second.ack()
    await until(fake.settles)
    fake.is_deaf = False
    fake.items[0].holder = "somebody"
    fake.items[1].holder = ""
    fake.cut()
    with pytest.raises(LeasedByAnother):
        await acks[0]
    with pytest.raises(LeaseExpired):
        await acks[1]
    await queue.close()


async def test_a_nack_whose_response_was_lost_is_not_done_twice(
    fake: FakeBroker, fake_client: Client
) -> None:
    """The nacked record is ready again, so the repetition must come before the broker may lease it
    again to the same consumer.
    """
    fake.add(b"one", b"two")
    async with fake_client.queue("jobs", prefetch=1) as queue:
        iteration = aiter(queue)
        job = await anext(iteration)
        fake.is_silent = True
        nack = job.nack(0)
        await until(lambda: fake.counts["NACK"] == 1)
        fake.is_silent = False
        fake.cut()
        await nack
        again = await anext(iteration)
        assert (again.offset, again.delivery_count) == (0, 2)
        await again.ack()
        assert (await anext(iteration)).offset == 1
    assert (fake.counts["NACK"], fake.done) == (1, [0])


async def test_credit_on_a_new_connection_counts_buffered_jobs(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(*(b"%d" % i for i in range(100)))
    async with fake_client.queue("jobs", prefetch=10) as queue:
        iteration = aiter(queue)
        jobs = [await anext(iteration) for _ in range(8)]
        fake.cut()
        await jobs[0].ack()
        await until(lambda: len(opened(fake)) == 2)
        await until(lambda: fake.held == list(range(1, 11)))
        heads = fake.heads[fake.heads.index(opened(fake)[1]) :]
        assert sum(head.records for head in heads if isinstance(head, QueueCredit)) == 1
        seen = [(await anext(iteration)).offset for _ in range(3)]
        assert seen == [8, 9, 10]


async def test_iterating_goes_on_over_connections_that_are_cut_again_and_again(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.max_push = 3
    fake.add(*(b"%d" % i for i in range(300)))
    seen: list[int] = []
    async with fake_client.queue("jobs", prefetch=8) as queue, asyncio.timeout(30):
        async for job in queue:
            seen.append(job.offset)
            if len(seen) % 20 == 0:
                fake.cut()
                fake.expire(
                    *(offset for offset in fake.held if offset > job.offset)
                )  # as all that was on its way
            with suppress(LeaseExpired):
                await job.ack()
            if len(fake.done) == 300:
                break
    assert sorted(set(seen)) == list(range(300))
    assert fake.counts["ACK"] == 300


async def test_a_refused_channel_is_opened_again_later(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(b"one")
    fake.refusals = [Error("OVERLOADED", "not now", True)] * 2
    async with fake_client.queue("jobs") as queue:
        (job,) = await take(queue, 1)
        await job.ack()
    assert len(opened(fake)) == 3


async def test_temporarily_ended_channel_is_reopened_and_repeats_unconfirmed_settlements(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"one")
    async with fake_client.queue("jobs") as queue:
        (job,) = await take(queue, 1)
        fake.is_deaf = True
        ack = job.ack()
        await until(fake.settles)
        fake.is_deaf = False
        fake.connections[0].channels.clear()
        fake.connections[0].send(Error("OVERLOADED", "not now", True), 1)
        await ack
        assert fake.done == [0]


async def test_a_draining_broker_still_confirms_settlements(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(b"one", b"two")
    async with fake_client.queue("jobs") as queue:
        jobs = await take(queue, 2)
        fake.is_deaf = True
        ack = jobs[0].ack()
        await until(fake.settles)
        session = fake.connections[0]
        session.send(Goodbye("DRAINING", "restart"))
        (settle,) = fake.settles()
        await asyncio.sleep(0.01)
        fake.is_deaf = False
        session.settle(1, session.channels[1], settle)
        await ack
        await jobs[1].ack()
        assert fake.done == [0, 1]
        assert len(opened(fake)) == 2


async def test_a_channel_that_is_opened_too_late_is_closed_again(fake: FakeBroker) -> None:
    fake.add(b"one")
    fake.is_slow = True
    async with client_of(fake.url, call_timeout_s=0.05) as client:
        queue = client.queue("jobs")
        with pytest.raises(ConnectionLost, match="did not open queue 'jobs' within"):
            await take(queue, 1)
        (session,) = fake.connections
        session.channels[1].credit = 1
        session.open_channel(1)
        session.deliver()
        await until(lambda: any(isinstance(head, Close) for head in fake.heads))
        fake.is_slow = False
        (job,) = await take(queue, 1)
        await job.ack()
        assert fake.connections == [session]
        assert fake.done == [0]


# ── leasing on demand ─────────────────────────────────────────────────────────────────────────────


async def test_lease_returns_available_jobs_and_is_settled_by_range(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(*(b"%d" % i for i in range(1000)))
    async with fake_client.queue("jobs") as queue:
        batch = await queue.lease(600)
        assert batch.values == [b"%d" % i for i in range(600)]
        await batch.ack()
        (settle,) = fake.settles()
        assert settle.settlements[0].ranges == [(0, 599)]
        rest = await queue.lease(600)
        assert [job.offset for job in rest] == list(range(600, 1000))
        await rest.extend(60)
        await rest.jobs[0].reject("bad")
        await rest.nack(error="later")
    assert (fake.counts["ACK"], fake.counts["EXTEND"], fake.counts["REJECT"], fake.counts["NACK"]) == (
        600,
        400,
        1,
        399,
    )
    assert opened(fake)[0].push is False


async def test_a_lease_may_be_empty(fake: FakeBroker, fake_client: Client) -> None:
    async with fake_client.queue("jobs") as queue:
        assert not await queue.lease(5, wait_s=0)
        assert not await queue.lease(5, wait_s=0.01)


async def test_a_lease_waits_for_the_first_record(fake: FakeBroker, fake_client: Client) -> None:
    async with fake_client.queue("jobs") as queue:
        waiting = asyncio.create_task(queue.lease(5, wait_s=30))
        await until(lambda: any(isinstance(head, Lease) for head in fake.heads))
        fake.add(b"one")
        assert (await waiting).values == [b"one"]


async def test_leases_of_several_tasks_take_turns(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(*(b"%d" % i for i in range(50)))
    async with fake_client.queue("jobs") as queue:
        batches = await asyncio.gather(*(queue.lease(10) for _ in range(5)))
        assert sorted(value for batch in batches for value in batch.values) == sorted(
            b"%d" % i for i in range(50)
        )
        assert [len(batch) for batch in batches] == [10] * 5


async def test_jobs_of_an_abandoned_request_go_to_the_next_one_or_are_released(
    fake: FakeBroker, fake_client: Client
) -> None:
    async with fake_client.queue("jobs") as queue:
        waiting = asyncio.create_task(queue.lease(10, wait_s=30))
        await until(lambda: any(isinstance(head, Lease) for head in fake.heads))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        following = asyncio.create_task(queue.lease(2, wait_s=30))
        await asyncio.sleep(0.01)
        fake.add(*(b"%d" % i for i in range(5)))
        assert (await following).values == [b"0", b"1"]
        await until(lambda: fake.counts["RETURN"] == 3)
        assert fake.held == [0, 1]

        waiting = asyncio.create_task(queue.lease(10, wait_s=30))
        assert len(await waiting) == 3
        waiting = asyncio.create_task(queue.lease(10, wait_s=30))
        await until(lambda: len([head for head in fake.heads if isinstance(head, Lease)]) == 3)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        fake.add(b"late")
        await until(lambda: fake.counts["RETURN"] == 4)
        assert 5 not in fake.held


async def test_a_lease_goes_on_over_a_lost_connection(fake: FakeBroker, fake_client: Client) -> None:
    async with fake_client.queue("jobs") as queue:
        waiting = asyncio.create_task(queue.lease(10, wait_s=30))
        await until(lambda: any(isinstance(head, Lease) for head in fake.heads))
        fake.cut()
        await until(lambda: len([head for head in fake.heads if isinstance(head, Lease)]) == 2)
        fake.add(b"one")
        batch = await waiting
        fake.cut()
        await batch.ack()
        assert fake.done == [0]


async def test_part_of_a_batch_that_cannot_be_settled_leaves_the_rest_settled(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(*(b"%d" % i for i in range(4)))
    fake.items[1].is_done = True
    async with fake_client.queue("jobs") as queue:
        batch = await queue.lease(10)
        assert [each[2:4] for each in batch.ranges] == [(0, 0), (2, 3)]
        fake.items[0].holder = "somebody"
        with pytest.raises(LeasedByAnother):
            await batch.ack()
        assert fake.done == [1, 2, 3]


async def test_settlements_leave_before_the_credit_that_they_free(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(*(b"%d" % i for i in range(3)))
    async with fake_client.queue("jobs", prefetch=1) as queue:
        iteration = aiter(queue)
        for _ in range(3):
            await (await anext(iteration)).ack()
    kinds = [type(head) for head in fake.heads if isinstance(head, Settle | QueueCredit)]
    assert kinds[:6] == [QueueCredit, Settle, QueueCredit, Settle, QueueCredit, Settle]
