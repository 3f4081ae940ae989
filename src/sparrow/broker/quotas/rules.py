"""Quotas: their entities, which one applies to a client, and which a filter selects. Pure.

An entity is a user, a client id, both, or an address; each part has a name or is the default of its
type (KIP-13, KIP-546, KIP-612). The most specific quota that fits a client applies, a user's
before a client id's:

    (user, client id) · (user, default client id) · (user)
    (default user, client id) · (default user, default client id) · (default user)
    (client id) · (default client id)

The entity decides which clients share a limit: with a client id in it each client id has its own
limit (each pair, if there is a user, too), otherwise all clients of a user share it. A default is a
limit for each, not for all together.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

from msgspec import Struct

from sparrow.base.errors import InvalidArgument, UnsupportedVersion

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs by type; None is the default of the type. Made by `entity_of`."""
Scope = tuple[str | None, str | None]
"""The clients that share a limit: (user, client id); None: all of them."""


class QuotaKind(Enum):
    """Quotas that are enforced, by the name of their setting."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"


_WHOLE: Final = frozenset({"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"})
_CLIENT_KEYS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
_IP_KEYS: Final = frozenset({"connection_creation_rate"})
_MAX_WHOLE: Final = {"connection_creation_rate": (1 << 31) - 1}
_EPSILON: Final = 1e-6


class Match(Enum):
    """Ways in which a filter's component matches the part of an entity."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2
    """Any name, and the default."""


class Component(Struct, frozen=True):
    """A part that an entity must have to be selected. `name` belongs to EXACT."""

    entity_type: str
    match: Match
    name: str | None = None


class QuotaChange(Struct, frozen=True):
    """Values to set (None: remove) for an entity, as pairs, so that one named twice is seen."""

    entity: tuple[tuple[str, str | None], ...]
    values: tuple[tuple[str, float | None], ...]


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Return the entity made of these parts.

    Raises:
        InvalidArgument: they do not make one.
    """
    listed = list(parts)
    types = [kind for kind, _ in listed]
    if not listed:
        raise InvalidArgument("Invalid empty client quota entity; name a user, a client id or an address.")
    for kind, name in listed:
        if kind not in ENTITY_TYPES:
            raise InvalidArgument(
                f"Unhandled client quota entity type: {kind!r}; there are user, client-id and ip."
            )
        if name == "":
            raise InvalidArgument(f"Empty {kind} not supported; null stands for the default.")
    if len(set(types)) < len(types) or (IP in types and len(types) > 1):
        raise InvalidArgument(f"Invalid client quota entity combination: {', '.join(types)}.")
    if types == [IP]:
        _check_address(listed[0][1])
    return tuple(sorted(listed, key=lambda part: part[0]))


def _check_address(address: str | None) -> None:
    if address is not None:
        try:
            ipaddress.ip_address(address)
        except ValueError:
            raise InvalidArgument(f"{address} is not a valid IP address.") from None


def check_values(entity: Entity, values: Iterable[tuple[str, float | None]]) -> dict[str, float | None]:
    """Return the values if an entity may have them.

    Raises:
        InvalidArgument: says which is wrong.
    """
    allowed = _IP_KEYS if entity[0][0] == IP else _CLIENT_KEYS
    checked: dict[str, float | None] = {}
    for key, value in values:
        if key not in allowed:
            raise InvalidArgument(
                f"Invalid configuration key {key!r}; there are {', '.join(sorted(allowed))}."
            )
        if key in checked:
            raise InvalidArgument(f"The quota {key} is given twice for one entity.")
        if value is not None:
            _check_value(key, value)
        checked[key] = value
    return checked


def _check_value(key: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidArgument(f"Quota {key} must be greater than 0, and finite.")
    if key in _WHOLE and abs(round(value) - value) > _EPSILON:
        raise InvalidArgument(f"Quota {key} must be a whole number, not {value}.")
    if key in _WHOLE and value > _MAX_WHOLE.get(key, (1 << 63) - 1):
        raise InvalidArgument(f"Proposed value for {key} is too large.")


def check_filter(components: Iterable[Component]) -> dict[str, Component]:
    """Return a filter's components by type.

    Raises:
        InvalidArgument, UnsupportedVersion: they make no filter.
    """
    by_type: dict[str, Component] = {}
    for each in components:
        if not each.entity_type:
            raise InvalidArgument("Invalid empty entity type.")
        if each.entity_type in by_type:
            raise InvalidArgument(
                f"Entity type {each.entity_type} cannot appear more than once in the filter."
            )
        if each.entity_type not in ENTITY_TYPES:
            raise UnsupportedVersion(
                f"Unsupported entity type {each.entity_type!r}; there are user, client-id and ip."
            )
        if (each.match is Match.EXACT) == (each.name is None):
            raise InvalidArgument(
                "A filter component that matches exactly has a match string, and no other has one."
            )
        by_type[each.entity_type] = each
    if IP in by_type and len(by_type) > 1:
        raise InvalidArgument("Invalid entity filter component combination: ip with another type.")
    return by_type


class QuotaTable:
    """The limits of all entities."""

    def __init__(self) -> None:
        self._values: dict[Entity, dict[str, float]] = {}
        self._limited: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        return iter(self._values.items())

    def get(self, entity: Entity) -> Mapping[str, float]:
        """Return the limits of an entity; empty without any."""
        return self._values.get(entity, {})

    def replace(self, entity: Entity, values: Mapping[str, float]) -> None:
        """Give an entity these limits and no others."""
        if values:
            self._values[entity] = dict(values)
        else:
            self._values.pop(entity, None)
        self._limited = frozenset(key for each in self._values.values() for key in each)

    def is_limited(self, kind: QuotaKind) -> bool:
        """Return True if any entity has a limit of this kind."""
        return bool(self._limited) and kind.value in self._limited

    def limit(self, kind: QuotaKind, user: str, client_id: str) -> tuple[float, Scope] | None:
        """Return the limit that applies to a client, and the clients that share it; None without a
        limit.
        """
        for entity, scope in _candidates(user, client_id):
            value = self._values.get(entity, {}).get(kind.value)
            if value is not None:
                return value, scope
        return None

    def selected(
        self, components: Mapping[str, Component], *, strict: bool
    ) -> list[tuple[Entity, Mapping[str, float]]]:
        """Return entities that have all parts that the components ask for; strict: and no
        others.
        """
        return [
            (entity, values)
            for entity, values in self._values.items()
            if (not strict or len(entity) == len(components))
            and all(_selects(component, dict(entity)) for component in components.values())
        ]


def _selects(component: Component, parts: Mapping[str, str | None]) -> bool:
    if component.entity_type not in parts:
        return False
    if component.match is Match.ANY:
        return True
    return parts[component.entity_type] == component.name


def _candidates(user: str, client_id: str) -> Iterator[tuple[Entity, Scope]]:
    for user_part in (user, None):
        yield ((CLIENT_ID, client_id), (USER, user_part)), (user, client_id)
        yield ((CLIENT_ID, None), (USER, user_part)), (user, client_id)
        yield ((USER, user_part),), (user, None)
    yield ((CLIENT_ID, client_id),), (None, client_id)
    yield ((CLIENT_ID, None),), (None, client_id)
