"""Senseless arguments are refused where they are given, and affect nothing else."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sparrow.base.errors import InvalidArgument
from sparrow.client.client import Client
from sparrow.protocol.native.messages import SettleVerb
from tests.queues_client.fake_broker import FakeBroker
from tests.queues_client.test_jobs_settled import until
from tests.queues_client.test_workers import said, working

NO_UNICODE = "\udcff"
"""A file name with bytes that are not UTF-8, as Python decodes it."""
HUGE = 1 << 70


@pytest.mark.parametrize("name", ["", 5, None, NO_UNICODE])
async def test_a_name_that_cannot_be_sent_is_refused_at_once(fake_client: Client, name: Any) -> None:
    with pytest.raises(InvalidArgument, match="name of a queue"):
        fake_client.queue(name)
    if name:
        with pytest.raises(InvalidArgument, match="subscriber"):
            fake_client.queue("jobs", subscriber=name)


@pytest.mark.parametrize("prefetch", [0, -1, 2.5, "3", True, HUGE])
async def test_a_prefetch_that_is_no_number_of_jobs_is_refused(fake_client: Client, prefetch: Any) -> None:
    with pytest.raises(InvalidArgument, match="prefetch"):
        fake_client.queue("jobs", prefetch=prefetch)


@pytest.mark.parametrize(
    "wrong",
    [{"max_jobs": 0}, {"wait_s": -1}, {"wait_s": math.nan}, {"max_jobs": math.nan}, {"max_bytes": 0.5}],
)
async def test_a_lease_that_makes_no_sense_is_refused(fake_client: Client, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="a lease of"):
        await fake_client.queue("jobs").lease(**wrong)


@pytest.mark.parametrize(
    "much", [{"max_jobs": HUGE}, {"max_jobs": math.inf}, {"wait_s": math.inf}, {"max_bytes": HUGE}]
)
async def test_request_beyond_the_limit_gets_the_available_jobs(
    fake: FakeBroker, fake_client: Client, much: dict[str, Any]
) -> None:
    fake.add(b"one")
    async with fake_client.queue("jobs") as queue:
        batch = await queue.lease(**much)
        assert batch.values == [b"one"]
        await batch.ack()


async def test_a_number_that_cannot_be_sent_is_an_invalid_argument(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="64"):
        await client.admin.peek_queue("jobs", HUGE)
    with pytest.raises(InvalidArgument, match="REQUEST"):
        await client.admin.describe_queue(NO_UNICODE)
    assert await client.admin.list_queues() == []


@pytest.mark.parametrize("verb", [SettleVerb.NACK, SettleVerb.REJECT])
async def test_a_text_that_is_no_unicode_is_sent_with_escapes(
    fake: FakeBroker, fake_client: Client, verb: SettleVerb
) -> None:
    fake.add(b"one", b"two")
    async with fake_client.queue("jobs") as queue:
        first, second = await queue.lease(2)
        second.ack_nowait()
        if verb == SettleVerb.NACK:
            await first.nack(60, error=f"no file {NO_UNICODE}")
        else:
            await first.reject(f"no file {NO_UNICODE}")
    assert said(fake, verb)[0].text == "no file \\udcff"
    assert 1 in fake.done


async def test_an_exception_whose_text_is_no_unicode_or_none_at_all_fails_its_message_alone(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"file", b"mute", b"good")

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @fake_client.worker("jobs", concurrency=3)
    async def handle(job: Any) -> None:
        if job.delivery_count == 1 and job.value == b"file":
            raise FileNotFoundError(2, "no such file", f"a{NO_UNICODE}")
        if job.delivery_count == 1 and job.value == b"mute":
            raise Mute

    async with working(fake_client) as task:
        await until(lambda: sorted(fake.done) == [0, 1, 2])
        assert not task.done()
    texts = {nack.text for nack in said(fake, SettleVerb.NACK)}
    assert texts == {
        "FileNotFoundError: [Errno 2] no such file: 'a\\udcff'",
        "Mute: (its text cannot be had: RuntimeError)",
    }


async def test_reject_option_of_a_worker_takes_only_exceptions(fake_client: Client) -> None:
    with pytest.raises(InvalidArgument, match="reject_on"):
        fake_client.worker("jobs", reject_on=("ValueError",))  # type: ignore[arg-type]  # that is the test


async def test_no_lease_is_longer_and_no_delay_later_than_the_broker_allows(
    fake: FakeBroker, fake_client: Client
) -> None:
    fake.add(b"one")
    async with fake_client.queue("jobs") as queue:
        (job,) = await queue.lease(1)
        with pytest.raises(InvalidArgument, match="at most 43200"):
            await job.extend(43_201)
        with pytest.raises(InvalidArgument, match="30 days"):
            await job.nack(31 * 86_400)
        await job.extend(43_200)
        await job.nack(30 * 86_400, error=ValueError("wrong"))  # type: ignore[arg-type]  # many will write that
    assert said(fake, SettleVerb.NACK)[0].text == "wrong"
