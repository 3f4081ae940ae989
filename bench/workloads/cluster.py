"""Cluster mode: one broker over PostgreSQL and an S3 server on this machine, beside a single
Sparrow and Kafka; takeovers, and what both engines have to do.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

import uvloop

import sparrow
from bench.cluster import CLUSTER, ClusterServer, cluster_broker, engines
from bench.pace import due_times_async, precise_loop, quantiles, settled
from bench.peers import kafka
from bench.peers.daemon import NotInstalled
from bench.race import Contender, client, race
from bench.results import OURS, Measurement, Target
from bench.server import Server, server
from bench.together import Role, seconds, together
from bench.workloads.latency import publish_one_by_one
from bench.workloads.throughput import publish

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from bench.cluster import Engines
    from bench.peers.kafka import KafkaNode

COMMITTED = "acks=all: each acknowledged after its commit in PostgreSQL, and its upload"
SYNCED = "acks=all: each acknowledged after its fdatasync (group commit)"
RATE, QUEUE_RATE, STEADY_RATE = 5_000, 2_000, 50_000
"""Messages per second; the last one of 1 KB, about 50 MB/s."""
SMALL, LARGE = b"m" * 100, b"m" * 1024
TOPICS, PARTITIONS, GROUPS, QUEUES = 100, 10, 100, 10
HANDOVERS = 5
"""Ends of the owner by SIGTERM in each takeover run."""


# ── rates ──


def _topic(broker: Server, name: str) -> None:
    client("sparrow").make(broker.url, name)


def _kafka_topic(node: KafkaNode, name: str) -> None:
    client("confluent").make(node.bootstrap, name, **{"flush.messages": "1"})


def _publisher(value: bytes, broker: Server, topic: str, count: int) -> list[Role]:
    return [partial(client("sparrow").publish, broker.url, topic, value, count)]


def _kafka_publisher(value: bytes, node: KafkaNode, topic: str, count: int) -> list[Role]:
    return [partial(client("confluent").publish, node.bootstrap, topic, value, count, "all")]


def _reader(broker: Server, topic: str, count: int) -> list[Role]:
    together(partial(client("sparrow").publish, broker.url, topic, LARGE, count))
    return [partial(client("sparrow").read, broker.url, topic, count)]


def _kafka_reader(node: KafkaNode, topic: str, count: int) -> list[Role]:
    together(partial(client("confluent").publish, node.bootstrap, topic, LARGE, count, "all"))
    return [partial(client("confluent").read, node.bootstrap, topic, count)]


def _cold_reader(broker: Server, topic: str, count: int) -> list[Role]:
    """The same after a restart: nothing is in the broker's memory."""
    assert isinstance(broker, ClusterServer)
    together(partial(client("sparrow").publish, broker.url, topic, LARGE, count))
    broker.stop()
    broker.start()
    broker.until_ready()
    return [partial(client("sparrow").read, broker.url, topic, count)]


def _publishers(value: bytes) -> tuple[Contender, ...]:
    ours = partial(_publisher, value)
    return (
        Contender(CLUSTER, "acks=all", COMMITTED, _topic, ours),
        Contender(OURS, "acks=all", SYNCED, _topic, ours),
        Contender(
            "Kafka", "confluent-kafka, flush.messages=1", kafka.SYNCED, _kafka_topic,
            partial(_kafka_publisher, value), 0.2,
        ),
    )  # fmt: skip


def publishing(runs: int, scale: float) -> list[Measurement]:
    """Pipelined through one connection, each message acknowledged."""
    rows = _rates("cluster: publish 100 B", "msg/s", _publishers(SMALL), runs, round(1_000_000 * scale), 1)
    rows[0].target = Target(300_000)
    large = _rates("cluster: publish 1 KB", "MB/s", _publishers(LARGE), runs, round(400_000 * scale), 1024e-6)
    large[0].target = Target(150)
    return rows + large


def consuming(runs: int, scale: float) -> list[Measurement]:
    """A topic, from its beginning: out of the broker's memory, and out of objects."""
    count = round(200_000 * scale)
    tail = _rates(
        "cluster: consume 1 KB from memory", "MB/s",
        (
            *(Contender(broker, "in batches", "", _topic, _reader) for broker in (CLUSTER, OURS)),
            Contender("Kafka", "confluent-kafka, flush.messages=1", "", _kafka_topic, _kafka_reader),
        ),
        runs, count, 1024e-6,
    )  # fmt: skip
    cold = _rates(
        "cluster: consume 1 KB from objects", "MB/s",
        (Contender(CLUSTER, "in batches, after a restart", "", _topic, _cold_reader),),
        runs, round(400_000 * scale), 1024e-6,
    )  # fmt: skip
    tail[0].target, cold[0].target = Target(400), Target(200)
    return tail + cold


def _rates(
    figure: str, unit: str, contenders: tuple[Contender, ...], runs: int, count: int, factor: float
) -> list[Measurement]:
    results = race(contenders, runs, count)
    return [
        results[each].row(
            figure,
            unit,
            each,
            lambda round_: factor * (round_.spans[-1].found or round_.messages) / seconds(round_.spans),
        )
        for each in contenders
    ]


