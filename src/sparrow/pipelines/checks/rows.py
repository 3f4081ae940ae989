"""Checks of column names, by walking a flow from its decoders to its sink with the columns known at
each step: every column that a step, an expectation or the sink names must exist.

Columns are unknown behind a Python function, an inferred schema or a table without a schema;
nothing is reported there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.faults import suggestion
from sparrow.pipelines.checks.columns import UNKNOWN, FlowColumns, is_number, is_time
from sparrow.pipelines.checks.conditions import fault_of_condition
from sparrow.pipelines.checks.findings import Finding
from sparrow.pipelines.checks.schemas import columns_of_table, decoded_columns
from sparrow.pipelines.checks.sqltext import parse_query, resolve, tables_of
from sparrow.pipelines.model import (
    HEADER_COLUMNS,
    INPUT,
    JSON_VALUE,
    DeduplicateStep,
    DeltaSink,
    JdbcSink,
    JoinStep,
    ParquetSink,
    SqlStep,
    TopicSink,
    WatermarkStep,
    WindowStep,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparrow.pipelines.model import Flow, Node, PipelineModel, Step

_MESSAGE_ID = HEADER_COLUMNS[1]


def judge_rows(pipeline: PipelineModel) -> Iterator[Finding]:
    """Check all flows."""
    tables = {table.name.lower(): columns_of_table(table) for table in pipeline.tables}
    are_known = "tables" not in pipeline.unread
    for flow in pipeline.flows:
        walk = _Walk(flow, tables, _columns_at_start(pipeline, flow), are_tables_known=are_known)
        yield from walk.findings()


def _columns_at_start(pipeline: PipelineModel, flow: Flow) -> FlowColumns:
    """Return the columns of the first row. The columns of another flow's files are known only when
    that flow runs.
    """
    feeder = next((each for each in pipeline.flows if each.name == flow.source.flow), None)
    return UNKNOWN if feeder is not None and not isinstance(feeder.sink, TopicSink) else decoded_columns(flow)


class _Walk:
    def __init__(
        self, flow: Flow, tables: Mapping[str, FlowColumns], columns: FlowColumns, *, are_tables_known: bool
    ) -> None:
        self._are_tables_known = are_tables_known
        self._flow = flow
        self._tables = tables
        self._columns = columns

    def findings(self) -> Iterator[Finding]:
        for step in self._flow.steps:
            yield from self._step(step)
            if step.unread and not isinstance(step, WatermarkStep | DeduplicateStep):
                self._columns = UNKNOWN
        if "steps" in self._flow.unread:
            self._columns = UNKNOWN
        for each in self._flow.expect:
            fault = fault_of_condition(each.check, self._columns)
            if fault:
                yield Finding(each, ("check",), fault)
        yield from self._sink()

    def _step(self, step: Step) -> Iterator[Finding]:
        match step:
            case SqlStep():
                yield from self._sql(step)
            case WatermarkStep():
                yield from self._watermark(step)
            case DeduplicateStep():
                yield from self._deduplicate(step)
            case WindowStep():
                yield from self._window(step)
            case JoinStep():
                yield from self._join(step)
            case _:
                self._columns = UNKNOWN

    def _missing(self, node: Node, field: str, names: Sequence[str]) -> Iterator[Finding]:
        for name in self._columns.missing_among(names):
            yield Finding(node, (field,), self._columns.missing(name))

    def _missing_own(self, node: Node, field: str, names: Sequence[str]) -> Iterator[Finding]:
        """Report columns that begin with an underscore, which tables do not get."""
        for name in names:
            if name.startswith("_"):
                yield Finding(
                    node,
                    (field,),
                    f"{name!r} does not reach the sink, which gets no columns that begin with '_'; "
                    "give it another name in a step of SQL:"
                    f" {name} AS {name.lstrip('_') or 'other'}",
                )
            elif not self._columns.has(name):
                yield Finding(node, (field,), self._columns.missing(name))

    # ── SQL ───────────────────────────────────────────────────────────────────────────────────────

    def _sql(self, step: SqlStep) -> Iterator[Finding]:
        try:
            query = parse_query(step.query)
        except ValueError as error:
            yield Finding(step, (), str(error))
            self._columns = UNKNOWN
            return
        known = {INPUT: self._columns, **self._tables}
        read = [table.sql("spark").partition(" ")[0].replace("`", "") for table in tables_of(query)]
        strange = [name for name in dict.fromkeys(read) if name.lower() not in known]
        for name in strange if self._are_tables_known else ():
            yield Finding(step, (), _no_table(name, list(known)))
        if INPUT not in map(str.lower, read) and not strange:
            yield Finding(
                step,
                (),
                f"does not read {INPUT!r}, the result of the step before; what it gives would not "
                "be a stream",
            )
        found = resolve(query, known)
        for name in found.missing:
            yield Finding(
                step, (), _no_column(name, [known[each.lower()] for each in read if each.lower() in known])
            )
        self._columns = UNKNOWN if strange else found.columns

    # ── time and state ────────────────────────────────────────────────────────────────────────────

    def _watermark(self, step: WatermarkStep) -> Iterator[Finding]:
        yield from self._missing(step, "column", [step.column])
        kind = self._columns.type(step.column)
        if not is_time(kind, is_strict=True):
            yield Finding(
                step, ("column",), f"{step.column!r} is of type {kind}; a watermark needs a timestamp"
            )

    def _deduplicate(self, step: DeduplicateStep) -> Iterator[Finding]:
        yield from self._missing(step, "by", step.by)
        if not step.by and not self._columns.has(_MESSAGE_ID):
            yield Finding(
                step,
                (),
                f"without 'by', the column {_MESSAGE_ID!r} is needed, which a step before has not "
                "kept; put this step first",
            )

    def _window(self, step: WindowStep) -> Iterator[Finding]:
        yield from self._missing(step, "column", [step.column])
        kind = self._columns.type(step.column)
        if not is_time(kind):
            yield Finding(step, ("column",), f"{step.column!r} is of type {kind}; a window needs a timestamp")
        yield from self._missing(step, "by", step.by)
        is_known = step.unread.isdisjoint(("length", "slide"))
        if is_known and step.slide_ms is not None and step.slide_ms > step.length_ms:
            yield Finding(
                step, ("slide",), "is longer than the window, so that rows between windows would be lost"
            )
        if not step.select:
            yield Finding(step, ("select",), "needs at least one aggregate, such as {total: sum(amount)}")
        types: dict[str, str | None] = {"window_start": "TIMESTAMP", "window_end": "TIMESTAMP"}
        types |= {name.lower(): self._columns.type(name) for name in step.by}
        for name, text in step.select.items():
            if name.lower() in types:
                yield Finding(step, ("select", name), f"the result has a column {name!r} already")
            types[name.lower()] = None
            yield from self._aggregate(step, name, text)
        self._columns = FlowColumns(types)

    def _aggregate(self, step: WindowStep, name: str, text: str) -> Iterator[Finding]:
        from sparrow.pipelines.checks.conditions import fault_of_aggregate

        fault = fault_of_aggregate(text, self._columns, step.by)
        if fault:
            yield Finding(step, ("select", name), fault)

    def _join(self, step: JoinStep) -> Iterator[Finding]:
        table = self._tables.get(step.table.lower())
        yield from self._missing(step, "on", step.on)
        if not step.on:
            yield Finding(step, ("on",), "needs at least one column")
        if table is None:
            if self._are_tables_known:
                yield Finding(step, ("table",), _no_table(step.table, list(self._tables)))
            self._columns = UNKNOWN
            return
        for name in table.missing_among(step.on):
            yield Finding(step, ("on",), f"in table {step.table!r} {table.missing(name)}")
        self._columns = _joined(self._columns, table, step)

    # ── the sink ──────────────────────────────────────────────────────────────────────────────────

    def _sink(self) -> Iterator[Finding]:
        sink = self._flow.sink
        if isinstance(sink, TopicSink):
            yield from self._topic(sink)
        elif isinstance(sink, ParquetSink | DeltaSink):
            yield from self._missing_own(sink, "partition_by", sink.partition_by)
            own = self._columns.own()
            if (
                sink.partition_by
                and not own.is_open
                and set(own.types) <= {each.lower() for each in sink.partition_by}
            ):
                yield Finding(sink, ("partition_by",), "all columns are in it; files need at least one other")
        elif isinstance(sink, JdbcSink):
            yield from self._missing_own(sink, "key", sink.key)

    def _topic(self, sink: TopicSink) -> Iterator[Finding]:
        named = {"key": sink.key, "partition": sink.partition, "timestamp": sink.timestamp}
        if sink.value != JSON_VALUE:
            named["value"] = sink.value
        for field, name in named.items():
            if name is not None:
                yield from self._missing(sink, field, [name])
        for header, name in sink.headers.items():
            if not self._columns.has(name):
                yield Finding(sink, ("headers", header), self._columns.missing(name))
        if sink.partition is not None and not is_number(self._columns.type(sink.partition)):
            kind = self._columns.type(sink.partition)
            yield Finding(
                sink, ("partition",), f"{sink.partition!r} is of type {kind}; a partition is a whole number"
            )
        if sink.timestamp is not None and not is_time(self._columns.type(sink.timestamp)):
            kind = self._columns.type(sink.timestamp)
            yield Finding(sink, ("timestamp",), f"{sink.timestamp!r} is of type {kind}; it needs a timestamp")


def _joined(columns: FlowColumns, table: FlowColumns, step: JoinStep) -> FlowColumns:
    if step.how in ("left_semi", "left_anti"):
        return columns
    if columns.is_open or table.is_open:
        return UNKNOWN
    on = {name.lower() for name in step.on}
    others = {name: kind for name, kind in table.types.items() if name not in on}
    # If two columns share a name, only Spark can say which is meant.
    return UNKNOWN if set(others) & set(columns.types) else columns.with_others(others)


def _no_column(name: str, sources: Sequence[FlowColumns]) -> str:
    """Return the error text for a name that no source of a query has."""
    types = {each: kind for source in sources for each, kind in source.types.items()}
    table, dot, column = name.rpartition(".")
    if not dot:
        return FlowColumns(types).missing(name)
    close = suggestion(column.lower(), types)
    return f"there is no column {name!r} here{close or f'; is {table!r} a table that the query reads?'}"


def _no_table(name: str, known: Sequence[str]) -> str:
    close = suggestion(name.lower(), known)
    if close or not known:
        return f"there is no table {name!r}{close or '; declare it in the tables of the pipeline'}"
    return f"there is no table {name!r}; there are {', '.join(known)}"
