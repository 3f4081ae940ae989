"""Checks of the files that a pipeline names: they exist and have the expected content. Files behind
a URI are left to Spark.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sparrow.pipelines.checks.findings import Finding
from sparrow.pipelines.functions import fault_of_function
from sparrow.pipelines.model import (
    AvroDecoder,
    DeltaSink,
    DeltaTable,
    FileTable,
    JdbcSink,
    JdbcTable,
    ParquetSink,
    ProtobufDecoder,
    PythonStep,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.pipelines.model import Flow, Node, PipelineModel

_BROKER_FILES = ("token_file", "password_file", "ca_file", "certificate_file", "key_file")
_PATTERN_CHARACTERS = "*?[{"


def judge_files(pipeline: PipelineModel) -> Iterator[Finding]:
    """Check all files."""
    for field in _BROKER_FILES:
        yield from _judge_file(pipeline.broker, field)
    written = {_written(flow) for flow in pipeline.flows}
    for table in pipeline.tables:
        if isinstance(table, JdbcTable):
            yield from _judge_file(table, "password_file")
        elif isinstance(table, FileTable | DeltaTable) and table.path.rstrip("/") not in written:
            yield from _judge_table(table)
    directory = os.path.dirname(os.path.abspath(pipeline.file)) if pipeline.file else os.getcwd()
    for flow in pipeline.flows:
        yield from _judge_flow(flow, directory)
    yield from _judge_directory(pipeline, "checkpoints", pipeline.checkpoints)


def _judge_flow(flow: Flow, directory: str) -> Iterator[Finding]:
    for decoder in (flow.decode, flow.key):
        if isinstance(decoder, AvroDecoder):
            yield from _judge_file(decoder, "schema_file")
        elif isinstance(decoder, ProtobufDecoder):
            yield from _judge_file(decoder, "descriptor_file")
    for step in flow.steps:
        if isinstance(step, PythonStep) and isinstance(step.function, str):
            fault = fault_of_function(step.function, directory)
            if fault:
                yield Finding(step, (), fault)
        elif isinstance(step, PythonStep) and not callable(step.function):
            yield Finding(step, (), "takes a function, or its name as module:function")
    if isinstance(flow.sink, JdbcSink):
        yield from _judge_file(flow.sink, "password_file")
    if isinstance(flow.sink, ParquetSink | DeltaSink):
        yield from _judge_directory(flow.sink, flow.sink.KEY, flow.sink.path)


def _written(flow: Flow) -> str:
    return flow.sink.path.rstrip("/") if isinstance(flow.sink, ParquetSink | DeltaSink) else ""


def _judge_file(node: Node, field: str) -> Iterator[Finding]:
    path: str | None = getattr(node, field)
    if path is None or "://" in path:
        return
    if os.path.isdir(path):
        yield Finding(node, (field,), f"{path} is a directory; a file is expected")
    elif not os.path.exists(path):
        yield Finding(node, (field,), f"there is no file {path}")
    elif not os.access(path, os.R_OK):
        yield Finding(node, (field,), f"{path} may not be read")


def _judge_table(table: FileTable | DeltaTable) -> Iterator[Finding]:
    path = table.path
    field = table.KEY if isinstance(table, DeltaTable) else table.format
    if "://" in path or any(character in path for character in _PATTERN_CHARACTERS):
        return
    if not os.path.exists(path):
        yield Finding(table, (field,), f"there is no file or directory {path}")
    elif isinstance(table, DeltaTable) and not os.path.isdir(os.path.join(path, "_delta_log")):
        yield Finding(table, (field,), f"{path} is no table of Delta Lake: it has no _delta_log")


def _judge_directory(node: Node, field: str, path: str) -> Iterator[Finding]:
    if "://" not in path and os.path.exists(path) and not os.path.isdir(path):
        yield Finding(node, (field,), f"{path} is a file; a directory is expected")
