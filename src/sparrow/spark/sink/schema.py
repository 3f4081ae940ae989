"""The columns of a DataFrame that become records, checked before the first task runs.

The columns are those of Spark's Kafka sink, and `timestamp`; others are not written. Everything
that does not fit is reported at once, each with the SQL that makes it fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparrow.base.errors import InvalidArgument

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_WANTED: Mapping[str, str] = {
    "value": "string or binary",
    "key": "string or binary",
    "headers": "array<struct<key:string,value:binary>>",
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp, or bigint (milliseconds since 1970)",
}
_SHOWN = 30


@dataclass(frozen=True)
class SinkColumns:
    """Indexes of the written columns in the rows, by the names that records have for them."""

    indexes: Mapping[str, int]


def columns_of(schema: StructType, *, topic: str | None, includes_headers: bool = True) -> SinkColumns:
    """Return the columns to write.

    Args:
        topic: the topic of all rows; the column `topic` is then ignored.
        includes_headers: False: the column `headers` is ignored.

    Raises:
        InvalidArgument: names every column that does not fit, with what to do.
    """
    left_out = {
        name for name, is_out in (("topic", topic is not None), ("headers", not includes_headers)) if is_out
    }
    found: dict[str, int] = {}
    faults: list[str] = []
    for name in _WANTED:
        if name in left_out:
            continue
        positions = _columns_named(schema, name)
        if len(positions) > 1:
            faults.append(f"there are {len(positions)} columns {name}; leave one")
        elif positions:
            found[name] = positions[0]
            faults += _misfits(name, schema[positions[0]])
    faults += _missing(schema, found, needs_topic=topic is None)
    if faults:
        raise InvalidArgument(_text(schema, faults))
    return SinkColumns(found)


def _columns_named(schema: StructType, name: str) -> list[int]:
    """Return the columns of that name: as it is written, else in any case, as Spark itself compares
    names.
    """
    exact = [number for number, field in enumerate(schema.fields) if field.name == name]
    return exact or [number for number, field in enumerate(schema.fields) if field.name.lower() == name]


def _misfits(name: str, field: StructField) -> Iterable[str]:
    if not _fits(name, field.dataType):
        found = field.dataType.simpleString()
        yield f"column {name} is {found}, and must be {_WANTED[name]}; {_advice(name, field)}"


def _fits(name: str, kind: DataType) -> bool:
    if name in ("value", "key"):
        return isinstance(kind, StringType | BinaryType)
    if name == "topic":
        return isinstance(kind, StringType)
    if name == "partition":
        return isinstance(kind, _WHOLE)
    if name == "timestamp":
        return isinstance(kind, TimestampType | LongType)
    return _is_headers(kind)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = {field.name: field.dataType for field in kind.elementType.fields}
    return (
        fields.keys() == {"key", "value"}
        and len(kind.elementType.fields) == 2
        and isinstance(fields["key"], StringType)
        and isinstance(fields["value"], StringType | BinaryType)
    )


def _advice(name: str, field: StructField) -> str:
    kind, column = field.dataType, f"`{field.name}`"
    if name in ("value", "key"):
        cast = f"CAST({column} AS STRING)" if isinstance(kind, AtomicType) else f"to_json({column})"
        return f"select {cast} AS {name}"
    if name == "timestamp":
        is_time = isinstance(kind, TimestampNTZType | StringType)
        return f"select CAST({column} AS {'TIMESTAMP' if is_time else 'BIGINT'}) AS timestamp"
    if name == "headers":
        return "select array(struct('name' AS key, CAST(content AS BINARY) AS value)) AS headers"
    return f"select CAST({column} AS {_WANTED[name].upper()}) AS {name}"


def _missing(schema: StructType, found: Mapping[str, int], *, needs_topic: bool) -> Iterable[str]:
    if "value" not in found:
        yield f"there is no column value (string or binary); {_value_advice(schema)}"
    if needs_topic and "topic" not in found:
        yield "nothing says which topic is written to; give the option topic, or a column topic (string)"


def _value_advice(schema: StructType) -> str:
    """Return the only column that could be meant, or all of them as JSON."""
    texts = [
        field.name
        for field in schema.fields
        if field.name.lower() not in _WANTED and isinstance(field.dataType, StringType | BinaryType)
    ]
    if len(texts) == 1:
        return f"select `{texts[0]}` AS value"
    return "select to_json(struct(*)) AS value"


def _text(schema: StructType, faults: list[str]) -> str:
    shown = [f"{field.name} {field.dataType.simpleString()}" for field in schema.fields[:_SHOWN]]
    if len(schema.fields) > _SHOWN:
        shown.append(f"and {len(schema.fields) - _SHOWN} more")
    columns = ", ".join(shown) or "none"
    if len(faults) == 1:
        return f"these rows cannot be written to a topic: {faults[0]}. Their columns: {columns}"
    lines = "".join(f"\n- {fault}" for fault in faults)
    return f"these rows cannot be written to a topic:{lines}\nTheir columns: {columns}"
