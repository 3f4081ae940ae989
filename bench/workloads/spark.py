"""The Spark part: broker, Spark's `local[2]` and all on one machine; side by side with Spark's own
Kafka connector where it can be had.

Both read the same topics of the same broker, in turn, in one JVM: ours over the native protocol,
the connector over Kafka's.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import sparrow.sync
from bench.kept import kept
from bench.pace import due_times, late_s, quantiles, stamped
from bench.peers import kafka_connector
from bench.peers.daemon import NotInstalled
from bench.quiet import until_idle
from bench.results import OURS, RATIO, Measurement, Target
from bench.server import Server
from bench.spark_driver import SparkDriver, SparkFailed, spark_driver
from sparrow.broker.broker import Broker
from sparrow.records.builder import build_batch

CONNECTOR = "spark-sql-kafka"
TOPIC = "lines"
PARTITIONS = 4
VALUE_BYTES = 100
ROWS = 8_000_000
_PER_BATCH = 8_000
_STAGED = "fsynced before the commit, the commit fsynced"
_PRODUCED = "acks=all, at least once: each batch acknowledged after its fdatasync"
"""The producer of the connector, with its defaults."""


@dataclass
class _Field:
    """A broker with a topic of rows, and a driver."""

    server: Server
    driver: SparkDriver
    contenders: dict[str, dict[str, str]]
    """Name → format and options that name the broker."""
    missing: str
    """Why the connector does not take part; "" when it does."""

    def source(self, who: str, topic: str = TOPIC) -> dict[str, str]:
        return {**self.contenders[who], "subscribe": topic}

    def sink(self, who: str, topic: str) -> dict[str, str]:
        return {**self.contenders[who], "topic": topic}


@contextlib.contextmanager
def _field(rows: int, value_bytes: int = VALUE_BYTES, *, has_peer: bool = True) -> Iterator[_Field]:
    root = Path(tempfile.mkdtemp(prefix="sparrow-bench-"))
    jars, missing = _connector()
    try:
        asyncio.run(_fill(root / "data", rows, value_bytes))
        server = Server(root / "data")
        server.start()
        try:
            assert server.process is not None
            until_idle(server.process.pid)
            contenders = {OURS: {"format": "sparrow", "url": server.url}}
            if jars and has_peer:
                contenders[CONNECTOR] = {"format": "kafka", "kafka.bootstrap.servers": server.kafka}
            with kept("spark", partial(spark_driver, jars)) as driver:
                yield _Field(server, driver, contenders, missing)
        finally:
            server.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)


@cache
def _connector() -> tuple[list[str], str]:
    """The connector's jars, or why there are none. They are on the class path of every driver, so
    that one driver does for all workloads.
    """
    try:
        return kafka_connector.jars(), ""
    except NotInstalled as error:
        return [], str(error)


async def _fill(directory: Path, rows: int, value_bytes: int) -> None:
    """Put rows into the topic's partitions evenly, in batches of about 1 MB, through the broker's
    own verb.
    """
    per_batch = max(1, _PER_BATCH * VALUE_BYTES // value_bytes)
    values = [b"%08d" % n + b"v" * (value_bytes - 8) for n in range(per_batch)]
    keys = [b"key-%06d" % n for n in range(per_batch)]
    batch = build_batch(values, keys, None, int(time.time() * 1000))
    async with Broker(directory) as broker:
        await broker.topics.create(TOPIC, PARTITIONS)
        for number in range(rows // per_batch):
            await broker.records.publish(TOPIC, number % PARTITIONS, batch, acks=1)


def _rate(answer: dict[str, Any], rows: int) -> float:
    """Millions of rows per second."""
    return float(rows / answer["seconds"] / 1e6)


def reads(runs: int, scale: float) -> list[Measurement]:
    """Batch reads: counting over the value alone, and all columns to noop."""
    rows = round(ROWS * scale)
    kinds = {
        "count over value": (Target(2.5), {"sink": "count", "columns": ["value"]}),
        "all columns → noop": (Target(1.5), {"sink": "noop"}),
    }
    with _field(rows) as field:
        return _compared("spark batch", "read", kinds, field, runs, rows)


def streams(runs: int, scale: float) -> list[Measurement]:
    """AvailableNow over all rows, in batches of a million or two; with the start of the query."""
    rows = round(2 * ROWS * scale)
    kinds: dict[str, tuple[Target, dict[str, Any]]] = {
        "all columns → noop": (Target(1.2), {"sink": "noop", "limit": 1_000_000}),
        "all columns → Parquet": (Target(0.5), {"sink": "parquet", "limit": 2_000_000}),
    }
    with _field(rows) as field:
        return _compared("spark stream", "stream", kinds, field, runs, rows)


def _compared(
    name: str,
    do: str,
    kinds: dict[str, tuple[Target, dict[str, Any]]],
    field: _Field,
    runs: int,
    rows: int,
) -> list[Measurement]:
    """Each kind of work by each contender in turn, after one round to get warm; and the ratio."""
    table: list[Measurement] = []
    for kind, (target, request) in kinds.items():
        found = _row_each(f"{name}: {kind}", field)
        found[OURS].target = target
        for number in range(runs + 1):
            for who, row in found.items():
                rate = _rate(field.driver.ask(do, source=field.source(who), **request), rows)
                if number:
                    row.runs.append(rate)
        table += [*found.values(), _ratio(f"{name}: {kind}, against the connector", found, field.missing)]
    return table


def _row_each(figure: str, field: _Field) -> dict[str, Measurement]:
    """For each contender."""
    return {
        who: Measurement(f"{figure}, {who}", "M rows/s", figure=figure, broker=who)
        for who in field.contenders
    }


def _ratio(name: str, found: dict[str, Measurement], missing: str) -> Measurement:
    row = Measurement(name, RATIO, Target(1.0), note=missing, figure=found[OURS].figure)
    if CONNECTOR in found:
        pairs = zip(found[OURS].runs, found[CONNECTOR].runs, strict=True)
        row.runs = [ours / theirs for ours, theirs in pairs]
    return row


def writes(runs: int, scale: float) -> list[Measurement]:
    """Rows that the JVM makes, to a topic: ours exactly once, the connector's at least once."""
    rows = round(4_000_000 * scale)
    with _field(0) as field, sparrow.sync.connect(field.server.url) as client:
        found = _row_each("spark write: topic", field)
        found[OURS].target, found[OURS].durability = Target(0.8), _STAGED
        if CONNECTOR in found:
            found[CONNECTOR].durability = _PRODUCED
        for number in range(runs + 1):
            for who, row in found.items():
                topic = f"out-{who}-{number}"
                client.admin.create_topic(topic, partitions=PARTITIONS)
                request = {"sink": field.sink(who, topic), "rows": rows, "value_bytes": VALUE_BYTES}
                rate = _rate(field.driver.ask("write", **request), rows)
                client.admin.delete_topic(topic)
                if number:
                    row.runs.append(rate)
        return [*found.values(), _ratio("spark write: topic, against the connector", found, field.missing)]


