"""The first rows of each batch on the terminal, for trying a flow out. With Spark Connect they
appear in the output of the server.

All rows are computed, though few are shown: a limit would leave most of a batch unread, and then
expectations would neither count nor stop.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sparrow.pipelines.engine.columns import column, own_columns
from sparrow.pipelines.engine.sinks.plan import start_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from sparrow.pipelines.engine.sinks.plan import QueryPlan
    from sparrow.pipelines.model import ConsoleSink


def start_console(df: DataFrame, sink: ConsoleSink, plan: QueryPlan) -> StreamingQuery:
    """Start the query."""
    flow, rows = plan.flow, sink.rows
    df = df.select([column(name) for name in own_columns(df)])

    def write(batch: DataFrame, number: int) -> None:
        first = batch.mapInArrow(_first(rows), batch.schema).toArrow().to_pylist()[:rows]
        lines = [f"── {flow}, batch {number} ──", *(f"  {_line(row)}" for row in first)]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()

    return start_batches(df, plan, write)


def _first(rows: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that takes all rows in a task and yields the first ones."""

    def take(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left = rows
        for batch in batches:
            if left > 0:
                yield batch.slice(0, left)
            left -= batch.num_rows

    return take


def _line(row: dict[str, object]) -> str:
    return "  ".join(f"{name}={value!r}" for name, value in row.items())
