"""All that a task must know to write, made by the driver and sent with the task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrow.records.compression import Compression
from sparrow.spark.options.connection import target_of
from sparrow.spark.options.sink import SINK_OPTIONS
from sparrow.spark.sink.schema import SinkColumns, columns_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparrow.spark.wire import Target


@dataclass(frozen=True, kw_only=True)
class WritePlan:
    """The conversion of the rows of one write to records, and their sink."""

    target: Target
    columns: SinkColumns
    topic: str | None
    compression: Compression
    max_batch_bytes: int
    sink: str | None
    """None: a stream's query id."""
    batch: int | None
    """None: a stream's own number; else the number of a batch write."""
    takes_over: bool
    stage_timeout_ms: int
    """0: the broker's default."""

    @property
    def stage_timeout(self) -> str:
        """Return the timeout for people."""
        kept = (
            f"{self.stage_timeout_ms} ms"
            if self.stage_timeout_ms
            else "15 minutes, or what the broker allows"
        )
        return f"option stageTimeout: {kept}"


def plan_of(schema: StructType, options: Mapping[str, str]) -> WritePlan:
    """Return the plan for rows of a schema.

    Raises:
        InvalidArgument: names all options that are wrong, or else all columns that do not fit.
    """
    values = SINK_OPTIONS.read(options)
    values.warn()
    return WritePlan(
        target=target_of(values),
        columns=columns_of(schema, topic=values["topic"], includes_headers=values["includeHeaders"]),
        topic=values["topic"],
        compression=Compression[values["compression"].upper()],
        max_batch_bytes=values["maxBatchBytes"],
        sink=values["sinkId"],
        batch=values["batchId"],
        takes_over=values["takeOver"],
        stage_timeout_ms=values["stageTimeout"] or 0,
    )
