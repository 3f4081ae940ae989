"""Spark writes to topics: `df.write`, `df.writeStream` and `foreachBatch`, on a real broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PySparkException, PythonException, StreamingQueryException
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from sparrow.spark.sink import context
from tests.spark.kafka import read_messages
from tests.spark.sink.tasks import describe, make_topic, read_rows, read_values

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from sparrow.testing.running_broker import RunningBroker

HEADERS = "array(struct('name' AS key, CAST('content' AS BINARY) AS value))"


def write(rows: DataFrame, broker: RunningBroker, **options: object) -> None:
    rows.write.format("sparrow").mode("append").option("url", broker.url).options(**options).save()


def read_stream(spark: SparkSession, broker: RunningBroker, topic: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("sparrow").option("url", broker.url).option("subscribe", topic)
    return reader.option("startingOffsets", "earliest").options(**options).load()


def copy_all(rows: DataFrame, broker: RunningBroker, checkpoint: Path, **options: object) -> str:
    """Write everything that a stream has now; return its query's id."""
    writer = rows.writeStream.format("sparrow").option("url", broker.url).options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return str(query.id)


def told(error: pytest.ExceptionInfo[PySparkException]) -> str:
    return str(error.value)


# ── batches ───────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_written_with_keys_headers_nulls_partitions_and_times(spark, broker, sparrow_topic):
    topic = make_topic(broker, sparrow_topic, partitions=3)
    rows = spark.range(30, numPartitions=2).selectExpr(
        "IF(id % 5 = 0, NULL, CAST(id AS STRING)) AS key",
        "IF(id % 7 = 0, NULL, CAST(hex(id) AS BINARY)) AS value",
        "CAST(id % 3 AS INT) AS partition",
        "timestamp_millis(id + 1000) AS timestamp",
        f"IF(id % 2 = 0, {HEADERS}, NULL) AS headers",
        "'not written' AS other",
    )

    write(rows, broker, topic=topic)

    found = [each for messages in read_messages(broker, topic).values() for each in messages]
    by_number = {message.timestamp()[1] - 1000: message for message in found}
    assert len(found) == 30
    for number, message in by_number.items():
        assert message.key() == (None if number % 5 == 0 else b"%d" % number)
        assert message.value() == (None if number % 7 == 0 else b"%X" % number)
        assert message.partition() == number % 3
        assert (message.headers() or []) == ([] if number % 2 else [("name", b"content")])


def test_rows_with_keys_go_where_kafkas_clients_put_them(spark, broker, sparrow_topic):
    topic = make_topic(broker, sparrow_topic, partitions=5)
    keys = ["a", "order-17", "", "ключ", "x" * 300]

    write(
        spark.createDataFrame([(key, key) for key in keys], "key string, value string"), broker, topic=topic
    )

    found = read_rows(broker, topic, "key")
    for number, rows in enumerate(found):
        assert all(murmur2_partition(row["key"], 5) == number for row in rows)


def murmur2_partition(key: bytes, count: int) -> int:
    from sparrow.records.partitioner import partition_for_key

    return partition_for_key(key, count)


def test_a_batch_to_several_topics_by_column_is_one_commit(spark, broker, topic):
    other = make_topic(broker, f"{topic}-other")
    rows = spark.range(100).selectExpr(
        f"IF(id % 4 = 0, '{other}', '{topic}') AS topic", "CAST(id AS STRING) AS value"
    )

    write(rows, broker)

    assert len(read_values(broker, topic)) == 75
    assert len(read_values(broker, other)) == 25


def test_a_batch_that_fails_leaves_nothing_to_see_and_no_stage_open(spark, broker, topic):
    rows = spark.range(4, numPartitions=2).selectExpr(
        "CAST(id AS STRING) AS value", "CAST(id AS INT) AS partition"
    )

    with pytest.raises(PythonException) as raised:
        write(rows, broker, topic=topic)

    assert "InvalidRecord: a record is for partition" in told(raised)
    assert "Traceback" not in told(raised)
    assert read_values(broker, topic) == []
    assert open_stages(broker) == 0


def open_stages(broker: RunningBroker) -> int:
    from sparrow.spark.wire import Target, connect

    with connect(Target(broker.url)) as session:
        return sum(each["open_stages"] for each in session.call("sink.list", {})["sinks"])


def test_a_topic_is_not_overwritten(spark, broker, topic):
    rows = spark.range(1).selectExpr("'a' AS value")

    with pytest.raises(AnalysisException, match="a topic cannot be overwritten"):
        rows.write.format("sparrow").mode("overwrite").option("url", broker.url).option("topic", topic).save()


