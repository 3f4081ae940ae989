"""Celery over Redis: prefork with one process; results in Redis, for compositions alone."""

from __future__ import annotations

import sys
import time

from celery import Celery, chain, chord

from bench.tasks import protocol

app = Celery("bench", broker=protocol.URL, backend=protocol.URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=4,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task
def empty() -> None: ...


@app.task
def first() -> None:
    protocol.write_time("first")


@app.task
def last() -> None:
    protocol.write_time("last")


@app.task
def stamp(sent_ns: int) -> None:
    protocol.note_delay(sent_ns)


@app.task
def dump() -> None:
    protocol.write_delays()


@app.task(ignore_result=False)
def add(number: int, more: int = 1) -> int:
    return number + more


@app.task(ignore_result=False)
def total(numbers: list[int]) -> int:
    return sum(numbers)


def worker_command() -> list[str]:
    return [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "bench.tasks.celery_tasks",
        "worker",
        "-c",
        "1",
        "-l",
        "ERROR",
    ]


def run(what: str, count: int) -> dict[str, float]:
    if what == "ready":
        add.delay(1).get(timeout=protocol.DEADLINE_S)
        return {}
    if what == "singly":
        empty.delay()
        began = time.perf_counter()
        for _ in range(count):
            empty.delay()
        return {"rate": count / (time.perf_counter() - began)}
    if what == "bulk":  # it has no other way than one by one
        first.delay()
        began = time.perf_counter()
        with app.producer_pool.acquire(block=True) as producer:
            for _ in range(count):
                empty.apply_async(producer=producer)
        rate = count / (time.perf_counter() - began)
        last.delay()
        return {"rate": rate}
    if what == "latency":
        for _ in range(count):
            stamp.delay(time.monotonic_ns())
            time.sleep(0.005)
        dump.delay()
        return protocol.quantiles_ms()
    began = time.perf_counter()
    if what == "chain":
        steps = [add.s(0), *(add.s() for _ in range(count - 1))]
        assert chain(*steps).apply_async().get(timeout=protocol.DEADLINE_S) == count
    else:
        result = chord((add.s(n) for n in range(count)), total.s()).apply_async()
        assert result.get(timeout=protocol.DEADLINE_S) == count * (count + 1) // 2
    return {"seconds": time.perf_counter() - began}
