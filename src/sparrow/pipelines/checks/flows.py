"""Checks of how flows fit together: every source exists, no flow feeds itself, and no two flows
write a target that takes only one writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.faults import suggestion
from sparrow.pipelines.checks.findings import Finding
from sparrow.pipelines.graph import cycles, edges, reads
from sparrow.pipelines.model import (
    DEAD_LETTER,
    DeduplicateStep,
    DeltaSink,
    IcebergSink,
    ParquetSink,
    TopicSink,
    Unread,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.pipelines.model import Flow, PipelineModel, Sink


def judge_graph(pipeline: PipelineModel) -> Iterator[Finding]:
    """Check all flows together."""
    for flow in pipeline.flows:
        yield from _judge_source(pipeline, flow)
        yield from _judge_topics(flow)
        yield from _judge_dead_letters(flow)
    yield from _judge_cycles(pipeline)
    yield from _judge_targets(pipeline)


def _judge_source(pipeline: PipelineModel, flow: Flow) -> Iterator[Finding]:
    source = flow.source
    present = [word for word in ("topics", "pattern", "flow") if getattr(source, word)]
    # A misspelled key may be the missing one, so keep silent if the source has unread keys.
    if len(present) > 1 or (not present and source.unread.isdisjoint(("topics", "pattern", "flow"))):
        here = f"; here are {' and '.join(present)}" if present else ""
        yield Finding(source, (), f"a source is one of topics, pattern, flow{here}")
    if source.flow is None:
        return
    others = {each.name: each for each in pipeline.flows}
    other = others.get(source.flow)
    if other is None and (
        "flows" in pipeline.unread or any("name" in each.unread for each in pipeline.flows)
    ):
        return
    if other is None:
        close = suggestion(source.flow, others)
        yield Finding(source, ("flow",), f"there is no flow {source.flow!r}{close}")
    elif isinstance(other.sink, Unread):
        return
    elif not isinstance(other.sink, TopicSink | ParquetSink):
        yield Finding(
            source,
            ("flow",),
            f"flow {other.name!r} writes to {other.sink.KEY}, which cannot be read as a stream; it "
            "can be a topic or Parquet",
        )
    elif isinstance(other.sink, ParquetSink):
        yield from _judge_rows(flow, other)


def _judge_rows(flow: Flow, other: Flow) -> Iterator[Finding]:
    """Check a flow that reads rows of a table: these are already columns and lack the message's
    metadata.
    """
    for word in ("decode", "key"):
        if getattr(flow, word) is not None:
            yield Finding(
                flow,
                (word,),
                f"what comes from flow {other.name!r} are rows of Parquet; there is nothing to decode",
            )
    for step in flow.steps:
        if isinstance(step, DeduplicateStep) and not step.by:
            yield Finding(
                step,
                (),
                f"what comes from flow {other.name!r} are rows of Parquet, which have no message "
                "id; say by which columns they are equal: 'by'",
            )
    for word in ("headers", "max_bytes_per_trigger", "max_rows_per_trigger"):
        if getattr(flow.source, word):
            yield Finding(
                flow.source, (word,), f"this is for topics; flow {other.name!r} writes rows of Parquet"
            )


def _judge_topics(flow: Flow) -> Iterator[Finding]:
    if isinstance(flow.sink, TopicSink) and reads(flow.source, flow.sink.topic):
        yield Finding(
            flow.sink,
            ("topic",),
            f"the flow reads topic {flow.sink.topic!r}, too; it would feed itself for ever",
        )


def _judge_dead_letters(flow: Flow) -> Iterator[Finding]:
    if "dead_letters" in flow.unread:
        return
    if flow.dead_letters is None:
        for each in flow.expect:
            if each.otherwise == DEAD_LETTER:
                yield Finding(
                    each,
                    ("otherwise",),
                    "rows that fail are to go to the dead letters, and the flow names no topic for "
                    "them; give it"
                    " 'dead_letters: <topic>', or say 'otherwise: drop' or 'stop'",
                )
        return
    if isinstance(flow.sink, TopicSink) and flow.sink.topic == flow.dead_letters:
        yield Finding(flow, ("dead_letters",), f"{flow.dead_letters!r} is the topic of the sink, too")
    if reads(flow.source, flow.dead_letters):
        yield Finding(
            flow,
            ("dead_letters",),
            f"the flow reads topic {flow.dead_letters!r}, too; it would feed itself for ever",
        )


def _judge_cycles(pipeline: PipelineModel) -> Iterator[Finding]:
    flows = {flow.name: flow for flow in pipeline.flows}
    for path in cycles(edges(pipeline.flows)):
        flow = flows[path[0]]
        if len(path) > 2:
            yield Finding(flow, ("from",), f"flows feed each other in a circle: {' → '.join(path)}")
        elif flow.source.flow == flow.name:
            yield Finding(flow.source, ("flow",), "a flow cannot read what it writes itself")


def _judge_targets(pipeline: PipelineModel) -> Iterator[Finding]:
    """Check that no two queries write one table: each takes the other's files for its own or for
    foreign ones.
    """
    written: dict[str, Flow] = {}
    for flow in pipeline.flows:
        target = _target(flow.sink)
        if target is None:
            continue
        other = written.setdefault(target, flow)
        if other is not flow:
            yield Finding(
                flow.sink,
                (flow.sink.KEY,),
                f"flow {other.name!r} writes to {target}, too; each needs its own",
            )
        inside = pipeline.checkpoints.rstrip("/")
        if isinstance(flow.sink, ParquetSink | DeltaSink) and f"{target}/".startswith(f"{inside}/"):
            yield Finding(
                flow.sink,
                (flow.sink.KEY,),
                f"{target} is inside the checkpoints ({inside}); give it another path",
            )


def _target(sink: Sink) -> str | None:
    match sink:
        case ParquetSink() | DeltaSink():
            return sink.path.rstrip("/")
        case IcebergSink():
            return f"{sink.catalog}.{sink.table}"
    return None