def test_columns_that_do_not_fit_are_told_before_the_first_task(spark, broker, topic):
    rows = spark.range(1).selectExpr("id AS value", "map('a', 'b') AS headers")

    with pytest.raises(AnalysisException) as raised:
        write(rows, broker, topic=topic)

    assert "column value is bigint, and must be string or binary; select CAST(`value` AS STRING)" in told(
        raised
    )
    assert "column headers is map<string,string>" in told(raised)
    assert "Traceback" not in told(raised)


def test_options_that_are_wrong_are_told_all_at_once(spark, broker):
    with pytest.raises(AnalysisException) as raised:
        write(
            spark.range(1).selectExpr("'a' AS value"), broker, topik="t", compression="rar", stageTimeout="1y"
        )

    for text in (
        "'topik'; did you mean 'topic'?",
        "compression cannot be 'rar'",
        "stageTimeout cannot be '1y'",
    ):
        assert text in told(raised)


def test_a_broker_that_is_not_there_is_told_in_one_line(spark):
    rows = spark.range(1).selectExpr("'a' AS value")
    writer = rows.write.format("sparrow").mode("append").option("url", "sparrow://127.0.0.1:1")

    with pytest.raises(PythonException) as raised:
        writer.option("topic", "t").option("retries", "0").save()

    assert "ConnectionLost: no broker can be reached at 127.0.0.1:1" in told(raised)
    assert "Traceback" not in told(raised)


def test_a_sink_id_without_a_batch_id_is_refused_in_a_batch_write(spark, broker, topic):
    with pytest.raises(AnalysisException, match="sinkId is given without batchId"):
        write(spark.range(1).selectExpr("'a' AS value"), broker, topic=topic, sinkId="orders")


def test_numbered_writes_are_written_once_each(spark, broker, topic):
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")

    for number in (0, 1, 1, 0, 2):
        write(rows, broker, topic=topic, sinkId=topic, batchId=number)

    assert len(read_values(broker, topic)) == 9
    assert describe(broker, topic)["last_batch"] == 2


# ── streams ───────────────────────────────────────────────────────────────────────────────────────


def test_a_stream_is_copied_in_order_and_goes_on_from_its_checkpoint_wherever_it_is_moved(
    spark, broker, sparrow_topic, tmp_path
):
    source = make_topic(broker, f"{sparrow_topic}-source", partitions=2)
    copy = make_topic(broker, f"{sparrow_topic}-copy", partitions=2)
    rows = spark.range(200, numPartitions=1).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value"
    )
    write(rows, broker, topic=source)
    stream = read_stream(spark, broker, source, maxOffsetsPerTrigger=60)

    query = copy_all(stream, broker, tmp_path / "checkpoint", topic=copy)
    first = read_rows(broker, copy, "key", "value")
    write(rows.limit(50), broker, topic=source)
    (tmp_path / "checkpoint").rename(tmp_path / "moved")
    copy_all(stream, broker, tmp_path / "moved", topic=copy)

    assert first == [
        each[: len(found)]
        for each, found in zip(read_rows(broker, source, "key", "value"), first, strict=True)
    ]
    assert read_rows(broker, copy, "key", "value") == read_rows(broker, source, "key", "value")
    sink = describe(broker, query)
    assert sink["query"] == query
    assert sink["epoch"] == 1
    assert sink["open_stages"] == 0


def counts(spark: SparkSession, broker: RunningBroker, source: str) -> DataFrame:
    """Return a stream that counts the rows of each key, and two rows for each of two keys."""
    write(spark.range(4).selectExpr("CAST(id % 2 AS STRING) AS key", "'x' AS value"), broker, topic=source)
    counted = read_stream(spark, broker, source).groupBy("key").count()
    return counted.selectExpr("key", "CAST(count AS STRING) AS value")


def test_complete_mode_writes_all_rows_of_each_batch(spark, broker, sparrow_topic, tmp_path):
    writer = counts(spark, broker, f"{sparrow_topic}-source").writeStream.format("sparrow")
    writer = writer.option("url", broker.url).option("topic", sparrow_topic).outputMode("complete")

    writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()

    assert read_values(broker, sparrow_topic) == [b"2", b"2"]


def test_update_mode_is_refused_by_spark(spark, broker, topic, tmp_path):
    """Only `foreachBatch` accepts it."""
    writer = read_stream(spark, broker, topic).writeStream.outputMode("update").format("sparrow")
    writer = writer.option("url", broker.url).option("topic", topic).trigger(availableNow=True)

    with pytest.raises(StreamingQueryException, match="does not support Update mode"):
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()


