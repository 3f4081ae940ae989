"""The cost of idle connections to the broker."""

from __future__ import annotations

import asyncio
import contextlib

import uvloop

import sparrow
from bench.results import Measurement, Target
from bench.server import Server, server


async def growth_mb(broker: Server, count: int) -> float:
    """Megabytes that `count` idle connections add to the broker."""
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(sparrow.connect(broker.url))
        before = broker.rss_bytes()
        for _ in range(count):
            await stack.enter_async_context(sparrow.connect(broker.url))
        await asyncio.sleep(0.5)
        return (broker.rss_bytes() - before) / 1e6


def idle(runs: int, scale: float) -> list[Measurement]:  # noqa: ARG001
    """1,000 idle connections."""
    row = Measurement("1,000 idle connections: memory more", "MB", Target(60, at_least=False))
    for _ in range(runs):
        with server() as broker:
            row.runs.append(uvloop.run(growth_mb(broker, 1000)))
    return [row]
