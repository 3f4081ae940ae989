"""Sparrow's tasks."""

from __future__ import annotations

import asyncio
import sys
import time

import sparrow
from bench.tasks import protocol
from sparrow.tasks import chain, chord

app = sparrow.Tasks("bench", url=protocol.URL or None)


@app.task
async def empty() -> None: ...


@app.task
async def first() -> None:
    protocol.write_time("first")


@app.task
async def last() -> None:
    protocol.write_time("last")


@app.task
async def stamp(sent_ns: int) -> None:
    protocol.note_delay(sent_ns)


@app.task
async def dump() -> None:
    protocol.write_delays()


@app.task(results=True)
async def add(number: int, more: int = 1) -> int:
    return number + more


@app.task(results=True)
async def total(numbers: list[int]) -> int:
    return sum(numbers)


def worker_command() -> list[str]:
    return [
        sys.executable,
        "-m",
        "sparrow",
        "worker",
        "bench.tasks.sparrow_tasks:app",
        "-c",
        "8",
        "--log-level",
        "warning",
    ]


async def run(what: str, count: int) -> dict[str, float]:
    async with app:
        if what == "ready":
            await (await add.send(1)).get(protocol.DEADLINE_S)
            return {}
        if what == "singly":
            began = time.perf_counter()
            for _ in range(count):
                await empty.send()
            return {"rate": count / (time.perf_counter() - began)}
        if what == "bulk":
            await first.send()
            began = time.perf_counter()
            await empty.send_many(() for _ in range(count))
            rate = count / (time.perf_counter() - began)
            await last.send()
            return {"rate": rate}
        if what == "latency":
            for _ in range(count):
                await stamp.send(time.monotonic_ns())
                await asyncio.sleep(0.005)
            await dump.send()
            return protocol.quantiles_ms()
        began = time.perf_counter()
        if what == "chain":
            result = await chain(*(add.s(0) if not n else add.s() for n in range(count))).send()
            assert await result.get(protocol.DEADLINE_S) == count
        else:
            result = await chord([add.s(n) for n in range(count)], total.s()).send()
            assert await result.get(protocol.DEADLINE_S) == count * (count + 1) // 2
        return {"seconds": time.perf_counter() - began}
