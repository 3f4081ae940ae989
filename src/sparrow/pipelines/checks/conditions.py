"""Expressions over the columns of a row: conditions of expectations, aggregates of windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from sparrow.pipelines.checks.sqltext import parse_expression, parse_query, resolve
from sparrow.pipelines.model import INPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.pipelines.checks.columns import FlowColumns

_AGGREGATES = frozenset(["sum", "count", "min", "max", "avg", "mean", "first", "last"])


def fault_of_condition(text: str, columns: FlowColumns) -> str:
    """Return the fault of a condition on one row, or "" if none is known."""
    try:
        expression = parse_expression(text)
    except ValueError as error:
        return str(error)
    if expression.find(exp.Query):
        return "has a SELECT in it; a condition is about one row (put what it needs into a step before)"
    if expression.find(exp.Window) or has_aggregate(expression):
        return "is about several rows; a condition is about one (compute it in a step before)"
    return _missing(text, columns) or _no_condition(expression, columns)


def fault_of_aggregate(text: str, columns: FlowColumns, by: Sequence[str]) -> str:
    """Return the fault of an aggregate of a window, or "" if none is known."""
    try:
        expression = parse_expression(text)
    except ValueError as error:
        return str(error)
    if isinstance(expression, exp.Alias):
        return f"has a name of its own, {expression.alias!r}; the name is before it"
    if expression.find(exp.Window, exp.Query):
        return "is no aggregate of the rows of a window"
    is_plain = isinstance(expression, exp.Column | exp.Literal)
    if is_plain and expression.name.lower() not in {name.lower() for name in by}:
        return f"{text.strip()!r} is no aggregate; say for instance max({text.strip()})"
    distinct = next((each for each in expression.find_all(exp.AggFunc) if each.find(exp.Distinct)), None)
    if distinct is not None:
        return "counts distinct values, which Spark cannot do in a stream; say approx_count_distinct(…)"
    return _missing(text, columns)


def has_aggregate(expression: exp.Expr) -> bool:
    """Return True if the expression has a function over several rows."""
    return any(not isinstance(each.parent, exp.Window) for each in expression.find_all(exp.AggFunc))


def _missing(text: str, columns: FlowColumns) -> str:
    if columns.is_open:
        return ""
    found = resolve(parse_query(f"SELECT {text}\nFROM {INPUT}"), {INPUT: columns})
    return "; ".join(map(columns.missing, found.missing))


def _no_condition(expression: exp.Expr, columns: FlowColumns) -> str:
    """Return a fault only if it is certain: a column of another type, a number, arithmetic."""
    core = expression.unnest()
    if isinstance(core, exp.Alias):
        return f"has a name of its own, {core.alias!r}; the name is in 'name'"
    if isinstance(core, exp.Column) and not core.table:
        kind = columns.type(core.name)
        if kind is not None and kind != "BOOLEAN":
            return f"is of type {kind}, and no condition; compare it with something"
    if isinstance(core, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod | exp.Neg | exp.Literal | exp.Null):
        return "is a value, and no condition; compare it with something"
    return ""
