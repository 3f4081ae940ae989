"""Columns that a row has beside its own while it passes a flow. All begin with an underscore; sinks
leave them out.

The model documents `_key` to `_message_id` for users. `_value` is the original message, for dead
letters, as long as the steps keep it (`SELECT *` does). `_fault` is only for the engine: the reason
why a row could not be decoded; it is gone before the first step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from sparrow.pipelines.model import MESSAGE_ID_HEADER

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
    """Return the columns of the source that stay with a row."""
    columns = [F.col(source).alias(name) for name, source in _SOURCE_COLUMNS.items()]
    if "headers" in df.columns:
        columns += [F.col("headers").alias("_headers"), _message_id().alias("_message_id")]
    return [*columns, F.col("value").alias(RAW)]


def own_columns(df: DataFrame) -> list[str]:
    """Return the columns that a sink gets."""
    return [name for name in df.columns if not name.startswith("_")]


def quoted(name: str) -> str:
    """Return a column's name for `F.col`, quoted for any characters in it."""
    return "`" + name.replace("`", "``") + "`"


def column(name: str) -> Column:
    """Return the column of exactly that name; dots in it are not paths."""
    return F.col(quoted(name))


def without(df: DataFrame, *names: str) -> DataFrame:
    """Drop those of the columns that exist."""
    return df.select([column(name) for name in df.columns if name not in names])


def _message_id() -> Column:
    found = F.filter("headers", lambda header: header["key"] == MESSAGE_ID_HEADER)
    return F.get(found, F.lit(0))["value"].cast("string")
