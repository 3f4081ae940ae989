"""Schedules: what 10,000 of them cost, and how late their jobs are at a consumer.

The broker publishes; the only other work is a subscription that notes when each job arrives. A job
is as late as its arrival is after the time in its header `schedule-time`, by the same clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import sparrow
from bench.results import SYNCED, Measurement, Target
from bench.server import server
from bench.workloads.console import share
from sparrow.records.wellknown import SCHEDULE_TIME

SCHEDULES = 10_000
_AT_ONCE = 200


def percentile(values: list[float], part: float) -> float:
    """Return a percentile of values; they are not empty."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


async def _put(client: sparrow.Client, count: int, cron_of: list[str]) -> None:
    for start in range(0, count, _AT_ONCE):
        numbers = range(start, min(start + _AT_ONCE, count))
        await asyncio.gather(
            *(
                client.admin.put_schedule(f"s{number}", "jobs", cron=cron_of[number], value=b"x" * 100)
                for number in numbers
            )
        )


async def _collect(client: sparrow.Client, late_ms: list[float], count: int = 0) -> None:
    """Note how late each job is, up to a number of them; 0: until cancelled."""
    async with client.subscribe("jobs", start="end") as subscription:
        async for message in subscription:
            tick_ms = int(dict(message.headers)[SCHEDULE_TIME] or b"0")
            late_ms.append(time.time_ns() / 1e6 - tick_ms)
            if len(late_ms) == count:
                return


async def _measure(url: str, pid: int, crons: list[str], seconds: float) -> tuple[float, list[float]]:
    """Return the share of a core that the schedules take, and how late each job was, in ms."""
    late_ms: list[float] = []
    async with sparrow.connect(url) as client:
        await client.admin.create_queue("jobs", partitions=2)
        idle = await share(pid, 5)
        await _put(client, len(crons), crons)
        collector = asyncio.ensure_future(_collect(client, late_ms))
        await asyncio.sleep(2)
        late_ms.clear()
        busy = await share(pid, seconds)
        collector.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await collector
    return max(0.0, busy - idle), late_ms


async def _burst(url: str, count: int) -> list[float]:
    """Return how late jobs are that are all due in the same second, in ms."""
    late_ms: list[float] = []
    async with sparrow.connect(url) as client:
        await client.admin.create_queue("jobs", partitions=2)
        due = time.gmtime(time.time() + 30 + count / 200)
        await _put(client, count, [f"{due.tm_sec} {due.tm_min} * * * *"] * count)
        collector = asyncio.ensure_future(_collect(client, late_ms, count))
        async with asyncio.timeout(180):
            await collector
    return late_ms


def due(runs: int, scale: float) -> list[Measurement]:
    """The cost of schedules, and the lateness of their jobs."""
    count = max(500, round(SCHEDULES * scale))
    seconds = max(5.0, 30 * scale)
    hourly = f"schedules: {count:,}, each due once an hour"
    minutely = f"schedules: {count:,}, each due once a minute"
    together = f"schedules: {count:,} due in one second, to a consumer"
    rows = {
        "cost": Measurement(hourly, "% of a core", Target(1, at_least=False), strength=SYNCED),
        "busy": Measurement(minutely, "% of a core", strength=SYNCED),
        "p50": Measurement(f"{minutely}, to a consumer, p50", "ms", strength=SYNCED),
        "p99": Measurement(
            f"{minutely}, to a consumer, p99", "ms", Target(50, at_least=False), strength=SYNCED
        ),
        "burst": Measurement(f"{together}, p99", "ms", strength=SYNCED),
    }
    spread_hour = [f"{number % 60} {number // 60 % 60} * * * *" for number in range(count)]
    spread_minute = [f"{number % 60} * * * * *" for number in range(count)]
    for _ in range(runs):
        with server() as broker:
            assert broker.process is not None
            cost, _late = asyncio.run(_measure(broker.url, broker.process.pid, spread_hour, seconds))
        with server() as broker:
            assert broker.process is not None
            busy, late = asyncio.run(_measure(broker.url, broker.process.pid, spread_minute, seconds))
        with server() as broker:
            burst = asyncio.run(_burst(broker.url, count))
        rows["cost"].runs.append(cost)
        rows["busy"].runs.append(busy)
        rows["p50"].runs.append(percentile(late, 0.5))
        rows["p99"].runs.append(percentile(late, 0.99))
        rows["burst"].runs.append(percentile(burst, 0.99))
    return list(rows.values())
