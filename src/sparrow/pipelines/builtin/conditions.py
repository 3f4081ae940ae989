"""SQL conditions from the command line, checked before Spark starts.

Only certain faults are refused: text that does not parse, is not a condition, or names a column
that does not exist. Functions and types are left to Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparrow.base.errors import InvalidArgument
from sparrow.base.faults import suggestion

if TYPE_CHECKING:
    from collections.abc import Collection


def check_condition(sql: str, columns: Collection[str] | None) -> None:
    """Check that a text is a condition on one row.

    Args:
        columns: the columns of a row; None: not known yet.

    Raises:
        InvalidArgument: the fault.
    """
    try:
        from sqlglot import exp
    except ImportError:
        raise InvalidArgument(
            "conditions need sqlglot, which is not installed: pip install 'sparrow-broker[spark]'"
        ) from None
    condition = _parsed(sql)
    if condition.find(exp.Query, exp.DDL, exp.Command, exp.DML):
        raise InvalidArgument(
            f"--where {sql!r} is a statement; give only the condition, as after WHERE in SQL"
        )
    if condition.find(exp.AggFunc, exp.Window):
        raise InvalidArgument(f"--where {sql!r} looks at many rows at once; a condition is asked of each row")
    if isinstance(condition, exp.Literal | exp.Alias | exp.Tuple | exp.Star):
        raise InvalidArgument(f"--where {sql!r} is no condition; write one such as offset > 100")
    for column in condition.find_all(exp.Column) if columns is not None else ():
        _check_column(column, sql, columns or ())


def _parsed(sql: str) -> Any:
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        found = sqlglot.parse(sql, dialect="spark")
    except SqlglotError as error:
        first = getattr(error, "errors", None) or [{}]
        near = f" near {first[0]['highlight']!r}" if first[0].get("highlight") else ""
        reason = first[0].get("description") or str(error).splitlines()[0]
        raise InvalidArgument(f"--where {sql!r} is no SQL condition: {reason.rstrip('.')}{near}") from None
    except RecursionError:
        raise InvalidArgument("--where is nested too deep") from None
    if len(found) != 1 or found[0] is None:
        raise InvalidArgument(f"--where {sql!r} has to be one condition")
    return found[0]


def _check_column(column: Any, sql: str, columns: Collection[str]) -> None:
    name = column.parts[0].name
    known = {each.lower() for each in columns}
    if name.lower() not in known:
        raise InvalidArgument(
            f"--where {sql!r}: there is no column {name!r}{suggestion(name, columns) or '.'} There "
            f"are {', '.join(columns)}."
        )
