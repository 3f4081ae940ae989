"""Parented queues: how fast a long chain and a wide graph drain, published so that children come
before their parents, and what a waiting message costs.

A chain allows for one message at a time: each is leased, kept, acknowledged and kept before the
next may go. What the wire and the disk take is in that; the state machine alone is the row beside
it.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Sequence
from typing import TYPE_CHECKING

import uvloop

import sparrow
from bench.results import Measurement, Target
from bench.server import Server, server
from bench.workloads.queue_sizes import MAX_RUNS, until, warmed
from sparrow.base.queue_policy import QueuePolicy
from sparrow.broker.queues.rules.delivery_info import DeliveryInfo
from sparrow.broker.queues.rules.state import ONE_OF, QueueState
from sparrow.broker.queues.scan.record_headers import PIECE_RECORDS

if TYPE_CHECKING:
    from sparrow.client.client import Client
    from sparrow.client.queue import Queue

POLICY: dict[str, str | int] = {"order": "parented", "lease_ms": 600_000, "parent_wait_ms": 3_600_000}
LEASE = 5_000
LEAST_MEASURED = 100_000
"""With fewer messages their memory cannot be distinguished from that of buffers."""
KEPT = "lease and ack each on stable storage"

Message = tuple[int, list[int]]
"""Its number, and those of its parents."""


def chain(count: int) -> list[Message]:
    """Each has the one before it as its parent; the last comes first."""
    return [(n, [n - 1] if n else []) for n in reversed(range(count))]


def graph(count: int) -> list[Message]:
    """Up to three parents each, anywhere before it; shuffled."""
    dice = random.Random(1)
    messages = [
        (n, sorted({dice.randrange(n) for _ in range(dice.randint(0, 3))} if n else [])) for n in range(count)
    ]
    dice.shuffle(messages)
    return messages


def drained(runs: int, scale: float) -> list[Measurement]:
    """A chain and a graph, through the client and in the state machine."""
    count = round(100_000 * scale)
    rows = []
    for name, messages, at_once in (("chain", chain(count), 1), ("graph", graph(count), LEASE)):
        what = f"queue: parented {name}"
        floor = Target(4_000 if name == "chain" else 20_000)
        client = Measurement(f"{what}, drained by a client", "msg/s", floor, KEPT)
        alone = Measurement(f"{what}, drained in the state machine", "msg/s", Target(20_000), "in memory")
        known = Measurement(
            f"{what}, what the state machine keeps of an unfinished message", "B", Target(100, at_least=False)
        )
        alone.note = known.note = client.note = f"{count:,} messages"
        known.runs.append(_kept_bytes(messages) / count)  # once: it is exact, and tracing is slow
        memory = Measurement(
            f"{what}, what the broker's RSS grows by for it", "B", note="± 50: passing buffers"
        )
        if count < LEAST_MEASURED:
            memory.note = f"needs {LEAST_MEASURED:,} messages to be measured"
        if name == "chain":
            client.note = f"the first {_drained_of(count):,} of {count:,}: one round trip each"
        for _ in range(min(runs, MAX_RUNS)):
            alone.runs.append(count / _in_state(messages))
            with server("--default-partitions", "1") as running:
                rate, grown = uvloop.run(_through_client(running, messages, at_once))
            client.runs.append(rate)
            if count >= LEAST_MEASURED:
                memory.runs.append(grown)
        rows += [client, alone, known, memory]
    return rows


def _drained_of(count: int) -> int:
    """Return the number of messages of a chain to wait for: enough for a rate."""
    return count // 10


async def _through_client(running: Server, messages: Sequence[Message], at_once: int) -> tuple[float, float]:
    """(messages per second, bytes that the broker grew by for each while all waited)."""
    async with sparrow.connect(running.url) as client, client.queue("q") as queue:
        await client.admin.create_queue("q", policy=POLICY, partitions=1)
        await warmed(client, queue)
        # What that leaves in reserve is used up by the first ones.
        first = len(messages) // 5
        await _publish(client, messages[:first])
        await _until_known(queue, messages[:first])
        before = running.rss_bytes()
        await _publish(client, messages[first:])
        await _until_known(queue, messages)
        grown = (running.rss_bytes() - before) / (len(messages) - first)
        drained = _drained_of(len(messages)) if at_once == 1 else len(messages)
        began = time.perf_counter()
        await (_drain_chain(queue, drained) if at_once == 1 else _drain_graph(queue, messages))
        return drained / (time.perf_counter() - began), grown


async def _until_known(queue: Queue, messages: Sequence[Message]) -> None:
    """The broker has looked at all: those that have parents wait for them."""
    blocked = sum(1 for _, parents in messages if parents)
    await until(queue, lambda statistics: statistics.blocked == blocked)


async def _publish(client: Client, messages: Sequence[Message]) -> None:
    async with client.producer(acks="all") as producer:
        for number, parents in messages:
            await producer.send(
                "q", b"%d" % number, message_id=f"m-{number}", parents=[f"m-{each}" for each in parents]
            )


async def _drain_chain(queue: Queue, count: int) -> None:
    """Pushed and acknowledged one by one."""
    expected = 0
    async for job in queue:
        if job.value != b"%d" % expected:
            raise RuntimeError(f"{job.value!r} came before {expected}")
        job.ack_nowait()
        expected += 1
        if expected == count:
            break
    await queue.flush()


async def _drain_graph(queue: Queue, messages: Sequence[Message]) -> None:
    """Leased in batches; no child before its parents."""
    parents_of = dict(messages)
    done: set[int] = set()
    while len(done) < len(messages):
        jobs = await queue.lease(LEASE, wait_s=10)
        numbers = [int(value or b"") for value in jobs.values]
        for number in numbers:
            if not done.issuperset(parents_of[number]):
                raise RuntimeError(f"{number} came before its parents")
        jobs.ack_nowait()
        done.update(numbers)
    await queue.flush()


def _in_state(messages: Sequence[Message]) -> float:
    """Seconds that the state machine takes to lease and finish all."""
    state = _filled(messages)
    subscriber = state.subscribers[ONE_OF]
    began = time.perf_counter()
    while subscriber.unfinished:
        for grant in subscriber.grant("c", LEASE, now_ms=0, wall_ms=0, lease_ms=30_000):
            runs = subscriber.leased_runs("c", grant.source, grant.first, grant.end)
            subscriber.ack(grant.source, runs)
        state.settled()
    return time.perf_counter() - began


def _kept_bytes(messages: Sequence[Message]) -> int:
    """Return the bytes of the state machine while all messages are unfinished."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        state = _filled(messages)
        kept = tracemalloc.get_traced_memory()[0] - before
        assert state.subscribers[ONE_OF].unfinished == len(messages)
        return kept
    finally:
        tracemalloc.stop()


def _filled(messages: Sequence[Message]) -> QueueState:
    """A queue that has just found all."""
    state = QueueState("q", QueuePolicy(order="parented"), has_dead_letters=False)
    source = state.add_source(0, {ONE_OF: 0})
    for first in range(0, len(messages), PIECE_RECORDS):
        infos = [
            DeliveryInfo(first + n, 0, message_id=number + 1, parents=tuple(each + 1 for each in parents))
            for n, (number, parents) in enumerate(messages[first : first + PIECE_RECORDS])
        ]
        state.found(source, first, first + len(infos), infos, now_ms=0, wall_ms=0)
    return state
