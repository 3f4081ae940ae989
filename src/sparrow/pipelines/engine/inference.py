"""The schema of JSON messages, inferred from some of them.

    whole numbers    bigint (decimal(38) if they are longer)
    other numbers    double, also for a mix with whole numbers
    true and false   boolean
    texts            string, also if they look like times
    objects          struct
    arrays           array
    several kinds    string
    always null      string

Fields are in the order in which they were first seen, so the same messages give the same schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import reduce
from typing import Any, Final

from sparrow.base.errors import InvalidArgument

Kind = str | dict[str, Any] | list[Any] | None
"""A type: its name, the fields of a struct, the one element of an array, or None if only null was
seen.
"""

_BIGINT, _DECIMAL, _DOUBLE, _STRING = "bigint", "decimal(38,0)", "double", "string"
_NUMBERS: Final = {_BIGINT: 0, _DECIMAL: 1, _DOUBLE: 2}
_MAX_LONG: Final = (1 << 63) - 1
_MAX_DECIMAL: Final = 10**38


def infer_schema(messages: Iterable[bytes | None]) -> str:
    """Return the schema as Spark's DDL. Messages that are not JSON objects are ignored.

    Raises:
        InvalidArgument: none of the messages is an object with fields.
    """
    kind: dict[str, Any] = {}
    for message in messages:
        found = _parsed(message)
        if isinstance(found, dict):
            kind = _merged(kind, _kind(found))  # type: ignore[assignment]
    if not kind:
        raise InvalidArgument("none of the messages is a JSON object; say the schema instead of a sample")
    return ", ".join(f"{_name(name)} {_ddl(each)}" for name, each in kind.items())


def _parsed(message: bytes | None) -> Any:
    try:
        return None if message is None else json.loads(message)
    except (ValueError, RecursionError):
        return None


def _kind(value: Any) -> Kind:
    match value:
        case None:
            kind: Kind = None
        case bool():
            kind = "boolean"
        case int():
            kind = _BIGINT if abs(value) <= _MAX_LONG else _DECIMAL if abs(value) < _MAX_DECIMAL else _DOUBLE
        case float():
            kind = _DOUBLE
        case dict():
            kind = {name: _kind(each) for name, each in value.items()}
        case list():
            kind = [reduce(_merged, map(_kind, value), None)]
        case _:
            kind = _STRING
    return kind


def _merged(one: Kind, other: Kind) -> Kind:
    # The first of two equal kinds stays: objects are equal in any order of their fields.
    if other is None or one == other:
        return one
    if one is None:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _merged(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(one, list) and isinstance(other, list):
        return [_merged(one[0], other[0])]
    if isinstance(one, str) and isinstance(other, str) and one in _NUMBERS and other in _NUMBERS:
        return max(one, other, key=_NUMBERS.__getitem__)
    return _STRING


def _ddl(kind: Kind) -> str:
    if isinstance(kind, dict):
        fields = ", ".join(f"{_name(name)}: {_ddl(each)}" for name, each in kind.items())
        # Spark has no type for an object that is always empty, so keep its text.
        return f"struct<{fields}>" if kind else _STRING
    if isinstance(kind, list):
        return f"array<{_ddl(kind[0])}>"
    return kind or _STRING


def _name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
