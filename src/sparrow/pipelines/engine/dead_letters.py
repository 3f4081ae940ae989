"""Dead letters: rows as messages of a topic, with the reason in the headers.

Key and value are those of the message, byte for byte, so that it can be sent again. If the steps
did not keep the message (an aggregate has none), the value is the row as JSON. The headers are
`reason`, `flow`, and as far as they are known `expectation`, `topic`, `partition` and `offset`.

They are written by a separate query over the same source and the same conditions, with its own
checkpoint: dead letters are exactly once, as all else. Steps with state (windows, deduplication)
keep it in each of the two queries.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparrow.pipelines.engine.columns import FAULT, RAW, column, own_columns
from sparrow.pipelines.engine.expectations import failing
from sparrow.pipelines.model import DEAD_LETTER

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

    from sparrow.pipelines.model import Flow

_ORIGIN = {"topic": "_topic", "partition": "_partition", "offset": "_offset"}


def dead_letters(
    flow: Flow, decoded: DataFrame | None, make_steps: Callable[[DataFrame], DataFrame]
) -> DataFrame | None:
    """Return the messages (key, value, headers) for the topic of dead letters, or None if there
    cannot be any.
    """
    if flow.dead_letters is None or decoded is None:
        return None
    found = []
    if flow.decode is not None or flow.key is not None:
        unread = decoded.where(F.col(FAULT).isNotNull()).withColumn("_reason", F.col(FAULT))
        found.append(_messages(unread, flow))
    if any(each.otherwise == DEAD_LETTER for each in flow.expect):
        found.append(_messages(failing(make_steps(decoded), flow.expect), flow))
    return reduce(lambda one, other: one.unionByName(other), found) if found else None


def _messages(df: DataFrame, flow: Flow) -> DataFrame:
    has_message = RAW in df.columns and "_key" in df.columns
    key = F.col("_key") if has_message else F.lit(None).cast("binary")
    value = F.col(RAW) if has_message else _as_json(df)
    return df.select(key.alias("key"), value.alias("value"), _headers(df, flow).alias("headers"))


def _as_json(df: DataFrame) -> Column:
    row = F.struct(*[column(name) for name in own_columns(df)])
    return F.to_json(row, {"ignoreNullFields": "false"}).cast("binary")


def _headers(df: DataFrame, flow: Flow) -> Column:
    values = {"reason": F.col("_reason"), "flow": F.lit(flow.name)}
    if "_expectation" in df.columns:
        values["expectation"] = F.col("_expectation")
    values |= {
        name: column(source).cast("string") for name, source in _ORIGIN.items() if source in df.columns
    }
    headers = [
        F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
        for name, value in values.items()
    ]
    return F.array(*headers)
