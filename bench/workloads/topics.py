"""Ten thousand topics: creating and listing must not get slower with their number."""

from __future__ import annotations

import asyncio
import time

import uvloop

import sparrow
from bench.results import Measurement, Target
from bench.server import server


async def create_and_list(url: str, count: int) -> tuple[float, float, float]:
    """(ratio of the time per topic of the last tenth to the first, topics created per second,
    seconds to list all).
    """
    tenths: list[float] = []
    async with sparrow.connect(url) as client:
        for tenth in range(10):
            names = [f"topic-{tenth}-{i}" for i in range(count // 10)]
            began = time.perf_counter()
            for start in range(0, len(names), 100):
                await asyncio.gather(
                    *(client.admin.create_topic(n, partitions=1) for n in names[start : start + 100])
                )
            tenths.append(time.perf_counter() - began)
        began = time.perf_counter()
        listed = await client.admin.list_topics()
        listing = time.perf_counter() - began
    if len(listed) != count:
        raise RuntimeError(f"{count} topics were created, {len(listed)} are listed")
    return tenths[-1] / tenths[0], count / sum(tenths), listing


def many(runs: int, scale: float) -> list[Measurement]:  # noqa: ARG001
    """10,000 topics."""
    ratio = Measurement("10,000 topics: last 1,000 / first 1,000", "ratio", Target(1.5, at_least=False))
    rate = Measurement("10,000 topics: created", "topics/s", None, "each durable (group commit)")
    listing = Measurement("10,000 topics: listed", "s")
    for _ in range(runs):
        with server() as broker:
            a, b, c = uvloop.run(create_and_list(broker.url, 10_000))
            ratio.runs.append(a)
            rate.runs.append(b)
            listing.runs.append(c)
    return [ratio, rate, listing]
