"""Dead letters as columns: what SQL may ask of them, what is sent back of them, and where.

Three kinds of topics have dead letters: those of queues (headers `dead-letter-…`), those of pipelines (`reason`, `flow`, `topic`, …) and those of Kafka Connect and others that
name the cause in headers. A header that several may have is looked for in this order.
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
"""Headers that a pipeline's dead letter has for itself: known by `reason` and `flow` together."""
COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp", *_NAMES)
"""What a condition may ask; key and value as text, headers by name (of several of a name the last)."""
_RAW: Final = "_raw"


def as_letters(records: DataFrame) -> DataFrame:
    """Records of a dead-letter topic with the columns above, and `_raw` with the record's own key, value and headers."""
    from pyspark.sql import functions as f

    headers = f.coalesce("headers", f.array().cast("array<struct<key:string,value:binary>>"))
    raw = records.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        f.struct("key", "value", headers.alias("headers")).alias(_RAW),
    )
    told = raw.withColumns(
        {
            "key": f.col("_raw.key").cast("string"),
            "value": f.col("_raw.value").cast("string"),
            "headers": f.expr(
                "map_from_arrays(array_distinct(_raw.headers.key), transform(array_distinct(_raw.headers.key),"
                " n -> element_at(filter(_raw.headers, h -> h.key = n), -1).value))"
            ).cast("map<string,string>"),
        }
    )
    return told.withColumns({name: _told(name) for name in _NAMES})


def _told(name: str) -> Column:
    from pyspark.sql import functions as f

    found = f.coalesce(*[f.col("headers").getItem(header) for header in _NAMES[name]])
    return found.try_cast("bigint") if name in _NUMBERS else found


def sent_back() -> Column:
    """Of `_raw`: key, value and headers of the record that is sent back, without what the letter told."""
    from pyspark.sql import functions as f

    own = " AND ".join(f"NOT startswith(h.key, '{prefix}')" for prefix in _PREFIXES)
    pipelines = ", ".join(f"'{name}'" for name in _OF_PIPELINES)
    is_pipelines = "exists(_raw.headers, h -> h.key = 'flow') AND exists(_raw.headers, h -> h.key = 'reason')"
    count = f"coalesce(try_cast(headers['{REDRIVE_COUNT}'] AS INT), 0) + 1"
    headers = (
        f"concat(filter(_raw.headers, h -> {own} AND h.key <> '{REDRIVE_COUNT}' AND NOT ({is_pipelines} AND h.key IN ({pipelines}))),"
        f" array(named_struct('key', '{REDRIVE_COUNT}', 'value', CAST(CAST({count} AS STRING) AS BINARY))))"
    )
    return f.struct(f.col("_raw.key"), f.col("_raw.value"), f.expr(headers).alias("headers"))
