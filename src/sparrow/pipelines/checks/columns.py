"""Known columns of a row at a point of a flow: their names in Spark's sense, and their types as far
as they can be computed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparrow.base.faults import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparrow.pipelines.ddl import Field

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class FlowColumns:
    """Columns by their names in lower case, because Spark ignores case; a type is None where it is
    unknown.

    `is_open`: there may be other columns, so no column can be reported as missing.
    """

    types: Mapping[str, str | None] = field(default_factory=dict)
    is_open: bool = False

    @staticmethod
    def of(fields: Iterable[Field]) -> FlowColumns:
        """Return the columns of a schema."""
        return FlowColumns({each.name.lower(): each.type for each in fields})

    def has(self, name: str) -> bool:
        """Return True if the column exists or may exist."""
        return self.is_open or name.lower() in self.types

    def type(self, name: str) -> str | None:
        """Return the type of a column, or None if it is not known."""
        return self.types.get(name.lower())

    def with_others(self, types: Mapping[str, str | None]) -> FlowColumns:
        """Return these columns followed by others."""
        return FlowColumns({**self.types, **types}, self.is_open)

    def own(self) -> FlowColumns:
        """Return the columns that a sink gets."""
        return FlowColumns(
            {name: kind for name, kind in self.types.items() if not name.startswith("_")}, self.is_open
        )

    def missing(self, name: str) -> str:
        """Return the error text for a column that does not exist."""
        close = suggestion(name.lower(), self.types)
        if close:
            return f"there is no column {name!r} here{close}"
        names = [each for each in self.types if not each.startswith("_")]
        more = ", …" if len(names) > _SHOWN else ""
        return f"there is no column {name!r} here; there are {', '.join(names[:_SHOWN])}{more}"

    def missing_among(self, names: Sequence[str]) -> list[str]:
        """Return the names that are not columns."""
        return [name for name in names if not self.has(name)]


UNKNOWN = FlowColumns(is_open=True)


_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_NO_TIMES = (*_NUMBERS, "FLOAT", "DOUBLE", "BOOLEAN", "BINARY")


def is_time(kind: str | None, *, is_strict: bool = False) -> bool:
    """Return True if values of a type can be event times; an unknown type may be.

    Args:
        is_strict: Spark casts nothing here, not even a string.
    """
    return kind not in _NO_TIMES and not (is_strict and kind == "STRING")


def is_number(kind: str | None) -> bool:
    """Return True if a type is a whole number; an unknown type may be."""
    return kind is None or kind in _NUMBERS
