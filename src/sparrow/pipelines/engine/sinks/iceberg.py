"""Table of an Iceberg catalog, written without a JAR: tasks write the files, the driver commits
them by the `pyiceberg` package.

Exactly once: the transaction that adds a batch's files also stores its number as a property of the
table (and of the snapshot). A repeated batch is recognised by it and skipped. Rows for a
partitioned table go through the driver, because only pyiceberg knows its transforms: bound batches
by `max_rows_per_trigger`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparrow.base.errors import Conflict, InvalidConfig
from sparrow.pipelines.engine.columns import column, own_columns
from sparrow.pipelines.engine.sinks.datafiles import write_files
from sparrow.pipelines.engine.sinks.libraries import load_catalog
from sparrow.pipelines.engine.sinks.plan import start_batches
from sparrow.pipelines.engine.sinks.schemas import arrow_schema
from sparrow.pipelines.model import COMPLETE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from sparrow.pipelines.engine.sinks.plan import QueryPlan
    from sparrow.pipelines.model import IcebergSink

_BATCH = "sparrow.batch."
"""Prefix of the property with the last batch; the flow's id follows."""
_COMMIT_TRIES = 5


def start_iceberg(df: DataFrame, sink: IcebergSink, plan: QueryPlan) -> StreamingQuery:
    """Start the query; create the table if it does not exist.

    Raises:
        InvalidConfig: `pyiceberg` is missing, the catalog cannot be used, or the table has other
            columns.
    """
    df = df.select([column(name) for name in own_columns(df)])
    _open(df, sink)
    id_, is_whole = plan.id, plan.mode == COMPLETE

    def write(batch: DataFrame, number: int) -> None:
        write_batch(batch, sink, id_, number, is_whole=is_whole)

    return start_batches(df, plan, write)


def write_batch(
    batch: DataFrame, sink: IcebergSink, id_: str, number: int, *, is_whole: bool = False
) -> None:
    """Add a batch to the table, unless the table already has it.

    Raises:
        Conflict: others commit to the table again and again.
    """
    table = _open(batch, sink)
    if _is_there(table, id_, number):
        return
    add = _adding(batch, table, is_whole=is_whole)
    from pyiceberg.exceptions import CommitFailedException

    for _ in range(_COMMIT_TRIES):
        try:
            _commit(table, add, id_, number)
        except CommitFailedException:
            table.refresh()
            if _is_there(table, id_, number):
                return
        else:
            return
    raise Conflict(
        f"the table {sink.table} of Iceberg was changed by others at each of {_COMMIT_TRIES} tries "
        f"to commit batch {number}; run the pipeline again"
    )


def _commit(table: Any, add: Any, id_: str, number: int) -> None:
    noted = {"sparrow.flow": id_, "sparrow.batch": str(number)}
    with table.transaction() as transaction:
        transaction.set_properties({f"{_BATCH}{id_}": str(number)})
        add(transaction, noted)


def _adding(batch: DataFrame, table: Any, *, is_whole: bool) -> Any:
    """Return the operation that adds the rows to a transaction."""
    if is_whole or not table.spec().is_unpartitioned():
        rows = _rows(batch)
        if is_whole:
            return lambda transaction, noted: transaction.overwrite(rows, snapshot_properties=noted)
        return lambda transaction, noted: transaction.append(rows, snapshot_properties=noted)
    directory = f"{table.location().rstrip('/')}/data"
    paths = [f"{directory}/{each.path}" for each in write_files(batch, directory)]
    if not paths:
        return _nothing
    return lambda transaction, noted: transaction.add_files(
        paths, snapshot_properties=noted, check_duplicate_files=False
    )


def _nothing(transaction: Any, noted: Any) -> None:
    """Add nothing: a batch without rows only stores its number."""


def _rows(batch: DataFrame) -> pa.Table:
    return batch.toArrow().cast(arrow_schema(batch.schema))


def _is_there(table: Any, id_: str, number: int) -> bool:
    return int(table.properties.get(f"{_BATCH}{id_}", "-1")) >= number


def _open(df: DataFrame, sink: IcebergSink) -> Any:
    catalog = load_catalog(sink.catalog, sink.properties)
    schema = arrow_schema(df.schema)
    try:
        catalog.create_namespace_if_not_exists(sink.table.rpartition(".")[0])
        table = catalog.create_table_if_not_exists(sink.table, schema=schema)
    except Exception as error:
        raise InvalidConfig(f"the table {sink.table} of Iceberg cannot be used: {error}") from error
    there = {field.name: str(field.field_type) for field in table.schema().fields}
    if list(there) != schema.names:
        raise InvalidConfig(
            f"the table {sink.table} of Iceberg has the columns {', '.join(there)}; the flow has "
            f"{', '.join(schema.names)}"
        )
    return table
