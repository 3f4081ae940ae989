"""The columns of a topic: those of Spark's Kafka source.

Spark does not tell a Python data source which columns a query uses, so the user does: by the option
`columns`, or by a schema that names some of them. A column that is not named is not made at all.
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
    """Return the schema of the columns that the options ask for."""
    columns = values["columns"]
    if columns is None:
        columns = [name for name in TYPES if name != "headers" or values["includeHeaders"]]
    return StructType([StructField(name, TYPES[name]) for name in columns])


def checked_columns(given: StructType, values: Values) -> tuple[str, ...]:
    """Return the columns of a schema, of the user or Sparrow's, in its order and by Sparrow's
    names.

    Raises:
        InvalidArgument: names every column that does not fit.
    """
    faults = list(_faults(given))
    names = tuple(_SPELLED.get(field.name.lower(), field.name) for field in given.fields)
    if not faults and values["columns"] is not None and set(names) != set(values["columns"]):
        faults.append(
            f"it has the columns {', '.join(names)}, and the option columns says "
            f"{', '.join(values['columns'])}; give one of the two"
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
            advice = suggestion(field.name, TYPES)
            yield f"there is no column {field.name!r}{advice} (there are {', '.join(TYPES)})"
            continue
        if name in seen:
            yield f"the column {name} is there twice"
        seen.add(name)
        wanted = TYPES[name].simpleString()
        if field.dataType.simpleString() != wanted:
            found = field.dataType.simpleString()
            yield f"{field.name} is {wanted}, not {found}{_advice(name, field.dataType)}"


def _advice(name: str, kind: DataType) -> str:
    if name in ("key", "value") and isinstance(kind, StringType):
        return f" (read it as binary, then CAST({name} AS STRING))"
    return ""
