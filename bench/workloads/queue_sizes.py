"""The cost of many messages in a queue: the broker's memory while a million are ready, leased or
delayed, the memory that stays, and how late delayed ones come.

Memory is the broker's RSS less what it was after the same broker had handled some messages, so that
what every broker needs at work does not count.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

import sparrow
from bench.pace import precise_loop, quantiles
from bench.results import Measurement, Target
from bench.server import Server, server
from sparrow.meta.inspection import inspect

if TYPE_CHECKING:
    from sparrow.client.client import Client
    from sparrow.client.queue import Queue
    from sparrow.client.results import QueueStatistics

MAX_RUNS = 3
"""Memory varies little, and a run takes a while."""
VALUE = b"m" * 100
WARMING = 50_000
LEASE = 5_000
ACKS_AT_ONCE = 5_000
PATIENCE_S = 120.0
POLICY = {"lease_ms": 3_600_000, "max_leased": 1_000_000}
FIRED_RATE, FIRED_SECONDS = 2_000, 5
HOUR_MS = 3_600_000


async def publish(client: Client, topic: str, count: int) -> None:
    """Publish messages of 100 B, and wait until they are stored."""
    async with client.producer(acks="all") as producer:
        for _ in range(count):
            await producer.send(topic, VALUE)


async def until(queue: Queue, holds: Callable[[QueueStatistics], bool]) -> None:
    """Wait until the queue's statistics are so. Raises RuntimeError: they are not."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds(statistics := await queue.statistics()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"after {PATIENCE_S:g} s the queue is still at {statistics}")
        await asyncio.sleep(0.1)


async def drain(queue: Queue, count: int) -> None:
    """Lease and acknowledge this many, by range."""
    seen = 0
    while seen < count:
        jobs = await queue.lease(LEASE, wait_s=10)
        seen += len(jobs)
        await jobs.ack()


async def warmed(client: Client, queue: Queue) -> None:
    """Some messages have gone through the queue."""
    await publish(client, queue.name, WARMING)
    await drain(queue, WARMING)


def entries_of(running: Server) -> int:
    """Stop the broker; return the number of entries with states of records in its meta store."""
    running.stop()
    (path,) = running.directory.glob("**/meta.db")
    with tempfile.TemporaryDirectory(prefix="sparrow-bench-") as scratch:
        shutil.copy(path, Path(scratch) / "meta.db")
        counts, problems = inspect(str(Path(scratch) / "meta.db"))
    if problems:
        raise RuntimeError(f"{path}: {problems}")
    return counts.get("queue-page", 0)


def million(runs: int, scale: float) -> list[Measurement]:
    """A million ready, then leased, then acknowledged in random order."""
    count = round(1_000_000 * scale)
    limit = Target(50, at_least=False) if scale >= 1 else None
    what = "queue: memory of messages"
    rows = [
        Measurement(f"{what}, all ready", "MB", limit, note=f"{count:,} messages"),
        Measurement(f"{what}, all leased", "MB"),
        Measurement(f"{what}, half of them acknowledged, at random", "MB", note="the worst pattern"),
        Measurement(f"{what}, all acknowledged", "MB", limit, note="no residue"),
        Measurement(
            "queue: entries of messages in the meta store, all acknowledged",
            "entries",
            Target(1, at_least=False),
            note="the page that is written next",
        ),
    ]
    for _ in range(min(runs, MAX_RUNS)):
        with server("--default-partitions", "1") as running:
            figures = uvloop.run(_million(running, count))
            for row, figure in zip(rows, [*figures, entries_of(running)], strict=True):
                row.runs.append(figure)
    return rows


