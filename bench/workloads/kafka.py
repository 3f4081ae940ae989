"""The Kafka frontend under librdkafka (confluent-kafka), beside librdkafka's own in-memory mock
cluster in the same run.

The mock keeps the last 5 MB of each partition in memory and writes nothing: it is the client's
ceiling, not a peer. Runs are interleaved, mock and broker in turn. `plain write` is what the disk
takes from one process that writes the same bytes in 1 MiB pieces.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.results import Measurement, Target
from bench.server import Server, server

SYNCED = "acks=all: each counted after its fdatasync (group commit)"
UNSYNCED = "acks=1: page cache; synced within 1 s"
CHUNK = 10_000
SECONDS = 120
TOPICS = 10
PARTITIONS = 4
MOCK_PARTITION_BYTES = 4 << 20
QUIET = {"log_level": 0}


@contextmanager
def mock_cluster() -> Iterator[str]:
    """librdkafka's mock broker; yields its address."""
    owner = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, **QUIET})
    (node,) = owner.list_topics(timeout=SECONDS).brokers.values()
    yield f"{node.host}:{node.port}"
    owner.flush(SECONDS)


@contextmanager
def sparrow_broker() -> Iterator[str]:
    with server() as running:
        yield running.kafka


BROKERS: dict[str, Callable[[], Any]] = {"mock": mock_cluster, "sparrow": sparrow_broker}


def produce(bootstrap: str, topic: str, value: bytes, count: int, acks: str, **settings: Any) -> float:
    """Seconds from the first message to the last acknowledgement; every message into partition
    0.
    """
    failures: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "linger.ms": 5,
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 512 << 10,
            "delivery.report.only.error": True,
            "on_delivery": delivered,
            **QUIET,
            **settings,
        }
    )
    producer.list_topics(topic, SECONDS)  # the topic is there, the connection is open
    began = time.perf_counter()
    for start in range(0, count, CHUNK):
        left = [{"value": value} for _ in range(min(CHUNK, count - start))]
        while left:
            producer.produce_batch(topic, left, partition=0)
            left = [each for each in left if each.pop("_error", None) is not None]
            if left:
                producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(SECONDS) == 0
    seconds = time.perf_counter() - began
    assert not failures, failures[0]
    return seconds


def fill(bootstrap: str, value: bytes, topics: int) -> dict[tuple[str, int], int]:
    """Put some megabytes into each of many partitions; the counts."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": 50, **QUIET})
    count = MOCK_PARTITION_BYTES // (len(value) + 12)
    filled = {}
    for topic in (f"bench-{n}" for n in range(topics)):
        producer.list_topics(topic, SECONDS)
        for partition in range(PARTITIONS):
            producer.produce_batch(topic, [{"value": value} for _ in range(count)], partition=partition)
            filled[topic, partition] = count
            producer.flush(SECONDS)
    return filled


def consume(bootstrap: str, filled: dict[tuple[str, int], int]) -> float:
    """Messages per second, each message a Python object.

    Counted from the first messages on: before it librdkafka waits half a second of its own accord
    (its timer for offset queries), whatever the broker.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1 << 20,
            "fetch.queue.backoff.ms": 1,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in filled])
    left = sum(filled.values())
    left -= len(consumer.consume(1, SECONDS))
    counted, began = left, time.perf_counter()
    while left:
        messages = consumer.consume(min(CHUNK, left), SECONDS)
        assert messages
        left -= len(messages)
    seconds = time.perf_counter() - began
    consumer.close()
    return counted / seconds


