"""Publish and subscribe through one connection of the native client: messages and bytes per
second.
"""

from __future__ import annotations

import random
import time

import uvloop

import sparrow
from bench.results import Measurement, Target
from bench.server import server

SYNCED = "acks=all: each counted after its fdatasync (group commit)"


async def publish(url: str, topic: str, value: bytes, count: int) -> float:
    """Publish `count` equal messages, each handed over singly; seconds until all are
    acknowledged.
    """
    async with sparrow.connect(url) as client, client.producer(acks="all") as producer:
        send = producer.send
        last = None
        began = time.perf_counter()
        for _ in range(count):
            last = await send(topic, value)
        await producer.flush()
        assert last is not None
        await last
        return time.perf_counter() - began


async def publish_varied(url: str, topic: str, count: int) -> float:
    """Publish `count` messages of 60 to 140 bytes under 10,000 keys; seconds until all are
    acknowledged.
    """
    dice = random.Random(1)
    values = [b"m" * dice.randint(60, 140) for _ in range(1000)]
    keys = [b"key-%d" % dice.randrange(10_000) for _ in range(997)]
    async with sparrow.connect(url) as client, client.producer(acks="all") as producer:
        send = producer.send
        began = time.perf_counter()
        for i in range(count):
            await send(topic, values[i % 1000], key=keys[i % 997])
        await producer.flush()
        return time.perf_counter() - began


async def subscribe_batches(url: str, topic: str, count: int) -> float:
    """Read `count` messages in batches, every message made an object; seconds."""
    async with (
        sparrow.connect(url) as client,
        client.subscribe(topic, start="beginning") as subscription,
    ):
        seen = 0
        began = time.perf_counter()
        async for batch in subscription.batches():
            seen += len(batch)
            if seen >= count:
                break
        return time.perf_counter() - began


async def subscribe_messages(url: str, topic: str, count: int) -> float:
    """Read `count` messages one by one with `async for`; seconds."""
    async with (
        sparrow.connect(url) as client,
        client.subscribe(topic, start="beginning") as subscription,
    ):
        seen = 0
        began = time.perf_counter()
        async for _ in subscription:
            seen += 1
            if seen >= count:
                break
        return time.perf_counter() - began


def small(runs: int, scale: float) -> list[Measurement]:
    """100-byte messages."""
    rows = [
        Measurement("publish 100 B, pipelined, one connection", "msg/s", Target(300_000), SYNCED),
        Measurement("subscribe 100 B, in batches", "msg/s", Target(600_000)),
        Measurement("subscribe 100 B, message by message", "msg/s", Target(250_000)),
    ]
    _run(rows, runs, b"m" * 100, round(1_500_000 * scale), lambda count, seconds: count / seconds)
    return rows


def varied(runs: int, scale: float) -> list[Measurement]:
    """Messages of 60 to 140 bytes with keys: no two neighbours alike, so no short cut of the codecs
    applies.
    """
    rows = [
        Measurement("publish 60-140 B with keys, pipelined, one connection", "msg/s", None, SYNCED),
        Measurement("subscribe 60-140 B with keys, in batches", "msg/s"),
    ]
    count = round(1_000_000 * scale)
    for _ in range(runs):
        with server() as broker:
            rows[0].runs.append(count / uvloop.run(publish_varied(broker.url, "bench", count)))
            rows[1].runs.append(count / uvloop.run(subscribe_batches(broker.url, "bench", count)))
    return rows


def large(runs: int, scale: float) -> list[Measurement]:
    """1,024-byte messages."""
    rows = [
        Measurement("publish 1 KB, pipelined, one connection", "MB/s", Target(200), SYNCED),
        Measurement("subscribe 1 KB, in batches", "MB/s", Target(400)),
        Measurement("subscribe 1 KB, message by message", "MB/s"),
    ]
    _run(rows, runs, b"m" * 1024, round(600_000 * scale), lambda count, seconds: count * 1024 / seconds / 1e6)
    return rows


def _run(rows: list[Measurement], runs: int, value: bytes, count: int, figure: object) -> None:
    assert callable(figure)
    for _ in range(runs):
        with server() as broker:
            for row, work in zip(
                rows,
                (
                    lambda: publish(broker.url, "bench", value, count),
                    lambda: subscribe_batches(broker.url, "bench", count),
                    lambda: subscribe_messages(broker.url, "bench", count),
                ),
                strict=True,
            ):
                row.runs.append(figure(count, uvloop.run(work())))
