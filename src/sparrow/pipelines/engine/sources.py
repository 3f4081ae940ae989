"""Sources of a flow: topics, or the output of another flow's sink."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from sparrow.base.errors import InvalidConfig, UnknownTopic
from sparrow.pipelines.engine.inference import infer_schema
from sparrow.pipelines.model import BEGINNING, END, ParquetSink, TopicSink
from sparrow.spark.options.connection import target_of, with_connection
from sparrow.spark.source.topics import SourceSelection, SourceTopics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sparrow.pipelines.model import Broker, Flow, PipelineModel, Source
    from sparrow.spark.source.snapshot import Snapshot
    from sparrow.spark.wire import Target

FORMAT: Final = "sparrow"
_COLUMNS: Final = "key,value,topic,partition,offset,timestamp"


def broker_target(broker: Broker) -> Target:
    """Return the address of the pipeline's broker.

    Raises:
        InvalidArgument, InvalidConfig: a setting of the broker is wrong.
    """
    return target_of(with_connection(()).read(broker.options()))


def topic_of(pipeline: PipelineModel, flow: Flow) -> Source | None:
    """Return the source as topics, also if it is another flow that writes to one; None if it is a
    flow that writes files.
    """
    from dataclasses import replace

    if flow.source.flow is None:
        return flow.source
    sink = pipeline.flow(flow.source.flow).sink
    return replace(flow.source, topics=[sink.topic], flow=None) if isinstance(sink, TopicSink) else None


def read_topics(
    spark: SparkSession, pipeline: PipelineModel, source: Source, *, has_headers: bool
) -> DataFrame:
    """Return a stream of the topics' messages, with the columns of the source."""
    columns = f"{_COLUMNS},headers" if has_headers else _COLUMNS
    options = {**pipeline.broker.options(), **_selected(source), **_started(source), "columns": columns}
    if source.max_rows_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(source.max_rows_per_trigger)
    if source.max_bytes_per_trigger is not None:
        options["maxBytesPerTrigger"] = str(source.max_bytes_per_trigger)
    return spark.readStream.format(FORMAT).options(**options, **source.options).load()


def read_sink(spark: SparkSession, other: Flow, schema: StructType, source: Source) -> DataFrame:
    """Return a stream of the files that another flow writes.

    Raises:
        InvalidConfig: the other flow has a sink that cannot be read as a stream.
    """
    sink = other.sink
    if not isinstance(sink, ParquetSink):
        raise InvalidConfig(
            f"a flow cannot read what the flow {other.name} writes to {sink.KEY}; it can read "
            "topics and Parquet"
        )
    if "://" not in sink.path:
        os.makedirs(sink.path, exist_ok=True)
    options: Mapping[str, str] = {"basePath": sink.path, **source.options}
    return spark.readStream.schema(schema).options(**options).parquet(sink.path)


def sample_schema(
    spark: SparkSession, pipeline: PipelineModel, source: Source, column: str, count: int
) -> str:
    """Return the schema of the first existing messages, in order of time, partition and offset."""
    topics = SourceTopics(
        broker_target(pipeline.broker),
        SourceSelection(tuple(source.topics), source.pattern),
        is_committed=True,
    )
    found = topics.existing()
    if not any(extent.end > extent.start for state in found.values() for extent in state.partitions.values()):
        raise UnknownTopic(
            f"there are no messages in {_said(source)} to infer a schema from; say the schema, or "
            "publish first"
        )
    options = {**pipeline.broker.options(), **_first(found, count), "columns": _COLUMNS}
    df = spark.read.format(FORMAT).options(**options).load()
    rows = (
        df.orderBy("timestamp", "topic", "partition", "offset").limit(count).select(F.col(column)).collect()
    )
    return infer_schema(bytes(row[0]) if row[0] is not None else None for row in rows)


def _first(found: Snapshot, count: int) -> dict[str, str]:
    """Return the offsets of the beginning of every partition that has messages."""
    filled = {
        name: {
            str(partition): extent
            for partition, extent in state.partitions.items()
            if extent.end > extent.start
        }
        for name, state in found.items()
    }
    filled = {name: extents for name, extents in filled.items() if extents}
    starts = {name: {p: each.start for p, each in extents.items()} for name, extents in filled.items()}
    ends = {
        name: {p: min(each.end, each.start + count) for p, each in extents.items()}
        for name, extents in filled.items()
    }
    assigned = {name: [int(p) for p in extents] for name, extents in filled.items()}
    return {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }


def _selected(source: Source) -> dict[str, str]:
    if source.pattern is not None:
        return {"subscribePattern": source.pattern}
    return {"subscribe": ",".join(source.topics)}


def _started(source: Source) -> dict[str, str]:
    if source.start == BEGINNING:
        return {"startingOffsets": "earliest"}
    if source.start == END:
        return {"startingOffsets": "latest"}
    # A start time after the last message is no fault: the stream begins with the next message.
    return {"startingTimestamp": str(source.start), "startingOffsetsByTimestampStrategy": "latest"}


def _said(source: Source) -> str:
    return f"topics like {source.pattern}" if source.pattern else f"topic {', '.join(source.topics)}"
