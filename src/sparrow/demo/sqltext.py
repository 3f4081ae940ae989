"""Pieces of Spark SQL about a line, which is the column `value`."""

from __future__ import annotations


def field_sql(field: str) -> str:
    """The text of a field, or of the line, as an expression of Spark SQL."""
    return f"get_json_object(value, {quoted(f'$[{field!r}]')})" if field else "value"


def quoted(text: str) -> str:
    """A text as a literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
