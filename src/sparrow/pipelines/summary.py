"""Summary of a pipeline, as text for people and as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparrow.base.units import counted, format_duration
from sparrow.pipelines.model import (
    ConsoleSink,
    DeltaSink,
    Every,
    IcebergSink,
    JdbcSink,
    ParquetSink,
    TopicSink,
)

if TYPE_CHECKING:
    from sparrow.pipelines.model import Flow, PipelineModel, Sink, Source, Trigger

HEADINGS = ("FLOW", "FROM", "TO", "TRIGGER", "MODE", "STEPS")


def flow_row(pipeline: PipelineModel, flow: Flow) -> tuple[str, ...]:
    """Return a flow as a row under `HEADINGS`."""
    steps = ", ".join(step.KEY for step in flow.steps) or "none"
    return (
        flow.name,
        source_words(flow.source),
        sink_words(flow),
        trigger_words(pipeline.trigger_of(flow)),
        flow.mode,
        steps,
    )


def flow_data(pipeline: PipelineModel, flow: Flow) -> dict[str, Any]:
    """Return a flow as plain data."""
    return {
        "pipeline": pipeline.name,
        "flow": flow.name,
        "query": pipeline.query_name(flow),
        "from": source_words(flow.source),
        "to": sink_words(flow),
        "dead_letters": flow.dead_letters,
        "trigger": trigger_words(pipeline.trigger_of(flow)),
        "mode": flow.mode,
        "steps": [step.KEY for step in flow.steps],
        "checkpoint": pipeline.checkpoint_of(flow),
    }


def source_words(source: Source) -> str:
    """Return "topic orders", "topics a, b", "topics like orders\\..*" or "flow clean"."""
    if source.flow is not None:
        return f"flow {source.flow}"
    if source.pattern is not None:
        return f"topics like {source.pattern}"
    return f"topic{'s' if len(source.topics) > 1 else ''} {', '.join(source.topics)}"


def sink_words(flow: Flow) -> str:
    """Return "topic clean-orders", with the topic of the dead letters if there is one."""
    dead = f" (dead letters: {flow.dead_letters})" if flow.dead_letters else ""
    return f"{flow.sink.KEY}{_target(flow.sink)}{dead}"


def _target(sink: Sink) -> str:
    match sink:
        case TopicSink(topic=target) | IcebergSink(table=target) | JdbcSink(table=target):
            return f" {target}"
        case ParquetSink(path=target) | DeltaSink(path=target):
            return f" {target}"
        case ConsoleSink():
            return ""


def trigger_words(trigger: Trigger) -> str:
    """Return "once", "every 10s" or "continuous"."""
    if isinstance(trigger, Every):
        return f"every {format_duration(trigger.interval_ms)}" if trigger.interval_ms else "continuous"
    return "once"


def size_words(pipeline: PipelineModel) -> str:
    """Return "3 flows, 1 table"."""
    tables = f", {counted(len(pipeline.tables), 'table')}" if pipeline.tables else ""
    return f"{counted(len(pipeline.flows), 'flow')}{tables}"
