"""`to` of a flow: where its rows go.

to: {topic: clean-orders, key: id, value: json}
to: {parquet: ./orders, partition_by: [day]}
to: console
"""

from __future__ import annotations

from typing import Any

from sparrow.base.options import integer
from sparrow.base.shapes import Part, Section
from sparrow.spark.pipelines.model import (
    ConsoleSink,
    DeltaSink,
    IcebergSink,
    JdbcSink,
    ParquetSink,
    TopicSink,
)
from sparrow.spark.pipelines.sections.tables import NOT_IN_THE_FILE
from sparrow.spark.pipelines.sections.words import (
    COLUMN,
    COLUMNS,
    TEXTS_BY_NAME,
    TOPIC,
    WORD,
    Variant,
    one_of,
)

_NEEDED = Part(WORD, is_required=True)


def _parquet(values: dict[str, Any]) -> ParquetSink:
    return ParquetSink(path=values.pop("parquet"), **values)


def _delta(values: dict[str, Any]) -> DeltaSink:
    return DeltaSink(path=values.pop("delta"), **values)


def _iceberg(values: dict[str, Any]) -> IcebergSink:
    return IcebergSink(table=values.pop("iceberg"), **values)


_TOPIC = Section(
    "the sink topic",
    {
        "topic": Part(TOPIC, is_required=True),
        "key": Part(COLUMN),
        "value": Part(COLUMN),
        "headers": Part(TEXTS_BY_NAME),
        "partition": Part(COLUMN),
        "timestamp": Part(COLUMN),
        "options": Part(TEXTS_BY_NAME),
    },
)
_TREE = {"partition_by": Part(COLUMNS), "options": Part(TEXTS_BY_NAME)}
_ICEBERG = Section(
    "the sink iceberg",
    {"iceberg": _NEEDED, "catalog": Part(WORD), "properties": Part(TEXTS_BY_NAME, is_secret=True)},
    advice={"partition_by": "an Iceberg table knows its own partitions; give them when it is created"},
)
_JDBC = Section(
    "the sink jdbc",
    {
        "url": Part(WORD, is_required=True, is_secret=True),
        "table": _NEEDED,
        "key": Part(COLUMNS),
        "user": Part(WORD),
        "password_file": Part(WORD),
        "driver": Part(WORD),
        "options": Part(TEXTS_BY_NAME, is_secret=True),
    },
    advice=NOT_IN_THE_FILE,
)
_CONSOLE = Section("the sink console", {"rows": Part(integer(1, 10_000))})
SINK = one_of(
    "a sink",
    {
        "topic": Variant(_TOPIC, lambda values: TopicSink(**values), is_nested=False),
        "parquet": Variant(
            Section("the sink parquet", {"parquet": _NEEDED, **_TREE}), _parquet, is_nested=False
        ),
        "delta": Variant(Section("the sink delta", {"delta": _NEEDED, **_TREE}), _delta, is_nested=False),
        "iceberg": Variant(_ICEBERG, _iceberg, is_nested=False),
        "jdbc": Variant(_JDBC, lambda values: JdbcSink(**values)),
        "console": Variant(_CONSOLE, lambda values: ConsoleSink(**values)),
    },
    {"kafka": "there is no sink 'kafka'; say 'topic', the broker is that of the pipeline"},
)
