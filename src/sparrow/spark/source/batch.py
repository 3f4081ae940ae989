"""A batch: the records that exist when it is planned, between its beginning and its end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from sparrow.spark.options.connection import target_of
from sparrow.spark.options.source import EARLIEST, check_batch, fails_on_corrupt, read_source_options
from sparrow.spark.plain_errors import rows_with_plain_errors, with_plain_errors
from sparrow.spark.source import loss
from sparrow.spark.source.plan import OffsetRange, Sizes, plan
from sparrow.spark.source.pushdown import Pushed, is_offered
from sparrow.spark.source.read_task import ReadSettings, ReadTask, read
from sparrow.spark.source.schema import checked_columns
from sparrow.spark.source.snapshot import Snapshot, TopicPartition, extents
from sparrow.spark.source.starts import ending, starting
from sparrow.spark.source.topics import SourceSelection, SourceTopics

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparrow.spark.options.declare import Values


def batch_reader(given: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Return the reader of a batch.

    Raises:
        InvalidArgument: options or schema do not fit.
    """
    values = read_source_options(given)
    check_batch(values)
    reading = reading_of(values, schema)
    return (
        PushingBatchReader(values, reading)
        if is_offered(values["pushdown"])
        else BatchReader(values, reading)
    )


def reading_of(values: Values, schema: StructType) -> ReadSettings:
    """Return how tasks read, from the options.

    Raises:
        InvalidArgument: the schema does not fit.
    """
    return ReadSettings(
        target_of(values),
        schema,
        checked_columns(schema, values),
        is_committed=values["isolation.level"] == "read_committed",
        fails_on_loss=values["failOnDataLoss"],
        fails_on_corrupt=fails_on_corrupt(values),
        fetch_bytes=values["fetchBytes"],
    )


def sizes_of(values: Values) -> Sizes:
    """Return the sizes of tasks, from the options."""
    return Sizes(
        max_bytes=values["maxBytesPerPartition"],
        pack_bytes=values["packBytes"],
        min_tasks=values["minPartitions"] or 1,
        max_offsets=values["maxRecordsPerPartition"] or Sizes.max_offsets,
        cores=_cores(),
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class BatchReader(DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, values: Values, reading: ReadSettings) -> None:
        self._values = values
        self._reading = reading
        self._pushed = Pushed()

    @with_plain_errors
    def partitions(self) -> list[InputPartition]:
        values = self._values
        values.warn()
        topics = SourceTopics(
            self._reading.target, SourceSelection.of(values), is_committed=self._reading.is_committed
        )
        snapshot = topics.existing()
        starts = starting(values, snapshot, topics.at_time, EARLIEST)
        ends = ending(values, snapshot, topics.at_time)
        ranges = self._pushed.limit(self._ranges(snapshot, starts, ends), topics.at_time)
        return [ReadTask(each) for each in plan(ranges, topics.estimate, sizes_of(values))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Spark adds a partition where there is none.
        return rows_with_plain_errors(
            read(self._reading, partition.ranges if isinstance(partition, ReadTask) else ())
        )

    def _ranges(
        self,
        snapshot: Snapshot,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> list[OffsetRange]:
        """Return the existing offsets among those that are wanted."""
        losses: list[str] = []
        ranges = []
        for partition, extent in extents(snapshot).items():
            bounds, lost = loss.cut(partition, (starts[partition], ends[partition]), extent)
            losses += lost
            ranges.append(
                OffsetRange(partition.topic, snapshot[partition.topic].id, partition.partition, *bounds)
            )
        loss.settle(losses, is_failure=self._reading.fails_on_loss)
        return ranges


class PushingBatchReader(BatchReader):
    """Spark refuses a reader that takes filters unless pushing them is switched on, so this is
    another class.
    """

    @with_plain_errors
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark calls it so
        return [each for each in filters if not self._pushed.take(each)]
