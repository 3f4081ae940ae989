"""Conditions on the rows after the last step, and the handling of rows that fail them.

    dead_letter   the row leaves the flow; the query of the dead letters
                  finds it by the same condition
    drop          the row leaves the flow and is counted
    stop          the flow fails; the error names the expectation and the message

A condition that is null has failed. A row is tested against all expectations in their order; its
dead letter names the first that it failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from sparrow.pipelines.model import DEAD_LETTER, STOP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from sparrow.pipelines.model import Expectation

REFUSED: Final = "SPARROW_STOP:"
"""Prefix of the errors that the engine itself raises in a query; `failures` looks for it."""
UNDECODABLE: Final = "undecodable"
OBSERVED: Final = "sparrow_rows"
"""The name under which Spark reports the counts."""


def kept(df: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """Return the rows that stay in the flow. The others are counted, or stop the query."""
    if not expectations:
        return df
    counts = [F.count(F.when(fails(each), 1)).alias(each.name) for each in expectations]
    conditions = [_holds_or_stops(df, each) for each in expectations]
    df = df.observe(f"{OBSERVED}_expectations", *counts)
    for condition in conditions:
        df = df.where(condition)
    return df


def failing(df: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """Return the rows for the dead letters, with `_expectation` and `_reason`."""
    name = F.lit(None).cast("string")
    reason = F.lit(None).cast("string")
    for each in reversed(expectations):
        name = F.when(fails(each), F.lit(each.name)).otherwise(name)
        reason = F.when(fails(each), F.lit(f"the expectation {each.name} failed: {each.check}")).otherwise(
            reason
        )
    is_for_here = F.lit(False)
    for each in reversed(expectations):
        is_for_here = F.when(fails(each), F.lit(each.otherwise == DEAD_LETTER)).otherwise(is_for_here)
    return df.where(is_for_here).withColumns({"_expectation": name, "_reason": reason})


def fails(expectation: Expectation) -> Column:
    """Return the condition that a row fails the expectation."""
    return ~F.coalesce(F.expr(expectation.check), F.lit(False))


def stopping(text: Column) -> Column:
    """Return a condition that ends the query when it is computed."""
    return F.raise_error(F.concat(F.lit(REFUSED), text)).cast("boolean")


def origin(df: DataFrame) -> Column:
    """Return the message that a row came from, as text, as far as the steps have kept it."""
    if not {"_topic", "_partition", "_offset"} <= set(df.columns):
        return F.lit("a row whose message is not known (the steps did not keep _topic, _partition, _offset)")
    return F.concat(
        F.lit("topic "),
        F.col("_topic"),
        F.lit(", partition "),
        F.col("_partition").cast("string"),
        F.lit(", offset "),
        F.col("_offset").cast("string"),
    )


def _holds_or_stops(df: DataFrame, expectation: Expectation) -> Column:
    if expectation.otherwise != STOP:
        return ~fails(expectation)
    text = F.concat(
        F.lit(f"the expectation {expectation.name!r} ({expectation.check}) failed for "), origin(df)
    )
    return F.when(fails(expectation), stopping(text)).otherwise(F.lit(True))
