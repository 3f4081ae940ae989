"""CSV lines, parsed by Spark's `from_csv`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from sparrow.pipelines.engine.formats.parser import Parser, as_text, missing_fault, text_fault

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql import types as T

    from sparrow.pipelines.model import CsvDecoder

_CORRUPT: Final = "_corrupt"


def csv_parser(decoder: CsvDecoder, schema: T.StructType) -> Parser:
    """Return a parser of lines with these columns."""
    wide = f"{decoder.schema}, {_CORRUPT} STRING"
    options = {
        "sep": decoder.delimiter,
        "quote": decoder.quote,
        "escape": decoder.escape,
        "nullValue": decoder.null,
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
    }

    def parse(value: Column) -> Column:
        return F.from_csv(as_text(value), wide, options)

    def fault(value: Column, parsed: Column) -> Column:
        is_unfit = parsed.isNull() | parsed[_CORRUPT].isNotNull()
        if len(schema.fields) > 1:
            # Spark reads an empty line as a row of nulls.
            is_unfit |= F.trim(as_text(value)) == ""
        return F.coalesce(
            text_fault(value),
            F.when(is_unfit, _reason(parsed, schema)),
            missing_fault(schema.fields, parsed),
        )

    return Parser(schema.fields, parse, fault)


def _reason(parsed: Column, schema: T.StructType) -> Column:
    empty = [
        F.when(parsed[field.name].isNull(), F.lit(f"{field.name} ({field.dataType.simpleString()})"))
        for field in schema.fields
    ]
    unread = F.concat_ws(", ", *empty)
    return F.when(unread == "", F.lit(f"the line does not have {len(schema.fields)} fields")).otherwise(
        F.concat(F.lit("the line does not fit the schema; not read: "), unread)
    )
