"""Lines of text: unchanged, or divided by the named groups of a regular expression.

The expression is Python's and runs in Python: it is the one that the check before the start has
compiled, and a group that did not take part is null. A typed group is cast by Spark.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparrow.pipelines.engine.formats.parser import (
    IS_NO_TEXT,
    Parser,
    Undecodable,
    as_text,
    python_parser,
    text_fault,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

    from sparrow.pipelines.engine.formats.parser import Decode


def text_parser(name: str) -> Parser:
    """Return a parser whose one column is the text."""

    def parse(value: Column) -> Column:
        return F.struct(as_text(value).alias(name))

    return Parser([T.StructField(name, T.StringType())], parse, lambda value, _: text_fault(value))


def regex_parser(pattern: str, types: Mapping[str, T.DataType]) -> Parser:
    """Return a parser of lines that the whole pattern matches. `types` has the types of the groups
    that are not strings.
    """
    names = list(re.compile(pattern).groupindex)
    groups = python_parser([T.StructField(name, T.StringType()) for name in names], _MatchFactory(pattern))
    fields = [T.StructField(name, types.get(name, T.StringType())) for name in names]

    def fault(value: Column, parsed: Column) -> Column:
        unfit = [
            F.when(
                parsed[name].isNotNull() & parsed[name].try_cast(kind).isNull(),
                F.concat(F.lit(f"{name} is not {kind.simpleString()}: "), parsed[name]),
            )
            for name, kind in types.items()
        ]
        return F.coalesce(groups.fault(value, parsed), *unfit)

    return _CastingParser(fields, groups.parse, fault)


class _CastingParser(Parser):
    """A parser whose struct has strings, which it casts."""

    def columns(self, parsed: Column) -> list[Column]:
        return [parsed[field.name].try_cast(field.dataType).alias(field.name) for field in self.fields]


class _MatchFactory:
    """Picklable factory of the decode function in a worker."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def __call__(self) -> Decode:
        return _matcher(self._pattern)


@lru_cache(maxsize=64)
def _matcher(pattern: str) -> Decode:
    compiled = re.compile(pattern)

    def decode(value: bytes) -> dict[str, str | None]:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise Undecodable(IS_NO_TEXT) from None
        found = compiled.fullmatch(text)
        if found is None:
            raise Undecodable("the pattern does not match")
        return found.groupdict()

    return decode