# ── latencies ──


async def _publish_at_rate(url: str, count: int) -> list[float]:
    """Return the seconds from when each message of 1 KB was due to its acknowledgement."""
    times: list[float] = []
    async with sparrow.connect(url) as connected, connected.producer(linger_ms=0) as producer:
        await connected.publish("bench", b"first")

        async def note(due: float, delivery: sparrow.Delivery) -> None:
            await delivery
            times.append(time.monotonic() - due)

        async with asyncio.TaskGroup() as group:
            async for due in due_times_async(time.monotonic(), RATE, count):
                group.create_task(note(due, await producer.send("bench", LARGE)))
    return times


def _at_rate(broker: Server, count: int) -> list[float]:
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        return settled(runner.run(_publish_at_rate(broker.url, count)))


_Case = tuple[str, "Callable[[Server, int], list[float]]", int, tuple[float, float]]
"""Figure, measurement, messages, limits of p50 and p99 in ms."""


def _one_by_one(broker: Server, count: int) -> list[float]:
    return [each / 1000 for each in uvloop.run(publish_one_by_one(broker.url, count))]


def _queued(broker: Server, count: int) -> list[float]:
    ours, name = client("sparrow"), f"queue-{time.monotonic_ns()}"
    uvloop.run(_make_queue(broker.url, name))
    spans = together(
        partial(ours.publish_at_rate, broker.url, name, QUEUE_RATE, count),
        partial(ours.work_late, broker.url, name, count),
    )
    return settled(spans[-1].found)


async def _make_queue(url: str, name: str) -> None:
    async with sparrow.connect(url) as connected:
        await connected.admin.create_queue(name)


def latencies(runs: int, scale: float) -> list[Measurement]:
    """Acknowledged publishes, one after the other and at a rate, and the way through a queue."""
    cases: list[_Case] = [
        ("cluster: publish awaited, 100 B", _one_by_one, round(3_000 * scale), (4, 15)),
        (f"cluster: publish 1 KB at {RATE:,} msg/s", _at_rate, round(10 * RATE * scale), (25, 80)),
        (
            f"cluster: queue to worker at {QUEUE_RATE:,} msg/s",
            _queued,
            round(10 * QUEUE_RATE * scale),
            (10, 40),
        ),
    ]  # fmt: skip
    rows: dict[tuple[str, str, str], Measurement] = {}
    for figure, _, _, limits in cases:
        for broker, durability in ((CLUSTER, COMMITTED), (OURS, SYNCED)):
            for word, limit in zip(("p50", "p99"), limits, strict=True):
                name = f"{figure}, {word}"
                target = Target(limit, at_least=False) if broker == CLUSTER else None
                rows[figure, broker, word] = Measurement(
                    f"{name}: {broker}", "ms", target, durability, figure=name, broker=broker
                )
    for _ in range(runs):
        for broker, start in (
            (CLUSTER, cluster_broker),
            (OURS, partial(server, "--default-partitions", "1")),
        ):
            _measure_latencies(broker, start, cases, rows)
    return list(rows.values())


def _measure_latencies(
    broker: str,
    start: Callable[[], AbstractContextManager[Server]],
    cases: Sequence[_Case],
    rows: Mapping[tuple[str, str, str], Measurement],
) -> None:
    try:
        with start() as running:
            for figure, measure, count, _ in cases:
                found = quantiles(measure(running, max(count, 500)))
                rows[figure, broker, "p50"].runs.append(found.p50)
                rows[figure, broker, "p99"].runs.append(found.p99)
    except NotInstalled as error:
        for (_, of, _), row in rows.items():
            if of == broker:
                row.note = str(error)


# ── takeovers ──


async def _fill(url: str) -> None:
    async with sparrow.connect(url) as connected:
        for topic in range(TOPICS):
            await connected.admin.create_topic(f"topic-{topic}", partitions=PARTITIONS)
            await connected.publish(f"topic-{topic}", b"m")
        for group in range(GROUPS):
            await connected.admin.commit(f"group-{group}", {(f"topic-{group}", 0): 0})
        for queue in range(QUEUES):
            await connected.admin.create_queue(f"queue-{queue}")
            await connected.publish(f"queue-{queue}", b"m")


async def _longest_pause(url: str, stop: Callable[[], None]) -> float:
    """Return the longest time between two acknowledgements, one of which comes after `stop`."""
    longest, asked_at = 0.0, 0.0
    async with sparrow.connect(url) as connected:
        began = last = time.monotonic()
        while last < began + 1 or last < asked_at + 3 or not asked_at:
            await connected.publish("topic-0", b"m", partition=0)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
            if not asked_at and now > began + 1:
                asked_at, longest = now, 0.0
                stop()
    return longest


