"""JSON by Spark's `from_json`. If a value does not fit the schema, the fault names its field.

Spark reads the first object of a text and ignores the rest: the second of two in a message would be
lost silently. Therefore the parser checks that there is only one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparrow.pipelines.engine.formats.parser import Parser, as_text, missing_fault, text_fault

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparrow.pipelines.engine.formats.parser import Fields

_CORRUPT: Final = "_corrupt"
_OPTIONS: Final = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
_GOES_ON: Final = "there is more than one JSON object in the value, or something behind it"


def json_parser(schema: T.StructType) -> Parser:
    """Return a parser of JSON objects with these fields."""
    wide = T.StructType([*schema.fields, T.StructField(_CORRUPT, T.StringType())])

    def parse(value: Column) -> Column:
        return F.from_json(as_text(value), wide, _OPTIONS)

    def fault(value: Column, parsed: Column) -> Column:
        is_unfit = parsed.isNull() | parsed[_CORRUPT].isNotNull()
        return F.coalesce(
            text_fault(value),
            F.when(is_unfit, _reason(value, parsed, schema.fields)),
            F.when(_goes_on(as_text(value)), F.lit(_GOES_ON)),
            missing_fault(schema.fields, parsed),
        )

    return Parser(schema.fields, parse, fault)


def _goes_on(text: Column) -> Column:
    """Return the condition that text follows the first object. Spark cannot count elements with a
    NaN in them, though it reads them: then a regular expression decides.
    """
    count = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
    looks_so = text.rlike(r"\}\s*\{") | ~text.rlike(r"\}\s*$")
    return F.coalesce(count != 1, looks_so)


def _reason(value: Column, parsed: Column, fields: Fields) -> Column:
    """Return the name of a field that exists and was not read; computed only for rows that do not
    fit.
    """
    text = as_text(value)
    reasons = [
        F.when(
            parsed[field.name].isNull() & F.get_json_object(text, f"$['{field.name}']").isNotNull(),
            F.lit(f"the field {field.name!r} is not {field.dataType.simpleString()}"),
        )
        for field in fields
        if "'" not in field.name
    ]
    is_object = F.ltrim(text).startswith("{") & F.get_json_object(text, "$").isNotNull()
    no_object = F.when(~F.coalesce(is_object, F.lit(False)), F.lit("the value is not a JSON object"))
    return F.coalesce(no_object, *reasons, F.lit("the value does not fit the schema"))
