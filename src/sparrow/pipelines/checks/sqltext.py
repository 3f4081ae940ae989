"""Spark SQL read by sqlglot: parsed, and its columns resolved if the columns of all its sources are
known.

sqlglot knows less than Spark in some places and more in others. SQL that it cannot parse is
reported as wrong, except for the few spellings in `_RESPELLED`. A column that it cannot resolve is
reported as missing only if no other explanation is left. Any other failure of sqlglot leaves the
columns unknown.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import OptimizeError, ParseError, SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.schema import MappingSchema

from sparrow.pipelines.checks.columns import UNKNOWN, FlowColumns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Without a handler, sqlglot's warnings would go to the terminal beside our faults.
logging.getLogger("sqlglot").addHandler(logging.NullHandler())

DIALECT = "spark"
_MAX_CHARS = 100_000
_RESPELLED = (re.compile(r"\b(window)(?=\s*\()", re.IGNORECASE), r"`\1`")
"""GROUP BY window(…) would be parsed as a clause."""
_LIKE_COLUMNS = frozenset(
    [
        "window",
        "session_window",
        "user",
        "current_user",
        "session_user",
        "current_catalog",
        "current_database",
        "current_schema",
        "current_date",
        "current_time",
        "current_timestamp",
        "localtimestamp",
        "current_timezone",
        "grouping__id",
        "spark_grouping_id",
        "_metadata",
        "year",
        "quarter",
        "month",
        "week",
        "day",
        "dayofyear",
        "hour",
        "minute",
        "second",
        "millisecond",
        "microsecond",
    ]
)
"""Names without parentheses that Spark does not resolve to a column of a source."""
_UNKNOWN_COLUMN = re.compile(r"Unknown column: (\S+)")
_GENERATORS = (exp.Lateral, exp.Explode, exp.Unnest, exp.Pivot, exp.Posexplode, exp.Inline)
_GENERATOR_NAMES = frozenset(
    ["stack", "inline", "inline_outer", "json_tuple", "posexplode_outer", "explode_outer"]
)
"""Functions that make rows and columns under names of their own."""
_NO_TYPE = frozenset({"UNKNOWN", "NULL", "VOID"})


class ResolvedQuery(NamedTuple):
    """The columns of a query's result, and the names in it that no source has."""

    columns: FlowColumns
    missing: tuple[str, ...]


def parse_query(text: str) -> exp.Query:
    """Parse one SELECT.

    Raises:
        ValueError: the fault, as a sentence.
    """
    return readable(text)[1]


def readable(text: str) -> tuple[str, exp.Query]:
    """Parse one SELECT. Return it with the text that was parsed: the given one, or another spelling
    that Spark also takes.

    Raises:
        ValueError: the fault, as a sentence.
    """
    spelled, statements = _parse(text)
    parsed = [each for each in statements if each is not None]
    if not parsed:
        raise ValueError("is empty; it takes a SELECT")
    if len(parsed) > 1:
        raise ValueError(f"has {len(parsed)} statements; it takes one, a SELECT")
    (query,) = parsed
    if isinstance(query, exp.Subquery):
        query = query.unnest()
    if not isinstance(query, exp.Query):
        word = text.split(maxsplit=1)[0].upper()[:40]
        raise ValueError(f"begins with {word}; it takes a SELECT")  # noqa: TRY004 - what readers raise
    if any(not each.expressions for each in query.find_all(exp.Select)):
        raise ValueError("has a SELECT without columns; say * for all of them")
    return spelled, query


def parse_expression(text: str) -> exp.Expr:
    """Parse one expression over the columns of a row.

    Raises:
        ValueError: the fault, as a sentence.
    """
    query = parse_query(f"SELECT {text}\n")
    if not isinstance(query, exp.Select) or len(query.expressions) != 1 or query.args.get("from_"):
        raise ValueError("takes one expression over columns, such as amount > 0")
    found: exp.Expr = query.expressions[0]
    return found


def _parse(text: str) -> tuple[str, list[exp.Expr | None]]:
    if len(text) > _MAX_CHARS:
        raise ValueError(f"has more than {_MAX_CHARS} letters")
    first: ValueError | None = None
    for spelled in (text, _RESPELLED[0].sub(_RESPELLED[1], text)):
        for dialect in (DIALECT, "databricks"):
            try:
                return spelled, list(sqlglot.parse(spelled, dialect=dialect))
            except (SqlglotError, RecursionError) as error:
                first = first or ValueError(_sentence(error, text))
    assert first is not None
    raise first


