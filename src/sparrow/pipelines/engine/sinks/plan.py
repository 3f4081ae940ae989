"""Plan of a query: the settings that all sinks need to start one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparrow.pipelines.model import Every

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from sparrow.pipelines.model import Trigger


@dataclass(frozen=True)
class QueryPlan:
    """Settings of a query to be started.

    Args:
        flow: the flow's name.
        name: the query's name.
        checkpoint: the directory in which Spark keeps the query's progress.
        id: identifies the batches of this checkpoint in a table.
        note_failure: called with the exception of a batch, of which Spark would only keep the text.
    """

    flow: str
    name: str
    checkpoint: str
    id: str
    trigger: Trigger
    mode: str
    note_failure: Callable[[BaseException], None]


def writer(df: DataFrame, plan: QueryPlan) -> DataStreamWriter:
    """Return the stream's writer, without its sink."""
    begun = df.writeStream.queryName(plan.name).outputMode(plan.mode)
    begun = begun.option("checkpointLocation", plan.checkpoint)
    if isinstance(plan.trigger, Every):
        return begun.trigger(processingTime=f"{plan.trigger.interval_ms} milliseconds")
    return begun.trigger(availableNow=True)


def start_batches(df: DataFrame, plan: QueryPlan, write: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """Start a query that passes each batch to a function."""

    def noting(batch: DataFrame, number: int) -> None:
        try:
            write(batch, number)
        except BaseException as error:
            plan.note_failure(error)
            raise

    return writer(df, plan).foreachBatch(noting).start()


def texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as Spark takes them, all as text."""
    return {name: str(value) for name, value in options.items()}
