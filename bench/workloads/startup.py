"""Start-up time, idle memory, and how soon a killed broker serves again."""

from __future__ import annotations

import time

import uvloop

import sparrow
from bench.results import Measurement, Target
from bench.server import server
from bench.workloads.throughput import publish


def fresh(runs: int, scale: float) -> list[Measurement]:  # noqa: ARG001
    """From exec to the first accepted connection, and memory after that."""
    accepts = Measurement("serve: start to first connection", "s", Target(0.5, at_least=False))
    memory = Measurement("serve: idle memory", "MB", Target(80, at_least=False))
    for _ in range(runs):
        with server() as broker:
            broker.stop()
            accepts.runs.append(broker.start())
            time.sleep(0.5)
            memory.runs.append(broker.rss_bytes() / 1e6)
    return [accepts, memory]


async def read_end(url: str) -> int:
    """Ask for the end offsets: the broker serves."""
    async with sparrow.connect(url) as client:
        topic = await client.admin.describe_topic("bench")
        return sum(p.end_offset for p in topic.partitions)


def recovery(runs: int, scale: float) -> list[Measurement]:
    """A log of 1 GB whose broker was killed with kill -9: seconds until it answers with the right end."""
    row = Measurement("kill -9, restart, serve a 1 GB log", "s", Target(2, at_least=False))
    count = round(1_000_000 * scale)
    row.note = f"{count * 1024 / 1e9:.2f} GB"
    for _ in range(runs):
        with server() as broker:
            uvloop.run(publish(broker.url, "bench", b"m" * 1024, count))
            broker.kill()
            began = time.perf_counter()
            broker.start()
            end = uvloop.run(read_end(broker.url))
            row.runs.append(time.perf_counter() - began)
            if end != count:
                raise RuntimeError(f"{count} messages were acknowledged, {end} are there")
    return [row]
