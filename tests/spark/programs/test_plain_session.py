"""Sessions that use Sparrow by its name alone. Streams without an import, and their lag, are in
`test_declarative`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparrow.sync
from tests.spark.class_archive import java
from tests.spark.programs.running import TIMEOUT_S, run_program

if TYPE_CHECKING:
    from sparrow.testing.running_broker import RunningBroker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(TIMEOUT_S + 30),
    pytest.mark.skipif(not java(), reason="Spark needs Java, and there is none"),
]

PLAIN = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
options = "subscribe 'orders', startingOffsets 'earliest'"
spark.sql(f"CREATE TEMPORARY VIEW orders USING sparrow OPTIONS ({options})")
text = "SELECT CAST(value AS STRING) AS text FROM orders WHERE partition = 0 ORDER BY offset"
found = spark.sql(text).collect()
spark.table("orders").select("value").write.format("sparrow").mode("append").option("topic", "copies").save()
answer([row.text for row in found])
"""


def test_session_that_imports_nothing_of_sparrow_reads_and_writes(
    broker: RunningBroker, tmp_path: Path
) -> None:
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_topic("orders", partitions=1)
        for text in (b"a", b"b", b"c"):
            client.publish("orders", text)
        environment = {"SPARROW_URL": broker.url, "PYSPARK_PYTHON": sys.executable}
        assert run_program(PLAIN, tmp_path, **environment) == ["a", "b", "c"]
        with client.subscribe("copies", start="beginning") as copies:
            assert sorted(m.value for _, m in zip(range(3), copies, strict=False)) == [b"a", b"b", b"c"]
