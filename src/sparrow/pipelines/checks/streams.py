"""Checks against the limits of Spark's streams: modes, aggregates and their watermarks, and SQL
that only batches can run.

Spark refuses these when a query starts, after the session has started and perhaps after other flows
have; here they are found from the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from sparrow.pipelines.checks.findings import Finding
from sparrow.pipelines.checks.sqltext import parse_query
from sparrow.pipelines.model import (
    APPEND,
    COMPLETE,
    INPUT,
    UPDATE,
    ConsoleSink,
    DeltaSink,
    IcebergSink,
    JdbcSink,
    PythonStep,
    SqlStep,
    TopicSink,
    Unread,
    WatermarkStep,
    WindowStep,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.pipelines.model import Flow, PipelineModel, Sink, Step


def judge_streaming(pipeline: PipelineModel) -> Iterator[Finding]:
    """Check all flows."""
    for flow in pipeline.flows:
        yield from _judge_sql(flow)
        if "mode" not in flow.unread:
            yield from _judge_state(flow)
            yield from _judge_mode(flow)


def _judge_sql(flow: Flow) -> Iterator[Finding]:
    for step in flow.steps:
        query = _parsed(step)
        if query is None:
            continue
        if any(_is_value(select) and _reads_input(query, select) for select in query.find_all(exp.Select)):
            yield Finding(
                step,
                (),
                "has a SELECT over the stream inside an expression, which Spark does not take; join instead",
            )
        for select in _over_input(query):
            for fault in _faults_of_select(select, None if "mode" in flow.unread else flow.mode):
                yield Finding(step, (), fault)


def _parsed(step: Step) -> exp.Query | None:
    """Return the query of a SQL step, or None if it is no SQL or cannot be parsed, which another
    check reports.
    """
    if not isinstance(step, SqlStep):
        return None
    try:
        return parse_query(step.query)
    except ValueError:
        return None


def _over_input(query: exp.Query) -> Iterator[exp.Select]:
    """Yield the SELECTs of a query that certainly read the stream; those over tables may do
    anything.
    """
    for select in query.find_all(exp.Select):
        if _reads_input(query, select) and not _is_value(select):
            yield select


def _reads_input(query: exp.Query, select: exp.Select) -> bool:
    defined = {each.alias_or_name.lower() for each in query.find_all(exp.CTE)}
    return any(table.name.lower() in {INPUT, *defined} for table in select.find_all(exp.Table))


def _is_value(select: exp.Select) -> bool:
    """Return True if the SELECT is used as a value or a condition, not as a table."""
    inner: exp.Expr = select
    outer = select.parent
    while outer is not None and not isinstance(outer, exp.Select):
        if isinstance(outer, exp.From | exp.Join | exp.CTE | exp.SetOperation | exp.Lateral):
            return False
        inner, outer = outer, outer.parent
    return outer is not None and inner is not select


def _faults_of_select(select: exp.Select, mode: str | None) -> Iterator[str]:
    windows = [each for each in select.find_all(exp.Window) if each.parent_select is select]
    if windows:
        yield (
            f"has {_short(windows[0])}: Spark numbers and compares rows of a stream only in windows "
            "of time; use the step 'window' or 'deduplicate'"
        )
    distinct = [
        each
        for each in select.find_all(exp.AggFunc)
        if each.parent_select is select and isinstance(each.this, exp.Distinct)
    ]
    if distinct:
        yield (
            f"has {_short(distinct[0])}: Spark cannot count distinct values of a stream; say "
            "approx_count_distinct(…)"
        )
    if select.args.get("order") and not (mode in (None, COMPLETE) and _is_aggregate(select)):
        yield "has ORDER BY: a stream has no order, but for an aggregate in mode 'complete'"
    if select.args.get("limit") and mode == UPDATE:
        yield "has LIMIT, which Spark does not take in mode 'update'"


def _short(expression: exp.Expr) -> str:
    text = expression.sql("spark")
    return text if len(text) <= 60 else text[:57] + "..."


def _is_aggregate(query: exp.Query) -> bool:
    """Return True if a query groups the rows of the stream."""
    for select in _over_input(query):
        if select.args.get("group") or select.args.get("distinct"):
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
    before: Step | None = None
    for step in flow.steps:
        if isinstance(step, WatermarkStep):
            watermark, is_certain = step, True
        elif _aggregates(step) and before is not None:
            yield from _judge_second(flow, step, before)
        elif _aggregates(step):
            before = step
            yield from _judge_aggregate(
                flow, step, watermark if is_certain else None, has_one=watermark is not None
            )
        elif isinstance(step, PythonStep | Unread) or step.unread:
            # The step may set a watermark of its own.
            return
        elif isinstance(step, SqlStep):
            # The column of times may have another name now.
            is_certain = False


def _judge_second(flow: Flow, step: Step, before: Step) -> Iterator[Finding]:
    """Refuse a second aggregate: after a window there is no watermark any more. If SQL made the
    first aggregate, the times are not known.
    """
    if flow.mode != APPEND or isinstance(before, WindowStep):
        yield Finding(
            step,
            (),
            "is a second aggregate, which Spark does not take here; make it a flow of its own, "
            f"that reads 'from: {{flow: {flow.name}}}'",
        )


def _judge_aggregate(
    flow: Flow, step: Step, watermark: WatermarkStep | None, *, has_one: bool
) -> Iterator[Finding]:
    if flow.mode != APPEND:
        return
    if not has_one:
        yield Finding(
            step,
            (),
            "aggregates a stream in mode 'append', where a result is written once, when it is "
            "final: put a step 'watermark' before it, or"
            " say 'mode: update'",
        )
    elif isinstance(step, SqlStep) and watermark is not None and _is_timeless(step, watermark.column):
        yield Finding(
            step,
            (),
            f"does not group by {watermark.column!r}, on which the watermark is: in mode 'append' "
            "no result would ever be final; group by it"
            f" or by window({watermark.column}, …), or say 'mode: update'",
        )
    elif (
        isinstance(step, WindowStep)
        and watermark is not None
        and watermark.column.lower() != step.column.lower()
    ):
        yield Finding(
            step,
            ("column",),
            f"the watermark is on {watermark.column!r}; in mode 'append' the windows must be over "
            "the same column",
        )


def _is_timeless(step: SqlStep, column: str) -> bool:
    """Return True if no group of an aggregate can depend on a column; only if that is certain."""
    query = _parsed(step)
    if not isinstance(query, exp.Select) or query.is_star or query.find(exp.Subquery, exp.CTE):
        return False
    if query.args.get("distinct"):
        return False
    group = query.args.get("group")
    keys = group.expressions if group is not None else []
    aliases = {each.alias.lower() for each in query.selects if isinstance(each, exp.Alias)}
    is_plain = all(
        isinstance(each, exp.Column) and each.name.lower() not in {column.lower(), *aliases} for each in keys
    )
    return is_plain and (group is None or bool(keys))


def _judge_mode(flow: Flow) -> Iterator[Finding]:
    aggregates = any(_aggregates(step) for step in flow.steps)
    is_known = "steps" not in flow.unread and all(
        not isinstance(step, PythonStep | Unread) for step in flow.steps
    )
    if flow.mode == COMPLETE and is_known and not aggregates:
        yield Finding(
            flow, ("mode",), "'complete' writes all results of an aggregate again, and the flow has none"
        )
    if flow.mode not in _modes_of(flow.sink):
        allowed = ", ".join(_modes_of(flow.sink))
        more = " (with 'key' also update)" if isinstance(flow.sink, JdbcSink) and not flow.sink.key else ""
        yield Finding(
            flow, ("mode",), f"{flow.mode!r} cannot be written to {flow.sink.KEY}; it takes {allowed}{more}"
        )


def _modes_of(sink: Sink) -> tuple[str, ...]:
    if isinstance(sink, TopicSink | ConsoleSink | Unread):
        return (APPEND, UPDATE, COMPLETE)
    if isinstance(sink, JdbcSink) and (sink.key or "key" in sink.unread):
        return (APPEND, UPDATE)
    if isinstance(sink, DeltaSink | IcebergSink):
        return (APPEND, COMPLETE)
    return (APPEND,)