def micro_batches(runs: int, scale: float) -> list[Measurement]:
    """Measure the cost of a micro-batch of one row."""
    count = max(10, round(60 * scale))
    fixed = Measurement("spark stream: fixed cost of a micro-batch → noop", "ms", Target(100, at_least=False))
    exact = Measurement(
        "spark stream: fixed cost of a micro-batch → topic, exactly once", "ms", durability=_STAGED
    )
    with _field(0, has_peer=False) as field, sparrow.sync.connect(field.server.url) as client:
        client.admin.create_topic("out", partitions=PARTITIONS)
        sinks = {"noop": ({"format": "noop"}, fixed), "topic": (field.sink(OURS, "out"), exact)}
        for number in range(runs):
            for name, (sink, row) in sinks.items():
                query = f"{name}-{number}"
                field.driver.ask("copy", name=query, source=field.source(OURS), sink=sink)
                _begin(field.driver, client, query)
                for _ in range(count):
                    before = field.driver.ask("batches", name=query)["batches"]
                    client.publish(TOPIC, b"one")
                    _until(field.driver, query, before + 1)
                row.runs.append(field.driver.ask("stop", name=query, skip=count // 3)["batch_ms"])
    return [fixed, exact]


def _begin(driver: SparkDriver, client: sparrow.sync.Client, query: str) -> None:
    """A stream begins at the end that it finds, some time after its start: publish until it takes
    one.
    """
    deadline = time.monotonic() + 60
    while not driver.ask("batches", name=query)["batches"]:
        if time.monotonic() > deadline:
            raise SparkFailed(f"{query} has had no batch after a minute")
        client.publish(TOPIC, b"one")
        time.sleep(0.5)


def _until(driver: SparkDriver, query: str, batches: int) -> None:
    deadline = time.monotonic() + 60
    while driver.ask("batches", name=query)["batches"] < batches:
        if time.monotonic() > deadline:
            raise SparkFailed(f"{query} has had fewer than {batches} batches after a minute")
        time.sleep(0.005)


def latency(runs: int, scale: float) -> list[Measurement]:
    """From when a record was due to when a reader of committed records has its copy; 4,000
    records/s.
    """
    p50 = Measurement(
        "spark stream: record → commit in a topic, p50",
        "ms",
        Target(200, at_least=False),
        f"in: page cache; out: {_STAGED}",
    )
    p99 = Measurement("spark stream: record → commit in a topic, p99", "ms")
    seconds = max(6.0, 30 * scale)
    with _field(0, has_peer=False) as field, sparrow.sync.connect(field.server.url) as client:
        client.admin.create_topic("out", partitions=PARTITIONS)
        for number in range(runs):
            query = f"copy-{number}"
            field.driver.ask("copy", name=query, source=field.source(OURS), sink=field.sink(OURS, "out"))
            _begin(field.driver, client, query)
            times = _late(field.server.url, seconds)
            field.driver.ask("stop", name=query)
            p50.runs.append(quantiles(times).p50)
            p99.runs.append(quantiles(times).p99)
    return [p50, p99]


def _late(url: str, seconds: float, rate: int = 4000) -> list[float]:
    """Return how late copies are in the second half of the time: a query's first batches are slow,
    and those that wait behind them, too.
    """
    count = round(seconds * rate)
    times: list[float] = []

    def listen(ready: threading.Event) -> None:
        with (
            sparrow.sync.connect(url) as client,
            client.subscribe("out", start="end", isolation="read_committed") as copies,
        ):
            ready.set()
            for message in copies:
                assert message.value is not None
                if len(message.value) == VALUE_BYTES:  # not those by which the stream began
                    times.append(late_s(message.value))
                if len(times) == count:
                    break

    ready = threading.Event()
    listener = threading.Thread(target=listen, args=(ready,), daemon=True)
    listener.start()
    ready.wait()
    with sparrow.sync.connect(url) as client, client.producer(acks="1", linger_ms=1) as producer:
        for number, due in enumerate(due_times(time.monotonic(), rate, count)):
            producer.send(TOPIC, stamped(due, VALUE_BYTES), partition=number % PARTITIONS)
    listener.join(60)
    if listener.is_alive():
        raise SparkFailed(f"{len(times)} of {count} copies came")
    return times[count // 2 :]


def memory(runs: int, scale: float) -> list[Measurement]:
    """Measure the memory of a Python worker that reads a topic of 10 GB (1 KB values)."""
    total_bytes = round(10e9 * min(1.0, scale))
    worker = Measurement(
        "spark batch: largest Python worker while it reads",
        "MB",
        Target(500, at_least=False),
        note=f"{total_bytes / 1e9:.3g} GB in values of 1 KB",
    )
    own = Measurement("spark batch: the driver's Python meanwhile", "MB")
    with _field(total_bytes // 1000, 1000, has_peer=False) as field:
        for _ in range(min(runs, 2)):
            answer = field.driver.ask("worker_memory", source=field.source(OURS))
            worker.runs.append(answer["worker_bytes"] / 1e6)
            own.runs.append(answer["driver_bytes"] / 1e6)
    return [worker, own]
