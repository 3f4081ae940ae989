"""The cost of the console: the broker's processor time while nobody looks, for one tab, and for 50.

A tab is what the page of topics does: it follows `/v1/events`, and asks for its page of the list
every two seconds. The cost of one tab is the difference to the same traffic without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import aiohttp
import psutil
import uvloop

import sparrow
from bench.results import Measurement, Target
from bench.server import Server, server

TOPICS = 1_000
PER_SECOND = 5_000
MANY = 50
POLL_S = 2.0
_PAGE = "/v1/overview/topics?limit=50"


def busy_s(process: psutil.Process) -> float:
    """Return the processor time of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def share(process: psutil.Process, seconds: float) -> float:
    """Return the share of a core that a process takes, in percent."""
    before, began = busy_s(process), time.perf_counter()
    await asyncio.sleep(seconds)
    return 100 * (busy_s(process) - before) / (time.perf_counter() - began)


@contextlib.asynccontextmanager
async def tabs(url: str, count: int) -> AsyncIterator[None]:
    """Keep tabs open."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def follow() -> None:
            async with session.get(f"{url}/v1/events") as response:
                async for _ in response.content:
                    pass

        async def poll() -> None:
            while True:
                async with session.get(url + _PAGE) as response:
                    await response.read()
                await asyncio.sleep(POLL_S)

        tasks = [asyncio.ensure_future(work()) for _ in range(count) for work in (follow, poll)]
        try:
            await asyncio.sleep(1)
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def traffic(client: sparrow.Client) -> AsyncIterator[None]:
    """Publish messages at a steady rate, to one topic after the other."""

    async def publish() -> None:
        number = 0
        while True:
            began = time.perf_counter()
            topic = f"topic-{number % TOPICS}"
            number += 1
            await asyncio.gather(*(client.publish(topic, b"x" * 100) for _ in range(PER_SECOND // 20)))
            await asyncio.sleep(max(0.0, 0.05 - (time.perf_counter() - began)))

    task = asyncio.ensure_future(publish())
    try:
        await asyncio.sleep(1)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def measure(broker: Server, seconds: float) -> tuple[float, float, float]:
    """Return the shares of a core: nobody looks; one tab more with traffic; 50 tabs."""
    assert broker.process is not None
    process = psutil.Process(broker.process.pid)
    url = f"http://127.0.0.1:{broker.http_port}"
    async with sparrow.connect(broker.url) as client:
        for start in range(0, TOPICS, 100):
            names = [f"topic-{number}" for number in range(start, start + 100)]
            await asyncio.gather(*(client.admin.create_topic(each, partitions=1) for each in names))
        await asyncio.sleep(1)
        nobody = await share(process, seconds)
        async with traffic(client):
            without = await share(process, seconds)
            async with tabs(url, 1):
                with_one = await share(process, seconds)
        async with tabs(url, MANY):
            many = await share(process, seconds)
    return nobody, with_one - without, many - nobody


def looking(runs: int, scale: float) -> list[Measurement]:
    """The console: nobody, one tab, 50 tabs."""
    rows = [
        Measurement("console: nobody looks, 1,000 topics", "% of a core"),
        Measurement(
            "console: one tab more, 1,000 topics, 5,000 msg/s", "% of a core", Target(1, at_least=False)
        ),
        Measurement("console: 50 tabs, 1,000 topics", "% of a core", Target(10, at_least=False)),
    ]
    for _ in range(runs):
        with server() as broker:
            for row, value in zip(rows, uvloop.run(measure(broker, 10 * scale)), strict=True):
                row.runs.append(value)
    return rows
