"""Spark Connect, in one process with one server for all tests, because each costs a JVM: batches
and streams, and a pipeline with decoding in Python, SQL with a table, a function, state,
expectations, dead letters, a table by `foreachBatch`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import sparrow.sync
from tests.spark.class_archive import java
from tests.spark.kafka import read_topic
from tests.spark.programs.running import TIMEOUT_S, lag_of, run_program

if TYPE_CHECKING:
    from pathlib import Path

    from sparrow.testing.running_broker import RunningBroker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(TIMEOUT_S + 30),
    pytest.mark.skipif(not java(), reason="Spark needs Java, and there is none"),
]

PROGRAM = """
import os
import sparrow.spark
from sparrow.pipelines.engine import run
from sparrow.pipelines import *


def copied(spark):
    rows = spark.range(50).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("sparrow").mode("append").option("topic", "numbers").save()
    read = sparrow.spark.read("numbers")
    stream = sparrow.spark.read("numbers", stream=True, startingOffsets="earliest")
    writer = stream.selectExpr("value", "'copies' AS topic").writeStream.format("sparrow").queryName("copy")
    writer = writer.option("checkpointLocation", os.path.abspath("checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [read.count(), sparrow.spark.read("copies").count()]


pipeline = Pipeline(
    name="p",
    checkpoints="checkpoints",
    tables=[
        FileTable(name="t", format="csv", path=os.path.abspath("t.csv"), schema="id string, word string")
    ],
    flows=[
        Flow(
            name="clean",
            source=Source(topics=["orders"]),
            decode=RegexDecoder(pattern=r"(?P<id>\\d+) (?P<amount>.*)", types={"amount": "double"}),
            steps=[
                SqlStep(query="SELECT i.*, word FROM input i LEFT JOIN t ON i.id = t.id"),
                PythonStep(function=lambda df: df.withColumn("twice", df["amount"] * 2)),
                DeduplicateStep(by=["id"], within_ms=3_600_000),
            ],
            expect=[Expectation(name="positive", check="amount > 0")],
            dead_letters="dead",
            sink=TopicSink(topic="clean", key="id"),
        ),
        Flow(
            name="table",
            source=Source(flow="clean"),
            decode=JsonDecoder(schema="id string, twice double"),
            sink=DeltaSink(path=os.path.abspath("table")),
        ),
    ],
)


def piped(spark):
    clean, table = run(pipeline, spark=spark)
    failures = [each.failure.detail for each in (clean, table) if each.failure]
    return [clean.progress.rows, dict(clean.progress.refused), table.progress.rows, failures]


if __name__ == "__main__":
    conf = {"spark.ui.enabled": False, "spark.sql.shuffle.partitions": 2}
    spark = sparrow.spark.session("connect", remote="local[2]", conf=conf)
    assert "connect" in type(spark).__module__
    answer([copied(spark), piped(spark)])
"""


def test_spark_connect_reads_and_writes_and_runs_pipelines(broker: RunningBroker, tmp_path: Path) -> None:
    import deltalake

    (tmp_path / "t.csv").write_text("1,one\n")
    with sparrow.sync.connect(broker.url) as client:
        for value in (b"1 2.5", b"1 2.5", b"2 -1", b"nothing"):
            client.publish("orders", value)
    environment = {"SPARROW_URL": broker.url, "SPARK_TESTING": "1"}
    copied, (rows, refused, tabled, failures) = run_program(PROGRAM, tmp_path, **environment)
    assert copied == [50, 50]
    assert lag_of(broker, "spark-copy") == 0
    assert failures == []
    assert (rows, refused, tabled) == (4, {"positive": 1, "undecodable": 1}, 1)
    found = [json.loads(value or b"") for values in read_topic(broker, "clean").values() for value in values]
    assert found == [{"id": "1", "amount": 2.5, "word": "one", "twice": 5.0}]
    assert sum(len(values) for values in read_topic(broker, "dead").values()) == 2
    assert deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist() == [
        {"id": "1", "twice": 5.0}
    ]
