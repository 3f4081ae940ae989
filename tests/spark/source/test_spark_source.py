"""Reading by Spark itself: a session, its workers, real queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql.functions import col, length, unix_millis

import sparrow.testing
from tests.spark.source.random_topics import Writers, contents, place, read_by_kafka
from tests.spark.source.without_spark import NAMES, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.spark.source.random_topics import Row

SECONDS = 90


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    with sparrow.testing.broker() as broker:
        found = Writers(broker)
        yield found
        found.close()


@pytest.fixture
def lines(writers: Writers) -> str:
    """Create a topic of two partitions with fifty records each, with timestamps from 1000 ms on."""
    topic = writers.new_topic()
    with writers.client.producer() as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, partition=number % 2, timestamp_ms=1000 + number)
    return topic


def test_batch_and_stream_in_spark_read_the_same_records_as_a_kafka_client(
    spark: SparkSession, writers: Writers, tmp_path: Path
) -> None:
    topics: list[str] = []
    many = settings(
        max_examples=6,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )

    @many
    @given(contents)
    def write(written: list[Any]) -> None:
        topics.append(
            writers.new_topic(message_timestamp_type=("CreateTime", "LogAppendTime")[len(topics) % 2])
        )
        writers.write(topics[-1], written)

    write()
    expected = sorted((row for topic in topics for row in read_by_kafka(writers.broker, topic)), key=place)
    options = {"subscribe": ",".join(topics), "includeHeaders": "true"}
    assert collected(batch(spark, writers, **options)) == expected
    stream = streaming(spark, writers, **options, startingOffsets="earliest", maxOffsetsPerTrigger="80")
    run(stream, tmp_path / "checkpoint", tmp_path / "table")
    assert collected(spark.read.parquet(str(tmp_path / "table"))) == expected


def test_a_stream_goes_on_from_its_checkpoint_with_new_partitions(
    spark: SparkSession, writers: Writers, lines: str, tmp_path: Path
) -> None:
    def read() -> list[Row]:
        options = {
            "subscribe": lines,
            "startingOffsets": "earliest",
            "columns": "value,topic,partition,offset",
        }
        run(streaming(spark, writers, **options), tmp_path / "checkpoint", tmp_path / "table")
        found = spark.read.parquet(str(tmp_path / "table")).collect()
        return sorted((row["partition"], row["offset"]) for row in found)

    before = [(partition, offset) for partition in range(2) for offset in range(50)]
    assert read() == before
    writers.client.admin.add_partitions(lines, 3)
    for partition in range(3):
        writers.client.publish(lines, b"later", partition=partition)
    assert read() == sorted([*before, (0, 50), (1, 50), (2, 0)])
    writers.client.admin.delete_records(lines, {0: 51})
    assert read() == sorted([*before, (0, 50), (1, 50), (2, 0)])


def test_filters_give_the_same_rows_whether_they_are_pushed_or_not(
    spark: SparkSession, writers: Writers, lines: str
) -> None:
    conditions = [
        (col("partition") == 1) & (col("offset") >= 7) & (col("offset") < 30),
        (col("timestamp") > "1970-01-01 00:00:01.050") & col("offset").isin(30, 31, 45),
        (length(col("value")) == 1) & (col("topic") == lines),
        col("partition").isNull() | (col("offset") == 3),
    ]

    def read(condition: Any) -> list[Row]:
        return collected(batch(spark, writers, subscribe=lines).where(condition))

    plainly = [read(each) for each in conditions]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert [read(each) for each in conditions] == plainly
        # One of two tasks, one for each partition, is left.
        apart = batch(spark, writers, subscribe=lines, packBytes="0")
        assert apart.rdd.getNumPartitions() == 2
        assert apart.where(conditions[0]).rdd.getNumPartitions() == 1
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert [len(rows) for rows in plainly] == [23, 6, 10, 2]
    with pytest.raises(PySparkException, match="filterPushdown"):
        batch(spark, writers, subscribe=lines, pushdown="true").count()


def test_a_schema_chooses_columns_and_large_topics_are_split(
    spark: SparkSession, writers: Writers, lines: str
) -> None:
    reader = spark.read.format("sparrow").options(url=writers.broker.url, subscribe=lines, minPartitions="5")
    found = reader.schema("offset bigint, partition int").load()
    assert found.columns == ["offset", "partition"]
    assert found.count() == 100
    assert found.rdd.getNumPartitions() == 5
    with pytest.raises(AnalysisException, match="value is binary, not string"):
        reader.schema("value string").load().count()


def test_a_view_of_sql_reads_a_topic(spark: SparkSession, writers: Writers, lines: str) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW lines USING sparrow OPTIONS (url "
        f"'{writers.broker.url}', subscribe '{lines}')"
    )
    assert spark.sql("SELECT max(CAST(CAST(value AS STRING) AS INT)) FROM lines").first()[0] == 99
    spark.catalog.dropTempView("lines")


def test_wrong_options_are_told_at_load_in_one_sentence_without_a_stack(spark: SparkSession) -> None:
    options = {"subscribe": "t", "startingOfsets": "x", "lag": "y"}

    def with_schema() -> None:
        # Given a schema, Spark creates the source only when it needs it.
        spark.read.format("sparrow").options(**options).schema("value binary").load().count()

    for load in (spark.read.format("sparrow").options(**options).load, with_schema):
        with pytest.raises(AnalysisException) as raised:
            load()
        text = str(raised.value)
        assert "did you mean 'startingOffsets'" in text
        assert "it takes true or false" in text
        assert "Traceback" not in text


def test_failures_in_a_query_are_one_sentence_without_a_python_stack(
    spark: SparkSession, writers: Writers, lines: str
) -> None:
    nowhere = {"url": "sparrow://127.0.0.1:1", "subscribe": lines, "retries": "0"}
    with pytest.raises(AnalysisException) as batch_error:
        spark.read.format("sparrow").options(**nowhere).load().count()
    query = spark.readStream.format("sparrow").options(**nowhere).load().writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException) as stream_error:
        query.awaitTermination(SECONDS)
    for raised in (batch_error, stream_error):
        assert "no broker can be reached at 127.0.0.1:1" in str(raised.value)
        assert "Traceback" not in str(raised.value)
    writers.client.admin.delete_records(lines, {0: 20})
    with pytest.raises(PySparkException) as task_error:
        batch(spark, writers, subscribe=lines, startingOffsets=f'{{"{lines}": {{"0": 5, "1": 0}}}}').count()
    assert "(15 offsets lost)" in str(task_error.value)
    assert "Traceback" not in str(task_error.value)


def batch(spark: SparkSession, writers: Writers, **options: str) -> DataFrame:
    return spark.read.format("sparrow").options(url=writers.broker.url, **options).load()


def streaming(spark: SparkSession, writers: Writers, **options: str) -> DataFrame:
    return spark.readStream.format("sparrow").options(url=writers.broker.url, **options).load()


def run(frame: DataFrame, checkpoint: Path, table: Path) -> StreamingQuery:
    """Write everything that exists now to files."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .option("path", str(table))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(SECONDS)
    return query


def collected(frame: DataFrame) -> list[Row]:
    """Return rows in the form of `read_by_kafka`."""
    names = [name for name in NAMES if name in frame.columns]
    found = [
        tuple(_plain(name, row[name]) for name in names)
        for row in frame.withColumn("timestamp", unix_millis("timestamp")).collect()
    ]
    return sorted(found, key=place)


def _plain(name: str, value: Any) -> Any:
    if name == "timestamp":
        return value
    return bytes(value) if isinstance(value, bytearray) else plain(name, value)
