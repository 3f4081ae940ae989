"""How a query is started: what sinks have in common, whatever they write to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparrow.spark.pipelines.model import Every

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from sparrow.spark.pipelines.model import Trigger


@dataclass(frozen=True)
class QueryPlan:
    """A query that is going to be started.

    Args:
        flow: the flow's name.
        name: the query's.
        checkpoint: where Spark keeps how far it is.
        id: by which a table knows the batches of this checkpoint.
        note_failure: takes what a batch failed with, where Spark would only keep its text.
    """

    flow: str
    name: str
    checkpoint: str
    id: str
    trigger: Trigger
    mode: str
    note_failure: Callable[[BaseException], None]


def writer(df: DataFrame, plan: QueryPlan) -> DataStreamWriter:
    """The stream's writer, without its sink."""
    begun = df.writeStream.queryName(plan.name).outputMode(plan.mode)
    begun = begun.option("checkpointLocation", plan.checkpoint)
    if isinstance(plan.trigger, Every):
        return begun.trigger(processingTime=f"{plan.trigger.interval_ms} milliseconds")
    return begun.trigger(availableNow=True)


def start_batches(df: DataFrame, plan: QueryPlan, write: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """Start a query that hands each batch to a function."""

    def noting(batch: DataFrame, number: int) -> None:
        try:
            write(batch, number)
        except BaseException as error:
            plan.note_failure(error)
            raise

    return writer(df, plan).foreachBatch(noting).start()


def texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as Spark takes them."""
    return {name: str(value) for name, value in options.items()}
