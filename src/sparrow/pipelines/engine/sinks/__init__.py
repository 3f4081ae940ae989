"""Sinks of flows. There is one module for each kind, which documents its guarantees."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sparrow.pipelines.engine.sinks.console import start_console
from sparrow.pipelines.engine.sinks.delta import start_delta
from sparrow.pipelines.engine.sinks.iceberg import start_iceberg
from sparrow.pipelines.engine.sinks.jdbc import start_jdbc
from sparrow.pipelines.engine.sinks.parquet import start_parquet
from sparrow.pipelines.engine.sinks.topic import start_topic
from sparrow.pipelines.model import (
    ConsoleSink,
    DeltaSink,
    IcebergSink,
    JdbcSink,
    ParquetSink,
    TopicSink,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from sparrow.pipelines.engine.sinks.plan import QueryPlan
    from sparrow.pipelines.model import Broker, Sink


def start_sink(df: DataFrame, sink: Sink, plan: QueryPlan, broker: Broker) -> StreamingQuery:
    """Start a query that ends in the sink."""
    # The sink is sent to a server of Spark Connect, which may not have the file of its location.
    sink = replace(sink, location=None)
    match sink:
        case TopicSink():
            return start_topic(df, sink, plan, broker)
        case ParquetSink():
            return start_parquet(df, sink, plan)
        case DeltaSink():
            return start_delta(df, sink, plan)
        case IcebergSink():
            return start_iceberg(df, sink, plan)
        case JdbcSink():
            return start_jdbc(df, sink, plan)
        case ConsoleSink():
            return start_console(df, sink, plan)