def small(runs: int, scale: float) -> list[Measurement]:
    """100-byte messages, as ratios to the mock cluster."""
    count = round(2_000_000 * scale)
    topics = max(1, round(TOPICS * scale))
    value = b"m" * 100
    rows = {
        ("mock", "1"): _of_mock("produce 100 B acks=1", "msg/s"),
        ("sparrow", "1"): Measurement("kafka: produce 100 B acks=1", "msg/s", None, UNSYNCED),
        ("mock", "all"): _of_mock("produce 100 B acks=all", "msg/s"),
        ("sparrow", "all"): Measurement("kafka: produce 100 B acks=all", "msg/s", None, SYNCED),
        ("mock", "read"): _of_mock("consume 100 B", "msg/s"),
        ("sparrow", "read"): Measurement(
            "kafka: consume 100 B", "msg/s", note=f"{topics * PARTITIONS} partitions"
        ),
    }
    for _ in range(runs):
        for name, broker in BROKERS.items():
            with broker() as bootstrap:
                for acks in ("1", "all"):
                    rows[name, acks].runs.append(
                        count / produce(bootstrap, f"bench-{acks}", value, count, acks)
                    )
            with broker() as bootstrap:
                filled = fill(bootstrap, value, topics)
                rows[name, "read"].runs.append(consume(bootstrap, filled))
    ratios = [
        _ratio("kafka: produce 100 B acks=1, of the mock's rate", rows, "1", 0.8, UNSYNCED),
        _ratio("kafka: produce 100 B acks=all, of the mock's rate", rows, "all", 0.7, SYNCED),
        _ratio("kafka: consume 100 B, of the mock's rate", rows, "read", 0.9, ""),
    ]
    return [*rows.values(), *ratios]


def _of_mock(what: str, unit: str) -> Measurement:
    return Measurement(
        f"kafka: mock cluster, {what}",
        unit,
        note="keeps nothing: what the client can",
        figure=f"kafka: {what}",
        broker="mock cluster",
    )


def _ratio(
    name: str, rows: dict[tuple[str, str], Measurement], what: str, target: float, durability: str
) -> Measurement:
    runs = [
        ours / theirs
        for ours, theirs in zip(rows["sparrow", what].runs, rows["mock", what].runs, strict=True)
    ]
    return Measurement(name, "x", Target(target), durability, runs)


def large(runs: int, scale: float) -> list[Measurement]:
    """1,024-byte messages: against the disk, and from the page cache."""
    count = round(600_000 * scale)
    value = b"m" * 1024
    written = Measurement("plain sequential write of the same bytes, then fdatasync", "MB/s")
    ceiling = _of_mock("produce 1 KB acks=all", "MB/s")
    unsynced = Measurement("kafka: produce 1 KB acks=1", "MB/s", None, UNSYNCED)
    synced = Measurement("kafka: produce 1 KB acks=all", "MB/s", None, SYNCED)
    read = Measurement("kafka: consume 1 KB", "MB/s", Target(700), note="from the page cache")
    for _ in range(runs):
        with mock_cluster() as bootstrap:
            ceiling.runs.append(count * 1024 / produce(bootstrap, "bench", value, count, "all") / 1e6)
        written.runs.append(count * 1024 / plain_write(count * 1024) / 1e6)
        with sparrow_broker() as bootstrap:
            for acks, row in (("1", unsynced), ("all", synced)):
                row.runs.append(count * 1024 / produce(bootstrap, f"bench-{acks}", value, count, acks) / 1e6)
            filled = {("bench-1", 0): count, ("bench-all", 0): count}
            read.runs.append(consume(bootstrap, filled) * 1024 / 1e6)
    ratio = Measurement(
        "kafka: produce 1 KB acks=all, of the plain write's rate",
        "x",
        Target(0.8),
        SYNCED,
        [ours / plain for ours, plain in zip(synced.runs, written.runs, strict=True)],
    )
    return [written, ceiling, unsynced, synced, ratio, read]


def plain_write(size: int) -> float:
    """Seconds to write and sync this many bytes, in pieces of 1 MiB."""
    piece = os.urandom(1 << 20)
    with tempfile.TemporaryDirectory() as directory:
        file = os.open(Path(directory) / "plain", os.O_WRONLY | os.O_CREAT)
        began = time.perf_counter()
        for _ in range(size >> 20):
            os.write(file, piece)
        os.fdatasync(file)
        seconds = time.perf_counter() - began
        os.close(file)
    return seconds


def latency(runs: int, scale: float) -> list[Measurement]:
    """From produce to consumed at a fixed rate; the time that a message should have been sent
    counts, not when it was.
    """
    row = Measurement(
        "kafka: end to end p99, 5,000 msg/s of 1 KB, acks=all, linger 0",
        "ms",
        Target(10, at_least=False),
        SYNCED,
    )
    median = Measurement(row.name.replace("p99", "p50"), "ms", None, SYNCED)
    for _ in range(runs):
        with sparrow_broker() as bootstrap:
            times = _paced(bootstrap, rate=5_000, seconds=max(3.0, 10 * scale))
        times.sort()
        row.runs.append(times[round(len(times) * 0.99)] * 1000)
        median.runs.append(statistics.median(times) * 1000)
    return [median, row]


