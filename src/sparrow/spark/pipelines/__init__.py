"""Pipelines: topics through Spark to topics and tables, described by a YAML file or in Python.

    from sparrow.spark import pipelines

    pipeline = pipelines.load("orders.yml")
    pipeline.check()
    pipeline.run(master="local[2]")

Nothing here starts Java or imports PySpark before a pipeline is run.
"""

from __future__ import annotations

from typing import Any

from sparrow.spark.pipelines.checks import check
from sparrow.spark.pipelines.model import (
    AvroDecoder,
    Broker,
    ConsoleSink,
    CsvDecoder,
    DeduplicateStep,
    DeltaSink,
    DeltaTable,
    Every,
    Expectation,
    FileTable,
    Flow,
    IcebergSink,
    IcebergTable,
    JdbcSink,
    JdbcTable,
    JoinStep,
    JsonDecoder,
    Once,
    ParquetSink,
    Pipeline,
    ProtobufDecoder,
    PythonStep,
    RegexDecoder,
    Source,
    SqlStep,
    TextDecoder,
    TopicSink,
    WatermarkStep,
    WindowStep,
)
from sparrow.spark.pipelines.reading import load

__all__ = [
    "AvroDecoder",
    "Broker",
    "ConsoleSink",
    "CsvDecoder",
    "DeduplicateStep",
    "DeltaSink",
    "DeltaTable",
    "Every",
    "Expectation",
    "FileTable",
    "Flow",
    "IcebergSink",
    "IcebergTable",
    "JdbcSink",
    "JdbcTable",
    "JoinStep",
    "JsonDecoder",
    "Once",
    "ParquetSink",
    "Pipeline",
    "ProtobufDecoder",
    "PythonStep",
    "RegexDecoder",
    "Source",
    "SqlStep",
    "TextDecoder",
    "TopicSink",
    "WatermarkStep",
    "WindowStep",
    "check",
    "load",
    "run",
]


def run(pipeline: Pipeline, **options: Any) -> Any:
    """Check a pipeline, then run it; see `engine.run` for what there is to say and what comes back.

    Raises:
        InvalidConfig: it is wrong; names every fault with its place.
    """
    check(pipeline)
    from sparrow.spark.pipelines.engine import run as run_checked

    return run_checked(pipeline, **options)