def takeovers(runs: int, scale: float) -> list[Measurement]:
    """kill -9 of the owner, and its end by SIGTERM, with a standby."""
    what = f"{TOPICS * PARTITIONS:,} partitions, {GROUPS} groups, {QUEUES} queues"
    rows = [
        Measurement("cluster: takeover after kill -9, median", "s", Target(3, at_least=False), note=what),
        Measurement("cluster: takeover after kill -9, worst", "s", Target(12, at_least=False), note=what),
        Measurement(
            "cluster: handover at SIGTERM, longest pause of a producer", "s", Target(0.5, at_least=False),
            note=what,
        ),
    ]  # fmt: skip
    try:
        with engines() as found:
            _take_over(found, rows, max(3, round(10 * scale)) * runs)
    except NotInstalled as error:
        for row in rows:
            row.note = str(error)
    return rows


def _take_over(found: Engines, rows: list[Measurement], rounds: int) -> None:
    nodes = [found.node(name) for name in ("a", "b")]
    owner, standby = nodes
    owner.start()
    try:
        owner.until_ready()
        uvloop.run(_fill(owner.url))
        standby.start()
        time.sleep(16)  # until a free lock says something: the ledger was started before
        times = []
        for _ in range(rounds):
            began = time.monotonic()
            owner.kill()
            standby.until_ready()
            times.append(time.monotonic() - began)
            owner, standby = standby, owner
            standby.start()
            time.sleep(3)
        rows[0].runs.append(statistics.median(times))
        rows[1].runs.append(max(times))
        pauses = []
        for _ in range(HANDOVERS):
            url = f"sparrow://127.0.0.1:{owner.port},127.0.0.1:{standby.port}"
            process = owner.process
            assert process is not None
            pauses.append(uvloop.run(_longest_pause(url, process.terminate)))
            process.wait()
            owner, standby = standby, owner
            standby.start()
            time.sleep(3)
        rows[2].runs.append(statistics.median(pauses))
        rows[2].note += f"; median of {HANDOVERS} ({min(pauses):.2g} to {max(pauses):.2g} s)"
    finally:
        for node in nodes:
            node.stop()


# ── what the engines do ──


async def _steady(url: str, count: int) -> float:
    """Publish 1 KB messages at about 50 MB/s; return the seconds."""
    async with sparrow.connect(url) as connected, connected.producer() as producer:
        began = time.monotonic()
        for first in range(0, count, 500):
            for _ in range(500):
                await producer.send("bench", LARGE)
            ahead = began + first / STEADY_RATE - time.monotonic()
            if ahead > 0:
                await asyncio.sleep(ahead)
        await producer.flush()
        return time.monotonic() - began


def engines_work(runs: int, scale: float) -> list[Measurement]:
    """Uploads, transactions and PostgreSQL's write-ahead log at 50 MB/s, and uploads of an idle
    cluster.
    """
    rows = [
        Measurement("cluster: uploads per GB at 50 MB/s", "PUTs", Target(300, at_least=False)),
        Measurement("cluster: uploads per hour when idle", "PUTs", Target(0, at_least=False)),
        Measurement("cluster: commits at 50 MB/s", "1/s", Target(200, at_least=False)),
        Measurement("cluster: PostgreSQL's WAL at 50 MB/s", "MB/s", Target(3, at_least=False)),
        Measurement("cluster: start until it serves, data in objects", "s", Target(3, at_least=False)),
    ]
    count = max(100_000, round(1_000_000 * scale))
    try:
        for _ in range(runs):
            with engines() as found:
                broker = found.node("a", "--default-partitions", "1")
                broker.start()
                try:
                    broker.until_ready()
                    _measure_engines(found, broker, count, rows)
                finally:
                    broker.stop()
                began = time.monotonic()
                broker.start()
                broker.until_ready()
                rows[4].runs.append(time.monotonic() - began)
                rows[4].note = f"{count * 1024 / 1e9:.1f} GB; the figure asked for is of 10 GB"
                broker.stop()
    except NotInstalled as error:
        for row in rows:
            row.note = str(error)
    return rows


def _measure_engines(found: Engines, broker: ClusterServer, count: int, rows: list[Measurement]) -> None:
    asyncio.run(publish(broker.url, "bench", LARGE, 1000))
    before, wal = broker.metrics(), found.wal_bytes()
    took_s = uvloop.run(_steady(broker.url, count))
    after = broker.metrics()
    gigabytes = count * 1024 / 1e9
    uploads = after["sparrow_cluster_uploads_total"] - before["sparrow_cluster_uploads_total"]
    commits = after["sparrow_cluster_commits_total"] - before["sparrow_cluster_commits_total"]
    rows[0].runs.append(uploads / gigabytes)
    rows[2].runs.append(commits / took_s)
    rows[3].runs.append((found.wal_bytes() - wal) / took_s / 1e6)
    for row in (rows[0], rows[2], rows[3]):
        row.note = f"at {gigabytes * 1000 / took_s:.0f} MB/s"
    time.sleep(10)
    idle = broker.metrics()["sparrow_cluster_uploads_total"]
    time.sleep(10)
    rows[1].runs.append((broker.metrics()["sparrow_cluster_uploads_total"] - idle) * 360)
