"""What a flow reads: topics, or what another flow's sink gets."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from sparrow.base.errors import InvalidConfig, UnknownTopic
from sparrow.spark.options.connection import target_of, with_connection
from sparrow.spark.pipelines.engine.inference import infer_schema
from sparrow.spark.pipelines.model import BEGINNING, END, ParquetSink, TopicSink
from sparrow.spark.source.topics import Selection, Topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sparrow.spark.pipelines.model import Broker, Flow, Pipeline, Source
    from sparrow.spark.source.snapshot import Snapshot
    from sparrow.spark.wire import Target

FORMAT: Final = "sparrow"
_COLUMNS: Final = "key,value,topic,partition,offset,timestamp"


def broker_target(broker: Broker) -> Target:
    """Where the pipeline's broker is.

    Raises:
        InvalidArgument, InvalidConfig: what is said of it cannot be used.
    """
    return target_of(with_connection(()).read(broker.options()))


def topic_of(pipeline: Pipeline, flow: Flow) -> Source | None:
    """The source by its topics, also when it is another flow that writes to one; None: it is a flow with files."""
    from dataclasses import replace

    if flow.source.flow is None:
        return flow.source
    sink = pipeline.flow(flow.source.flow).sink
    return replace(flow.source, topics=[sink.topic], flow=None) if isinstance(sink, TopicSink) else None


def read_topics(spark: SparkSession, pipeline: Pipeline, source: Source, *, has_headers: bool) -> DataFrame:
    """A stream of the topics' messages, as the source gives them."""
    columns = f"{_COLUMNS},headers" if has_headers else _COLUMNS
    options = {**pipeline.broker.options(), **_selected(source), **_started(source), "columns": columns}
    if source.max_rows_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(source.max_rows_per_trigger)
    if source.max_bytes_per_trigger is not None:
        options["maxBytesPerTrigger"] = str(source.max_bytes_per_trigger)
    return spark.readStream.format(FORMAT).options(**options, **source.options).load()


def read_sink(spark: SparkSession, other: Flow, schema: StructType, source: Source) -> DataFrame:
    """A stream of what another flow's files get.

    Raises:
        InvalidConfig: the other flow has a sink that cannot be read as a stream.
    """
    sink = other.sink
    if not isinstance(sink, ParquetSink):
        raise InvalidConfig(
            f"a flow cannot read what the flow {other.name} writes to {sink.KEY}; it can read topics and Parquet"
        )
    if "://" not in sink.path:
        os.makedirs(sink.path, exist_ok=True)
    options: Mapping[str, str] = {"basePath": sink.path, **source.options}
    return spark.readStream.schema(schema).options(**options).parquet(sink.path)


def sample_schema(spark: SparkSession, pipeline: Pipeline, source: Source, column: str, count: int) -> str:
    """The schema of the first so many messages: by time, partition and offset, of those that are there."""
    topics = Topics(
        broker_target(pipeline.broker), Selection(tuple(source.topics), source.pattern), is_committed=True
    )
    found = topics.existing()
    if not any(extent.end > extent.start for state in found.values() for extent in state.partitions.values()):
        raise UnknownTopic(
            f"there are no messages in {_said(source)} to infer a schema from; say the schema, or publish first"
        )
    options = {**pipeline.broker.options(), **_first(found, count), "columns": _COLUMNS}
    df = spark.read.format(FORMAT).options(**options).load()
    rows = (
        df.orderBy("timestamp", "topic", "partition", "offset").limit(count).select(F.col(column)).collect()
    )
    return infer_schema(bytes(row[0]) if row[0] is not None else None for row in rows)


def _first(found: Snapshot, count: int) -> dict[str, str]:
    """The beginning of every partition that has one."""
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
    # Nothing so late yet is no fault of a stream: it begins with what comes.
    return {"startingTimestamp": str(source.start), "startingOffsetsByTimestampStrategy": "latest"}


def _said(source: Source) -> str:
    return f"topics like {source.pattern}" if source.pattern else f"topic {', '.join(source.topics)}"
