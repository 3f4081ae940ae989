"""The columns of a topic: those of Spark's Kafka source.

Spark tells a Python data source nothing of the columns that a query uses, so the user does: by the option `columns`, or by a schema that names some of
them. A column that is not named is not made at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparrow.base.errors import InvalidArgument
from sparrow.base.faults import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.spark.options.declare import Values

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
_SPELLED: Final = {name.lower(): name for name in TYPES}


def source_schema(values: Values) -> StructType:
    """The columns that the options ask for."""
    columns = values["columns"]
    if columns is None:
        columns = [name for name in TYPES if name != "headers" or values["includeHeaders"]]
    return StructType([StructField(name, TYPES[name]) for name in columns])


def checked_columns(given: StructType, values: Values) -> tuple[str, ...]:
    """The columns that a schema names, of the user or ours, in its order and by our names.

    Raises:
        InvalidArgument: names every column that does not fit.
    """
    faults = list(_faults(given))
    names = tuple(_SPELLED.get(field.name.lower(), field.name) for field in given.fields)
    if not faults and values["columns"] is not None and set(names) != set(values["columns"]):
        faults.append(
            f"it has the columns {', '.join(names)}, and the option columns says {', '.join(values['columns'])}; give one of the two"
        )
    if faults:
        raise InvalidArgument(f"the schema does not fit: {'; '.join(faults)}")
    return names


def _faults(given: StructType) -> Iterable[str]:
    seen: set[str] = set()
    if not given.fields:
        yield f"it has no columns; name some of {', '.join(TYPES)}"
    for field in given.fields:
        name = _SPELLED.get(field.name.lower())
        if name is None:
            yield f"there is no column {field.name!r}{suggestion(field.name, TYPES)} (there are {', '.join(TYPES)})"
            continue
        if name in seen:
            yield f"the column {name} is there twice"
        seen.add(name)
        wanted = TYPES[name].simpleString()
        if field.dataType.simpleString() != wanted:
            yield f"{field.name} is {wanted}, not {field.dataType.simpleString()}{_advice(name, field.dataType)}"


def _advice(name: str, kind: DataType) -> str:
    if name in ("key", "value") and isinstance(kind, StringType):
        return f" (read it as binary, then CAST({name} AS STRING))"
    return ""
