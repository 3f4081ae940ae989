"""Pipelines: topics through Spark to topics and tables, described by a YAML file or in Python.

    from sparrow import pipelines

    pipeline = pipelines.load("orders.yml")
    pipeline.check()
    pipeline.run(master="local[2]")

Nothing here starts Java or imports PySpark before a pipeline is run.
"""

from __future__ import annotations

from sparrow.pipelines.checks import check
from sparrow.pipelines.model import (
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
from sparrow.pipelines.pipeline import Pipeline, run
from sparrow.pipelines.pipeline_file import load

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
