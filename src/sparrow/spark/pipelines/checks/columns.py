"""What is known of the columns of a row at a place of a flow: their names in Spark's sense, and types as far as they can be computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparrow.base.faults import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparrow.spark.pipelines.ddl import Field

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns by their names in lower case, as to Spark case makes no difference; a type is None where it is unknown.

    `is_open`: there may be others, so that nothing can be said to be missing.
    """

    types: Mapping[str, str | None] = field(default_factory=dict)
    is_open: bool = False

    @staticmethod
    def of(fields: Iterable[Field]) -> Columns:
        """Those of a schema."""
        return Columns({each.name.lower(): each.type for each in fields})

    def has(self, name: str) -> bool:
        """Whether there is such a column, or may be."""
        return self.is_open or name.lower() in self.types

    def type(self, name: str) -> str | None:
        """The type of a column; None if it is not known."""
        return self.types.get(name.lower())

    def with_others(self, types: Mapping[str, str | None]) -> Columns:
        """These, and others behind them."""
        return Columns({**self.types, **types}, self.is_open)

    def own(self) -> Columns:
        """Those that a sink gets."""
        return Columns(
            {name: kind for name, kind in self.types.items() if not name.startswith("_")}, self.is_open
        )

    def missing(self, name: str) -> str:
        """What to say of a column that is not there."""
        close = suggestion(name.lower(), self.types)
        if close:
            return f"there is no column {name!r} here{close}"
        names = [each for each in self.types if not each.startswith("_")]
        more = ", …" if len(names) > _SHOWN else ""
        return f"there is no column {name!r} here; there are {', '.join(names[:_SHOWN])}{more}"

    def missing_among(self, names: Sequence[str]) -> list[str]:
        """Those names that are no columns."""
        return [name for name in names if not self.has(name)]


UNKNOWN = Columns(is_open=True)


_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_NO_TIMES = (*_NUMBERS, "FLOAT", "DOUBLE", "BOOLEAN", "BINARY")


def is_time(kind: str | None, *, is_strict: bool = False) -> bool:
    """Whether a type can be the time of an event; an unknown one may be.

    Args:
        is_strict: Spark casts nothing there, not even a text.
    """
    return kind not in _NO_TIMES and not (is_strict and kind == "STRING")


def is_number(kind: str | None) -> bool:
    """Whether a type is a whole number; an unknown one may be."""
    return kind is None or kind in _NUMBERS
