"""Settings of a queue's policy and of a webhook, as parts of a section of the file.

Their declarations check the values; this module adds the schema and the other names of settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparrow.base.errors import SparrowError
from sparrow.base.faults import misfit
from sparrow.base.settings import Kind
from sparrow.base.shapes import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparrow.base.named_settings import Setting


def part_of(setting: Setting, key: str, read: Callable[[str, object], object]) -> Part:
    """Return the part of a section for a setting under `key`.

    Args:
        read: returns the value of the setting under a key; raises SparrowError, or ValueError with
            what is allowed.
    """

    def read_part(given: object) -> object:
        try:
            return read(key, given)
        except SparrowError as error:
            raise misfit(error.text) from None

    return Part(Kind(key, read_part, schema=_schema_of(setting)))


def _schema_of(setting: Setting) -> dict[str, object]:
    if setting.kind.choices:
        return {"enum": [*setting.kind.choices, None]}
    if isinstance(setting.default, int | float):
        return {"type": ["number", "string", "boolean", "null"]}
    return {"type": ["string", "number", "object", "array", "null"]}


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
