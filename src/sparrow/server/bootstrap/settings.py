"""Settings that are declared elsewhere (a queue's policy, a webhook), as parts of a section of the
file.

Their declarations check the values; this module adds units to durations, and the other names of
settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import SparrowError
from sparrow.base.faults import misfit
from sparrow.base.settings import Kind
from sparrow.base.shapes import Part
from sparrow.base.units import parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Check = Callable[[str, object], object]
"""Returns the value of a setting; raises SparrowError if the setting does not take it."""


def parts_of(
    settings: Mapping[str, object],
    aliases: Mapping[str, str],
    check: Check,
    choices: Mapping[str, Sequence[object]],
) -> dict[str, Part]:
    """Return a part for each setting, and for each other name of one.

    Args:
        settings: name → default.
        choices: name → all values, of settings that have few.
    """
    parts = {
        name: Part(_kind(name, check, schema_of_value(default, choices.get(name))))
        for name, default in settings.items()
    }
    return parts | {alias: parts[name] for alias, name in aliases.items()}


def schema_of_value(default: object, choices: Sequence[object] | None) -> dict[str, object]:
    """Return the JSON Schema of a setting's values. `choices` None: they are many."""
    if choices is not None:
        return {"enum": [*choices, None]}
    if isinstance(default, int | float):
        return {"type": ["number", "string", "boolean", "null"]}
    return {"type": ["string", "number", "object", "array", "null"]}


def _kind(name: str, check: Check, schema: dict[str, object]) -> Kind[object]:
    def with_units(_: str, given: object) -> object:
        value = parse_duration_ms(given) if name.endswith("_ms") and isinstance(given, str) else given
        return check(name, value)

    return kind_of(name, with_units, schema)


def kind_of(key: str, check: Check, schema: dict[str, object]) -> Kind[object]:
    """Return the kind of the setting under `key`; `check` knows its units."""

    def read(given: object) -> object:
        try:
            return check(key, given)
        except SparrowError as error:
            raise misfit(error.text) from None

    return Kind(key, read, schema=schema)


def without_aliases(values: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings by their own names.

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
