"""Sparrow's native client at work on a queue or a topic."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Coroutine
from typing import Any, Literal

import uvloop

import sparrow
from bench.pace import due_times_async, late_s, precise_loop, stamped
from bench.together import Span, Start, Stopwatch

ACKS_UNDER_WAY = 4
"""Batches whose acknowledgement is not confirmed yet while the next ones are leased."""


def _exactly(work: Coroutine[Any, Any, Span]) -> Span:
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        return runner.run(work)


def publish(
    url: str, queue: str, value: bytes, count: int, start: Start, *, acks: Literal["all", 1] = "all"
) -> Span:
    """Pipelined, each counted when it is acknowledged: on stable storage, or (1) in the page
    cache.
    """
    return uvloop.run(_publish(url, queue, value, count, start, acks))


async def _publish(
    url: str, queue: str, value: bytes, count: int, start: Start, acks: Literal["all", 1]
) -> Span:
    async with sparrow.connect(url) as client, client.producer(acks=acks) as producer:
        await producer.send(queue, value)
        await producer.flush()
        send = producer.send
        watch = Stopwatch(start)
        for _ in range(count):
            await send(queue, value)
        await producer.flush()
        return watch.span()


def publish_varied(url: str, queue: str, count: int, start: Start) -> Span:
    """Messages of 60 to 140 bytes with keys: no two neighbours alike, so that no short cut of the
    codecs applies.
    """
    return uvloop.run(_publish_varied(url, queue, count, start))


async def _publish_varied(url: str, queue: str, count: int, start: Start) -> Span:
    dice = random.Random(1)
    values = [b"m" * dice.randint(60, 140) for _ in range(1000)]
    keys = [b"key-%d" % dice.randrange(10_000) for _ in range(997)]
    async with sparrow.connect(url) as client, client.producer(acks="all") as producer:
        await producer.send(queue, values[0], key=keys[0])
        await producer.flush()
        send = producer.send
        watch = Stopwatch(start)
        for i in range(count):
            await send(queue, values[i % 1000], key=keys[i % 997])
        await producer.flush()
        return watch.span()


def consume_batches(url: str, queue: str, count: int, size: int, start: Start) -> Span:
    """Leases of at most `size`, each message's value looked at, acknowledged by range."""
    return uvloop.run(_consume_batches(url, queue, count, size, start))


async def _consume_batches(url: str, name: str, count: int, size: int, start: Start) -> Span:
    async with sparrow.connect(url) as client, client.queue(name) as queue:
        await (await queue.lease(1, wait_s=30)).ack()
        watch = Stopwatch(start)
        seen, batches = 0, 0
        under_way: deque[asyncio.Future[None]] = deque()
        while seen < count:
            jobs = await queue.lease(size, wait_s=30)
            seen += len(jobs.values)
            batches += 1
            under_way.append(jobs.ack())
            if len(under_way) > ACKS_UNDER_WAY:
                await under_way.popleft()
        for ack in under_way:
            await ack
        return watch.span(batches)


def consume_singly(url: str, queue: str, count: int, workers: int, prefetch: int, start: Start) -> Span:
    """Consume in `workers` tasks, which wait until the acknowledgement of a job is stored before
    they take the next.
    """
    return uvloop.run(_consume_singly(url, queue, count, workers, prefetch, start))


async def _consume_singly(url: str, name: str, count: int, workers: int, prefetch: int, start: Start) -> Span:
    async with sparrow.connect(url) as client, client.queue(name, prefetch=prefetch) as queue:
        async for job in queue:
            await job.ack()
            break
        watch = Stopwatch(start)
        left = count

        async def work() -> None:
            nonlocal left
            async for job in queue:
                await job.ack()
                left -= 1
                if left <= 0:
                    queue.stop()

        await asyncio.gather(*(work() for _ in range(workers)))
        return watch.span()


def work(url: str, queue: str, count: int, workers: int, prefetch: int, start: Start) -> Span:
    """A worker (`client.worker`) of this many calls: each job is acknowledged by itself when its
    call returns; ends when all acknowledgements are kept.
    """
    return uvloop.run(_work(url, queue, count, workers, prefetch, start))


