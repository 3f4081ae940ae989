"""Steps of a flow, applied to a DataFrame one after the other.

A SQL step gets its tables as arguments, not as views of the session: flows of one session do not
see each other's, and Spark Connect resolves them as well. A Python file is loaded as a module of
its own; its functions are sent to the workers by value, so they need not have the file.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from sqlglot import exp

from sparrow.base.errors import InvalidConfig
from sparrow.pipelines.checks.sqltext import parse_query, readable
from sparrow.pipelines.engine.columns import column, quoted
from sparrow.pipelines.model import (
    INPUT,
    DeduplicateStep,
    JoinStep,
    PythonStep,
    SqlStep,
    WatermarkStep,
    WindowStep,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparrow.pipelines.model import Step

    Function = Callable[[DataFrame], DataFrame]

_MESSAGE_ID: Final = "_message_id"
_DELAY: Final = "spark.watermarkDelayMs"
"""Key of a column's metadata under which Spark stores its watermark."""
_numbers = itertools.count(1)


def apply_steps(
    df: DataFrame, steps: Sequence[Step], tables: Mapping[str, DataFrame], directory: str
) -> DataFrame:
    """Return the rows after the steps.

    Args:
        tables: the static tables by their names.
        directory: where modules of functions are looked for, beside Python's path.

    Raises:
        InvalidConfig: a function cannot be loaded or returns no DataFrame, or a query reads
            something that does not exist.
    """
    for step in steps:
        df = _apply(df, step, tables, directory)
    return df


def _apply(df: DataFrame, step: Step, tables: Mapping[str, DataFrame], directory: str) -> DataFrame:
    match step:
        case SqlStep():
            return _sql(df, step, tables)
        case PythonStep():
            return _python(df, step, directory)
        case WatermarkStep():
            return df.withWatermark(step.column, _interval(step.delay_ms))
        case DeduplicateStep():
            return _deduplicate(df, step)
        case WindowStep():
            return _window(df, step)
        case JoinStep():
            return df.join(tables[step.table], on=list(step.on), how=step.how)


def _interval(ms: int) -> str:
    return f"{ms} milliseconds"


# ── SQL ───────────────────────────────────────────────────────────────────────────────────────────


def _sql(df: DataFrame, step: SqlStep, tables: Mapping[str, DataFrame]) -> DataFrame:
    frames = {INPUT: df, **tables}
    text, used = _with_placeholders(readable(step.query)[0], list(frames))
    arguments: dict[str, Any] = {placeholder: frames[name] for name, placeholder in used.items()}
    return df.sparkSession.sql(text, **arguments)


def _with_placeholders(query: str, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the query with placeholders ("{table_0}") for the tables that it reads, otherwise
    unchanged; and the placeholder of each table.
    """
    used: dict[str, str] = {}
    pieces, at = [], 0
    for start, end, name, is_aliased in _tables_read(query, names):
        placeholder = used.setdefault(name, f"table_{len(used)}")
        pieces += [_escaped(query[at:start]), f"{{{placeholder}}}"]
        if not is_aliased:
            pieces.append(f" AS {quoted(name)}")
        at = end + 1
    return "".join([*pieces, _escaped(query[at:])]), used


def _tables_read(query: str, names: Sequence[str]) -> list[tuple[int, int, str, bool]]:
    """Return the position of each table in the text, its name, and True if it has an alias
    there.
    """
    parsed = parse_query(query)
    defined = {each.alias.lower() for each in parsed.find_all(exp.CTE)}
    known = {name.lower(): name for name in names}
    found = []
    for table in parsed.find_all(exp.Table):
        name = known.get(table.name.lower())
        if name is not None and not table.db and name.lower() not in defined:
            meta = table.this.meta
            found.append((meta["start"], meta["end"], name, bool(table.alias)))
    return sorted(found)


def _escaped(text: str) -> str:
    """Escape braces, which are placeholders to Spark's formatter."""
    return text.replace("{", "{{").replace("}", "}}")


# ── Python ────────────────────────────────────────────────────────────────────────────────────────


def _python(df: DataFrame, step: PythonStep, directory: str) -> DataFrame:
    function = step.function if callable(step.function) else load_function(step.function, directory)
    made = function(df)
    if not isinstance(made, DataFrame):
        raise InvalidConfig(
            f"the function {_name(step)} gave {type(made).__name__}; it must return a DataFrame "
            "made of the one it got"
        )
    if made.isStreaming != df.isStreaming:
        raise InvalidConfig(
            f"the function {_name(step)} gave a DataFrame that is not made of the one it got; it "
            "must return a stream"
        )
    return made


def _name(step: PythonStep) -> str:
    return step.function if isinstance(step.function, str) else getattr(step.function, "__name__", "given")


def load_function(name: str, directory: str) -> Function:
    """Load the function "module:function" or "file.py:function".

    Raises:
        InvalidConfig: it does not exist or cannot be imported.
    """
    source, _, function = name.rpartition(":")
    try:
        module = _load_file(source) if source.endswith(".py") else _import(source, directory)
    except Exception as error:
        raise InvalidConfig(
            f"{source} cannot be imported for the step {name}: {type(error).__name__}: {error}"
        ) from error
    found = getattr(module, function, None)
    if not callable(found):
        raise InvalidConfig(f"{source} has no function {function!r}, which a step names")
    return found  # type: ignore[no-any-return]


def _load_file(path: str) -> Any:
    name = f"sparrow_step_{os.path.basename(path)[:-3]}_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("it is not a file of Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def _import(name: str, directory: str) -> Any:
    if directory not in sys.path:
        sys.path.insert(0, directory)
    module = importlib.import_module(name)
    if os.path.realpath(getattr(module, "__file__", None) or "").startswith(
        os.path.realpath(directory) + os.sep
    ):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


# ── state ─────────────────────────────────────────────────────────────────────────────────────────


def _deduplicate(df: DataFrame, step: DeduplicateStep) -> DataFrame:
    """Drop duplicates. Spark remembers rows by their watermark; it is on the message's time, unless
    a step before has set one on another column.
    """
    by = list(step.by) or [_MESSAGE_ID]
    if not step.by:
        # A message without an id is equal only to itself.
        itself = F.concat_ws(":", "_topic", "_partition", "_offset")
        df = df.withColumn("_same", F.coalesce(column(_MESSAGE_ID), F.concat(F.lit("\0"), itself)))
        by = ["_same"]
    if step.within_ms is None:
        return df.dropDuplicates(by)
    return _remembering(df, step.within_ms).dropDuplicatesWithinWatermark(by)


def _remembering(df: DataFrame, within_ms: int) -> DataFrame:
    """Return the rows with a watermark of at least that delay."""
    for field in df.schema.fields:
        delay_ms = (field.metadata or {}).get(_DELAY)
        if delay_ms is not None:
            return df if delay_ms >= within_ms else df.withWatermark(field.name, _interval(within_ms))
    return df.withWatermark("_timestamp", _interval(within_ms))


def _window(df: DataFrame, step: WindowStep) -> DataFrame:
    slide = _interval(step.slide_ms) if step.slide_ms else None
    window = F.window(column(step.column), _interval(step.length_ms), slide)
    grouped = df.groupBy(window, *[column(name) for name in step.by])
    values = [F.expr(text).alias(name) for name, text in step.select.items()]
    made = grouped.agg(*(values or [F.count(F.lit(1)).alias("count")]))
    ends = [F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")]
    rest = [column(name) for name in made.columns if name != "window"]
    return made.select(*ends, *rest)
