"""Tasks and drivers of the sink as Spark would run them, without Spark."""

from __future__ import annotations

from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

import sparrow.sync
from sparrow.spark.kernels import DecodeOptions, Decoder
from sparrow.spark.sink import committer
from sparrow.spark.sink.context import TaskAttempt, WriteIdentity
from sparrow.spark.sink.plan import WritePlan, plan_of
from sparrow.spark.sink.task import Written, write_rows
from sparrow.spark.wire import FetchWanted, Target, connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparrow.spark.wire import Session
    from sparrow.testing.running_broker import RunningBroker

ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
_KINDS = {
    "key": (BinaryType(), pa.binary()),
    "value": (BinaryType(), pa.binary()),
    "headers": (_HEADERS, ARROW_HEADERS),
    "topic": (StringType(), pa.string()),
    "partition": (IntegerType(), pa.int32()),
    "timestamp": (LongType(), pa.int64()),
}
_attempts = count()


class Query:
    """A query that writes to a sink: `write` is a task, `commit` its driver."""

    def __init__(
        self,
        broker: RunningBroker,
        *,
        columns: str = "value",
        query: str = "query",
        run: str = "run",
        **options: str,
    ) -> None:
        schema = StructType()
        for name in columns.split():
            schema = schema.add(name, _KINDS[name][0])
        self.columns = columns.split()
        self.query, self.run = query, run
        self.plan: WritePlan = plan_of(schema, {"url": broker.url, **options})

    def identity(self, batch: int) -> WriteIdentity:
        return WriteIdentity(self.plan.sink or self.query, self.query, self.run, batch)

    def write(self, batch: int, *parts: Iterable[Mapping[str, Any]], task: int = 0) -> Written:
        """Write as a task does; each part is one of its Arrow batches."""
        rows = [rows_of(self.columns, each) for each in parts]
        return write_rows(self.plan, self.identity(batch), TaskAttempt(task, next(_attempts)), rows)

    def write_values(self, batch: int, *values: bytes, task: int = 0) -> Written:
        return self.write(batch, [{"value": each} for each in values], task=task)

    def commit(self, *messages: Written | None) -> bool:
        return committer.commit(self.plan, messages)

    def abort(self, *messages: Written | None) -> None:
        committer.abort(self.plan, messages)


def rows_of(columns: list[str], rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    given = list(rows)
    arrays = [pa.array([row.get(name) for row in given], _KINDS[name][1]) for name in columns]
    return pa.record_batch(arrays, names=columns)


def make_topic(broker: RunningBroker, name: str, partitions: int = 1) -> str:
    with closing(sparrow.sync.connect(broker.url)) as client:
        client.admin.create_topic(name, partitions=partitions)
    return name


def describe(broker: RunningBroker, sink: str) -> dict[str, Any]:
    with connect(Target(broker.url)) as session:
        found: dict[str, Any] = session.call("sink.describe", {"sink": sink})
    return found


def read_rows(broker: RunningBroker, topic: str, *columns: str) -> list[list[dict[str, Any]]]:
    """Return the committed rows of each partition; quicker than a Kafka client, whose start takes
    half a second.
    """
    with connect(Target(broker.url)) as session:
        partitions = session.call("topic.describe", {"name": topic})["partition_count"]
        return [_partition_rows(session, topic, number, columns) for number in range(partitions)]


def _partition_rows(
    session: Session, topic: str, partition: int, columns: tuple[str, ...]
) -> list[dict[str, Any]]:
    decoder = Decoder(topic, partition, DecodeOptions(columns))
    rows: list[dict[str, Any]] = []
    while True:
        chunk = session.fetch(FetchWanted(topic, partition=partition, offset=decoder.next_offset))
        if not len(chunk.data):
            break
        for block in decoder.feed(chunk.data, chunk.aborted):
            rows += block.to_pylist()
    return rows + [row for block in decoder.finish() for row in block.to_pylist()]


def read_values(broker: RunningBroker, topic: str) -> list[bytes | None]:
    """Return the committed values, partition after partition."""
    return [row["value"] for rows in read_rows(broker, topic, "value") for row in rows]
