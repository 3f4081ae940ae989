"""Rows as messages of a topic, by `format("sparrow")`: each batch exactly once, visible to readers
as a whole or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparrow.base.errors import InvalidConfig
from sparrow.base.faults import suggestion
from sparrow.pipelines.engine.columns import column, own_columns
from sparrow.pipelines.engine.sinks.plan import texts, writer
from sparrow.pipelines.model import JSON_VALUE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from sparrow.pipelines.engine.sinks.plan import QueryPlan
    from sparrow.pipelines.model import Broker, TopicSink

FORMAT = "sparrow"


def start_topic(df: DataFrame, sink: TopicSink, plan: QueryPlan, broker: Broker) -> StreamingQuery:
    """Start the query."""
    return start_messages(messages(df, sink), sink.topic, plan, {**broker.options(), **texts(sink.options)})


def start_messages(df: DataFrame, topic: str, plan: QueryPlan, options: Mapping[str, str]) -> StreamingQuery:
    """Start a query whose rows are messages already."""
    return writer(df, plan).format(FORMAT).options(**{**options, "topic": topic}).start()


def messages(df: DataFrame, sink: TopicSink) -> DataFrame:
    """Return the rows in the form that the sink of `format("sparrow")` takes.

    Raises:
        InvalidConfig: a named column does not exist.
    """
    columns = [_value(df, sink).alias("value")]
    if sink.key is not None:
        columns.append(_bytes(df, sink.key, "key").alias("key"))
    if sink.headers:
        columns.append(_headers(df, sink.headers).alias("headers"))
    if sink.partition is not None:
        columns.append(_found(df, sink.partition, "partition").cast("int").alias("partition"))
    if sink.timestamp is not None:
        columns.append(_found(df, sink.timestamp, "timestamp").cast("timestamp").alias("timestamp"))
    return df.select(columns)


def _value(df: DataFrame, sink: TopicSink) -> Column:
    if sink.value != JSON_VALUE:
        return _bytes(df, sink.value, "value")
    row = F.struct(*[column(name) for name in own_columns(df)])
    return F.to_json(row, {"ignoreNullFields": "false"}).cast("binary")


def _headers(df: DataFrame, headers: Mapping[str, str]) -> Column:
    pairs = [
        F.struct(F.lit(name).alias("key"), _bytes(df, source, f"header {name}").alias("value"))
        for name, source in headers.items()
    ]
    return F.array(*pairs)


def _bytes(df: DataFrame, name: str, what: str) -> Column:
    """Convert a column to bytes: binary unchanged, nested types as JSON, others as text."""
    found = _found(df, name, what)
    kind = df.select(found).schema[0].dataType
    if isinstance(kind, T.BinaryType):
        return found
    if isinstance(kind, T.StructType | T.ArrayType | T.MapType):
        found = F.to_json(found)
    return found.cast("string").cast("binary")


def _found(df: DataFrame, name: str, what: str) -> Column:
    if name not in df.columns:
        raise InvalidConfig(
            f"the {what} of the messages is the column {name!r}, which the rows do not "
            f"have{suggestion(name, df.columns)}"
        )
    return column(name)
