"""Batches and streams read the same records as a Kafka client: the source itself, without a JVM."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import GreaterThan, GreaterThanOrEqual, In, InputPartition, IsNotNull
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import (
    ConnectionLost,
    InvalidArgument,
    OffsetOutOfRange,
    UnknownPartition,
    UnknownTopic,
)
from sparrow.spark.source.plan import OffsetRange
from sparrow.spark.source.rows import MAX_ROWS, SourceRows
from sparrow.spark.source.schema import TYPES
from sparrow.spark.source.topics import SourceSelection, SourceTopics
from sparrow.spark.wire import Target
from sparrow.testing.running_broker import RunningBroker
from tests.spark.source.random_topics import Record, Writers, Writing, contents, read_by_kafka
from tests.spark.source.without_spark import (
    batch_reader,
    batches,
    kept,
    micro_batch,
    plain,
    read_batch,
    read_stream,
    rows,
    stream_reader,
)

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.slow
ALL = {"includeHeaders": "true"}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(idle_timeout_ms="60s") as broker:
        yield broker


@pytest.fixture(scope="module")
def writers(running: RunningBroker) -> Iterator[Writers]:
    found = Writers(running)
    yield found
    found.close()


splits = st.fixed_dictionaries(
    {},
    optional={
        "minPartitions": st.integers(1, 6),
        "maxRecordsPerPartition": st.integers(2, 9),
        "packBytes": st.just(0),
        "fetchBytes": st.just(65536),
    },
)
limits = st.fixed_dictionaries(
    {},
    optional={"maxOffsetsPerTrigger": st.integers(2, 20), "maxBytesPerTrigger": st.sampled_from([300, 5000])},
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    contents,
    splits,
    limits,
    st.sampled_from(["CreateTime", "LogAppendTime"]),
    st.sampled_from(["read_committed", "read_uncommitted"]),
)
def test_batch_and_stream_read_the_same_records_as_a_kafka_client(
    writers: Writers,
    written: list[Any],
    split: dict[str, int],
    limit: dict[str, int],
    times: str,
    isolation: str,
) -> None:
    topic = writers.new_topic(message_timestamp_type=times)
    writers.write(topic, written)
    expected = read_by_kafka(writers.broker, topic, isolation)
    options = {"url": writers.broker.url, "subscribe": topic, "isolation__level": isolation, **ALL, **split}
    assert read_batch(**options) == expected
    found, _ = read_stream(stream_reader(**options, **limit, startingOffsets="earliest"))
    assert sorted((row for each in found for row in each), key=lambda row: row[2:5]) == expected
    limit_rows = limit.get("maxOffsetsPerTrigger")
    assert limit_rows is None or all(len(each) <= limit_rows + 2 for each in found)


def test_transactions_over_many_fetches_and_tasks_are_read_as_a_kafka_client_reads_them(
    writers: Writers,
) -> None:
    topic = writers.new_topic(partitions=1)
    # Two at a time, each larger than a fetch, whose markers are in another order than their
    # beginnings.
    producers = [writers.transactional(f"wide-{number}") for number in range(2)]
    for turn in range(4):
        for producer in producers:
            producer.begin_transaction()
        for _ in range(8):
            for producer in producers:
                producer.produce(topic, bytes(9000), partition=0)
                producer.flush(60)
        for number, producer in enumerate(producers[:: 1 if turn % 2 else -1]):
            (producer.abort_transaction if (turn + number) % 3 else producer.commit_transaction)(60)
    for isolation in ("read_committed", "read_uncommitted"):
        expected = read_by_kafka(writers.broker, topic, isolation)
        options = {"url": writers.broker.url, "subscribe": topic, "isolation__level": isolation, **ALL}
        for split in ({}, {"maxRecordsPerPartition": 5}, {"minPartitions": 11}):
            assert read_batch(**options, fetchBytes=65536, **split) == expected
        found, _ = read_stream(
            stream_reader(**options, fetchBytes=65536, startingOffsets="earliest", maxOffsetsPerTrigger=9)
        )
        assert [row for each in found for row in each] == expected


# ── what is selected ──────────────────────────────────────────────────────────────────────────────


def test_assigned_partitions_alone_are_read(writers: Writers) -> None:
    topic = filled(writers, 3)
    options = {"url": writers.broker.url, "assign": f'{{"{topic}": [0, 2]}}', "columns": "partition"}
    assert {row[0] for row in read_batch_unsorted(**options)} == {0, 2}
    found, end = read_stream(
        stream_reader(**{**options, "columns": "topic,partition,offset"}, startingOffsets="earliest")
    )
    assert {row[1] for each in found for row in each} == {0, 2}
    assert set(end[topic]) == {"0", "2"}


def test_topics_that_match_a_pattern_are_read_also_later(writers: Writers) -> None:
    first = filled(writers)
    pattern = f"{first}(x)?"
    reader = stream_reader(
        url=writers.broker.url, subscribePattern=pattern, startingOffsets="latest", pollTimeout=0
    )
    start = kept(reader.initialOffset())
    writers.client.admin.create_topic(f"{first}x", partitions=1)
    writers.client.publish(f"{first}x", b"new")
    end = kept(reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert [row[1:5] for row in micro_batch(reader, start, end)] == [(b"new", f"{first}x", 0, 0)]
    assert {row[2] for row in read_batch(url=writers.broker.url, subscribePattern=pattern)} == {
        first,
        f"{first}x",
    }


def test_a_pattern_that_matches_nothing_is_an_empty_batch(writers: Writers) -> None:
    assert read_batch(url=writers.broker.url, subscribePattern="nothing.*") == []


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"subscribe": "missing"}, UnknownTopic, "there is no topic 'missing'"),
        ({"subscribe": "missing,gone"}, UnknownTopic, "there are no topics 'missing', 'gone'"),
        ({"assign": '{"TOPIC": [0, 9]}'}, UnknownPartition, "has no partition 9"),
    ],
)
def test_missing_topics_and_partitions_are_named(
    writers: Writers, options: dict[str, str], error: type[Exception], text: str
) -> None:
    topic = filled(writers)
    named = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    with pytest.raises(error, match=text):
        read_batch(url=writers.broker.url, **named)
    with pytest.raises(error, match=text):
        stream_reader(url=writers.broker.url, **named).initialOffset()


# ── where ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_begins_and_ends_where_it_is_told(writers: Writers) -> None:
    topic = filled(writers, 1, times=True)
    options = {"url": writers.broker.url, "subscribe": topic, "columns": "offset"}

    def offsets(**places: object) -> list[int]:
        return [row[0] for row in read_batch_unsorted(**options, **places)]

    assert offsets() == list(range(100))
    assert offsets(startingOffsets=f'{{"{topic}": {{"0": 90}}}}') == list(range(90, 100))
    assert offsets(endingOffsets=f'{{"{topic}": {{"0": 3}}}}') == [0, 1, 2]
    assert offsets(startingTimestamp=1095) == [95, 96, 97, 98, 99]
    assert offsets(startingOffsetsByTimestamp=f'{{"{topic}": {{"0": 1098}}}}') == [98, 99]
    assert offsets(endingTimestamp=1002) == [0, 1]
    assert offsets(endingOffsetsByTimestamp=f'{{"{topic}": {{"0": 5000}}}}') == list(range(100))
    assert offsets(startingTimestamp=5000, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(InvalidArgument, match="no record of 5000 ms or later"):
        offsets(startingTimestamp=5000)


def test_a_new_stream_begins_at_the_end_unless_it_is_told_otherwise(writers: Writers) -> None:
    topic = filled(writers, 1)
    reader = stream_reader(url=writers.broker.url, subscribe=topic)
    assert reader.initialOffset()[topic] == {"0": 100}
    writers.client.publish(topic, b"more")
    assert reader.initialOffset()[topic] == {"0": 100}, "it is asked twice, and must not move"


def test_a_stream_waits_at_the_broker_and_is_woken_by_news(writers: Writers) -> None:
    topic = filled(writers, 1)
    reader = stream_reader(url=writers.broker.url, subscribe=topic, pollTimeout=5000)
    start = kept(reader.initialOffset())
    publishing = threading.Timer(0.2, lambda: writers.client.publish(topic, b"news"))
    publishing.start()
    begun = time.monotonic()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert time.monotonic() - begun < 4
    assert end[topic] == {"0": 101}
    publishing.join()


@pytest.mark.parametrize("selection", [{"assign": '{"TOPIC": [1]}'}, {"subscribePattern": "nothing.*"}])
def test_a_stream_at_rest_asks_seldom(writers: Writers, selection: dict[str, str]) -> None:
    topic = filled(writers, 2)
    named = {name: value.replace("TOPIC", topic) for name, value in selection.items()}
    reader = stream_reader(url=writers.broker.url, **named, pollTimeout="200ms")
    start = kept(reader.initialOffset())
    for _ in range(2):
        begun = time.monotonic()
        assert kept(reader.latestOffset(start, ReadAllAvailable())) == start
        assert time.monotonic() - begun >= 0.19


def test_a_stream_goes_on_where_its_checkpoint_says_with_partitions_that_came_later(writers: Writers) -> None:
    topic = filled(writers, 1)
    options = {"url": writers.broker.url, "subscribe": topic, "startingOffsets": "earliest"}
    first, end = read_stream(stream_reader(**options))
    writers.client.admin.add_partitions(topic, 2)
    for partition in range(2):
        writers.client.publish(topic, b"later", partition=partition)
    second, _ = read_stream(stream_reader(**options), end)
    assert [row[3:5] for each in second for row in each] == [(0, 100), (1, 0)]
    assert [row[3:5] for each in first for row in each] == [(0, offset) for offset in range(100)]


def test_the_last_batch_before_a_restart_is_planned_again_as_it_was(writers: Writers) -> None:
    topic = filled(writers, 1)
    options = {"url": writers.broker.url, "subscribe": topic, "startingOffsets": "earliest"}
    reader = stream_reader(**options, maxOffsetsPerTrigger=30)
    start = kept(reader.initialOffset())
    end = kept(reader.latestOffset(start, reader.getDefaultReadLimit()))
    again = stream_reader(**options)
    assert micro_batch(again, start, end) == micro_batch(reader, start, end)
    assert end[topic] == {"0": 30}


def test_a_first_batch_that_was_not_finished_is_planned_again_from_where_it_began(writers: Writers) -> None:
    topic = filled(writers, 1)
    options = {"url": writers.broker.url, "subscribe": topic, "startingOffsets": "latest", "pollTimeout": 0}
    reader = stream_reader(**options)
    start = kept(reader.initialOffset())
    writers.client.publish(topic, b"news")
    end = kept(reader.latestOffset(start, ReadAllAvailable()))
    again = stream_reader(**options)
    assert again.initialOffset()[topic] == {"0": 101}, "Spark asks for it, since it keeps ends alone"
    assert [row[1] for row in micro_batch(again, kept(again.initialOffset()), end)] == [b"news"]
    assert kept(again.latestOffset(end, ReadAllAvailable())) == end, "nothing new, so no further batch"


def test_available_now_reads_up_to_the_ends_at_its_start(writers: Writers) -> None:
    topic = filled(writers, 1)
    options = {"url": writers.broker.url, "subscribe": topic, "failOnDataLoss": "false"}
    latest = stream_reader(**options)
    latest.prepareForTriggerAvailableNow()
    writers.client.publish(topic, b"more")
    start = kept(latest.initialOffset())
    assert kept(latest.latestOffset(start, ReadAllAvailable())) == start == {**start, topic: {"0": 101}}
    reader = stream_reader(**options, startingOffsets="earliest", maxBytesPerTrigger=2000)
    reader.prepareForTriggerAvailableNow()
    begun = kept(reader.latestOffset(kept(reader.initialOffset()), reader.getDefaultReadLimit()))
    writers.client.publish(topic, b"too late")
    assert int(kept(reader.latestOffset(begun, ReadAllAvailable()))[topic]["0"]) == 101
    writers.client.admin.delete_topic(topic)
    nothing = kept(reader.latestOffset(begun, reader.getDefaultReadLimit()))
    assert nothing == {}
    assert micro_batch(reader, begun, nothing) == []


def test_a_topic_that_goes_between_looking_and_planning_is_a_loss(writers: Writers) -> None:
    topic = filled(writers, 1)
    options = {"url": writers.broker.url, "subscribe": topic, "startingOffsets": "earliest"}
    for more, is_failure in ({}, True), ({"failOnDataLoss": "false"}, False):
        reader = stream_reader(**options, **more)
        start = kept(reader.initialOffset())
        end = kept(reader.latestOffset(start, ReadAllAvailable()))
        writers.client.admin.delete_topic(topic)
        if is_failure:
            with pytest.raises(OffsetOutOfRange, match=f"data loss: topic {topic}"):
                micro_batch(reader, start, end)
        else:
            assert micro_batch(reader, start, end) == []
        writers.client.admin.create_topic(topic, partitions=1)
        writers.client.publish(topic, b"again")


def test_a_checkpoint_of_the_kafka_source_can_be_gone_on_with(writers: Writers) -> None:
    topic = filled(writers, 1)
    reader = stream_reader(url=writers.broker.url, subscribe=topic)
    found, end = read_stream(reader, {topic: {"0": 98}})
    assert [row[4] for each in found for row in each] == [98, 99]
    assert end["$ids"].keys() == {topic}


# ── data loss ─────────────────────────────────────────────────────────────────────────────────────


def test_records_that_retention_took_are_counted(writers: Writers, caplog: pytest.LogCaptureFixture) -> None:
    topic = filled(writers, 1)
    start = {topic: {"0": 10}}
    writers.client.admin.delete_records(topic, {0: 40})
    options = {"url": writers.broker.url, "subscribe": topic}
    lost = (
        f"topic {topic}, partition 0: offset 10 was to be read next, and the log begins at 40 "
        "(30 offsets lost)"
    )
    with pytest.raises(OffsetOutOfRange) as raised:
        read_stream(stream_reader(**options), start)
    assert lost in raised.value.text
    assert "failOnDataLoss=false" in raised.value.text
    found, _ = read_stream(stream_reader(**options, failOnDataLoss="false"), start)
    assert [row[4] for each in found for row in each] == list(range(40, 100))
    assert lost in caplog.text
    limited, _ = read_stream(stream_reader(**options, failOnDataLoss="false", maxOffsetsPerTrigger=5), start)
    assert [len(each) for each in limited] == [5] * 12
    places = f'{{"{topic}": {{"0": 10}}}}'
    with pytest.raises(OffsetOutOfRange, match="30 offsets lost"):
        read_batch(**options, startingOffsets=places)
    assert len(read_batch(**options, startingOffsets=places, failOnDataLoss="false")) == 60


def test_records_that_go_while_a_task_reads_are_counted(writers: Writers) -> None:
    topic = filled(writers, 1)
    options = {"url": writers.broker.url, "subscribe": topic}
    strict, lenient = batch_reader(**options), batch_reader(**options, failOnDataLoss="false")
    (task,), (other,) = strict.partitions(), lenient.partitions()
    writers.client.admin.delete_records(topic, {0: 25})
    with pytest.raises(OffsetOutOfRange, match="log begins at 25 \\(25 offsets lost\\)"):
        list(strict.read(task))
    assert [row[4] for row in rows(lenient.read(other))] == list(range(25, 100))


def test_more_ranges_are_estimated_than_one_call_takes(writers: Writers) -> None:
    topic = filled(writers, 2)
    selection = SourceSelection((topic,))
    topics = SourceTopics(Target(writers.broker.url), selection, is_committed=True)
    ranges = [OffsetRange(topic, "", n % 2, 0, 100 * (n % 2)) for n in range(20_500)]
    sizes = topics.estimate(ranges)
    assert all((size > 0) == bool(n % 2) for n, size in enumerate(sizes))


def test_a_loss_in_one_partition_leaves_the_others_of_a_task_alone(writers: Writers) -> None:
    topic = filled(writers, 3)
    reader = batch_reader(url=writers.broker.url, subscribe=topic, failOnDataLoss="false", packBytes="1g")
    (task,) = reader.partitions()
    writers.client.admin.delete_records(topic, {0: 99, 1: 100})
    found = sorted(row[3:5] for row in rows(reader.read(task)))
    assert found == [(0, 99), *((2, offset) for offset in range(100))]


def test_an_offset_behind_the_end_is_a_loss(writers: Writers) -> None:
    topic = filled(writers, 1)
    options = {"url": writers.broker.url, "subscribe": topic}
    with pytest.raises(OffsetOutOfRange, match="offset 500 was to be read next, and the log ends at 100"):
        read_stream(stream_reader(**options), {topic: {"0": 500}})
    places = f'{{"{topic}": {{"0": 500}}}}'
    with pytest.raises(OffsetOutOfRange, match="the log ends at 100"):
        read_batch(**options, endingOffsets=places)
    assert len(read_batch(**options, endingOffsets=places, failOnDataLoss="false")) == 100


def test_a_topic_that_was_made_again_is_told_by_its_id(
    writers: Writers, caplog: pytest.LogCaptureFixture
) -> None:
    topic = filled(writers, 1)
    options = {"url": writers.broker.url, "subscribe": topic, "startingOffsets": "earliest"}
    reader = batch_reader(**options)
    (task,) = reader.partitions()
    _, end = read_stream(stream_reader(**options))
    old = end["$ids"][topic]
    writers.client.admin.delete_topic(topic)
    with pytest.raises(OffsetOutOfRange, match=f"topic {topic} is gone .*partitions 0 from offset 100"):
        read_stream(stream_reader(**options), end)
    writers.client.admin.create_topic(topic, partitions=1)
    for number in range(200):
        writers.client.publish(topic, b"%d" % number)
    new = writers.client.admin.describe_topic(topic).id
    with pytest.raises(OffsetOutOfRange) as raised:
        read_stream(stream_reader(**options), end)
    assert f"deleted and made again: it had the id {old} and has {new}" in raised.value.text
    found, _ = read_stream(stream_reader(**options, failOnDataLoss="false"), end)
    assert [row[4] for each in found for row in each] == list(range(200))
    assert f"it had the id {old}" in caplog.text
    with pytest.raises(OffsetOutOfRange, match=f"{topic}, partition 0 was to be read on from offset 0"):
        list(reader.read(task))


def test_a_stream_whose_topic_is_gone_waits_for_it_where_loss_is_no_failure(writers: Writers) -> None:
    topic = filled(writers, 1)
    options = {
        "url": writers.broker.url,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
    }
    reader = stream_reader(**options, pollTimeout=10)
    start = kept(reader.initialOffset())
    writers.client.admin.delete_topic(topic)
    nothing = kept(reader.latestOffset(start, ReadAllAvailable()))
    assert nothing == {}
    assert micro_batch(reader, start, nothing) == []
    writers.client.admin.create_topic(topic, partitions=1)
    writers.client.publish(topic, b"again")
    end = kept(reader.latestOffset(nothing, ReadAllAvailable()))
    assert [row[1] for row in micro_batch(reader, nothing, end)] == [b"again"]


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "columns", [["value"], ["topic"], ["partition", "topic"], ["timestamp", "key"], ["headers"]]
)
def test_columns_that_are_not_asked_for_are_not_made(writers: Writers, columns: list[str]) -> None:
    topic = writers.new_topic()
    writers.write(topic, [Writing("native", "lz4", [Record(1, b"k", b"v", [("h", None)], 5)] * 3)])
    (batch,) = batches(batch_reader(url=writers.broker.url, subscribe=topic, columns=",".join(columns)))
    values = {
        "key": b"k",
        "value": b"v",
        "topic": topic,
        "partition": 1,
        "timestamp": 5,
        "headers": [("h", None)],
    }
    assert batch.schema.names == columns
    assert {name: plain(name, batch.column(name)[2].as_py()) for name in columns} == {
        name: values[name] for name in columns
    }


def test_filters_leave_out_unneeded_fetches(writers: Writers) -> None:
    topic = filled(writers, 3, times=True)
    reader = batch_reader(url=writers.broker.url, subscribe=topic, pushdown="true")
    filters = [
        IsNotNull(("offset",)),
        In(("partition",), (1, 2)),
        GreaterThanOrEqual(("offset",), 20),
        GreaterThan(("timestamp",), datetime.fromtimestamp(1.09, UTC)),
    ]
    assert reader.pushFilters(filters) == [filters[-1]]
    found = list(rows(batches(reader)))
    assert {row[3] for row in found} == {1, 2}
    assert {row[4] for row in found} == set(range(90, 100))


def test_a_task_without_rows_is_read(writers: Writers) -> None:
    topic = filled(writers, 1)
    reader = batch_reader(url=writers.broker.url, subscribe=topic, endingOffsets=f'{{"{topic}": {{"0": 0}}}}')
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_a_read_that_ends_early_leaves_no_answer_for_the_next(writers: Writers) -> None:
    topic = filled(writers, 3)
    options = {"url": writers.broker.url, "subscribe": topic, "packBytes": "1g"}
    reader = batch_reader(**options)
    (task,) = reader.partitions()
    started = reader.read(task)
    next(started)
    started.close()
    assert len(list(rows(reader.read(task)))) == 300


def test_large_records_and_many_fetches_are_read_in_order(writers: Writers) -> None:
    topic = writers.new_topic(partitions=1)
    values = [bytes([number]) * 40_000 for number in range(60)]
    with writers.client.producer() as producer:
        for value in values:
            producer.send(topic, value)
    found = read_batch(
        url=writers.broker.url, subscribe=topic, fetchBytes=65536, columns="value,topic,partition,offset"
    )
    assert [row[0] for row in found] == values


def test_a_micro_batch_takes_about_as_many_bytes_as_it_may(writers: Writers) -> None:
    topic = writers.new_topic(partitions=1)
    with writers.client.producer(batch_bytes=40_000) as producer:
        for number in range(100):
            producer.send(topic, bytes([number]) * 20_000)
    options = {"url": writers.broker.url, "subscribe": topic, "startingOffsets": "earliest"}
    found, _ = read_stream(
        stream_reader(**options, maxBytesPerTrigger="400000", columns="topic,partition,offset")
    )
    assert [row[2] for each in found for row in each] == list(range(100))
    assert all(len(each) <= 24 for each in found)
    assert len(found) < 12


def test_a_broker_that_cannot_be_reached_is_one_sentence() -> None:
    with pytest.raises(ConnectionLost, match=r"no broker can be reached at 127\.0\.0\.1:1"):
        read_batch(url="sparrow://127.0.0.1:1", subscribe="t", retries=0)


def test_a_broker_that_restarts_is_read_on_from(tmp_path: Path) -> None:
    with sparrow.testing.broker(data_dir=str(tmp_path)) as broker:
        with sparrow.sync.connect(broker.url) as client, client.producer() as producer:
            for _ in range(100):
                producer.send("t", bytes(20_000))
        reader = batch_reader(
            url=broker.url, subscribe="t", fetchBytes=65536, columns="offset", packBytes="1g"
        )
        (task,) = reader.partitions()
        read = reader.read(task)
        broker.restart()
        assert sum(batch.num_rows for batch in read) == 100


# ── the columns ───────────────────────────────────────────────────────────────────────────────────


def test_times_beyond_those_of_spark_become_the_last_one() -> None:
    schema = StructType().add("timestamp", TYPES["timestamp"])
    decoded = pa.record_batch({"timestamp": pa.array([-1, 0, 2**62, -(2**62)], pa.int64())})
    (batch,) = SourceRows(schema, ("timestamp",), "t", 0).batches(decoded)
    last = (2**63 - 1) // 1000 * 1000
    assert batch.column(0).cast(pa.int64()).to_pylist() == [-1000, 0, last, -last]


def test_many_rows_are_handed_over_in_several_batches() -> None:
    schema = StructType().add("topic", TYPES["topic"]).add("offset", TYPES["offset"])
    count = MAX_ROWS + 5
    decoded = pa.record_batch({"offset": pa.array(range(count), pa.int64())})
    found = list(SourceRows(schema, ("topic", "offset"), "t", 0).batches(decoded))
    assert [batch.num_rows for batch in found] == [MAX_ROWS, 5]
    assert found[1].column(1).to_pylist() == list(range(MAX_ROWS, count))
    assert found[1].column(0).to_pylist() == ["t"] * 5


def filled(writers: Writers, partitions: int = 1, *, times: bool = False) -> str:
    """Create a topic with a hundred records in each partition, with timestamps from 1000 ms on."""
    topic = writers.new_topic(partitions)
    with writers.client.producer() as producer:
        for number in range(100):
            for partition in range(partitions):
                time_ms = 1000 + number if times else None
                producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=time_ms)
    return topic


def read_batch_unsorted(**options: object) -> list[Any]:
    return list(rows(batches(batch_reader(**options))))
