"""All that a task must know to write, made by the driver and sent with the task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrow.records.compression import Compression
from sparrow.spark.options.connection import target_of
from sparrow.spark.options.sink import SINK_OPTIONS
from sparrow.spark.sink.schema import Columns, columns_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparrow.spark.wire import Target


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the rows of one write become records, and in whose name."""

    target: Target
    columns: Columns
    topic: str | None
    compression: Compression
    max_batch_bytes: int
    sink: str | None
    """None: a stream's query id."""
    batch: int | None
    """None: a stream's own number; else the number of a batch write."""
    takes_over: bool
    stage_timeout_ms: int
    """0: as long as the broker finds right."""

    @property
    def stage_timeout(self) -> str:
        """For people."""
        kept = (
            f"{self.stage_timeout_ms} ms"
            if self.stage_timeout_ms
            else "15 minutes, or what the broker allows"
        )
        return f"option stageTimeout: {kept}"


def plan_of(schema: StructType, options: Mapping[str, str]) -> Plan:
    """The plan for rows of a schema.

    Raises:
        InvalidArgument: names all options that are wrong, or else all columns that do not fit.
    """
    values = SINK_OPTIONS.read(options)
    values.warn()
    return Plan(
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
