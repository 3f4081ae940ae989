"""arq over Redis: its worker with its own limits, and no results. It looks for jobs each 10 ms, not
each 500 ms, which would be its latency.

arq needs an older client of Redis than the other systems, so it runs in a Python of its own, which
`SPARROW_BENCH_ARQ_PYTHON` names.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, ClassVar

from bench.tasks import protocol

PYTHON_VARIABLE = "SPARROW_BENCH_ARQ_PYTHON"
_POLL_S = 0.01


def _address() -> tuple[str, int]:
    host, _, port = protocol.URL.removeprefix("redis://").partition("/")[0].partition(":")
    return host or "127.0.0.1", int(port or 6379)


async def empty(_context: dict[str, Any]) -> None: ...


async def first(_context: dict[str, Any]) -> None:
    protocol.write_time("first")


async def last(_context: dict[str, Any]) -> None:
    protocol.write_time("last")


async def stamp(_context: dict[str, Any], sent_ns: int) -> None:
    protocol.note_delay(sent_ns)


async def dump(_context: dict[str, Any]) -> None:
    protocol.write_delays()


def _settings() -> Any:
    from arq.connections import RedisSettings

    host, port = _address()
    return RedisSettings(host=host, port=port)


class WorkerSettings:
    """Read by arq's command."""

    functions: ClassVar = [empty, first, last, stamp, dump]
    keep_result = 0
    poll_delay = _POLL_S


if protocol.URL:  # in the sender and the worker, which have arq
    WorkerSettings.redis_settings = _settings()  # type: ignore[attr-defined]  # read by arq


def python() -> str:
    """The Python that has arq; empty without one."""
    return os.environ.get(PYTHON_VARIABLE, "")


def worker_command() -> list[str]:
    return [python(), "-m", "arq", "bench.tasks.arq_tasks.WorkerSettings"]


async def run(what: str, count: int) -> dict[str, float]:
    from arq import create_pool

    pool = await create_pool(_settings())
    try:
        if what == "ready":
            await pool.enqueue_job("first")
            await asyncio.to_thread(protocol.wait_for, "first")
            return {}
        if what == "singly":
            began = time.perf_counter()
            for _ in range(count):
                await pool.enqueue_job("empty")
            return {"rate": count / (time.perf_counter() - began)}
        if what == "bulk":
            await pool.enqueue_job("first")
            began = time.perf_counter()
            for start in range(0, count, 100):
                await asyncio.gather(*(pool.enqueue_job("empty") for _ in range(min(100, count - start))))
            rate = count / (time.perf_counter() - began)
            await pool.enqueue_job("last")
            return {"rate": rate}
        for _ in range(count):
            await pool.enqueue_job("stamp", time.monotonic_ns())
            await asyncio.sleep(0.005)
        await pool.enqueue_job("dump")
        return await asyncio.to_thread(protocol.quantiles_ms)
    finally:
        await pool.aclose()
