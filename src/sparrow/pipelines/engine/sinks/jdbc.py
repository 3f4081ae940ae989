"""Database table, written by Spark's JDBC with a driver's JAR that Spark has been given
(`spark.jars`).

Without `key`, rows are added at least once: each task commits by itself, so a batch that is
repeated after a failure may leave rows twice.

With `key`, rows of a key replace each other, and repeating a batch changes nothing: the batch is
written to a staging table (`<table>_sparrow`), and one MERGE copies it as a whole. The database
must support MERGE of the SQL standard (PostgreSQL 15, Oracle, SQL Server, Db2, Derby, H2 do; MySQL
does not). If a batch has several rows of a key, the row of the newest message wins if the steps
have kept `_timestamp`, `_partition` and `_offset`; otherwise any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from sparrow.pipelines.engine.columns import column, own_columns
from sparrow.pipelines.engine.sinks.plan import start_batches, texts
from sparrow.pipelines.secrets import read_secret_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from sparrow.pipelines.engine.sinks.plan import QueryPlan
    from sparrow.pipelines.model import JdbcSink

_BESIDE = "_sparrow"
_PLACE = ("_timestamp", "_partition", "_offset")
_RANK = "_sparrow_rank"


def start_jdbc(df: DataFrame, sink: JdbcSink, plan: QueryPlan) -> StreamingQuery:
    """Start the query."""
    options = _options(sink)

    def write(batch: DataFrame, number: int) -> None:
        del number
        write_batch(batch, sink, options)

    return start_batches(df, plan, write)


def write_batch(batch: DataFrame, sink: JdbcSink, options: dict[str, str]) -> None:
    """Add a batch, or merge it by its keys."""
    if not sink.key:
        _write(batch, sink.table, options, "append")
        return
    beside = f"{sink.table}{_BESIDE}"
    rows = _newest(batch, sink.key)
    _write(rows, beside, options, "overwrite")
    # Spark cannot run a plain statement, but it runs one before it reads.
    merge = merge_statement(sink.table, beside, own_columns(batch), sink.key)
    _write(rows.limit(0), sink.table, options, "append")  # Creates the table at the first batch.
    reader = batch.sparkSession.read.format("jdbc").options(**options).option("sessionInitStatement", merge)
    reader.option("dbtable", beside).load().limit(1).collect()


def merge_statement(table: str, beside: str, columns: Sequence[str], key: Sequence[str]) -> str:
    """Return the statement that merges the staging table."""
    same = " AND ".join(f"t.{_name(name)} = s.{_name(name)}" for name in key)
    rest = [name for name in columns if name not in key]
    update = ", ".join(f"{_name(name)} = s.{_name(name)}" for name in rest)
    updated = f" WHEN MATCHED THEN UPDATE SET {update}" if rest else ""
    names = ", ".join(_name(name) for name in columns)
    values = ", ".join(f"s.{_name(name)}" for name in columns)
    # Names come from the pipeline's author and are quoted; values are never in the statement.
    target = f"MERGE INTO {table} t USING {beside} s ON {same}{updated}"
    return f"{target} WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"  # noqa: S608


def _name(column: str) -> str:
    """Quote a name as Spark's JDBC does."""
    return '"' + column.replace('"', '""') + '"'


def _newest(batch: DataFrame, key: Sequence[str]) -> DataFrame:
    if not set(_PLACE) <= set(batch.columns):
        return batch.dropDuplicates(list(key))
    by_key = Window.partitionBy(*[column(name) for name in key])
    newest = by_key.orderBy(*[column(name).desc() for name in _PLACE])
    return batch.withColumn(_RANK, F.row_number().over(newest)).where(column(_RANK) == 1)


def _write(batch: DataFrame, table: str, options: dict[str, str], mode: str) -> None:
    rows = batch.select([column(name) for name in own_columns(batch)])
    rows.write.format("jdbc").options(**options).option("dbtable", table).mode(mode).save()


def _options(sink: JdbcSink) -> dict[str, str]:
    options = {**texts(sink.options), "url": sink.url}
    if sink.user is not None:
        options["user"] = sink.user
    if sink.password_file is not None:
        options["password"] = read_secret_file(sink.password_file)
    if sink.driver is not None:
        options["driver"] = sink.driver
    return options
