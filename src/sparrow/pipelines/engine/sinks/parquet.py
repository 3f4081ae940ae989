"""Parquet by Spark's file sink: each batch exactly once to readers that use its list of files
(`_spark_metadata`), such as Spark.

The list counts batches. A query with a new checkpoint in a directory with such a list would count
from 0 again, and Spark would silently drop its batches as already written; that is refused here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyarrow import fs

from sparrow.base.errors import Conflict
from sparrow.pipelines.engine.columns import column, own_columns
from sparrow.pipelines.engine.sinks.datafiles import file_system
from sparrow.pipelines.engine.sinks.plan import texts, writer
from sparrow.pipelines.engine.states import newest_batch
from sparrow.pipelines.sparklist import LIST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from sparrow.pipelines.engine.sinks.plan import QueryPlan
    from sparrow.pipelines.model import ParquetSink


def start_parquet(df: DataFrame, sink: ParquetSink, plan: QueryPlan) -> StreamingQuery:
    """Start the query.

    Raises:
        Conflict: the directory has the batches of another checkpoint.
    """
    refuse_other_checkpoint(sink.path, plan.checkpoint)
    begun = writer(df.select([column(name) for name in own_columns(df)]), plan)
    if sink.partition_by:
        begun = begun.partitionBy(*sink.partition_by)
    return begun.format("parquet").options(**texts(sink.options)).option("path", sink.path).start()


def refuse_other_checkpoint(directory: str, checkpoint: str) -> None:
    """Refuse a directory that has the batches of another checkpoint.

    Raises:
        Conflict: it has some.
    """
    if newest_batch(checkpoint) is None and _has_batches(directory):
        raise Conflict(
            f"{directory} was written with another checkpoint than {checkpoint}, which is new; "
            "Spark would drop what comes now. Write to another directory,"
            " or bring the old checkpoint back"
        )


def _has_batches(directory: str) -> bool:
    """Return True if the list has batches. The list alone proves nothing: Spark makes it before it
    records the first batch, and the query may have been killed between the two.
    """
    system, path = file_system(directory)
    found = system.get_file_info(fs.FileSelector(f"{path.rstrip('/')}/{LIST}", allow_not_found=True))
    # "9", and "9.compact" for those up to it.
    return any(each.base_name.partition(".")[0].isdecimal() for each in found)
