"""Requests over a queue, and the replies of jobs."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import sparrow
from sparrow.base.errors import InvalidArgument, TimedOut
from sparrow.testing.running_broker import RunningBroker

pytestmark = pytest.mark.slow


async def test_requests_get_the_replies_of_their_jobs_and_the_topic_goes_with_the_client(
    sparrow_broker: RunningBroker, sparrow_topic: str
) -> None:
    async with sparrow.connect(sparrow_broker.url) as worker, sparrow.connect(sparrow_broker.url) as client:

        @worker.worker(sparrow_topic, concurrency=4)
        async def double(job: sparrow.Job) -> None:
            assert job.value is not None
            await job.reply(job.value * 2, headers={"kind": b"answer"})

        working = asyncio.create_task(worker.run_workers(handle_signals=False))
        replies = await asyncio.gather(*(client.request(sparrow_topic, b"%d" % n, 60.0) for n in range(50)))
        assert [reply.value for reply in replies] == [b"%d" % n * 2 for n in range(50)]
        assert replies[0].headers[0] == ("kind", b"answer")
        (topic,) = await worker.admin.list_topics("replies.*")
        await client.close()
        assert topic.name not in {each.name for each in await worker.admin.list_topics("replies.*")}
        await worker.stop_workers()
        await working


async def test_a_request_without_a_worker_times_out_and_expires(
    sparrow_broker: RunningBroker, sparrow_topic: str
) -> None:
    async with sparrow.connect(sparrow_broker.url) as client:
        with pytest.raises(TimedOut, match="no reply within"):
            await client.request(sparrow_topic, b"anyone?", 0.05)
        with pytest.raises(InvalidArgument, match="timeout_s is 0"):
            await client.request(sparrow_topic, b"x", 0)
        # the message was published, and expires
        deadline = time.monotonic() + 60
        while batch := await client.queue(sparrow_topic).lease(1, wait_s=0):
            assert time.monotonic() < deadline
            await batch.release()


async def test_replies_that_are_not_asked_for_or_go_elsewhere_are_refused(
    sparrow_broker: RunningBroker, sparrow_topic: str
) -> None:
    async with sparrow.connect(sparrow_broker.url) as client:
        queue = client.queue(sparrow_topic)
        await queue.publish(b"plain")
        await queue.publish(b"sly", headers={"reply-to": b"payments"})
        found = 0
        async for job in queue:
            with pytest.raises(InvalidArgument, match=r"no header 'reply-to'|replies go to topics"):
                await job.reply(b"x")
            with pytest.raises(InvalidArgument, match="no task runs"):
                job.progress(0.5)
            await job.ack()
            found += 1
            if found == 2:
                break


def test_in_threads(sparrow_broker: RunningBroker, sparrow_topic: str) -> None:
    with (
        sparrow.sync.connect(sparrow_broker.url) as worker,
        sparrow.sync.connect(sparrow_broker.url) as client,
    ):

        @worker.worker(sparrow_topic)
        def shout(job: sparrow.sync.Job) -> None:
            assert job.value is not None
            job.reply(job.value.upper())

        thread = threading.Thread(target=worker.run_workers)
        thread.start()
        assert client.request(sparrow_topic, b"hello", 60.0).value == b"HELLO"
        worker.stop_workers()
        thread.join(60)