def test_a_batch_id_is_refused_in_a_stream(spark, broker, topic, tmp_path):
    stream = read_stream(spark, broker, topic)
    write(spark.range(1).selectExpr("'a' AS value"), broker, topic=topic)

    with pytest.raises(StreamingQueryException, match="batchId is for batch writes"):
        copy_all(stream, broker, tmp_path, topic=topic, sinkId="s", batchId=1)


def test_batches_of_foreach_batch_are_written_once_by_sink_and_batch_id(
    spark, broker, sparrow_topic, tmp_path
):
    source = make_topic(broker, f"{sparrow_topic}-source")
    copy = make_topic(broker, f"{sparrow_topic}-copy")
    write(spark.range(90).selectExpr("CAST(id AS STRING) AS value"), broker, topic=source)

    def twice(rows: DataFrame, number: int) -> None:
        for _ in range(2):
            write(rows.select("value"), broker, topic=copy, sinkId=copy, batchId=number)

    stream = read_stream(spark, broker, source, maxOffsetsPerTrigger=40)
    writer = stream.writeStream.foreachBatch(twice).option("checkpointLocation", str(tmp_path))
    query = writer.outputMode("update").trigger(availableNow=True).start()
    query.awaitTermination()

    assert sorted(read_values(broker, copy)) == sorted(b"%d" % n for n in range(90))
    assert describe(broker, copy)["query"] == str(query.id)
    assert describe(broker, copy)["run"] == str(query.runId)


def test_a_fresh_checkpoint_takes_the_sink_over_and_the_stream_that_had_it_stops_and_says_so(
    spark, broker, sparrow_topic, tmp_path
):
    source = make_topic(broker, f"{sparrow_topic}-source")
    copy = make_topic(broker, f"{sparrow_topic}-copy")
    write(spark.range(1).selectExpr("'a' AS value"), broker, topic=source)
    writer = read_stream(spark, broker, source).writeStream.format("sparrow").option("url", broker.url)
    writer = writer.option("topic", copy).option("sinkId", copy).trigger(processingTime="0 seconds")
    zombie = writer.option("checkpointLocation", str(tmp_path / "zombie")).start()
    try:
        wait_for(lambda: len(read_values(broker, copy)) == 1)
        # The query looks as if somebody had started it from a copy of its checkpoint.
        copy_all(read_stream(spark, broker, source), broker, tmp_path / "other", topic=copy, sinkId=copy)
        write(spark.range(1).selectExpr("'b' AS value"), broker, topic=source)

        with pytest.raises(StreamingQueryException, match="has taken over"):
            zombie.awaitTermination(60)
    finally:
        zombie.stop()
    assert read_values(broker, copy) == [b"a", b"a"]


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# ── what the sink relies on ───────────────────────────────────────────────────────────────────────


class Properties(WriterCommitMessage):
    def __init__(self, found: dict[str, str | None]) -> None:
        self.found = found


class LookingSink(DataSource):
    """A sink that writes what its tasks receive to a file."""

    @classmethod
    def name(cls) -> str:
        return "looking"

    def streamWriter(self, schema, overwrite):
        return LookingWriter(self.options["file"])


class LookingWriter(DataSourceStreamArrowWriter):
    def __init__(self, file: str) -> None:
        self.file = file

    def write(self, iterator):
        list(iterator)
        read = context.current_task().getLocalProperty
        names = (context.QUERY_PROPERTY, context.RUN_PROPERTY, context.BATCH_PROPERTY)
        return Properties({name: read(name) for name in names})

    def commit(self, messages, batchId):  # noqa: N803 - Spark's name
        with open(self.file, "a", encoding="utf-8") as file:
            file.writelines(f"{' '.join(map(str, each.found.values()))} {batchId}\n" for each in messages)


def test_spark_tells_tasks_the_query_the_run_and_the_batch(spark, broker, topic, tmp_path):
    spark.dataSource.register(LookingSink)
    write(spark.range(2).selectExpr("CAST(id AS STRING) AS value"), broker, topic=topic)
    writer = read_stream(spark, broker, topic, maxOffsetsPerTrigger=1).writeStream.format("looking")
    writer = writer.option("file", str(tmp_path / "found")).option("checkpointLocation", str(tmp_path / "c"))

    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()

    lines = (tmp_path / "found").read_text(encoding="utf-8").splitlines()
    assert len(lines) >= 2
    for line in lines:
        query_id, run, batch, committed = line.split()
        assert (query_id, run) == (str(query.id), str(query.runId))
        assert batch == committed
