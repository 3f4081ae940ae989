"""Delta Lake table, written without a JAR: tasks write the files, the driver commits them by the
`deltalake` package.

Exactly once: the commit that adds a batch's files also stores its number as the table's transaction
of this flow (Delta's `txn`: application and version). A repeated batch is recognised by it and
skipped. In mode "complete" a batch replaces the rows.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import InvalidConfig
from sparrow.pipelines.engine.columns import column, own_columns
from sparrow.pipelines.engine.sinks.datafiles import write_files
from sparrow.pipelines.engine.sinks.libraries import deltalake
from sparrow.pipelines.engine.sinks.plan import start_batches
from sparrow.pipelines.engine.sinks.schemas import arrow_schema
from sparrow.pipelines.model import COMPLETE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from sparrow.pipelines.engine.sinks.plan import QueryPlan
    from sparrow.pipelines.model import DeltaSink

_MAX_COMMIT_RETRIES = 30


def start_delta(df: DataFrame, sink: DeltaSink, plan: QueryPlan) -> StreamingQuery:
    """Start the query; create the table if it does not exist.

    Raises:
        InvalidConfig: `deltalake` is missing, or the table has other columns.
    """
    df = df.select([column(name) for name in own_columns(df)])
    _open(df, sink)
    id_, is_whole = plan.id, plan.mode == COMPLETE

    def write(batch: DataFrame, number: int) -> None:
        write_batch(batch, sink, id_, number, is_whole=is_whole)

    return start_batches(df, plan, write)


def write_batch(batch: DataFrame, sink: DeltaSink, id_: str, number: int, *, is_whole: bool = False) -> None:
    """Add a batch to the table, unless the table already has it."""
    table = _open(batch, sink)
    newest = table.transaction_version(id_)
    if newest is not None and newest >= number:
        return
    files = write_files(batch, sink.path, sink.partition_by)
    library = deltalake()
    now_ms = int(time.time() * 1000)
    actions = [
        library.transaction.AddAction(
            path=each.path,
            size=each.size_bytes,
            partition_values=each.part,
            modification_time=now_ms,
            data_change=True,
            stats=json.dumps({"numRecords": each.rows}),
        )
        for each in files
    ]
    noted = library.CommitProperties(
        custom_metadata={"sparrow.flow": id_, "sparrow.batch": str(number)},
        max_commit_retries=_MAX_COMMIT_RETRIES,
        app_transactions=[library.Transaction(id_, number)],
    )
    table.create_write_transaction(
        actions,
        mode="overwrite" if is_whole else "append",
        schema=table.schema(),
        partition_by=list(sink.partition_by) or None,
        commit_properties=noted,
    )


def _open(df: DataFrame, sink: DeltaSink) -> Any:
    library = deltalake()
    schema = arrow_schema(df.schema)
    options = dict(sink.options) or None
    try:
        table = library.DeltaTable.create(
            sink.path,
            schema,
            mode="ignore",
            partition_by=list(sink.partition_by) or None,
            storage_options=options,
        )
        table = library.DeltaTable(sink.path, storage_options=options)
    except library.exceptions.DeltaError as error:
        raise InvalidConfig(f"the table of Delta Lake at {sink.path} cannot be used: {error}") from None
    _check(table, schema, sink)
    return table


def _check(table: Any, schema: pa.Schema, sink: DeltaSink) -> None:
    there = _columns(table.schema())
    wanted = _columns(deltalake().Schema.from_arrow(schema))
    if there != wanted:
        raise InvalidConfig(
            f"the table of Delta Lake at {sink.path} has the columns {_listed(there)}; the flow "
            f"has {_listed(wanted)}"
        )
    parts = list(table.metadata().partition_columns)
    if parts != list(sink.partition_by):
        raise InvalidConfig(
            f"the table of Delta Lake at {sink.path} is partitioned by {parts}, not by "
            f"{list(sink.partition_by)}"
        )


def _columns(schema: Any) -> dict[str, str]:
    """Return the types by their names; nested ones as JSON."""
    return {field.name: field.type.to_json().strip('"') for field in schema.fields}


def _listed(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
