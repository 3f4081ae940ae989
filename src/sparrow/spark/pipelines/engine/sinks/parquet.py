"""Parquet by Spark's file sink: each batch exactly once to readers that know its list of files (`_spark_metadata`), as Spark is one.

The list counts batches. A query that begins anew in a directory with such a list would count from 0 again, and Spark would take its batches for ones that
were written before and drop them without a word; that is refused here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyarrow import fs

from sparrow.base.errors import Conflict
from sparrow.spark.pipelines.engine.columns import column, own_columns
from sparrow.spark.pipelines.engine.sinks.datafiles import file_system
from sparrow.spark.pipelines.engine.sinks.plan import texts, writer
from sparrow.spark.pipelines.engine.states import newest_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from sparrow.spark.pipelines.engine.sinks.plan import QueryPlan
    from sparrow.spark.pipelines.model import ParquetSink

_LIST = "_spark_metadata"


def start_parquet(df: DataFrame, sink: ParquetSink, plan: QueryPlan) -> StreamingQuery:
    """Start the query.

    Raises:
        Conflict: the directory has the batches of another checkpoint.
    """
    system, path = file_system(sink.path)
    listed = system.get_file_info(f"{path.rstrip('/')}/{_LIST}")
    if listed.type == fs.FileType.Directory and newest_batch(plan.checkpoint) is None:
        raise Conflict(
            f"{sink.path} was written with another checkpoint than {plan.checkpoint}, which is new; Spark would drop what comes now. Write to another directory,"
            " or bring the old checkpoint back"
        )
    begun = writer(df.select([column(name) for name in own_columns(df)]), plan)
    if sink.partition_by:
        begun = begun.partitionBy(*sink.partition_by)
    return begun.format("parquet").options(**texts(sink.options)).option("path", sink.path).start()