def _paced(bootstrap: str, rate: int, seconds: float) -> list[float]:
    """Latencies in seconds. The first second warms up and is not counted."""
    topic, count = "paced", round(rate * seconds)
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.create_topics([NewTopic(topic, 1)])[topic].result()
    due: list[float] = [0.0] * count
    found: list[float] = []
    failures: list[Any] = []
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "paced", "fetch.wait.max.ms": 500, **QUIET}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, **QUIET})
    producer.list_topics(topic, SECONDS)

    def send() -> None:
        padding = b"m" * 1016
        began = time.perf_counter() + 0.01
        for n in range(count):
            due[n] = began + n / rate
            pause = due[n] - time.perf_counter()
            if pause > 0.0002:
                time.sleep(pause)
            producer.produce(
                topic, n.to_bytes(8) + padding, on_delivery=lambda e, _: failures.append(e) if e else None
            )
            producer.poll(0)
        producer.flush(SECONDS)

    sender = threading.Thread(target=send)
    sender.start()
    while len(found) < count:
        for message in consumer.consume(500, 0.001):
            now = time.perf_counter()
            found.append(now - due[_number(message)])
    sender.join()
    consumer.close()
    assert not failures, failures[0]
    return found[rate:]


def _number(message: Message) -> int:
    return int.from_bytes((message.value() or b"")[:8])


def crowd(runs: int, scale: float) -> list[Measurement]:
    """200 producers and 200 consumers on 100 topics at once."""
    rate = Measurement("kafka: 200 producers and 200 consumers on 100 topics", "msg/s", None, SYNCED)
    errors = Measurement(f"{rate.name}: errors of clients", "errors", Target(0, at_least=False))
    fairness = Measurement(f"{rate.name}: slowest consumer's rate of the fastest's", "x")
    memory = Measurement(
        f"{rate.name}: broker's memory grows by",
        "MB",
        Target(200, at_least=False),
        note="RSS at the end - idle",
    )
    for _ in range(runs):
        with server() as running:
            messages, seconds, failed, fair, grown = _crowd(running, max(1, round(10 * scale)) * 100)
        rate.runs.append(messages / seconds)
        errors.runs.append(failed)
        fairness.runs.append(fair)
        memory.runs.append(grown / 1e6)
    return [rate, errors, fairness, memory]


def _crowd(running: Server, per_producer: int) -> tuple[int, float, int, float, int]:
    clients, topics = 200, [f"crowd-{n}" for n in range(100)]
    failures: list[Any] = []
    idle = running.rss_bytes()
    settings = {"bootstrap.servers": running.kafka, "error_cb": failures.append, **QUIET}
    admin = AdminClient({"bootstrap.servers": running.kafka, **QUIET})
    for made in admin.create_topics([NewTopic(topic, 2) for topic in topics]).values():
        made.result()
    finished: list[float] = []
    producers = [Producer({**settings, "linger.ms": 5}) for _ in range(clients)]
    consumers = [
        Consumer({**settings, "group.id": "none", "enable.auto.commit": False}) for _ in range(clients)
    ]
    for n, consumer in enumerate(consumers):
        consumer.assign([TopicPartition(topics[n // 2], n % 2, OFFSET_BEGINNING)])
    began = time.perf_counter()

    def drain(consumer: Consumer) -> None:
        seen = 0
        while seen < per_producer and time.perf_counter() - began < SECONDS:
            seen += sum(1 for each in consumer.consume(1000, 1.0) if each.error() is None)
        finished.append(time.perf_counter() - began)

    threads = [threading.Thread(target=drain, args=(consumer,)) for consumer in consumers]
    for thread in threads:
        thread.start()
    for _ in range(per_producer // 100):
        for n, producer in enumerate(producers):
            producer.produce_batch(
                topics[n // 2], [{"value": b"m" * 100} for _ in range(100)], partition=n % 2
            )
    failures += [producer for producer in producers if producer.flush(SECONDS)]
    for thread in threads:
        thread.join(SECONDS)
    seconds = time.perf_counter() - began
    grown = running.rss_bytes() - idle
    for consumer in consumers:
        consumer.close()
    return clients * per_producer, seconds, len(failures), min(finished) / max(finished), grown
