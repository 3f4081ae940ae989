"""Columns that a row has beside its own while it passes a flow. All begin with an underscore; sinks leave them out.

The model tells users of `_key` to `_message_id`. `_value` is the message as it was, for dead letters, as long as the steps keep it (`SELECT *` does). One
more is the engine's own: `_fault` is why a row could not be decoded; it is gone before the first step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from sparrow.spark.pipelines.model import MESSAGE_ID_HEADER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RAW: Final = "_value"
FAULT: Final = "_fault"
_SOURCE_COLUMNS: Final = {
    "_key": "key",
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
}


def meta_columns(df: DataFrame) -> list[Column]:
    """What of the source goes along with a row."""
    columns = [F.col(source).alias(name) for name, source in _SOURCE_COLUMNS.items()]
    if "headers" in df.columns:
        columns += [F.col("headers").alias("_headers"), _message_id().alias("_message_id")]
    return [*columns, F.col("value").alias(RAW)]


def own_columns(df: DataFrame) -> list[str]:
    """The columns that a sink gets."""
    return [name for name in df.columns if not name.startswith("_")]


def quoted(name: str) -> str:
    """A column's name for `F.col`, whatever characters are in it."""
    return "`" + name.replace("`", "``") + "`"


def column(name: str) -> Column:
    """A column of that very name; dots in it are no paths."""
    return F.col(quoted(name))


def without(df: DataFrame, *names: str) -> DataFrame:
    """Drop columns, those that are there."""
    return df.select([column(name) for name in df.columns if name not in names])


def _message_id() -> Column:
    found = F.filter("headers", lambda header: header["key"] == MESSAGE_ID_HEADER)
    return F.get(found, F.lit(0))["value"].cast("string")