async def _million(running: Server, count: int) -> Sequence[float]:
    async with sparrow.connect(running.url) as client, client.queue("q") as queue:
        await client.admin.create_queue("q", policy=POLICY, partitions=1)
        await warmed(client, queue)
        before, found = running.rss_bytes(), []

        def look() -> None:
            found.append((running.rss_bytes() - before) / 1e6)

        await publish(client, "q", count)
        await until(queue, lambda statistics: statistics.ready == count)
        look()
        jobs: list[sparrow.Job] = []
        while len(jobs) < count:
            jobs += (await queue.lease(LEASE, wait_s=10)).jobs
        look()
        random.Random(1).shuffle(jobs)
        await _acknowledge(queue, jobs[: count // 2])
        look()
        await _acknowledge(queue, jobs[count // 2 :])
        await until(queue, lambda statistics: statistics.unfinished == 0)
        look()
    return found


async def _acknowledge(queue: Queue, jobs: Sequence[sparrow.Job]) -> None:
    """Each by itself, this many at a time."""
    for first in range(0, len(jobs), ACKS_AT_ONCE):
        for job in jobs[first : first + ACKS_AT_ONCE]:
            job.ack_nowait()
        await queue.flush()


def replayed(runs: int, scale: float) -> list[Measurement]:
    """A million open records, every second one acknowledged by itself: kill -9, and a start."""
    count = round(1_000_000 * scale)
    row = Measurement(
        "journal: start after kill -9 with open records",
        "s",
        Target(1, at_least=False) if scale >= 1 else None,
        note=f"{count:,} messages, leased, half of them acknowledged; until the queue answers",
    )
    for _ in range(min(runs, MAX_RUNS)):
        with server("--default-partitions", "1") as running:
            uvloop.run(_leave_open(running, count))
            spent = running.start()
            began = time.perf_counter()
            uvloop.run(_answered(running, count))
            row.runs.append(spent + time.perf_counter() - began)
    return [row]


async def _leave_open(running: Server, count: int) -> None:
    async with sparrow.connect(running.url) as client, client.queue("q") as queue:
        await client.admin.create_queue("q", policy=POLICY, partitions=1)
        await publish(client, "q", count)
        jobs: list[sparrow.Job] = []
        while len(jobs) < count:
            jobs += (await queue.lease(LEASE, wait_s=10)).jobs
        await _acknowledge(queue, jobs[::2])
        running.kill()  # before the client ends, which gives its jobs back


async def _answered(running: Server, count: int) -> None:
    async with sparrow.connect(running.url) as client, client.queue("q") as queue:
        unfinished = (await queue.statistics()).unfinished
    if unfinished != count // 2:
        raise RuntimeError(f"{unfinished} messages are open, and not {count // 2}")


def delayed(runs: int, scale: float) -> list[Measurement]:
    """A million that wait for an hour, and others that fire meanwhile."""
    count, fired = round(1_000_000 * scale), round(FIRED_RATE * max(1.0, FIRED_SECONDS * scale))
    memory = Measurement(
        "queue: memory of messages, all delayed",
        "MB",
        Target(100, at_least=False) if scale >= 1 else None,
        note=f"{count:,} messages, without their payloads",
    )
    late = f"queue: lateness of delayed messages, {FIRED_RATE:,} per second"
    p50 = Measurement(f"{late}, p50", "ms", note="to the worker's function")
    p99 = Measurement(f"{late}, p99", "ms", Target(50, at_least=False))
    for _ in range(min(runs, MAX_RUNS)):
        with (
            server("--default-partitions", "1") as running,
            asyncio.Runner(loop_factory=precise_loop) as runner,
        ):
            grown, times = runner.run(_delayed(running, count, fired))
        memory.runs.append(grown)
        p50.runs.append(quantiles(times).p50)
        p99.runs.append(quantiles(times).p99)
    return [memory, p50, p99]


async def _delayed(running: Server, count: int, fired: int) -> tuple[float, list[float]]:
    async with sparrow.connect(running.url) as client, client.queue("q") as queue:
        await client.admin.create_queue("q", policy=POLICY, partitions=1)
        await warmed(client, queue)
        before = running.rss_bytes()
        now_ms = time.time_ns() // 1_000_000
        async with client.producer(acks="all") as producer:
            for n in range(count):
                await producer.send("q", VALUE, deliver_at=now_ms + HOUR_MS + n)
        await until(queue, lambda statistics: statistics.delayed == count)
        grown = (running.rss_bytes() - before) / 1e6
        return grown, await _lateness(client, queue, fired)


async def _lateness(client: Client, queue: Queue, fired: int) -> list[float]:
    """Seconds from when each message should have come to when its job was there."""
    first_ms = time.time_ns() // 1_000_000 + 2_000
    async with client.producer(acks="all") as producer:
        for n in range(fired):
            due_ms = first_ms + n * 1000 // FIRED_RATE
            await producer.send(queue.name, b"%d" % due_ms, deliver_at=due_ms)
    times: list[float] = []
    async for job in queue:
        times.append(time.time() - int(job.value or b"") / 1000)
        job.ack_nowait()
        if len(times) == fired:
            break
    return times
