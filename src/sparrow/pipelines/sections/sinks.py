"""`to` of a flow: the sink of its rows.

to: {topic: clean-orders, key: id, value: json}
to: {parquet: ./orders, partition_by: [day]}
to: console
"""

from __future__ import annotations

from typing import Any

from sparrow.base.settings import integer
from sparrow.base.shapes import Part
from sparrow.pipelines.model import (
    ConsoleSink,
    DeltaSink,
    IcebergSink,
    JdbcSink,
    ParquetSink,
    TopicSink,
)
from sparrow.pipelines.sections.tables import NOT_IN_THE_FILE
from sparrow.pipelines.sections.words import (
    COLUMN,
    COLUMNS,
    TEXTS_BY_NAME,
    TOPIC,
    WORD,
    NodeSection,
    Variant,
    needed,
    one_of,
)

_NEEDED = needed(WORD)


def _parquet(values: dict[str, Any]) -> ParquetSink:
    return ParquetSink(path=values.pop("parquet"), **values)


def _delta(values: dict[str, Any]) -> DeltaSink:
    return DeltaSink(path=values.pop("delta"), **values)


def _iceberg(values: dict[str, Any]) -> IcebergSink:
    return IcebergSink(table=values.pop("iceberg"), **values)


_TOPIC = NodeSection(
    "the sink topic",
    {
        "topic": needed(TOPIC),
        "key": Part(COLUMN),
        "value": Part(COLUMN),
        "headers": Part(TEXTS_BY_NAME),
        "partition": Part(COLUMN),
        "timestamp": Part(COLUMN),
        "options": Part(TEXTS_BY_NAME),
    },
)
_TREE = {"partition_by": Part(COLUMNS), "options": Part(TEXTS_BY_NAME)}
_ICEBERG = NodeSection(
    "the sink iceberg",
    {"iceberg": _NEEDED, "catalog": Part(WORD), "properties": Part(TEXTS_BY_NAME, is_secret=True)},
    advice={"partition_by": "an Iceberg table knows its own partitions; give them when it is created"},
)
_JDBC = NodeSection(
    "the sink jdbc",
    {
        "url": needed(WORD, is_secret=True),
        "table": _NEEDED,
        "key": Part(COLUMNS),
        "user": Part(WORD),
        "password_file": Part(WORD),
        "driver": Part(WORD),
        "options": Part(TEXTS_BY_NAME, is_secret=True),
    },
    advice=NOT_IN_THE_FILE,
)
_CONSOLE = NodeSection("the sink console", {"rows": Part(integer(1, 10_000))})
SINK = one_of(
    "a sink",
    {
        "topic": Variant(_TOPIC, lambda values: TopicSink(**values), is_nested=False),
        "parquet": Variant(
            NodeSection("the sink parquet", {"parquet": _NEEDED, **_TREE}), _parquet, is_nested=False
        ),
        "delta": Variant(NodeSection("the sink delta", {"delta": _NEEDED, **_TREE}), _delta, is_nested=False),
        "iceberg": Variant(_ICEBERG, _iceberg, is_nested=False),
        "jdbc": Variant(_JDBC, lambda values: JdbcSink(**values)),
        "console": Variant(_CONSOLE, lambda values: ConsoleSink(**values)),
    },
    {"kafka": "there is no sink 'kafka'; say 'topic', the broker is that of the pipeline"},
)
