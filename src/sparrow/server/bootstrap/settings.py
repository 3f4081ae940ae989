"""Settings that are declared elsewhere (a queue's policy, a webhook), as parts of a section of the file.

Whatever declares them judges the values; here durations get units, and settings their other names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import SparrowError
from sparrow.base.faults import misfit
from sparrow.base.options import Kind
from sparrow.base.shapes import Part
from sparrow.base.units import parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Check = Callable[[str, object], object]
"""The value of a setting as it counts; raises SparrowError if the setting does not take it."""


def parts_of(
    settings: Mapping[str, object],
    aliases: Mapping[str, str],
    check: Check,
    choices: Mapping[str, Sequence[object]],
) -> dict[str, Part]:
    """A part for each setting, and for each other name of one.

    Args:
        settings: name → default.
        choices: name → all values, of those that have few.
    """
    parts = {
        name: Part(_kind(name, check, _schema(default, choices.get(name))))
        for name, default in settings.items()
    }
    return parts | {alias: parts[name] for alias, name in aliases.items()}


def _schema(default: object, choices: Sequence[object] | None) -> dict[str, object]:
    if choices is not None:
        return {"enum": [*choices, None]}
    if isinstance(default, int | float):
        return {"type": ["number", "string", "boolean", "null"]}
    return {"type": ["string", "number", "object", "array", "null"]}


def _kind(name: str, check: Check, schema: dict[str, object]) -> Kind[object]:
    def read(given: object) -> object:
        value = given
        if name.endswith("_ms") and isinstance(given, str):
            value = parse_duration_ms(given)
        try:
            return check(name, value)
        except SparrowError as error:
            raise misfit(error.text) from None

    return Kind(name, read, schema=schema)


def without_aliases(values: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """The same by the settings' own names.

    Raises:
        Misfit: one is given twice.
    """
    given: dict[str, str] = {}
    for name in values:
        own = aliases.get(name, name)
        if own in given:
            raise misfit(f"{given[own]!r} and {name!r} are one setting; give it once", name)
        given[own] = name
    return {own: values[name] for own, name in given.items()}
