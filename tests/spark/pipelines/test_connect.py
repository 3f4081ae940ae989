"""A flow over Spark Connect, in a process of its own: decoding in Python, SQL with a table, a function, state, expectations, dead letters, a table by `foreachBatch`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import sparrow.sync
from tests.spark.conftest import java
from tests.spark.kafka import read_topic
from tests.spark.session.programs import run_program

if TYPE_CHECKING:
    from pathlib import Path

    from sparrow.testing.running import RunningBroker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(not java(), reason="Spark needs Java, and there is none"),
]

PROGRAM = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from sparrow.spark.pipelines.engine import run
from sparrow.spark.pipelines.model import *

pipeline = Pipeline(
    name="p",
    broker=Broker(url=os.environ["BROKER"]),
    checkpoints="checkpoints",
    tables=[FileTable(name="t", format="csv", path=os.path.abspath("t.csv"), schema="id string, word string")],
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
if __name__ == "__main__":
    clean, table = run(pipeline, remote="local[2]")
    failures = [each.failure.detail for each in (clean, table) if each.failure]
    answer([clean.progress.rows, dict(clean.progress.refused), table.progress.rows, failures])
"""


def test_flows_run_over_spark_connect(broker: RunningBroker, tmp_path: Path) -> None:
    import deltalake

    (tmp_path / "t.csv").write_text("1,one\n")
    with sparrow.sync.connect(broker.url) as client:
        for value in (b"1 2.5", b"1 2.5", b"2 -1", b"nothing"):
            client.publish("orders", value)
    rows, refused, tabled, failures = run_program(PROGRAM, tmp_path, BROKER=broker.url)
    assert failures == []
    assert (rows, refused, tabled) == (4, {"positive": 1, "undecodable": 1}, 1)
    found = [json.loads(value or b"") for values in read_topic(broker, "clean").values() for value in values]
    assert found == [{"id": "1", "amount": 2.5, "word": "one", "twice": 5.0}]
    assert sum(len(values) for values in read_topic(broker, "dead").values()) == 2
    assert deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist() == [
        {"id": "1", "twice": 5.0}
    ]
