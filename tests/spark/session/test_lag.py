"""Lag of streaming queries in the broker: groups whose offsets the queries commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sparrow.sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from sparrow.testing.running_broker import RunningBroker


def _publish(broker: RunningBroker, count: int) -> None:
    with sparrow.sync.connect(broker.url) as client, client.producer() as producer:
        for number in range(count):
            producer.send("orders", b"%d" % number, partition=number % 2)


def _lag(broker: RunningBroker, group: str) -> int | None:
    """Return the lag of a group; None if there is no such group."""
    with sparrow.sync.connect(broker.url) as client:
        if group not in [each.group for each in client.admin.list_groups()]:
            return None
        return sum(each.lag for each in client.admin.describe_group(group).offsets)


def _until(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _stream(spark: SparkSession, broker: RunningBroker, **options: object) -> Any:
    reader = spark.readStream.format("sparrow").option("url", broker.url).option("subscribe", "orders")
    return reader.option("startingOffsets", "earliest").options(**options).load().writeStream.format("noop")


def _make_topic(broker: RunningBroker) -> None:
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_topic("orders", partitions=2)


def test_query_that_ended_by_available_now_has_no_lag_and_later_messages_are_its_lag(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    _make_topic(broker)
    _publish(broker, 100)

    def run() -> None:
        writer = _stream(spark, broker).queryName("billing").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    run()
    assert _lag(broker, "spark-billing") == 0
    _publish(broker, 10)
    assert _lag(broker, "spark-billing") == 10
    run()
    assert _lag(broker, "spark-billing") == 0


def test_query_that_waits_for_data_has_no_lag_and_one_that_has_no_name_is_known_by_its_id(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    _make_topic(broker)
    _publish(broker, 20)
    query: StreamingQuery = (
        _stream(spark, broker, groupIdPrefix="etl").option("checkpointLocation", str(tmp_path)).start()
    )
    try:
        _until(lambda: _lag(broker, f"etl-{query.id}") == 0)
    finally:
        query.stop()


def test_lag_goes_to_the_group_that_an_option_names_or_nowhere(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    _make_topic(broker)
    _publish(broker, 4)
    for folder, options in {"a": {"kafka.group.id": "chosen"}, "b": {"lag": "false"}}.items():
        writer = _stream(spark, broker, **options).queryName("quiet").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / folder)).start().awaitTermination()
    assert _lag(broker, "chosen") == 0
    assert _lag(broker, "spark-quiet") is None
