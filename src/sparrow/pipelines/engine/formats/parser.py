"""The common form of all decoders: bytes to a struct in one expression, and from it the columns and
the fault.

There are two expressions instead of one, because the struct is then computed once, in a projection
of its own, and it is cheap to take values out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
from pyspark.sql.pandas.types import to_arrow_type

from sparrow.pipelines.engine.columns import FAULT

if TYPE_CHECKING:
    from pyspark.sql import Column

Fields = Sequence[T.StructField]
_MAX_FAULT_CHARS: Final = 400
IS_NULL: Final = "the value is null"
IS_NO_TEXT: Final = "the value is not UTF-8"


class Undecodable(ValueError):
    """The error of one message that does not fit; its text is the reason in the dead letter."""


@dataclass(frozen=True)
class Parser:
    """Parser of one message into columns.

    Args:
        fields: the columns and their types; `nullable` false: a row without it is undecodable.
        parse: the bytes → a struct with the fields, perhaps with more.
        fault: the bytes and the struct → the reason why it does not fit, null if it does.
    """

    fields: Fields
    parse: Callable[[Column], Column]
    fault: Callable[[Column, Column], Column]

    def columns(self, parsed: Column) -> list[Column]:
        """Return the fields of the struct as columns."""
        return [parsed[field.name].alias(field.name) for field in self.fields]


def as_text(value: Column) -> Column:
    """Return bytes as a string, without a check."""
    return value.cast("string")


def text_fault(value: Column) -> Column:
    """Return the reason why bytes are not text, or null."""
    return F.when(value.isNull(), F.lit(IS_NULL)).when(~F.is_valid_utf8(as_text(value)), F.lit(IS_NO_TEXT))


def missing_fault(fields: Fields, parsed: Column) -> Column:
    """Return the fault of the first required field that is missing, or null."""
    faults = [
        F.when(parsed[field.name].isNull(), F.lit(f"the field {field.name!r} is missing or null"))
        for field in fields
        if not field.nullable
    ]
    return F.coalesce(*faults, F.lit(None).cast("string"))


# ── decoders in Python ────────────────────────────────────────────────────────────────────────────

Decode = Callable[[bytes], Mapping[str, Any]]
"""One message → its fields. Raises Undecodable, or any exception of a library that cannot read the
bytes.
"""


def python_parser(fields: Fields, make_decode: Callable[[], Decode]) -> Parser:
    """Return a parser around a Python function, which Spark runs over Arrow arrays.

    Args:
        make_decode: must be picklable, while its result need not be: a worker calls it for each
            array. It should cache its result.
    """
    loose = [T.StructField(field.name, field.dataType) for field in fields]
    schema = T.StructType([*loose, T.StructField(FAULT, T.StringType())])

    def decode_array(values: pa.Array) -> pa.Array:
        return _decode_array(values, make_decode(), schema)

    udf = arrow_udf(decode_array, schema)

    def fault(value: Column, parsed: Column) -> Column:
        return F.coalesce(
            F.when(value.isNull(), F.lit(IS_NULL)), parsed[FAULT], missing_fault(fields, parsed)
        )

    return Parser(fields, udf, fault)


def _decode_array(values: pa.Array, decode: Decode, schema: T.StructType) -> pa.Array:
    arrow_type = to_arrow_type(schema, timezone="UTC")
    rows = [_decode_one(value, decode) for value in values.to_pylist()]
    try:
        return pa.array(rows, type=arrow_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([_checked(row, arrow_type) for row in rows], type=arrow_type)


def _decode_one(value: bytes | None, decode: Decode) -> Mapping[str, Any]:
    if value is None:
        return {FAULT: IS_NULL}
    try:
        return decode(value)
    except Exception as error:  # noqa: BLE001  whatever a library says of bytes that came from outside
        text = str(error) or type(error).__name__
        return {FAULT: text[:_MAX_FAULT_CHARS]}


def _checked(row: Mapping[str, Any], arrow_type: pa.DataType) -> Mapping[str, Any]:
    """Return the row, or the reason why its values do not fit their types."""
    try:
        pa.array([row], type=arrow_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        return {FAULT: f"a value does not fit its type: {error}"[:_MAX_FAULT_CHARS]}
    return row