async def _work(url: str, name: str, count: int, workers: int, prefetch: int, start: Start) -> Span:
    async with sparrow.connect(url) as client:
        is_warm, is_over = asyncio.Event(), asyncio.Event()
        handled = 0

        @client.worker(name, concurrency=workers, prefetch=prefetch)
        async def handle(_: sparrow.Job) -> None:
            nonlocal handled
            handled += 1
            is_warm.set()
            if handled > count:
                is_over.set()

        working = asyncio.create_task(client.run_workers())
        await is_warm.wait()
        watch = Stopwatch(start)
        await is_over.wait()
        await client.stop_workers()
        await working
        return watch.span()


def publish_at_rate(
    url: str, queue: str, rate: int, count: int, start: Start, *, acks: Literal["all", 1] = "all"
) -> Span:
    """One message of 100 B after the other, each when it is due."""
    return _exactly(_publish_at_rate(url, queue, rate, count, start, acks))


async def _publish_at_rate(
    url: str, queue: str, rate: int, count: int, start: Start, acks: Literal["all", 1]
) -> Span:
    async with sparrow.connect(url) as client, client.producer(acks=acks, linger_ms=0) as producer:
        await producer.send(queue, stamped(0, 100))
        await producer.flush()
        watch = Stopwatch(start)
        async for due in due_times_async(watch.began, rate, count):
            await producer.send(queue, stamped(due, 100))
        await producer.flush()
        return watch.span()


def work_late(url: str, queue: str, count: int, start: Start) -> Span:
    """A worker (`client.worker`) of 8 calls that only looks how late each message is; found: the
    latencies in seconds.
    """
    return uvloop.run(_work_late(url, queue, count, start))


async def _work_late(url: str, name: str, count: int, start: Start) -> Span:
    times: list[float] = []
    async with sparrow.connect(url) as client:
        is_warm = asyncio.Event()
        is_over = asyncio.Event()

        @client.worker(name, concurrency=8, prefetch=100)
        async def handle(job: sparrow.Job) -> None:
            value = job.value
            assert value is not None
            times.append(late_s(value))
            is_warm.set()
            if len(times) > count:
                is_over.set()

        working = asyncio.create_task(client.run_workers())
        await is_warm.wait()
        watch = Stopwatch(start)
        await is_over.wait()
        await client.stop_workers()
        await working
        return watch.span(times[1:])


# ── topics ────────────────────────────────────────────────────────────────────────────────────────


def make(url: str, topic: str) -> None:
    """A topic of one partition."""

    async def create() -> None:
        async with sparrow.connect(url) as client:
            await client.admin.create_topic(topic, partitions=1)

    asyncio.run(create())


def topics(url: str) -> list[str]:
    """The first thing that a client may ask."""

    async def ask() -> list[str]:
        async with sparrow.connect(url) as client:
            return [topic.name for topic in await client.admin.list_topics()]

    return asyncio.run(ask())


def end(url: str, topic: str) -> int:
    """Where the topic's partition ends."""

    async def ask() -> int:
        async with sparrow.connect(url) as client:
            described = await client.admin.describe_topic(topic)
            return sum(partition.end_offset for partition in described.partitions)

    return asyncio.run(ask())


def read(url: str, topic: str, count: int, start: Start) -> Span:
    """In batches, each message a Python object; found: how many were counted, which is all after
    the first batch.
    """
    return uvloop.run(_read(url, topic, count, start))


async def _read(url: str, topic: str, count: int, start: Start) -> Span:
    async with (
        sparrow.connect(url) as client,
        client.subscribe(topic, start="beginning") as subscription,
    ):
        seen = first = len(await subscription.next_batch())
        watch = Stopwatch(start)
        while seen < count:
            seen += len(await subscription.next_batch())
        return watch.span(seen - first)


def read_late(url: str, topic: str, count: int, start: Start) -> Span:
    """Looks how late each message is; found: the latencies in seconds."""
    return uvloop.run(_read_late(url, topic, count, start))


async def _read_late(url: str, topic: str, count: int, start: Start) -> Span:
    times: list[float] = []
    async with (
        sparrow.connect(url) as client,
        client.subscribe(topic, start="beginning") as subscription,
    ):
        await anext(aiter(subscription))
        watch = await asyncio.to_thread(Stopwatch, start)  # the connection answers meanwhile
        async for message in subscription:
            assert message.value is not None
            times.append(late_s(message.value))
            if len(times) == count:
                break
        return watch.span(times)
