"""Programs written for Spark's Kafka connector, with another format and no other change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import sparrow.sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrow.testing.running_broker import RunningBroker


def _stream(spark: SparkSession, servers: str) -> DataFrame:
    return (
        spark.readStream.format("sparrow")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "false")
        .option("maxOffsetsPerTrigger", 30)
        .option("minPartitions", 2)
        .option("includeHeaders", "true")
        .option("kafkaConsumer.pollTimeoutMs", "1000")
        .option("fetchOffset.numRetries", "3")
        .option("fetchOffset.retryIntervalMs", "10")
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.security.protocol", "PLAINTEXT")
        .option("kafka.max.poll.records", "500")
        .option("kafka.session.timeout.ms", "30000")
        .load()
        .selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value", "topic", "headers")
    )


def _copy(spark: SparkSession, servers: str, checkpoint: Path) -> None:
    rows = _stream(spark, servers).selectExpr("key", "value", "headers", "'copies' AS topic")
    writer = rows.writeStream.format("sparrow").option("kafka.bootstrap.servers", servers)
    writer = (
        writer.option("kafka.acks", "all")
        .option("kafka.linger.ms", "5")
        .option("checkpointLocation", str(checkpoint))
    )
    writer.outputMode("append").trigger(availableNow=True).start().awaitTermination()


def test_program_of_the_kafka_connector_and_its_checkpoint_go_on(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    servers = broker.url.rpartition("/")[2]
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_topic("orders", partitions=2)

        def publish(first: int, end: int) -> None:
            for number in range(first, end):
                client.publish(
                    "orders", b"%d" % number, key=b"k%d" % number, headers={"h": b"x"}, partition=number % 2
                )

        publish(0, 80)
        _copy(spark, servers, tmp_path)
        # Checkpoints of the Kafka connector have offsets alone.
        written = sorted((tmp_path / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        assert len(written) == 3
        lines = written[-1].read_text().splitlines()
        offsets = {"orders": json.loads(lines[-1])["orders"]}
        assert offsets == {"orders": {"0": 40, "1": 40}}
        written[-1].write_text("\n".join([*lines[:-1], json.dumps(offsets)]))
        publish(80, 90)
        _copy(spark, servers, tmp_path)
    rows = (
        spark.read.format("sparrow").option("kafka.bootstrap.servers", servers).option("subscribe", "copies")
    )
    found = rows.option("includeHeaders", "true").load().collect()
    assert sorted(int(row.value) for row in found) == list(range(90))
    assert {row.key for row in found} == {b"k%d" % number for number in range(90)}
    assert {(header.key, bytes(header.value)) for row in found for header in row.headers} == {("h", b"x")}
