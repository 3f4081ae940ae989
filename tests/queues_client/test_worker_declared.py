"""Declarations of workers are checked at once; log lines of workers; the repr of clients and their
parts.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import sparrow
from sparrow.base.errors import InvalidArgument
from sparrow.base.queue_policy import SETTINGS
from sparrow.client.attempts import Attempts
from sparrow.client.client import Client
from sparrow.testing import broker
from tests.client.frontends import Frontend
from tests.queues_client.fake_broker import FakeBroker
from tests.queues_client.test_workers import working

LIMIT_S = 60

# ── functions of workers ──────────────────────────────────────────────────────────────────────────


async def no_job() -> None:
    """Take nothing."""


async def two(job: sparrow.Job, database: object) -> None:
    """Take more than the job."""


async def needs_keyword(job: sparrow.Job, *, database: object) -> None:
    """Take more than the job, too."""


async def yields(job: sparrow.Job) -> AsyncIterator[int]:
    yield 1


def yields_plainly(job: sparrow.sync.Job) -> Iterator[int]:
    yield 1


class Handler:
    """A class: a call would make an object."""

    def __init__(self, job: object = None) -> None:
        pass

    async def __call__(self, job: sparrow.Job) -> None:
        pass

    async def handle(self, job: sparrow.Job) -> None:
        pass


class Yields:
    async def __call__(self, job: sparrow.Job) -> AsyncIterator[int]:
        yield 1


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (None, "None is not a function"),
        ("send", "'send' is not a function"),
        (no_job, r"no_job\(\) -> 'None' cannot be called with one argument, the job: too many positional"),
        (two, "missing a required argument: 'database'.*functools.partial"),
        (needs_keyword, "missing a required (keyword-only )?argument: 'database'"),
        (yields, "yields has a yield, so calling it would run nothing"),
        (yields_plainly, "yields_plainly has a yield"),
        (functools.partial(yields), "has a yield"),
        (Yields(), "has a yield"),
        (Handler, "Handler is a class"),
        (functools.partial(two, object(), object()), "too many positional arguments"),
    ],
)
async def test_invalid_worker_function_is_refused_at_its_declaration(
    fake_client: Client, handler: Any, text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        fake_client.worker("jobs")(handler)
    with pytest.raises(InvalidArgument, match="no workers"):
        await fake_client.run_workers()


async def test_the_result_of_a_call_is_not_taken_for_the_function(fake_client: Client) -> None:
    with pytest.raises(TypeError, match="no_job was called; hand over the function itself"):
        fake_client.worker("jobs")(no_job())  # type: ignore[type-var]


async def test_a_worker_without_a_queue_is_refused(fake_client: Client) -> None:
    with pytest.raises(TypeError, match="needs the name of a queue"):

        @fake_client.worker  # type: ignore[arg-type]
        async def handle(job: sparrow.Job) -> None:
            pass

    with pytest.raises(InvalidArgument, match="the name of a queue"):
        fake_client.worker("")


@pytest.mark.parametrize(
    "handler",
    [
        functools.partial(two, database=1),
        Handler(),
        Handler().handle,
        lambda job: None,
        lambda *args: None,
        print,
    ],
)
async def test_whatever_takes_one_job_can_be_a_workers_function(
    fake_client: Client, handler: Callable[[Any], object]
) -> None:
    assert fake_client.worker("jobs")(handler) is handler


def test_the_blocking_client_checks_as_well() -> None:
    with (
        broker() as running,
        sparrow.sync.connect(running.url) as client,
        pytest.raises(TypeError, match="two"),
    ):
        client.worker("jobs")(two)


# ── log lines ─────────────────────────────────────────────────────────────────────────────────────


async def fails(
    client: Client, caplog: pytest.LogCaptureFixture, policy: sparrow.Policy, **options: Any
) -> list[logging.LogRecord]:
    """Return the log of a job that fails until it becomes a dead letter."""
    caplog.set_level(logging.INFO, "sparrow.worker")

    @client.worker("jobs", policy=policy, **options)
    async def handle(job: sparrow.Job) -> None:
        raise ValueError("no such customer")

    async with working(client):
        await client.publish("jobs", b"one")
        async with asyncio.timeout(LIMIT_S):
            while (await client.admin.describe_queue("jobs")).statistics.dead_lettered == 0:
                await asyncio.sleep(0.02)
    return [record for record in caplog.records if record.message.startswith("job failed")]


async def test_log_lines_have_the_attempt_and_the_next_step(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    policy: sparrow.Policy = {"delivery_limit": 3, "backoff": "linear", "backoff_delay": "20ms"}
    first, second, last = await fails(client, caplog, policy)
    assert first.message.startswith("job failed, attempt 1 of 3, again in 20ms: queue='jobs'")
    assert second.message.startswith("job failed, attempt 2 of 3, again in 40ms: ")
    assert last.message.startswith("job failed, attempt 3 of 3, it goes to the dead letters 'jobs.dead': ")
    for record in (first, second):
        assert record.levelno == logging.WARNING
        assert record.exc_info is None
        assert re.search(
            r"error='ValueError: no such customer' at='test_worker_declared.py:\d+ in handle'", record.message
        )
    assert last.levelno == logging.ERROR
    assert last.exc_info is not None
    assert isinstance(last.exc_info[1], ValueError)
    record: Any = second
    assert {
        name: record.sparrow[name] for name in ("event", "attempt", "attempts", "delay_s", "delivery_count")
    } == {"event": "job failed", "attempt": 2, "attempts": 3, "delay_s": 0.04, "delivery_count": 2}
    record = last
    assert record.sparrow["dead_letters"] == "jobs.dead"


async def test_the_delay_is_the_workers_own_where_it_has_one(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    first, last = await fails(
        client, caplog, {"delivery_limit": 2, "backoff_delay": "1h"}, retry_delay_s=0.015
    )
    assert first.message.startswith("job failed, attempt 1 of 2, again in 15ms: ")
    assert last.message.startswith("job failed, attempt 2 of 2, it goes to the dead letters")


async def test_rejections_and_retries_say_it_as_well(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sparrow.worker")

    @client.worker("jobs", policy={"delivery_limit": 2, "dead_letter_topic": "graves"}, reject_on=KeyError)
    async def handle(job: sparrow.Job) -> None:
        if job.value == b"reject":
            raise sparrow.Reject("of no use")
        if job.value == b"key":
            raise KeyError("id")
        raise sparrow.Retry("busy", delay_s=0.01)

    async with working(client):
        for value in (b"reject", b"key", b"retry"):
            await client.publish("jobs", value)
        async with asyncio.timeout(LIMIT_S):
            while (await client.admin.describe_queue("jobs")).statistics.dead_lettered < 3:
                await asyncio.sleep(0.02)
    lines = {re.sub(r": queue=.*", "", record.message): record.exc_info for record in caplog.records}
    rejected = [text for text in lines if text.startswith("job rejected")]
    assert rejected == ["job rejected, attempt 1 of 2, it goes to the dead letters 'graves'"]
    assert lines["job to be retried, attempt 1 of 2, again in 10ms"] is None
    assert lines["job to be retried, attempt 2 of 2, it goes to the dead letters 'graves'"] is not None


async def test_a_changed_policy_is_learnt(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparrow.client import worker as worker_module

    monkeypatch.setattr(worker_module, "_POLICY_AGE_S", 0)
    caplog.set_level(logging.INFO, "sparrow.worker")

    @client.worker("jobs", policy={"delivery_limit": 0})
    async def handle(job: sparrow.Job) -> None:
        if job.delivery_count == 2:
            await client.admin.configure_queue("jobs", {"delivery_limit": 250})
        await asyncio.sleep(0.01)
        raise ValueError("again")

    async with working(client):
        await client.publish("jobs", b"one")
        async with asyncio.timeout(LIMIT_S):
            while "of 250, again at once" not in caplog.text:
                await asyncio.sleep(0.02)
    failed = [record for record in caplog.records if record.message.startswith("job failed")]
    assert failed[0].message.startswith("job failed, attempt 1, again at once: ")
    # Without a limit no attempt is the last: the first has the traceback.
    assert failed[0].exc_info is not None
    assert failed[1].exc_info is None


def test_jitter_a_missing_dead_letter_topic_and_an_unknown_policy_are_named() -> None:
    class Third:
        delivery_count = 3

    job: Any = Third()
    known: dict[str, Any] = {name: each.default for name, each in SETTINGS.items()}
    known |= {"backoff": "exponential", "backoff_ms": 1000, "backoff_jitter": 0.5, "dead_letter_topic": None}
    assert Attempts("q", known).failed(job, None).text == "attempt 3 of 5, again in 2s to 6s"
    known["delivery_limit"] = 3
    assert Attempts("q", known).failed(job, None).text == (
        "attempt 3 of 3, it is dropped: the queue has no dead letters"
    )
    unknown = Attempts("q", {}).failed(job, None)
    assert (unknown.text, unknown.needs_traceback) == ("attempt 3, again after the queue's backoff", True)


# ── repr ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_client_and_its_parts_say_address_and_state(client: Client, frontend: Frontend) -> None:
    at = f"127.0.0.1:{frontend.port}"
    assert repr(client) == f"<Client of {at}, connected>"
    assert repr(client.admin) == f"<Admin of {at}, connected>"
    producer = client.producer(linger_ms=60_000)
    assert repr(producer) == f"<Producer of {at}, not started>"
    await producer.start()
    assert repr(producer) == f"<Producer of {at}, connected, 0 bytes not confirmed>"
    await producer.close()
    assert repr(producer) == f"<Producer of {at}, closed>"
    await client.admin.create_topic("t", partitions=2)
    subscription = client.subscribe("t", "audit.*", group="billing")
    assert repr(subscription) == f"<Subscription to 't', 'audit.*' of {at}, group 'billing', not started>"
    await subscription.close()
    async with client.subscribe("t", start="beginning") as subscription:
        assert repr(subscription) == f"<Subscription to 't' of {at}, open, 2 partitions>"
    assert repr(subscription) == f"<Subscription to 't' of {at}, closed>"
    queue = client.queue("jobs")
    assert repr(queue) == f"<Queue 'jobs' of {at}, connected, nothing taken yet>"
    for value in (b"one", b"two", b"three"):
        await queue.publish(value, partition=0)
    batch = await queue.lease(2, wait_s=LIMIT_S)
    assert repr(batch) == f"<JobBatch of 2 jobs of queue 'jobs' of {at}, leased>"
    (lease,) = batch._leases
    assert repr(lease) == f"<Lease of 2 records of jobs-0, queue 'jobs' of {at}, 2 not settled>"
    assert repr(queue) == f"<Queue 'jobs' of {at}, connected, 2 jobs here>"
    job = batch.jobs[0]
    assert re.fullmatch(
        rf"<Job jobs-0 at offset 0 of queue 'jobs' of {at}, delivery 1, leased for [\d.]+ s>", repr(job)
    )
    job.lease.deadline = time.monotonic() - 1
    assert "its lease has ended" in repr(job)
    await job.ack()
    assert repr(job) == f"<Job jobs-0 at offset 0 of queue 'jobs' of {at}, delivery 1, acknowledged>"
    await batch.ack()
    assert repr(batch).endswith("settled>")
    channel = await client.channel()
    assert repr(channel) == f"<Channel of <Client of {at}, connected>>"
    await frontend.stop()
    async with asyncio.timeout(LIMIT_S):
        while client.is_connected:
            await asyncio.sleep(0.01)
    assert repr(client) == f"<Client of {at}, connecting again>"
    await frontend.start()
    await queue.close()
    assert repr(queue) == f"<Queue 'jobs' of {at}, closed>"
    await client.close()
    assert repr(client) == f"<Client of {at}, closed>"


async def test_parts_of_the_blocking_client_show_themselves_as_well(frontend: Frontend) -> None:
    at = f"127.0.0.1:{frontend.port}"

    def run() -> None:
        with sparrow.sync.connect(frontend.url) as client:
            assert repr(client) == f"<blocking Client of {at}, connected>"
            assert repr(client.admin) == f"<blocking Admin of {at}, connected>"
            with client.queue("jobs") as queue:
                assert repr(queue) == f"<blocking Queue 'jobs' of {at}, connected, nothing taken yet>"
                queue.publish(b"one")
                job = queue.lease(1, wait_s=LIMIT_S).jobs[0]
                assert repr(job).startswith("<BlockingJob jobs-")
                assert at in repr(job)
                job.ack()
            with client.producer() as producer:
                assert repr(producer) == f"<blocking Producer of {at}, connected, 0 bytes not confirmed>"
            with client.subscribe("jobs") as subscription:
                assert repr(subscription).startswith(f"<blocking Subscription to 'jobs' of {at}, open")
            with client.channel() as channel:
                assert repr(channel) == f"<blocking Channel of <Client of {at}, connected>>"
        assert repr(client) == f"<blocking Client of {at}, closed>"

    await asyncio.to_thread(run)


async def test_no_secret_is_shown(fake: FakeBroker) -> None:
    address = fake.url.removeprefix("sparrow://")
    async with sparrow.connect(f"sparrow://user:s3cret@{address}") as client:
        parts = [client, client.admin, client.queue("q"), client.producer(), client.subscribe("t")]
        assert all(address in repr(each) for each in parts)
        assert not any("s3cret" in repr(each) for each in parts)
