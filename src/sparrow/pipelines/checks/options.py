"""Checks of the options of sources and sinks, as far as they are declared: topic options by
`sparrow.spark.options`, other options only for the required ones.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument
from sparrow.pipelines.checks.findings import Finding
from sparrow.pipelines.model import IcebergSink, IcebergTable, JdbcSink, JdbcTable, TopicSink
from sparrow.spark.options.connection import with_connection
from sparrow.spark.options.sink import SINK_OPTIONS
from sparrow.spark.options.source import SOURCE, check_stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparrow.pipelines.model import Flow, Node, PipelineModel, Source
    from sparrow.spark.options.declare import Options

_OWN_SOURCE = {
    "subscribe": "topics",
    "subscribepattern": "pattern",
    "assign": "topics",
    "startingoffsets": "start",
    "startingtimestamp": "start",
    "maxoffsetspertrigger": "max_rows_per_trigger",
    "maxbytespertrigger": "max_bytes_per_trigger",
    "includeheaders": "headers",
}
"""Options of the source that have a setting of their own in a pipeline."""
_OWN_SINK = {"topic": "topic", "includeheaders": "headers"}
_CONNECTION = with_connection(())


def judge_options(pipeline: PipelineModel) -> Iterator[Finding]:
    """Check all options."""
    for fault in _faults(_CONNECTION, pipeline.broker.options(), {}):
        yield Finding(pipeline.broker, (), fault)
    for table in pipeline.tables:
        if isinstance(table, IcebergTable):
            yield from _judge_iceberg(table, table.table)
        elif isinstance(table, JdbcTable):
            yield from _judge_jdbc(table, table.url)
    for flow in pipeline.flows:
        yield from _judge_source(flow.source)
        yield from _judge_sink(flow)


def _judge_source(source: Source) -> Iterator[Finding]:
    if source.pattern is not None:
        try:
            re.compile(source.pattern)
        except (re.error, OverflowError, RecursionError) as error:
            yield Finding(source, ("pattern",), f"is no regular expression: {error}")
    if source.options and (source.topics or source.pattern is not None):
        for fault in _faults(SOURCE, source.options, _OWN_SOURCE, {"subscribe": "any"}):
            yield Finding(source, ("options",), fault)


def _judge_sink(flow: Flow) -> Iterator[Finding]:
    sink = flow.sink
    if isinstance(sink, TopicSink):
        for fault in _faults(SINK_OPTIONS, sink.options, _OWN_SINK, {"topic": sink.topic or "any"}):
            yield Finding(sink, ("options",), fault)
    elif isinstance(sink, IcebergSink):
        yield from _judge_iceberg(sink, sink.table)
    elif isinstance(sink, JdbcSink):
        yield from _judge_jdbc(sink, sink.url)


def _judge_iceberg(node: Node, table: str) -> Iterator[Finding]:
    if not all(table.split(".")) or "." not in table:
        yield Finding(node, ("iceberg",), f"{table!r} is no table of a catalog; it takes namespace.table")


def _judge_jdbc(node: Node, url: str) -> Iterator[Finding]:
    if not url.startswith("jdbc:"):
        yield Finding(
            node, ("url",), "a URL of JDBC begins with 'jdbc:', such as jdbc:postgresql://host/database"
        )


def _faults(
    options: Options,
    given: Mapping[str, str],
    own: Mapping[str, str],
    always: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Yield each fault of the options as a sentence."""
    left = {}
    for name, value in given.items():
        word = own.get(name.lower().replace("_", ""))
        if word is None:
            left[name] = value
        else:
            yield f"{name!r} is not said here; a pipeline has the word {word!r} for it"
    values, faults = options.judge({**(always or {}), **left})
    yield from dict.fromkeys(faults)
    if options is SOURCE:
        try:
            check_stream(values)
        except InvalidArgument as error:
            yield error.text
