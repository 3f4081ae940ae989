"""A worker's function may raise any exception: its job fails, and the worker continues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

import sparrow.testing
from sparrow.client.blocking_jobs import BlockingJob
from sparrow.client.client import Client
from sparrow.client.job import Job
from sparrow.protocol.native.messages import SettleVerb
from tests.queues_client.fake_broker import FakeBroker
from tests.queues_client.test_jobs_settled import until
from tests.queues_client.test_workers import said, working


class Odd(BaseException):
    """A BaseException like those of testing tools."""


def declare(client: Client, kind: str, act: Callable[[Job], None], **options: float) -> None:
    """Declare a worker whose function is async, plain, or plain and returns an awaitable."""

    async def handle(job: Job) -> None:
        act(job)

    functions: dict[str, Callable[[Job], object]] = {
        "async": handle,
        "plain": act,
        "awaitable": lambda job: handle(job),  # noqa: PLW0108 - no coroutine function
    }
    client.worker("jobs", **options)(functions[kind])  # type: ignore[arg-type]  # the options of a worker


@pytest.mark.parametrize("kind", ["async", "plain", "awaitable"])
@pytest.mark.parametrize(
    "wrong", [Odd("odd"), StopIteration("no more"), StopAsyncIteration(), MemoryError("full"), TimeoutError()]
)
async def test_whatever_the_function_raises_fails_its_message_alone(
    fake: FakeBroker, fake_client: Client, kind: str, wrong: BaseException
) -> None:
    fake.add(b"bad", b"good")

    def act(job: Job) -> None:
        if job.value == b"bad" and job.delivery_count < 3:
            raise wrong

    declare(fake_client, kind, act)
    async with working(fake_client) as task:
        await until(lambda: fake.done == [0, 1])
        assert not task.done()
    assert fake.items[0].deliveries == 3
    assert len(said(fake, SettleVerb.NACK)) == 2
    assert type(wrong).__name__ in said(fake, SettleVerb.NACK)[0].text


@pytest.mark.parametrize("kind", ["async", "awaitable"])
async def test_a_call_is_cancelled_when_its_time_is_up_however_it_is_written(
    fake: FakeBroker, fake_client: Client, kind: str
) -> None:
    fake.add(b"slow")

    async def handle(job: Job) -> None:
        if job.delivery_count == 1:
            await asyncio.sleep(60)

    declared = fake_client.worker("jobs", timeout_s=0.05)
    declared(handle if kind == "async" else lambda job: handle(job))  # noqa: PLW0108 - no coroutine function
    async with working(fake_client):
        await until(lambda: fake.done == [0])
    assert said(fake, SettleVerb.NACK)[0].text == "TimeoutError: the function did not return within 0.05 s"


@pytest.mark.parametrize("wrong", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
async def test_exception_that_ends_a_thread_does_not_end_the_worker(
    fake: FakeBroker, fake_client: Client, wrong: BaseException
) -> None:
    fake.add(b"bad", b"good")

    @fake_client.worker("jobs")
    def handle(job: BlockingJob) -> None:
        if job.value == b"bad" and job.delivery_count < 3:
            raise wrong

    async with working(fake_client) as task:
        await until(lambda: sorted(fake.done) == [0, 1])
        assert not task.done()
    assert len(said(fake, SettleVerb.NACK)) == 2


async def test_an_async_function_may_end_the_program_and_the_others_are_ended_first(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"exit", b"other")
    others: list[str] = []

    @fake_client.worker("jobs", concurrency=2)
    async def handle(job: Job) -> None:
        if job.value == b"exit":
            await until(lambda: others)
            raise SystemExit(3)
        others.append("begun")
        try:
            await asyncio.sleep(60)
        finally:
            others.append("cancelled")

    with pytest.raises(SystemExit) as ended:
        await fake_client.run_workers()
    assert ended.value.code == 3
    assert others == ["begun", "cancelled"]
    assert [nack.text for nack in said(fake, SettleVerb.NACK)] == ["SystemExit: 3"]
    assert fake.held == []


def test_workers_in_threads_end_the_program_that_waits_for_them() -> None:
    with sparrow.testing.broker() as broker, sparrow.sync.connect(broker.url) as client:
        client.publish("fatal", b"one")

        @client.worker("fatal")
        async def handle(job: Job) -> None:
            raise SystemExit(5)

        with pytest.raises(SystemExit) as ended:
            client.run_workers()
        assert ended.value.code == 5
        assert client.queue("fatal").statistics().ready == 1


def test_a_message_that_ends_its_program_reaches_the_delivery_limit() -> None:
    with sparrow.testing.broker() as broker, sparrow.sync.connect(broker.url) as admin:
        admin.admin.create_queue("fatal", policy={"delivery_limit": 3})
        admin.publish("fatal", b"bad")

        async def program() -> None:
            async with sparrow.connect(broker.url) as client:

                @client.worker("fatal")
                async def handle(job: Job) -> None:
                    raise SystemExit(4)

                await client.run_workers()

        for _ in range(3):
            with pytest.raises(SystemExit) as ended:
                asyncio.run(program())
            assert ended.value.code == 4
        while not admin.admin.describe_queue("fatal").statistics.dead:
            time.sleep(0.01)
        (letter,) = admin.admin.peek_queue("fatal.dead")
        assert dict(letter.headers)["dead-letter-delivery-count"] == b"3"
        assert dict(letter.headers)["dead-letter-error"] == b"SystemExit: 4"


def test_an_interrupt_within_the_function_is_no_failure_of_its_message() -> None:
    with sparrow.testing.broker() as broker, sparrow.sync.connect(broker.url) as admin:
        admin.publish("interrupted", b"one")

        async def program() -> None:
            async with sparrow.connect(broker.url) as client:

                @client.worker("interrupted")
                async def handle(job: Job) -> None:
                    raise KeyboardInterrupt

                await client.run_workers()

        with suppress(KeyboardInterrupt):
            asyncio.run(program())
        (job,) = admin.queue("interrupted").lease(1, wait_s=10)
        assert job.delivery_count == 1
        job.ack()
