"""`stats`: statistics of topics, per topic and window of time.

Lateness is the time by which a record's timestamp is behind the largest one before it in its
partition: the delay that a watermark has to allow for. Distinct keys are counted approximately
(HyperLogLog++, about 2 % off) unless asked for exactly, which keeps every key in memory somewhere.
Sizes are those of key and value together, as the producer sent them; on disk they may be
compressed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import InvalidArgument
from sparrow.base.units import counted
from sparrow.pipelines.builtin.cluster import Cluster, Progress, quiet
from sparrow.pipelines.builtin.topics import connected, count_of, ranges_between, read, topics_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MIN_WINDOW_MS: Final = 1000
_PERCENTILES: Final = (0.5, 0.95, 0.99)
_ACCURACY: Final = 10_000


@dataclass(frozen=True, slots=True)
class TopicStats:
    """Statistics of a topic, or of one window of it."""

    topic: str
    window_start: str | None
    """ISO 8601, UTC; None: no windows."""
    window_end: str | None
    messages: int
    bytes: int
    """Bytes of keys and values."""
    distinct_keys: int
    null_keys: int
    null_values: int
    min_bytes: int
    max_bytes: int
    average_bytes: float
    first_timestamp: str
    last_timestamp: str
    late: int
    """Messages that are behind an earlier one of their partition."""
    max_lateness_ms: int
    p50_lateness_ms: int
    p95_lateness_ms: int
    p99_lateness_ms: int
    """99th percentile over all messages; a message that is not late counts as 0."""


def stats(
    topics: str | Sequence[str],
    *,
    window_ms: int | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
    exact: bool = False,
    to_topic: str | None = None,
    to_parquet: str | None = None,
    connection: Mapping[str, str] | None = None,
    spark: Any = None,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, object] | None = None,
    progress: Progress = quiet,
) -> list[TopicStats]:
    """Measure topics as they are now.

    Args:
        topics: names; `*` and `?` are wildcards.
        window_ms: length of a window of the records' timestamps; None: each topic as a whole.
        since_ms, until_ms: only records from the first one of that time on; before the first one of
            that time.
        exact: count distinct keys exactly.
        to_topic: also write the statistics to this topic, one JSON object each, keyed by topic.
        to_parquet: also add them to the Parquet table in this directory.
        connection: options of `format("sparrow")` for the connection to the broker.
        spark, master, remote, conf: the session, as for `sparrow.spark.session`.
        progress: called with a sentence at each step.

    Raises:
        UnknownTopic: there is no such topic.
        InvalidArgument: the window is shorter than a second.
    """
    if window_ms is not None and window_ms < _MIN_WINDOW_MS:
        raise InvalidArgument(f"the window is {window_ms} ms; it is at least {_MIN_WINDOW_MS}")
    names = [topics] if isinstance(topics, str) else list(topics)
    with connected(connection or {}) as session:
        ranges = ranges_between(session, topics_named(session, names), since_ms, until_ms)
    if not count_of(ranges):
        return []
    progress(f"measuring {counted(count_of(ranges), 'offset')} of {counted(len(ranges), 'topic')}")
    with Cluster(spark, master, remote, conf or {}).session("sparrow-stats") as session:
        records = read(
            session, connection or {}, ranges, "key", "value", "topic", "partition", "offset", "timestamp"
        )
        found = measured(records, window_ms, exact=exact).collect()
        rows = [_stats(row) for row in found]
        if to_topic or to_parquet:
            _store(session, rows, to_topic, to_parquet, connection or {})
    return rows


def measured(records: DataFrame, window_ms: int | None, *, exact: bool) -> DataFrame:
    """Return the statistics of records with the source's columns."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    before = (
        Window.partitionBy("topic", "partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    )
    time_ms = f.unix_millis("timestamp")
    size = f.coalesce(f.octet_length("key"), f.lit(0)) + f.coalesce(f.octet_length("value"), f.lit(0))
    # Drop the value, so that it is not sorted with the rest.
    small = records.select(
        "topic",
        "partition",
        "offset",
        time_ms.alias("time_ms"),
        size.cast("bigint").alias("size"),
        f.col("key").isNull().cast("int").alias("no_key"),
        f.col("value").isNull().cast("int").alias("no_value"),
        "key",
    )
    rows = small.withColumn("lateness", f.max("time_ms").over(before) - f.col("time_ms"))
    by: list[Any] = ["topic"]
    if window_ms is not None:
        by.append((f.floor(f.col("time_ms") / window_ms) * window_ms).alias("window"))
    keys = f.count_distinct("key") if exact else f.approx_count_distinct("key")
    return (
        rows.groupBy(*by)
        .agg(
            f.count(f.lit(1)).alias("messages"),
            f.sum("size").alias("bytes"),
            keys.alias("distinct_keys"),
            f.sum("no_key").alias("null_keys"),
            f.sum("no_value").alias("null_values"),
            f.min("size").alias("min_bytes"),
            f.max("size").alias("max_bytes"),
            f.min("time_ms").alias("first_ms"),
            f.max("time_ms").alias("last_ms"),
            f.sum((f.col("lateness") > 0).cast("int")).alias("late"),
            f.max("lateness").alias("max_lateness"),
            f.percentile_approx("lateness", list(_PERCENTILES), _ACCURACY).alias("lateness"),
            *([] if window_ms is None else [f.lit(window_ms).alias("window_ms")]),
        )
        .orderBy(*(["topic"] if window_ms is None else ["topic", "window"]))
    )


def _stats(row: Any) -> TopicStats:
    found = row.asDict()
    window = found.get("window")
    return TopicStats(
        found["topic"],
        None if window is None else _iso(window),
        None if window is None else _iso(window + found["window_ms"]),
        found["messages"],
        found["bytes"],
        found["distinct_keys"],
        found["null_keys"],
        found["null_values"],
        found["min_bytes"],
        found["max_bytes"],
        round(found["bytes"] / found["messages"], 3),
        _iso(found["first_ms"]),
        _iso(found["last_ms"]),
        found["late"],
        found["max_lateness"],
        *found["lateness"],
    )


def _iso(time_ms: int) -> str:
    """Return ISO 8601 if it has a name for the time, otherwise the number."""
    try:
        return (
            datetime.fromtimestamp(time_ms / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
    except (OverflowError, ValueError, OSError):
        return str(time_ms)


def as_json(row: TopicStats) -> str:
    """Return the statistics as one line of JSON."""
    return json.dumps(asdict(row), ensure_ascii=False)


_DDL: Final = {"str": "string", "str | None": "string", "int": "bigint", "float": "double"}


def _store(
    session: Any,
    rows: list[TopicStats],
    to_topic: str | None,
    to_parquet: str | None,
    connection: Mapping[str, str],
) -> None:
    if to_topic is not None:
        records = session.createDataFrame(
            [(row.topic, as_json(row)) for row in rows], "key string, value string"
        )
        records.coalesce(1).write.format("sparrow").mode("append").options(
            **{**connection, "topic": to_topic}
        ).save()
    if to_parquet is not None:
        schema = ", ".join(f"{field.name} {_DDL[str(field.type)]}" for field in fields(TopicStats))
        table = session.createDataFrame([tuple(asdict(row).values()) for row in rows], schema)
        table.coalesce(1).write.mode("append").parquet(to_parquet)
