"""Spark refuses to start the streams that the checks refuse, and starts those that they accept."""

from __future__ import annotations

import pytest

from sparrow.pipelines import (
    ConsoleSink,
    Flow,
    JsonDecoder,
    Pipeline,
    Source,
    SqlStep,
    WatermarkStep,
    WindowStep,
)
from sparrow.pipelines.checks import faults
from sparrow.pipelines.engine.steps import apply_steps

LATE = WatermarkStep(column="timestamp", delay_ms=1000)
COUNTED = WindowStep(column="timestamp", length_ms=1000, select={"n": "count(*)"})
AGAIN = WindowStep(column="window_start", length_ms=5000, select={"m": "max(n)"})


def sql(query):
    return SqlStep(query=query)


REFUSED = {
    "numbered rows": (
        [sql("SELECT *, row_number() OVER (PARTITION BY value ORDER BY timestamp) AS n FROM input")],
        "append",
    ),
    "distinct counts": ([sql("SELECT count(DISTINCT value) AS n FROM input")], "update"),
    "an order": ([sql("SELECT * FROM input ORDER BY value")], "append"),
    "an order of an aggregate in mode update": (
        [sql("SELECT value, count(*) AS n FROM input GROUP BY value ORDER BY n")],
        "update",
    ),
    "a limit in mode update": ([sql("SELECT * FROM input LIMIT 3")], "update"),
    "an aggregate without a watermark": (
        [sql("SELECT value, count(*) AS n FROM input GROUP BY value")],
        "append",
    ),
    "a window without a watermark": ([COUNTED], "append"),
    "a window over another column than the watermark": (
        [
            sql("SELECT timestamp, timestamp + INTERVAL 1 DAY AS later FROM input"),
            WatermarkStep(column="later", delay_ms=1000),
            COUNTED,
        ],
        "append",
    ),
    "an aggregate whose groups have no time": (
        [LATE, sql("SELECT value, count(*) AS n FROM input GROUP BY value")],
        "append",
    ),
    "an aggregate of everything": ([LATE, sql("SELECT count(*) AS n FROM input")], "append"),
    "distinct rows without a watermark": ([sql("SELECT DISTINCT value FROM input")], "append"),
    "a value out of the stream": (
        [sql("SELECT value, (SELECT max(value) FROM input) AS m FROM input")],
        "append",
    ),
    "two aggregates in mode update": ([LATE, COUNTED, AGAIN], "update"),
    "a second aggregate behind a window": ([LATE, COUNTED, AGAIN], "append"),
    "all results of no aggregate": ([], "complete"),
}
TAKEN = {
    "nothing": ([], "append"),
    "a window behind its watermark": ([LATE, COUNTED], "append"),
    "an aggregate in mode update": ([sql("SELECT value, count(*) AS n FROM input GROUP BY value")], "update"),
    "an order of all results": (
        [sql("SELECT value, count(*) AS n FROM input GROUP BY value ORDER BY n")],
        "complete",
    ),
    "a window in SQL": (
        [
            LATE,
            sql(
                "SELECT value, window(timestamp, '1 second') AS w, count(*) AS n FROM input GROUP "
                "BY window(timestamp, '1 second'), value"
            ),
        ],
        "append",
    ),
    "a window in SQL by its name": (
        [LATE, sql("SELECT window(timestamp, '1 second') AS w, count(*) AS n FROM input GROUP BY w")],
        "append",
    ),
    "groups by the time itself": (
        [LATE, sql("SELECT timestamp, count(*) AS n FROM input GROUP BY timestamp")],
        "append",
    ),
    "distinct rows in mode update": ([sql("SELECT DISTINCT value FROM input")], "update"),
    "a stream joined with itself": (
        [sql("SELECT a.value FROM input a JOIN input b ON a.value = b.value")],
        "append",
    ),
    "two watermarks": ([LATE, WatermarkStep(column="timestamp", delay_ms=5000), COUNTED], "append"),
    "a limit": ([sql("SELECT * FROM input LIMIT 3")], "append"),
    "approximate counts": ([sql("SELECT approx_count_distinct(value) AS n FROM input")], "update"),
}


def pipeline(steps, mode):
    flow = Flow(
        name="f",
        source=Source(topics=["t"]),
        decode=JsonDecoder(schema="timestamp timestamp, value bigint"),
        steps=steps,
        mode=mode,
        sink=ConsoleSink(),
    )
    return Pipeline(name="p", flows=[flow])


def start(spark, tmp_path, steps, mode):
    """Start the query, which has nothing to do."""
    source = tmp_path / "source"
    source.mkdir(exist_ok=True)
    stream = spark.readStream.schema("timestamp timestamp, value bigint").json(str(source))
    writer = apply_steps(stream, steps, {}, str(tmp_path)).writeStream.format("noop").outputMode(mode)
    return (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )


@pytest.mark.parametrize("name", REFUSED)
def test_spark_refuses_streams_that_the_checks_refuse(name, spark, tmp_path):
    from pyspark.errors import AnalysisException

    steps, mode = REFUSED[name]
    assert len(faults(pipeline(steps, mode))) == 1
    with pytest.raises(AnalysisException):
        start(spark, tmp_path, steps, mode).awaitTermination(30)


@pytest.mark.parametrize("name", TAKEN)
def test_spark_starts_streams_that_the_checks_accept(name, spark, tmp_path):
    steps, mode = TAKEN[name]
    assert faults(pipeline(steps, mode)) == []
    start(spark, tmp_path, steps, mode).stop()
