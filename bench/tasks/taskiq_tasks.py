"""taskiq over Redis streams, acknowledged after the task."""

from __future__ import annotations

import asyncio
import sys
import time

from taskiq_redis import RedisStreamBroker

from bench.tasks import protocol

broker = RedisStreamBroker(url=protocol.URL or "redis://127.0.0.1")


@broker.task
async def empty() -> None: ...


@broker.task
async def first() -> None:
    protocol.write_time("first")


@broker.task
async def last() -> None:
    protocol.write_time("last")


@broker.task
async def stamp(sent_ns: int) -> None:
    protocol.note_delay(sent_ns)


@broker.task
async def dump() -> None:
    protocol.write_delays()


def worker_command() -> list[str]:
    return [
        sys.executable, "-m", "taskiq", "worker", "bench.tasks.taskiq_tasks:broker", "--workers", "1",
        "--log-level", "ERROR", "--ack-type", "when_executed",
    ]  # fmt: skip


async def run(what: str, count: int) -> dict[str, float]:
    await broker.startup()
    try:
        if what == "ready":
            await first.kiq()
            await asyncio.to_thread(protocol.wait_for, "first")
            return {}
        if what == "singly":
            began = time.perf_counter()
            for _ in range(count):
                await empty.kiq()
            return {"rate": count / (time.perf_counter() - began)}
        if what == "bulk":
            await first.kiq()
            began = time.perf_counter()
            for start in range(0, count, 100):
                await asyncio.gather(*(empty.kiq() for _ in range(min(100, count - start))))
            rate = count / (time.perf_counter() - began)
            await last.kiq()
            return {"rate": rate}
        for _ in range(count):
            await stamp.kiq(time.monotonic_ns())
            await asyncio.sleep(0.005)
        await dump.kiq()
        return await asyncio.to_thread(protocol.quantiles_ms)
    finally:
        await broker.shutdown()