def _sentence(error: Exception, text: str) -> str:
    if isinstance(error, RecursionError):
        return "is nested too deep"
    if isinstance(error, ParseError) and error.errors:
        at = error.errors[0]
        described = str(at.get("description") or "it is not understood").rstrip(". ")
        if described.startswith("Required keyword"):
            described = "something is missing"
        near = f" near {at['highlight']!r}" if at.get("highlight") else ""
        return f"is not Spark SQL: {described}{near} (line {at.get('line')}, column {at.get('col')})"
    quotes = [mark for mark in "'\"`" if text.count(mark) % 2]
    reason = f"a {quotes[0]} is not closed" if quotes else str(error).partition("\n")[0]
    return f"is not Spark SQL: {reason}"


def tables_of(query: exp.Expr) -> Iterator[exp.Table]:
    """Return the tables that a query reads by name, without those that it defines itself."""
    defined = {each.alias_or_name.lower() for each in query.find_all(exp.CTE)}
    for table in query.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and (table.db or table.name.lower() not in defined):
            yield table


def resolve(query: exp.Query, sources: Mapping[str, FlowColumns]) -> ResolvedQuery:
    """Return the columns of a query's result.

    Args:
        sources: the columns of each table that the query may read, by name in lower case.
    """
    try:
        return _resolve(query.copy(), sources)
    except OptimizeError as error:
        # For a qualified column (t.x), sqlglot itself reports that the table does not have it.
        found = _UNKNOWN_COLUMN.match(str(error))
        return ResolvedQuery(UNKNOWN, (found[1],) if found and not _has_generator(query) else ())
    except (SqlglotError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return ResolvedQuery(UNKNOWN, ())


def _resolve(query: exp.Query, sources: Mapping[str, FlowColumns]) -> ResolvedQuery:
    read = {table.name.lower() for table in tables_of(query)}
    if any(name not in sources or sources[name].is_open for name in read):
        return ResolvedQuery(_named_outputs(query), ())
    schema = MappingSchema(
        {
            name: {column: kind or "UNKNOWN" for column, kind in columns.types.items()}
            for name, columns in sources.items()
        },
        dialect=DIALECT,
    )
    has_generator = _has_generator(query)
    qualified = qualify(query, schema=schema, dialect=DIALECT, validate_qualify_columns=False)
    missing = () if has_generator else tuple(dict.fromkeys(_unresolved(qualified)))
    annotated = annotate_types(qualified, schema=schema, dialect=DIALECT)
    assert isinstance(annotated, exp.Query)
    return ResolvedQuery(_outputs(annotated), missing)


def _has_generator(query: exp.Expr) -> bool:
    return query.find(*_GENERATORS) is not None or any(
        each.name.lower() in _GENERATOR_NAMES for each in query.find_all(exp.Anonymous)
    )


def _unresolved(query: exp.Expr) -> Iterator[str]:
    for scope in traverse_scope(query):
        if not isinstance(scope.expression, exp.Select) or scope.is_correlated_subquery:
            continue
        strange = [*scope.unqualified_columns, *(() if scope.parent else scope.external_columns)]
        for column in strange:
            if column.parts[0].name.lower() not in {*_LIKE_COLUMNS, *_lambda_names(column)}:
                yield ".".join(part.name for part in column.parts)


def _lambda_names(expression: exp.Expr) -> Iterator[str]:
    """Yield the parameters of the lambda functions around an expression."""
    around = expression.find_ancestor(exp.Lambda)
    while around is not None:
        yield from (each.name.lower() for each in around.expressions)
        around = around.find_ancestor(exp.Lambda)


def _named_outputs(query: exp.Query) -> FlowColumns:
    """Return the result's columns if not all tables are known: the names, if the query names them
    all.
    """
    if query.is_star:
        return UNKNOWN
    names = [each.alias_or_name for each in query.selects]
    return _closed(dict.fromkeys(names)) if _are_names(query) else UNKNOWN


def _outputs(query: exp.Query) -> FlowColumns:
    if query.is_star or not _are_names(query):
        return UNKNOWN
    has_types = not _has_generator(query)
    return _closed({each.alias_or_name: _type_of(each) if has_types else None for each in query.selects})


def _closed(types: Mapping[str, str | None]) -> FlowColumns:
    return FlowColumns({name.lower(): kind for name, kind in types.items()})


def _are_names(query: exp.Query) -> bool:
    """Return True if each column of the result has a name that Spark also gives it, and the names
    are unique.
    """
    selects = query.selects
    names = [each.alias_or_name.lower() for each in selects]
    are_plain = all(
        isinstance(each, exp.Column) or (isinstance(each, exp.Alias) and not each.alias.startswith("_col_"))
        for each in selects
    )
    return are_plain and all(names) and len(set(names)) == len(names)


def _type_of(select: exp.Expr) -> str | None:
    kind = select.type
    if kind is None or any(part in kind.sql(DIALECT).upper() for part in _NO_TYPE):
        return None
    return kind.sql(DIALECT).upper()
