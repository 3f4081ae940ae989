"""The example of Spark Declarative Pipelines, as its README runs it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparrow.sync
from tests.spark.class_archive import java
from tests.spark.kafka import read_topic
from tests.spark.programs.running import TIMEOUT_S, run_command

if TYPE_CHECKING:
    from sparrow.testing.running_broker import RunningBroker

EXAMPLE = Path(__file__).parents[3] / "examples" / "declarative"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(TIMEOUT_S + 30),
    pytest.mark.skipif(not java(), reason="Spark needs Java, and there is none"),
]


def _run(folder: Path, url: str) -> str:
    # The script that PySpark installs; it runs the interpreter of its environment.
    script = Path(sys.executable).parent / "spark-pipelines"
    return run_command(
        [str(script), "run", "--properties-file", "spark.conf", "--remote", "local[2]"],
        folder,
        SPARROW_URL=url,
        PYSPARK_PYTHON=sys.executable,
        PATH=f"{script.parent}{os.pathsep}{os.environ['PATH']}",
        SPARK_TESTING="1",
    )


def test_topic_becomes_a_table_and_a_topic_again(broker: RunningBroker, tmp_path: Path) -> None:
    folder = tmp_path / "declarative"
    shutil.copytree(EXAMPLE, folder)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/tmp/sparrow-declarative", str(folder)))
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_topic("orders", partitions=2)
        with client.producer() as producer:
            for number in range(300):
                order = {"id": number, "customer": f"c{number % 3}", "amount": number}
                producer.send("orders", json.dumps(order).encode())
        assert "Run is COMPLETED" in _run(folder, broker.url)
        found = read_topic(broker, "large-orders")
        large = [json.loads(value or b"")["id"] for values in found.values() for value in values]
        assert sorted(large) == list(range(101, 300))
        groups = [each.group for each in client.admin.list_groups() if each.group.startswith("spark-")]
        assert [sum(each.lag for each in client.admin.describe_group(group).offsets) for group in groups] == [
            0
        ]
