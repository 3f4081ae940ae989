"""Dramatiq over Redis: one process with eight threads, its default."""

from __future__ import annotations

import sys
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.tasks import protocol

dramatiq.set_broker(RedisBroker(url=protocol.URL or "redis://127.0.0.1"))


@dramatiq.actor
def empty() -> None: ...


@dramatiq.actor
def first() -> None:
    protocol.write_time("first")


@dramatiq.actor
def last() -> None:
    protocol.write_time("last")


@dramatiq.actor
def stamp(sent_ns: int) -> None:
    protocol.note_delay(sent_ns)


@dramatiq.actor
def dump() -> None:
    protocol.write_delays()


def worker_command() -> list[str]:
    return [
        sys.executable,
        "-m",
        "dramatiq",
        "bench.tasks.dramatiq_tasks",
        "--processes",
        "1",
        "--threads",
        "8",
    ]


def run(what: str, count: int) -> dict[str, float]:
    if what == "ready":
        first.send()
        protocol.wait_for("first")
        return {}
    if what == "latency":
        for _ in range(count):
            stamp.send(time.monotonic_ns())
            time.sleep(0.005)
        dump.send()
        return protocol.quantiles_ms()
    if what == "bulk":
        first.send()
    began = time.perf_counter()
    for _ in range(count):
        empty.send()
    rate = count / (time.perf_counter() - began)
    if what == "bulk":
        last.send()
    return {"rate": rate}
