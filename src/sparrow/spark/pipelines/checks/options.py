"""Options of sources and sinks, as far as they are declared: those of topics by `sparrow.spark.options`, the rest by what they need to be at all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument
from sparrow.spark.options.connection import with_connection
from sparrow.spark.options.sink import SINK_OPTIONS
from sparrow.spark.options.source import SOURCE, check_stream
from sparrow.spark.pipelines.checks.finding import Finding
from sparrow.spark.pipelines.model import IcebergSink, IcebergTable, JdbcSink, JdbcTable, TopicSink

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparrow.spark.options.declare import Options
    from sparrow.spark.pipelines.model import Flow, Node, Pipeline, Source

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
"""Options of the source that have a word of their own in a pipeline."""
_OWN_SINK = {"topic": "topic", "includeheaders": "headers"}
_CONNECTION = with_connection(())


def judge_options(pipeline: Pipeline) -> Iterator[Finding]:
    """All options."""
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
        for fault in _faults(SINK_OPTIONS, sink.options, _OWN_SINK, {"topic": sink.topic}):
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
    """What is wrong with options, each as a sentence of its own."""
    left = {}
    for name, value in given.items():
        word = own.get(name.lower().replace("_", ""))
        if word is None:
            left[name] = value
        else:
            yield f"{name!r} is not said here; a pipeline has the word {word!r} for it"
    try:
        values = options.read({**(always or {}), **left})
        if options is SOURCE:
            check_stream(values)
    except InvalidArgument as error:
        first, *rest = error.text.split("\n- ")
        yield from rest or [first.partition(" is wrong: ")[2] or first]
