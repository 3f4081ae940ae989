"""A configuration as plain data, to be shown: no secrets, durations and sizes as numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from sparrow.base.settings import options_of
from sparrow.server.bootstrap.endpoints import EndpointDeclaration
from sparrow.server.config import SEED_PORTS, ServerConfig, seed_ports
from sparrow.server.listeners import PORT_OR_OFF

if TYPE_CHECKING:
    from sparrow.base.settings import Resolved

HIDDEN = "hidden"


def plain(value: object) -> Any:
    """Return a value as mappings, lists, texts and numbers."""
    match value:
        case EndpointDeclaration():
            found: Any = _endpoint(value)
        case Enum():
            found = value.value
        case msgspec.Struct():
            found = plain(msgspec.structs.asdict(value))
        case Mapping():
            found = {str(name): plain(inner) for name, inner in value.items()}
        case frozenset():
            found = sorted(value)
        case list() | tuple():
            found = [plain(inner) for inner in value]
        case _ if dataclasses.is_dataclass(value):
            found = {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
        case _:
            found = value
    return found


def _endpoint(endpoint: EndpointDeclaration) -> dict[str, Any]:
    """Return an endpoint without its secrets, and with only the names of its headers."""
    settings = {name: plain(value) for name, value in endpoint.settings.items()}
    if isinstance(settings.get("headers"), dict | list):
        settings["headers"] = {name: HIDDEN for name, _ in _pairs(endpoint.settings["headers"])}
    return {
        "name": endpoint.name,
        **settings,
        "trusted": endpoint.is_trusted,
        "secrets": None if endpoint.secrets is None else len(endpoint.secrets),
    }


def _pairs(headers: object) -> list[tuple[str, str]]:
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers)  # type: ignore[call-overload]


def plain_options(config: ServerConfig, resolved: Resolved) -> dict[str, dict[str, Any]]:
    """Return value and source of every option by key; of secrets only their number."""
    shown = {}
    ports = {SEED_PORTS[name][0]: port for name, port in seed_ports(config).items()}
    for each in options_of(ServerConfig):
        value = each.value_in(config)
        if each.secret and value:
            value = f"{len(value)}, not shown"
        elif each.kind is PORT_OR_OFF and value < 0:
            value = ports.get(each.name, "off")
        elif each.kind.choices:
            value = each.kind.show(value)
        shown[each.key] = {"value": plain(value), "source": resolved.sources[each.name]}
    return shown


def plain_declared(config: ServerConfig) -> dict[str, Any]:
    """Return the declarations that a start would apply."""
    return {
        "topics": plain(config.topics),
        "queues": plain(config.queues),
        "acls": plain(config.acls),
        "users": sorted(config.users),
        "pipelines": plain(config.pipelines),
    }
