"""Statistics of topics against a model in Python."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparrow.pipelines import builtin
from sparrow.sync.client import Client
from sparrow.testing.running_broker import RunningBroker
from tests.spark.builtin.loglines import lines
from tests.spark.builtin.published import Got, got, publish_natively, values_of

HOUR_MS = 3_600_000


def _modelled(partitions: Iterable[list[Got]], window_ms: int | None) -> dict[int, dict[str, Any]]:
    """Return the expected statistics by the start of each window."""
    rows: dict[int, list[tuple[Got, int]]] = defaultdict(list)
    for records in partitions:
        newest = -1
        for record in records:
            newest = max(newest, record.timestamp_ms)
            window = 0 if window_ms is None else record.timestamp_ms // window_ms * window_ms
            rows[window].append((record, newest - record.timestamp_ms))
    return {window: _summary(found) for window, found in sorted(rows.items())}


def _summary(found: list[tuple[Got, int]]) -> dict[str, Any]:
    sizes = [len(record.key or b"") + len(record.value or b"") for record, _ in found]
    late = sorted(lateness for _, lateness in found)
    return {
        "messages": len(found),
        "bytes": sum(sizes),
        "distinct_keys": len({record.key for record, _ in found if record.key is not None}),
        "null_keys": sum(record.key is None for record, _ in found),
        "null_values": sum(record.value is None for record, _ in found),
        "min_bytes": min(sizes),
        "max_bytes": max(sizes),
        "average_bytes": round(sum(sizes) / len(sizes), 3),
        "late": sum(each > 0 for each in late),
        "max_lateness_ms": late[-1],
        "p50_lateness_ms": _percentile(late, 0.5),
        "p95_lateness_ms": _percentile(late, 0.95),
        "p99_lateness_ms": _percentile(late, 0.99),
    }


def _percentile(ordered: list[int], share: float) -> int:
    """Return the smallest value that at least this share does not exceed, as Spark does."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def _told(row: builtin.TopicStats, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


@pytest.mark.parametrize("window_ms", [None, HOUR_MS])
def test_numbers_are_those_of_the_model(
    window_ms: int | None, broker: RunningBroker, client: Client, where: dict[str, Any], name: str
) -> None:
    client.admin.create_topic(name, partitions=3)
    publish_natively(client, name, lines(1500))
    rows = builtin.stats(name, window_ms=window_ms, exact=True, **where)
    model = _modelled(got(broker, name).values(), window_ms)
    assert len(rows) == len(model) >= (1 if window_ms is None else 3)
    for row, wanted in zip(rows, model.values(), strict=True):
        assert row.topic == name
        assert _told(row, wanted) == wanted
    assert max(row.max_lateness_ms for row in rows) > 0


def test_approximate_keys_are_near_and_results_go_to_a_topic_and_a_table(
    broker: RunningBroker,
    spark: SparkSession,
    client: Client,
    where: dict[str, Any],
    name: str,
    tmp_path: Any,
) -> None:
    client.admin.create_topic(name, partitions=1)
    with client.producer() as producer:
        for number in range(2000):
            producer.send(name, b"x", key=b"%d" % (number % 1000))
        producer.flush()
    table = str(tmp_path / "stats")
    rows = builtin.stats(name, to_topic=f"{name}-stats", to_parquet=table, **where)
    assert rows[0].distinct_keys == pytest.approx(1000, rel=0.1)
    (value,) = values_of(got(broker, f"{name}-stats"))
    assert json.loads(value or b"")["messages"] == 2000
    assert [row["bytes"] for row in spark.read.parquet(table).collect()] == [rows[0].bytes]


def test_only_records_between_two_times_count(client: Client, where: dict[str, Any], name: str) -> None:
    client.admin.create_topic(name, partitions=1)
    with client.producer() as producer:
        for number in range(100):
            producer.send(name, b"x", timestamp_ms=1_000_000 + 1000 * number)
        producer.flush()
    (row,) = builtin.stats(name, since_ms=1_010_000, until_ms=1_050_000, **where)
    assert (row.messages, row.first_timestamp) == (40, "1970-01-01T00:16:50.000Z")
    assert builtin.stats(name, since_ms=2_000_000, **where) == []
