"""JSON Schema (2020-12) of the configuration file, for editors, derived from the options and their
kinds.

It allows everything that the broker takes; the broker is stricter, as it also knows units, names
and what excludes each other.
"""

from __future__ import annotations

from typing import Any

from sparrow.base.settings import options_of, schema_of
from sparrow.server.config import ServerConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def file_schema() -> dict[str, Any]:
    """Return the schema as plain data."""
    root: dict[str, Any] = {"$schema": DIALECT, "title": "Configuration of a Sparrow broker", **_section()}
    for each in options_of(ServerConfig):
        *sections, name = each.key.split(".")
        at = root
        for section in sections:
            at = at["properties"].setdefault(section, _section())
        at["properties"][name] = {"description": f"{each.help} Default: {each.show}.", **schema_of(each.kind)}
    return root


def _section() -> dict[str, Any]:
    return {"type": ["object", "null"], "properties": {}, "additionalProperties": False}
