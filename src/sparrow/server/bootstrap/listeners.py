"""Kafka listeners declared in the configuration file."""

from __future__ import annotations

from typing import Any

from sparrow.base.faults import misfit
from sparrow.base.settings import BOOLEAN, BOOLEAN_SCHEMA, Kind
from sparrow.base.shapes import NAME, Part, Section, named
from sparrow.server.listeners import (
    ADDRESS,
    DEFAULT_NAME,
    HOST,
    MECHANISMS,
    PORT,
    ListenerDeclaration,
    split_address,
)


def _make(values: dict[str, Any]) -> ListenerDeclaration:
    if values[NAME] == DEFAULT_NAME:
        raise misfit(
            f"a listener cannot be called {DEFAULT_NAME!r}: that is the one of kafka.host and kafka.port"
        )
    advertised_host, advertised_port = split_address(values.get("advertised", ""))
    return ListenerDeclaration(
        values[NAME],
        values.get("host", ""),
        values["port"],
        advertised_host,
        advertised_port,
        values.get("sasl"),
        values.get("tls", True),
        values.get("sasl_mechanisms", ()),
    )


def _maybe_boolean(given: object) -> bool | None:
    return None if given is None else BOOLEAN.read(given)


_SASL = Kind("true|false", _maybe_boolean, schema={"anyOf": [BOOLEAN_SCHEMA, {"type": "null"}]})
_LISTENER = Section(
    "a listener",
    {
        "port": Part(PORT, is_required=True),
        "host": Part(HOST),
        "advertised": Part(ADDRESS),
        "sasl": Part(_SASL),
        "tls": Part(BOOLEAN),
        "sasl_mechanisms": Part(MECHANISMS),
    },
)
LISTENERS = named(_LISTENER, _make, "listeners")
