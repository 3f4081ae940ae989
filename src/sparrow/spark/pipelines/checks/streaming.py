"""What Spark's streams can do: modes, aggregates and their watermarks, SQL that is only for batches.

Spark refuses these when a query starts, after the session has started and perhaps after other flows have; here they are known from the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from sparrow.spark.pipelines.checks.finding import Finding
from sparrow.spark.pipelines.checks.sqltext import parse_query
from sparrow.spark.pipelines.model import (
    APPEND,
    COMPLETE,
    INPUT,
    UPDATE,
    ConsoleSink,
    JdbcSink,
    PythonStep,
    SqlStep,
    TopicSink,
    WatermarkStep,
    WindowStep,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.spark.pipelines.model import Flow, Pipeline, Sink, Step


def judge_streaming(pipeline: Pipeline) -> Iterator[Finding]:
    """All flows."""
    for flow in pipeline.flows:
        yield from _judge_sql(flow)
        yield from _judge_state(flow)
        yield from _judge_mode(flow)


def _judge_sql(flow: Flow) -> Iterator[Finding]:
    for step in flow.steps:
        query = _parsed(step)
        for select in _over_input(query) if query is not None else ():
            for fault in _faults_of_select(select, flow.mode):
                yield Finding(step, (), fault)


def _parsed(step: Step) -> exp.Query | None:
    """None: it is no SQL, or none that can be read, which is told elsewhere."""
    if not isinstance(step, SqlStep):
        return None
    try:
        return parse_query(step.query)
    except ValueError:
        return None


def _over_input(query: exp.Query) -> Iterator[exp.Select]:
    """The SELECTs of a query that read the stream, as far as that is seen from themselves; those over tables may do anything."""
    defined = {each.alias_or_name.lower() for each in query.find_all(exp.CTE)}
    for select in query.find_all(exp.Select):
        if any(table.name.lower() in {INPUT, *defined} for table in select.find_all(exp.Table)):
            yield select


def _faults_of_select(select: exp.Select, mode: str) -> Iterator[str]:
    windows = [each for each in select.find_all(exp.Window) if each.parent_select is select]
    if windows:
        yield f"has {_short(windows[0])}: Spark numbers and compares rows of a stream only in windows of time; use the step 'window' or 'deduplicate'"
    distinct = [
        each
        for each in select.find_all(exp.AggFunc)
        if each.parent_select is select and isinstance(each.this, exp.Distinct)
    ]
    if distinct:
        yield f"has {_short(distinct[0])}: Spark cannot count distinct values of a stream; say approx_count_distinct(…)"
    if select.args.get("order") and not (mode == COMPLETE and _is_aggregate(select)):
        yield "has ORDER BY: a stream has no order, but for an aggregate in mode 'complete'"
    if select.args.get("limit") and mode == UPDATE:
        yield "has LIMIT, which Spark does not take in mode 'update'"


def _short(expression: exp.Expr) -> str:
    text = expression.sql("spark")
    return text if len(text) <= 60 else text[:57] + "..."


def _is_aggregate(query: exp.Query) -> bool:
    """Whether a query makes groups of the rows of the stream."""
    for select in _over_input(query):
        if select.args.get("group"):
            return True
        if any(
            each.parent_select is select and not isinstance(each.parent, exp.Window)
            for each in select.find_all(exp.AggFunc)
        ):
            return True
    return False


def _aggregates(step: Step) -> bool:
    if isinstance(step, WindowStep):
        return True
    query = _parsed(step)
    return query is not None and _is_aggregate(query)


def _judge_state(flow: Flow) -> Iterator[Finding]:
    watermark: WatermarkStep | None = None
    is_certain = True
    count = 0
    for step in flow.steps:
        if isinstance(step, WatermarkStep):
            watermark, is_certain = step, True
        elif _aggregates(step):
            count += 1
            yield from _judge_aggregate(
                flow, step, watermark if is_certain else None, has_one=watermark is not None
            )
            if count > 1 and flow.mode != APPEND:
                yield Finding(
                    step, (), f"is a second aggregate, which Spark does not take in mode {flow.mode!r}"
                )
        elif isinstance(step, PythonStep):
            # It may set a watermark of its own.
            return
        elif isinstance(step, SqlStep):
            # The column of times may have another name now.
            is_certain = False


def _judge_aggregate(
    flow: Flow, step: Step, watermark: WatermarkStep | None, *, has_one: bool
) -> Iterator[Finding]:
    if flow.mode != APPEND:
        return
    if not has_one:
        yield Finding(
            step,
            (),
            "aggregates a stream in mode 'append', where a result is written once, when it is final: put a step 'watermark' before it, or"
            " say 'mode: update'",
        )
    elif (
        isinstance(step, WindowStep)
        and watermark is not None
        and watermark.column.lower() != step.column.lower()
    ):
        yield Finding(
            step,
            ("column",),
            f"the watermark is on {watermark.column!r}; in mode 'append' the windows must be over the same column",
        )


def _judge_mode(flow: Flow) -> Iterator[Finding]:
    aggregates = any(_aggregates(step) for step in flow.steps)
    is_known = all(not isinstance(step, PythonStep) for step in flow.steps)
    if flow.mode == COMPLETE and is_known and not aggregates:
        yield Finding(
            flow, ("mode",), "'complete' writes all results of an aggregate anew, and the flow has none"
        )
    if flow.mode not in _modes_of(flow.sink):
        allowed = ", ".join(_modes_of(flow.sink))
        more = " (with 'key' also update)" if isinstance(flow.sink, JdbcSink) and not flow.sink.key else ""
        yield Finding(
            flow, ("mode",), f"{flow.mode!r} cannot be written to {flow.sink.KEY}; it takes {allowed}{more}"
        )


def _modes_of(sink: Sink) -> tuple[str, ...]:
    if isinstance(sink, TopicSink | ConsoleSink):
        return (APPEND, UPDATE, COMPLETE)
    if isinstance(sink, JdbcSink) and sink.key:
        return (APPEND, UPDATE)
    return (APPEND,)
