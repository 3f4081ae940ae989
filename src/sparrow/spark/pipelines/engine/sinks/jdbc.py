"""A table of a database, by Spark's JDBC: the driver's JAR is what Spark has been given (`spark.jars`).

Without `key` rows are added, at least once: each task commits by itself, so a batch that is written again after a failure may leave rows twice.

With `key` rows of a key replace each other, and writing a batch again changes nothing: the batch is written to a table beside (`<table>_sparrow`), and one
MERGE takes it over, as a whole. The database must know MERGE as the SQL standard has it (PostgreSQL 15, Oracle, SQL Server, Db2, Derby, H2 do; MySQL does not).
Of several rows of a key in one batch the one of the newest message counts, where the steps have kept `_timestamp`, `_partition` and `_offset`; else any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from sparrow.spark.pipelines.engine.columns import column, own_columns
from sparrow.spark.pipelines.engine.sinks.plan import start_batches, texts
from sparrow.spark.pipelines.secrets import read_secret_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from sparrow.spark.pipelines.engine.sinks.plan import QueryPlan
    from sparrow.spark.pipelines.model import JdbcSink

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
    """Add a batch, or take it over by its keys."""
    if not sink.key:
        _write(batch, sink.table, options, "append")
        return
    beside = f"{sink.table}{_BESIDE}"
    rows = _newest(batch, sink.key)
    _write(rows, beside, options, "overwrite")
    # Spark has no way to run a statement; what it runs before it reads is one.
    merge = merge_statement(sink.table, beside, own_columns(batch), sink.key)
    _write(rows.limit(0), sink.table, options, "append")  # makes the table at the first batch
    reader = batch.sparkSession.read.format("jdbc").options(**options).option("sessionInitStatement", merge)
    reader.option("dbtable", beside).load().limit(1).collect()


def merge_statement(table: str, beside: str, columns: Sequence[str], key: Sequence[str]) -> str:
    """One statement that takes the rows beside over."""
    same = " AND ".join(f"t.{_name(name)} = s.{_name(name)}" for name in key)
    rest = [name for name in columns if name not in key]
    update = ", ".join(f"{_name(name)} = s.{_name(name)}" for name in rest)
    updated = f" WHEN MATCHED THEN UPDATE SET {update}" if rest else ""
    names = ", ".join(_name(name) for name in columns)
    values = ", ".join(f"s.{_name(name)}" for name in columns)
    # Names of the pipeline's author, quoted; values never stand in the statement.
    return f"MERGE INTO {table} t USING {beside} s ON {same}{updated} WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"  # noqa: S608


def _name(column: str) -> str:
    """As Spark's JDBC writes it."""
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
