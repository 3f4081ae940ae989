"""One message at a time, awaited, on stable storage; beside it one bare fdatasync of the same
disk.
"""

from __future__ import annotations

import statistics
import time

import uvloop

import sparrow
from bench.machine import bare_fdatasync_ms
from bench.results import Measurement, Target
from bench.server import server


async def publish_one_by_one(url: str, count: int) -> list[float]:
    """Milliseconds from `publish` to its offset, one after the other."""
    times = []
    async with sparrow.connect(url) as client:
        await client.publish("bench", b"first")
        for _ in range(count):
            began = time.perf_counter()
            await client.publish("bench", b"m" * 100)
            times.append((time.perf_counter() - began) * 1000)
    return times


def awaited(runs: int, scale: float) -> list[Measurement]:
    """p50 and p99 of an awaited publish."""
    disk = Measurement("one fdatasync, p50", "ms", note="after 200 bytes were appended to a file")
    p50 = Measurement("publish awaited, acks=all, p50", "ms", None, "each after its own fdatasync")
    p99 = Measurement("publish awaited, acks=all, p99", "ms", None, "each after its own fdatasync")
    over = Measurement("publish awaited, p50 beyond one fdatasync", "ms", Target(0.8, at_least=False))
    count = round(2000 * scale)
    for _ in range(runs):
        with server() as broker:
            disk.runs.append(statistics.median(bare_fdatasync_ms(count)))
            times = sorted(uvloop.run(publish_one_by_one(broker.url, count)))
            p50.runs.append(statistics.median(times))
            p99.runs.append(times[round(0.99 * (len(times) - 1))])
            over.runs.append(p50.runs[-1] - disk.runs[-1])
    return [disk, p50, p99, over]
