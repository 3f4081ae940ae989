"""Jobs and their settlements, against a broker that is controlled by the test."""

from __future__ import annotations

import asyncio
import time
from itertools import chain

import pytest

from sparrow.base.errors import (
    ConnectionLost,
    InvalidArgument,
    LeasedByAnother,
    LeaseExpired,
    NotLeased,
    TimedOut,
    UnknownQueue,
)
from sparrow.client.client import Client
from sparrow.client.job import Job, LeasedRecord
from sparrow.client.prefetcher import Prefetcher
from sparrow.client.queue import Queue, SettlementFailure
from sparrow.protocol.native.messages import Error, OpenQueue, QueueCredit, SettleFailure, SettleVerb
from tests.client.frontends import client_of
from tests.queues_client.fake_broker import TOPIC, FakeBroker


async def take(queue: Queue, count: int) -> list[Job]:
    """Take some jobs without settling them; the iteration stays open."""
    jobs: list[Job] = []
    async for job in queue:  # pragma: no branch
        jobs.append(job)
        if len(jobs) == count:
            break
    return jobs


async def until(condition: object, timeout_s: float = 20.0) -> None:
    assert callable(condition)
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.002)


async def test_a_job_tells_what_its_message_was(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(b"one", b"two")
    async with fake_client.queue("jobs") as queue:
        first, second = await take(queue, 2)
        assert (first.value, first.key, first.headers) == (b"one", None, ())
        assert (second.topic, second.partition, second.offset, second.delivery_count) == (TOPIC, 0, 1, 1)
        assert second.record.value == b"two"
        assert second.queue == "jobs"
        assert not second.is_settled
        assert 0 < second.deadline - time.monotonic() <= 30
        assert repr(second).startswith("<Job jobs-0 at offset 1 of queue 'jobs' of 127.0.0.1:")


async def test_an_ack_returns_when_the_broker_has_it(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(b"one")
    async with fake_client.queue("jobs") as queue:
        (job,) = await take(queue, 1)
        fake.is_deaf = True
        waiting = asyncio.ensure_future(job.ack())
        await until(fake.settles)
        assert job.is_settled
        assert not waiting.done()
        (settle,) = fake.settles()
        fake.is_deaf = False
        session = fake.connections[0]
        session.settle(1, session.channels[1], settle)
        await waiting
        assert fake.done == [0]


async def test_each_verb_reaches_the_broker(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(*(b"%d" % i for i in range(5)))
    async with fake_client.queue("jobs", prefetch=5) as queue:
        iteration = aiter(queue)
        jobs = [await anext(iteration) for _ in range(5)]
        await jobs[0].ack()
        await jobs[1].nack(delay_s=1.5, error="oops")
        await jobs[2].reject("no use")
        await jobs[3].release()
        await jobs[4].extend(60)
        said = [
            (SettleVerb(s.verb).name, s.ranges, s.delay_ms, s.text)
            for head in fake.settles()
            for s in head.settlements
        ]
    assert said == [
        ("ACK", [(0, 0)], -1, ""),
        ("NACK", [(1, 1)], 1500, "oops"),
        ("REJECT", [(2, 2)], -1, "no use"),
        ("RETURN", [(3, 3)], -1, ""),
        ("EXTEND", [(4, 4)], 60_000, ""),
    ]


async def test_settlements_of_one_iteration_are_one_frame_of_merged_ranges(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(*(b"%d" % i for i in range(10)))
    async with fake_client.queue("jobs") as queue:
        jobs = await take(queue, 10)
        await asyncio.gather(*(jobs[i].ack() for i in (3, 1, 2, 7, 0, 9, 8)))
        (settle,) = fake.settles()
        assert [s.ranges for s in settle.settlements] == [[(0, 3), (7, 9)]]
        assert fake.done == [0, 1, 2, 3, 7, 8, 9]


async def test_settling_twice_is_refused_here(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(b"one")
    async with fake_client.queue("jobs") as queue:
        (job,) = await take(queue, 1)
        await job.ack()
        with pytest.raises(NotLeased, match="acknowledged before"):
            await job.nack()
        with pytest.raises(NotLeased, match="acknowledged before"):
            job.extend_nowait()
        assert len(fake.settles()) == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [("NOT_LEASED", NotLeased), ("LEASE_EXPIRED", LeaseExpired), ("LEASED_BY_ANOTHER", LeasedByAnother)],
)
async def test_refused_ack_raises_the_error_of_the_broker(
    fake: FakeBroker, fake_client: Client, code: str, kind: type[Exception]
) -> None:
    fake.add(b"one")
    async with fake_client.queue("jobs") as queue:
        (job,) = await take(queue, 1)
        fake.failures = [SettleFailure(0, 0, code, "so it is")]
        with pytest.raises(kind, match="so it is") as caught:
            await job.ack()
        assert type(caught.value) is kind


async def test_one_bad_job_in_a_merged_range_fails_alone(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(*(b"%d" % i for i in range(5)))
    async with fake_client.queue("jobs") as queue:
        jobs = await take(queue, 5)
        fake.items[2].holder = "somebody"
        outcomes = await asyncio.gather(*(job.ack() for job in jobs), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None)] * 2 + [LeasedByAnother] + [
            type(None)
        ] * 2
        assert fake.done == [0, 1, 3, 4]


async def test_retriable_failure_is_retried(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(b"one")
    async with fake_client.queue("jobs") as queue:
        (job,) = await take(queue, 1)
        fake.failures = [SettleFailure(0, 0, "STORAGE_BUSY", "wait", retriable=True)] * 3
        await job.ack()
        assert fake.done == [0]
        assert len(fake.settles()) == 4


async def test_an_ack_that_is_never_confirmed_times_out(fake: FakeBroker) -> None:
    fake.add(b"one", b"two")
    async with (
        client_of(fake.url, call_timeout_s=0.15, close_timeout_s=0.1) as client,
        client.queue("jobs") as queue,
    ):
        first, second = await take(queue, 2)
        fake.is_silent = True
        with pytest.raises(TimedOut, match="whether it was done is not known"):
            await first.ack()
        fake.is_silent = False
        await second.ack()


async def test_failures_without_a_waiter_are_kept_and_raised_by_flush(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"one", b"two", b"three")
    async with fake_client.queue("jobs") as queue:
        jobs = await take(queue, 3)
        fake.items[0].holder = fake.items[2].holder = "somebody"
        for job in jobs:
            job.ack_nowait()
        with pytest.raises(LeasedByAnother):
            await queue.flush()
        assert queue.failures == []
        assert fake.done == [1]


async def test_failures_without_a_waiter_can_be_looked_at(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(b"one")
    queue = fake_client.queue("jobs")
    (job,) = await take(queue, 1)
    fake.items[0].holder = "somebody"
    job.nack_nowait(error="x")
    await until(fake.settles)
    await asyncio.sleep(0.01)
    (failure,) = queue.failures
    assert (failure.topic, failure.partition, failure.first, failure.last) == (TOPIC, 0, 0, 0)
    assert SettleVerb(failure.verb) is SettleVerb.NACK
    assert isinstance(failure.error, LeasedByAnother)
    await queue.flush()
    await queue.close()


async def test_failures_without_a_waiter_go_to_the_callback(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(b"one")
    reported: list[SettlementFailure] = []

    def callback(failure: SettlementFailure) -> None:
        reported.append(failure)
        raise ValueError("a bug of the user's")

    async with fake_client.queue("jobs", on_failure=callback) as queue:
        (job,) = await take(queue, 1)
        fake.items[0].holder = "somebody"
        job.ack_nowait()
        await queue.flush()
        assert [type(failure.error) for failure in reported] == [LeasedByAnother]


async def test_closing_raises_a_failure_that_nobody_saw(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(b"one")
    queue = fake_client.queue("jobs")
    (job,) = await take(queue, 1)
    fake.items[0].holder = "somebody"
    job.ack_nowait()
    with pytest.raises(LeasedByAnother):
        await queue.close()


async def test_a_cancelled_waiter_does_not_disturb_the_others(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(b"one", b"two")
    async with fake_client.queue("jobs") as queue:
        jobs = await take(queue, 2)
        first, second = jobs[0].ack(), jobs[1].ack()
        first.cancel()
        await second
        assert fake.done == [0, 1]


async def test_a_record_leased_again_is_lost_to_the_job_in_hand(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"one")
    async with fake_client.queue("jobs", prefetch=5) as queue:
        found: list[Job] = []
        async for job in queue:
            found.append(job)
            if len(found) == 2:
                break
            fake.expire(0)
        old, new = found
        assert (old.delivery_count, new.delivery_count) == (1, 2)
        with pytest.raises(LeaseExpired, match="delivered again"):
            await old.ack()
        with pytest.raises(LeaseExpired):
            await old.extend()
        await new.ack()
        assert fake.done == [0]


@pytest.mark.parametrize("wrong", [-1, -0.001, float("nan"), float("inf")])
async def test_delays_that_cannot_be_are_refused(fake: FakeBroker, fake_client: Client, wrong: float) -> None:
    fake.add(b"one")
    async with fake_client.queue("jobs") as queue:
        (job,) = await take(queue, 1)
        with pytest.raises(InvalidArgument):
            job.nack(wrong)
        with pytest.raises(InvalidArgument):
            job.extend(wrong)
        assert not job.is_settled
        await job.ack()


async def test_long_texts_are_cut(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(*(b"%d" % i for i in range(300)))
    async with fake_client.queue("jobs", prefetch=300) as queue:
        jobs = await take(queue, 300)
        await asyncio.gather(*(job.nack(60, error=f"{job.offset:04}" + "ä" * 5000) for job in jobs))
        texts = [s.text for head in fake.settles() for s in head.settlements]
        assert {len(text) for text in texts} == {1000}
        assert len(texts) == 300
        assert len(fake.settles()) > 1  # a SETTLE has a limit


async def test_a_job_that_comes_alone_wakes_one_of_the_tasks_that_wait(
    fake: FakeBroker, fake_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    take_nowait = Prefetcher.take_nowait

    def counted(prefetcher: Prefetcher, now: float) -> LeasedRecord | None:
        nonlocal looks
        looks += 1
        return take_nowait(prefetcher, now)

    monkeypatch.setattr(Prefetcher, "take_nowait", counted)
    async with fake_client.queue("jobs") as queue:
        tasks = [asyncio.create_task(take(queue, 1)) for _ in range(3)]
        await until(lambda: looks == 3)
        fake.add(b"one")
        await until(tasks[0].done)
        assert looks == 4
        fake.add(b"two", b"three")
        assert [job.value for (job,) in await asyncio.gather(*tasks)] == [b"one", b"two", b"three"]


# ── credit ────────────────────────────────────────────────────────────────────────────────────────


async def test_never_more_than_the_prefetch_is_here_unsettled(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(*(b"%d" % i for i in range(500)))
    seen = 0
    most = 0
    async with fake_client.queue("jobs", prefetch=7) as queue:
        async for job in queue:
            seen += 1
            most = max(most, len(fake.held))
            await job.ack()
            if seen == 500:
                break
    assert most == 7
    assert len(fake.done) == 500


async def test_credit_is_given_back_even_where_little_is_free(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(*(b"%d" % i for i in range(40)))
    async with fake_client.queue("jobs", prefetch=10) as queue:
        slow: list[Job] = []
        seen = 0
        async with asyncio.timeout(20):
            async for job in queue:
                seen += 1
                if len(slow) < 9:
                    slow.append(job)
                else:
                    await job.ack()
                if seen == 40:
                    break
        assert len(slow) == 9


async def test_credit_is_given_back_in_lumps_while_jobs_wait_here(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(*(b"%d" % i for i in range(1000)))
    async with fake_client.queue("jobs", prefetch=100) as queue:
        async for job in queue:
            await job.ack()
            if len(fake.done) == 1000:
                break
    assert len([head for head in fake.heads if isinstance(head, QueueCredit)]) < 60


async def test_a_prefetch_of_one_goes_job_by_job(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(*(b"%d" % i for i in range(20)))
    async with fake_client.queue("jobs", prefetch=1) as queue:
        order = []
        async for job in queue:
            assert fake.held == [job.offset]
            order.append(job.offset)
            await job.ack()
            if len(order) == 20:
                break
    assert order == list(range(20))


async def test_jobs_that_nobody_settles_free_their_credit_when_their_lease_is_over(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.lease_ms = 100
    fake.add(b"one", b"two", b"three")
    async with fake_client.queue("jobs", prefetch=1) as queue:
        kept = []
        async with asyncio.timeout(20):
            async for job in queue:
                kept.append(job.offset)
                if len(kept) == 3:
                    break
        assert kept == [0, 1, 2]


async def test_untaken_job_is_released_at_half_of_its_lease(fake: FakeBroker, fake_client: Client) -> None:
    fake.lease_ms = 400
    fake.add(*(b"%d" % i for i in range(4)))
    async with fake_client.queue("jobs", prefetch=4) as queue:
        async for job in queue:
            assert job.offset == 0
            await until(lambda: fake.counts["RETURN"] >= 3)
            await job.ack()
            break
        assert all(item.deliveries <= 1 for item in fake.items)


async def test_leaving_an_iteration_releases_jobs_not_handed_out(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(*(b"%d" % i for i in range(50)))
    queue = fake_client.queue("jobs", prefetch=20)
    jobs = await take(queue, 3)
    await until(lambda: fake.held == [0, 1, 2])
    assert all(item.deliveries == 0 for item in fake.items[3:])
    fake.add(b"late")
    for job in jobs:
        await job.ack()
    again = await take(queue, 4)
    assert [job.offset for job in again] == [3, 4, 5, 6]
    await queue.close()
    assert fake.held == []
    assert fake.done == [0, 1, 2]


async def test_several_tasks_share_one_iteration(fake: FakeBroker, fake_client: Client) -> None:
    seen: list[list[int]] = [[] for _ in range(4)]
    queue = fake_client.queue("jobs", prefetch=10)

    async def work(mine: list[int]) -> None:
        async for job in queue:
            mine.append(job.offset)
            await job.ack()

    tasks = [asyncio.create_task(work(mine)) for mine in seen]
    await until(lambda: any(isinstance(head, QueueCredit) for head in fake.heads))
    fake.add(*(b"%d" % i for i in range(200)))
    await until(lambda: len(fake.done) == 200)
    queue.stop()
    await asyncio.gather(*tasks)
    assert sorted(chain.from_iterable(seen)) == list(range(200))
    assert all(seen)
    await queue.close()


async def test_an_iteration_without_awaits_lets_other_tasks_run(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(*(b"%d" % i for i in range(1000)))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(other())
    async with fake_client.queue("jobs", prefetch=1000) as queue:
        seen = 0
        first_turns = 0
        async for job in queue:
            if not seen:
                first_turns = turns
            time.sleep(0.0005 if seen < 100 else 0)  # noqa: ASYNC251 - work that does not await
            job.ack_nowait()
            seen += 1
            if seen == 100:
                assert turns - first_turns > 5
            if seen == 1000:
                break
        await queue.flush()
    task.cancel()
    assert len(fake.done) == 1000


async def test_a_job_that_is_in_hand_when_the_queue_is_closed_is_released(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"one")
    queue = fake_client.queue("jobs")
    (job,) = await take(queue, 1)
    await queue.close()
    assert fake.held == []
    with pytest.raises(NotLeased, match="released"):
        await job.ack()
    with pytest.raises(NotLeased, match="closed here"):
        await queue.lease(1)


async def test_closing_ends_the_iterations(fake: FakeBroker, fake_client: Client) -> None:
    queue = fake_client.queue("jobs")

    async def read() -> int:
        return len([job async for job in queue])

    task = asyncio.create_task(read())
    await until(lambda: any(isinstance(head, QueueCredit) for head in fake.heads))
    await queue.close()
    assert await task == 0


async def test_the_client_closes_its_queues(fake: FakeBroker) -> None:
    fake.add(b"one", b"two")
    async with client_of(fake.url) as client:
        queue = client.queue("jobs")
        await take(queue, 1)
    assert fake.held == []


async def test_a_queue_that_is_not_there_says_so(fake: FakeBroker, fake_client: Client) -> None:
    queue = fake_client.queue("jobs", create=False)
    fake.refusals = [Error("UNKNOWN_QUEUE", "there is no queue 'jobs'")] * 2
    with pytest.raises(UnknownQueue, match="no queue"):
        await take(queue, 1)
    with pytest.raises(UnknownQueue, match="no queue"):
        await queue.lease(1)
    fake.add(b"one")
    assert [job.value for job in await take(queue, 1)] == [b"one"]  # it was made meanwhile
    assert [head.create for head in fake.heads if isinstance(head, OpenQueue)] == [False] * 3


async def test_a_queue_that_is_deleted_ends_iteration_and_settlements(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"one")
    queue = fake_client.queue("jobs")
    iteration = aiter(queue)
    job = await anext(iteration)
    fake.is_silent = True
    waiting = job.ack()
    await until(fake.settles)
    fake.connections[0].send(Error("UNKNOWN_QUEUE", "it was deleted"), 1)
    with pytest.raises(UnknownQueue, match="deleted"):
        await waiting
    with pytest.raises(UnknownQueue, match="deleted"):
        await anext(iteration)
    await queue.close()


async def test_a_queue_belongs_to_the_loop_of_its_client(fake: FakeBroker, fake_client: Client) -> None:
    queue = fake_client.queue("jobs")

    def elsewhere() -> None:
        async def lease() -> None:
            await queue.lease(1)

        asyncio.run(lease())

    with pytest.raises(InvalidArgument, match="event loop"):
        await asyncio.to_thread(elsewhere)


@pytest.mark.parametrize("options", [{"prefetch": 0}, {"prefetch": -5}])
async def test_options_that_cannot_be_are_refused(fake_client: Client, options: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        fake_client.queue("jobs", **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        fake_client.queue("")


async def test_pending_settlements_fail_when_the_client_ends(fake: FakeBroker) -> None:
    fake.add(b"one")
    async with client_of(fake.url, close_timeout_s=0.1) as client:
        queue = client.queue("jobs")
        (job,) = await take(queue, 1)
        fake.is_deaf = True
        waiting = job.ack()
    with pytest.raises((ConnectionLost, NotLeased)):
        await waiting


@pytest.mark.parametrize("is_one_lease", [False, True])
async def test_a_worker_that_waits_gets_the_room_that_another_has_freed(is_one_lease: bool) -> None:
    """Five workers, room for five jobs: all are at work, although the first has settled one."""
    fake = FakeBroker()
    await fake.start()
    held: list[int] = []
    done = asyncio.Event()

    async def work(queue: Queue) -> None:
        async for job in queue:
            if job.offset:  # all but the first take long
                held.append(job.offset)
                await done.wait()
            await job.ack()

    async with client_of(fake.url) as client:
        queue = client.queue("jobs", prefetch=5)
        tasks = [asyncio.create_task(work(queue)) for _ in range(5)]
        await asyncio.sleep(0.05)
        fake.add(b"0")
        await asyncio.sleep(0.05)
        if is_one_lease:
            fake.add(b"1", b"2", b"3", b"4", b"5")
        else:
            for number in range(1, 6):
                fake.add(b"%d" % number)
                await asyncio.sleep(0.02)
        await until(lambda: sorted(held) == [1, 2, 3, 4, 5])
        done.set()
        await asyncio.sleep(0.05)
        queue.stop()
        await asyncio.gather(*tasks)
        await queue.close()
    await fake.stop()


async def test_an_iteration_that_is_cancelled_while_its_queue_closes_ends_as_cancelled() -> None:
    fake = FakeBroker()
    await fake.start()

    async def work(queue: Queue) -> None:
        async for _ in queue:
            pass

    async with client_of(fake.url) as client:
        queue = client.queue("jobs")
        task = asyncio.create_task(work(queue))
        await asyncio.sleep(0.05)
        task.cancel()
        await queue.close()
        await asyncio.wait([task], timeout=20)
        assert task.cancelled()
    await fake.stop()
