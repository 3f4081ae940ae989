"""Dead letters as columns for SQL conditions, and the records that are sent back for them.

Three kinds of topics have dead letters: those of queues (headers `dead-letter-…`), those of
pipelines (`reason`, `flow`, `topic`, …) and those of Kafka Connect and others that give the cause
in headers. If several kinds have a header for a column, they are searched in this order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.records.wellknown import (
    DEAD_LETTER_DELIVERY_COUNT,
    DEAD_LETTER_ERROR,
    DEAD_LETTER_OFFSET,
    DEAD_LETTER_PARTITION,
    DEAD_LETTER_QUEUE,
    DEAD_LETTER_REASON,
    DEAD_LETTER_SUBSCRIBER,
    DEAD_LETTER_TOPIC,
    REDRIVE_COUNT,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CONNECT: Final = "__connect.errors."
_SHARE_GROUP: Final = "__dlq.errors."
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "reason": (DEAD_LETTER_REASON, "reason", f"{_CONNECT}exception.class.name"),
    "error": (DEAD_LETTER_ERROR, f"{_SHARE_GROUP}message", f"{_CONNECT}exception.message"),
    "delivery_count": (DEAD_LETTER_DELIVERY_COUNT, f"{_SHARE_GROUP}delivery.count"),
    "queue": (DEAD_LETTER_QUEUE,),
    "subscriber": (DEAD_LETTER_SUBSCRIBER,),
    "flow": ("flow",),
    "expectation": ("expectation",),
    "origin_topic": (DEAD_LETTER_TOPIC, f"{_SHARE_GROUP}topic", f"{_CONNECT}topic", "topic"),
    "origin_partition": (
        DEAD_LETTER_PARTITION,
        f"{_SHARE_GROUP}partition",
        f"{_CONNECT}partition",
        "partition",
    ),
    "origin_offset": (DEAD_LETTER_OFFSET, f"{_SHARE_GROUP}offset", f"{_CONNECT}offset", "offset"),
}
_NUMBERS: Final = frozenset({"delivery_count", "origin_partition", "origin_offset"})
_PREFIXES: Final = ("dead-letter-", _SHARE_GROUP, _CONNECT)
_OF_PIPELINES: Final = ("reason", "flow", "expectation", "topic", "partition", "offset")
"""Headers that only a pipeline's dead letter has; `reason` and `flow` together identify one."""
COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp", *_NAMES)
"""Columns for conditions; key and value are text, and headers are by name (the last one of a
name).
"""
_RAW: Final = "_raw"


def as_dead_letters(records: DataFrame) -> DataFrame:
    """Return the records of a dead-letter topic with the columns above, and `_raw` with the
    record's own key, value and headers.
    """
    from pyspark.sql import functions as f

    headers = f.coalesce("headers", f.array().cast("array<struct<key:string,value:binary>>"))
    raw = records.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        f.struct("key", "value", headers.alias("headers")).alias(_RAW),
    )
    found = raw.withColumns(
        {
            "key": f.col("_raw.key").cast("string"),
            "value": f.col("_raw.value").cast("string"),
            "headers": f.expr(
                "map_from_arrays(array_distinct(_raw.headers.key), "
                "transform(array_distinct(_raw.headers.key),"
                " n -> element_at(filter(_raw.headers, h -> h.key = n), -1).value))"
            ).cast("map<string,string>"),
        }
    )
    return found.withColumns({name: _header_column(name) for name in _NAMES})


def _header_column(name: str) -> Column:
    from pyspark.sql import functions as f

    found = f.coalesce(*[f.col("headers").getItem(header) for header in _NAMES[name]])
    return found.try_cast("bigint") if name in _NUMBERS else found


def sent_back() -> Column:
    """Return key, value and headers of the record to send back, from `_raw` without the headers
    that describe the dead letter.
    """
    from pyspark.sql import functions as f

    own = " AND ".join(f"NOT startswith(h.key, '{prefix}')" for prefix in _PREFIXES)
    pipelines = ", ".join(f"'{name}'" for name in _OF_PIPELINES)
    is_pipelines = "exists(_raw.headers, h -> h.key = 'flow') AND exists(_raw.headers, h -> h.key = 'reason')"
    count = f"coalesce(try_cast(headers['{REDRIVE_COUNT}'] AS INT), 0) + 1"
    headers = (
        f"concat(filter(_raw.headers, h -> {own} AND h.key <> '{REDRIVE_COUNT}' AND NOT "
        f"({is_pipelines} AND h.key IN ({pipelines}))),"
        f" array(named_struct('key', '{REDRIVE_COUNT}', 'value', CAST(CAST({count} AS STRING) AS BINARY))))"
    )
    return f.struct(f.col("_raw.key"), f.col("_raw.value"), f.expr(headers).alias("headers"))
