"""Workers: the outcome of a call settles its job."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

import sparrow
from sparrow.base.errors import InvalidArgument, NotAuthorized
from sparrow.client.blocking_jobs import BlockingJob
from sparrow.client.client import Client
from sparrow.client.job import Job
from sparrow.protocol.native.messages import Error, Settlement, SettleVerb
from tests.client.frontends import client_of
from tests.queues_client.fake_broker import FakeBroker
from tests.queues_client.test_jobs_settled import until


@asynccontextmanager
async def working(client: Client, grace_s: float = 20.0) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(client.run_workers())
    try:
        yield task
    finally:
        await client.stop_workers(grace_s)
        await task


def said(fake: FakeBroker, verb: SettleVerb) -> list[Settlement]:
    return [s for head in fake.settles() for s in head.settlements if s.verb == verb for _ in offsets_of(s)]


def offsets_of(settlement: Settlement) -> list[int]:
    return [offset for first, last in settlement.ranges for offset in range(first, last + 1)]


async def test_returning_acknowledges_and_raising_nacks_with_the_text(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"good", b"bad", b"good")

    @fake_client.worker("jobs", concurrency=2)
    async def handle(job: Job) -> str:
        if job.value == b"bad" and job.delivery_count == 1:
            raise ValueError("no such customer")
        return "ignored"

    async with working(fake_client):
        await until(lambda: len(fake.done) == 3)
    (nack,) = said(fake, SettleVerb.NACK)
    assert (nack.text, nack.delay_ms) == ("ValueError: no such customer", -1)
    assert fake.items[1].deliveries == 2
    assert fake.held == []


async def test_the_function_stays_as_it_is(fake_client: Client) -> None:
    async def handle(job: Job) -> None:
        """Docs."""

    assert fake_client.worker("jobs")(handle) is handle


async def test_reject_and_retry_say_more(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(b"reject", b"retry", b"later", b"type")

    @fake_client.worker("jobs", retry_delay_s=3, reject_on=KeyError)
    async def handle(job: Job) -> None:
        if job.value == b"reject":
            raise sparrow.Reject("no use")
        if job.value == b"retry":
            raise sparrow.Retry("busy", delay_s=7)
        if job.value == b"later":
            raise sparrow.Retry
        raise KeyError("id")

    async with working(fake_client):
        await until(lambda: len(said(fake, SettleVerb.REJECT)) == 2 and len(said(fake, SettleVerb.NACK)) >= 2)
    assert [s.text for s in said(fake, SettleVerb.REJECT)] == ["no use", "KeyError: 'id'"]
    assert [(s.text, s.delay_ms) for s in said(fake, SettleVerb.NACK)][:2] == [("busy", 7000), ("", 3000)]


async def test_the_delay_of_a_retry_may_be_a_function(
    fake: FakeBroker, fake_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    fake.add(b"one", b"two", b"three")

    def delay(job: Job, error: BaseException) -> float:
        assert isinstance(error, OSError)
        if job.offset == 2:
            raise RuntimeError("a bug")
        return -1 if job.offset == 1 else 2.5

    @fake_client.worker("jobs", retry_delay_s=delay)
    async def handle(job: Job) -> None:
        raise OSError("down")

    async with working(fake_client):
        await until(lambda: fake.counts["NACK"] >= 3)
    assert [s.delay_ms for s in said(fake, SettleVerb.NACK)][:3] == [2500, -1, -1]
    assert "retry_delay_s failed" in caplog.text


async def test_a_job_that_its_function_settled_is_left_alone(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(b"reject", b"raise")

    @fake_client.worker("jobs")
    async def handle(job: Job) -> None:
        if job.value == b"reject":
            await job.reject("by hand")
        else:
            await job.ack()
            raise ValueError("afterwards")

    async with working(fake_client):
        await until(lambda: fake.done == [0, 1])
    assert fake.counts == {"REJECT": 1, "ACK": 1}


async def test_as_many_calls_run_at_a_time_as_it_says(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(*(b"%d" % i for i in range(60)))
    running = most = 0

    @fake_client.worker("jobs", concurrency=5)
    async def handle(job: Job) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    async with working(fake_client):
        await until(lambda: len(fake.done) == 60)
    assert most == 5


async def test_a_plain_function_runs_in_threads_with_blocking_verbs(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(*(b"%d" % i for i in range(6)))
    threads = set()
    barrier = threading.Barrier(3, timeout=20)

    @fake_client.worker("jobs", concurrency=3)
    def handle(job: BlockingJob) -> None:
        threads.add(threading.current_thread().name)
        if job.delivery_count == 1:
            barrier.wait()
        job.extend(60)
        if job.value == b"3":
            job.reject("in a thread")
        if job.value == b"4" and job.delivery_count == 1:
            raise ValueError("in a thread")
        if job.value == b"5":
            job.ack_nowait()

    async with working(fake_client):
        await until(lambda: len(fake.done) == 6)
    assert threading.current_thread().name not in threads
    assert {name.rpartition("_")[0] for name in threads} == {"sparrow worker jobs"}
    assert fake.counts["REJECT"] == 1
    assert [nack.text for nack in said(fake, SettleVerb.NACK)] == ["ValueError: in a thread"]


async def test_callables_of_every_kind_are_called_as_they_should_be(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"one")
    called: list[tuple[str, bool]] = []
    loop_thread = threading.current_thread()

    def on_loop() -> bool:
        return threading.current_thread() is loop_thread

    class Called:
        async def __call__(self, job: Job) -> None:
            called.append(("instance", on_loop()))

        async def method(self, job: Job) -> None:
            called.append(("method", on_loop()))

    async def with_prefix(prefix: str, job: Job) -> None:
        called.append((prefix, on_loop()))

    def returns_awaitable(job: Job) -> object:
        called.append(("plain", on_loop()))
        return with_prefix("awaited", job)

    handlers: list[Callable[[Job], object]] = [
        Called(),
        Called().method,
        functools.partial(with_prefix, "partial"),
        returns_awaitable,
    ]
    for handler in handlers:
        async with client_of(fake.url) as client:
            client.worker("jobs")(handler)
            async with working(client):
                await until(lambda: fake.done == [0])
        fake.items[0].is_done = False
    assert called == [
        ("instance", True),
        ("method", True),
        ("partial", True),
        ("plain", False),
        ("awaited", True),
    ]


async def test_a_call_that_takes_too_long_is_cancelled_and_its_job_nacked(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"slow", b"own")
    was_cancelled = False

    @fake_client.worker("jobs", concurrency=2, timeout_s=0.05, retry_delay_s=60)
    async def handle(job: Job) -> None:
        nonlocal was_cancelled
        if job.value == b"own":
            raise TimeoutError("of its own")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            was_cancelled = True
            raise

    async with working(fake_client):
        await until(lambda: fake.counts["NACK"] >= 2)
    texts = [s.text for s in said(fake, SettleVerb.NACK)]
    assert texts[0] == "TimeoutError: of its own"
    assert "TimeoutError: the function did not return within 0.05 s" in texts
    assert was_cancelled


async def test_a_thread_that_takes_too_long_gives_its_job_back_and_is_waited_for(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"slow", b"next")
    released = threading.Event()
    seen: list[tuple[bytes | None, bool]] = []

    @fake_client.worker("jobs", timeout_s=0.05)
    def handle(job: BlockingJob) -> None:
        seen.append((job.value, released.is_set()))
        if not released.is_set():
            released.wait(20)
            raise ValueError("nobody hears it")

    async with working(fake_client):
        await until(lambda: fake.counts["NACK"] == 1)
        await asyncio.sleep(0.02)
        assert len(seen) == 1
        released.set()
        await until(lambda: fake.done == [0, 1])
    assert all(was_released for _, was_released in seen[1:])


async def test_the_lease_is_renewed_while_the_function_runs(fake: FakeBroker, fake_client: Client) -> None:
    fake.lease_ms = 150
    fake.add(b"one")

    @fake_client.worker("jobs")
    async def handle(job: Job) -> None:
        before = job.deadline
        await until(lambda: fake.counts["EXTEND"] >= 3)
        assert job.deadline > before

    async with working(fake_client):
        await until(lambda: fake.done == [0])


async def test_a_lease_that_is_lost_while_the_function_runs_is_logged(
    fake: FakeBroker, fake_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    fake.lease_ms = 150
    fake.add(b"one")
    fake.add(b"two")
    is_lost = asyncio.Event()

    @fake_client.worker("jobs")
    async def handle(job: Job) -> None:
        if job.value == b"one":
            await is_lost.wait()

    async with working(fake_client):
        await until(lambda: fake.items[0].holder)
        fake.items[0].holder = "somebody"
        await until(lambda: "verb='extend'" in caplog.text)
        is_lost.set()
        await until(lambda: fake.done == [1])
    assert "what became of a job was not kept; it may come again" in caplog.text
    assert "LEASED_BY_ANOTHER" in caplog.text
    assert "verb='ack'" in caplog.text


# ── stopping ──────────────────────────────────────────────────────────────────────────────────────


async def test_stopping_lets_running_jobs_finish_and_releases_the_rest(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(*(b"%d" % i for i in range(20)))
    started: list[int] = []
    go_on = asyncio.Event()

    @fake_client.worker("jobs", concurrency=2, prefetch=10)
    async def handle(job: Job) -> None:
        started.append(job.offset)
        await go_on.wait()

    task = asyncio.create_task(fake_client.run_workers())
    await until(lambda: len(started) == 2)
    stopping = asyncio.create_task(fake_client.stop_workers(20))
    await until(lambda: fake.held == [0, 1])
    assert not stopping.done()
    go_on.set()
    await stopping
    await task
    assert started == [0, 1]
    assert (fake.done, fake.held) == ([0, 1], [])
    assert all(item.deliveries == 0 for item in fake.items[2:])


async def test_jobs_running_beyond_the_grace_are_cancelled_and_released(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"one")
    started = asyncio.Event()

    @fake_client.worker("jobs")
    async def handle(job: Job) -> None:
        started.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(fake_client.run_workers())
    await started.wait()
    await fake_client.stop_workers(0.01)
    await task
    assert (fake.items[0].deliveries, fake.held, fake.done) == (0, [], [])
    assert set(fake.counts) == {"RETURN"}


async def test_cancelling_run_workers_cancels_and_releases_running_jobs(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"one", b"two")
    started = asyncio.Event()

    @fake_client.worker("jobs")
    async def handle(job: Job) -> None:
        started.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(fake_client.run_workers())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert fake.held == []
    assert [item.deliveries for item in fake.items] == [0, 0]


async def test_closing_the_client_stops_the_workers(fake: FakeBroker) -> None:
    fake.add(b"one")
    async with client_of(fake.url, close_timeout_s=0.05) as client:

        @client.worker("jobs")
        async def handle(job: Job) -> None:
            await asyncio.sleep(60)

        task = asyncio.create_task(client.run_workers())
        await until(lambda: fake.held)
    await task
    assert fake.held == []


async def test_a_function_that_cancels_itself_has_failed(fake: FakeBroker, fake_client: Client) -> None:
    fake.add(b"one", b"two")

    @fake_client.worker("jobs")
    async def handle(job: Job) -> None:
        if job.value == b"one" and job.delivery_count == 1:
            raise asyncio.CancelledError

    async with working(fake_client) as task:
        await until(lambda: fake.done == [0, 1])
        assert not task.done()
    assert said(fake, SettleVerb.NACK)[0].text == "CancelledError"


async def test_workers_may_run_again(fake: FakeBroker, fake_client: Client) -> None:
    @fake_client.worker("jobs")
    async def handle(job: Job) -> None:
        pass

    for number in range(3):
        fake.add(b"x")
        async with working(fake_client):
            await until(lambda: len(fake.done) == number + 1)  # noqa: B023 - called at once


async def test_stopping_before_the_queue_is_open_works_at_nothing(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"one")

    @fake_client.worker("jobs")
    async def handle(job: Job) -> None:
        raise AssertionError

    task = asyncio.create_task(fake_client.run_workers())
    await asyncio.sleep(0)
    await fake_client.stop_workers()
    await task
    await fake_client.stop_workers()
    assert fake.held == []


async def test_a_worker_without_its_queue_ends_all_with_the_reason(
    fake: FakeBroker, fake_client: Client
) -> None:
    @fake_client.worker("jobs")
    async def first(job: Job) -> None:
        pass

    @fake_client.worker("others")
    async def second(job: Job) -> None:
        pass

    fake.refusals = [Error("NOT_AUTHORIZED", "not for you")]
    async with asyncio.timeout(20):
        with pytest.raises(NotAuthorized, match="not for you"):
            await fake_client.run_workers()


async def test_a_client_without_workers_says_so(fake_client: Client) -> None:
    with pytest.raises(InvalidArgument, match="no workers"):
        await fake_client.run_workers()


async def test_workers_run_once_at_a_time(fake: FakeBroker, fake_client: Client) -> None:
    @fake_client.worker("jobs")
    async def handle(job: Job) -> None:
        pass

    async with working(fake_client):
        await until(lambda: fake.heads)
        with pytest.raises(InvalidArgument, match="running already"):
            await fake_client.run_workers()


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": 4, "prefetch": 3},
        {"timeout_s": 0},
        {"retry_delay_s": -1},
    ],
)
async def test_a_worker_that_cannot_be_is_refused(fake_client: Client, options: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        fake_client.worker("jobs", **options)  # type: ignore[arg-type]


def test_a_retry_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        sparrow.Retry("x", delay_s=-1)


async def test_log_lines_say_which_job_and_why(
    fake: FakeBroker, fake_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sparrow.worker")
    fake.add(b"one")

    @fake_client.worker("jobs")
    async def handle(job: Job) -> None:
        if job.delivery_count == 1:
            raise ValueError("no such customer")

    async with working(fake_client):
        await until(lambda: fake.done == [0])
    failed = next(record for record in caplog.records if "job failed" in record.message)
    assert (
        "queue='jobs' topic='jobs' partition=0 offset=0 delivery_count=1 error='ValueError: no such customer'"
        in failed.message
    )
    assert failed.exc_info is not None
    fields = failed.sparrow  # type: ignore[attr-defined]
    assert (fields["event"], fields["offset"]) == ("job failed", 0)
