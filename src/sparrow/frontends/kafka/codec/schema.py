"""kio's classes: the class of a message in a version, and its fields on the wire.

A class is loaded at its first use, because loading all of them would take seconds.
"""

from __future__ import annotations

import threading
import types
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from kio.index import load_request_schema, load_response_schema
from msgspec import Struct

if TYPE_CHECKING:
    from dataclasses import Field

LOADING = threading.RLock()
"""Locked while modules of messages and handlers are loaded, at first use or beforehand: the
interpreter reports a deadlock if two threads load modules that import each other.
"""

Class = Any
"""A class of kio; only `wire_fields` knows its attributes."""


class WireField(Struct, frozen=True):
    """A field of a message.

    `kind` is the primitive's name in the schema, or "" if the field holds a message (`entity`).
    `tag` is set for tagged fields of flexible versions (KIP-482).
    """

    name: str
    kind: str
    entity: Class | None
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any


@cache
def request_class(api_key: int, version: int) -> Class:
    """Return the class of a request."""
    with LOADING:
        return load_request_schema(api_key, version)


@cache
def response_class(api_key: int, version: int) -> Class:
    """Return the class of a response."""
    with LOADING:
        return load_response_schema(api_key, version)


@cache
def wire_fields(entity: Class) -> tuple[WireField, ...]:
    """Return the fields of a class in wire order."""
    return tuple(_wire_field(each) for each in fields(entity))


def _wire_field(field: Field[Any]) -> WireField:
    inner, is_nullable = _without_none(field.type)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner = get_args(inner)[0]
    entity = inner if is_dataclass(inner) else None
    kind = "" if entity is not None else field.metadata["kafka_type"]
    default = (
        field.default if field.default is not MISSING else _implicit(kind, entity, is_array, is_nullable)
    )
    return WireField(
        field.name,
        kind,
        entity,
        is_array,
        is_nullable,
        field.metadata.get("tag"),
        default,
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    (inner,) = (each for each in get_args(annotation) if each is not types.NoneType)
    return inner, True


def _implicit(kind: str, entity: Class | None, is_array: bool, is_nullable: bool) -> Any:
    """Return the value of a field that a version lacks and for which its schema has no default."""
    if is_nullable:
        return None
    if is_array:
        return ()
    if entity is not None:
        return entity(**{each.name: each.default for each in wire_fields(entity)})
    return _ZEROS.get(kind, 0)


_ZEROS: dict[str, Any] = {
    "string": "",
    "bytes": b"",
    "records": None,
    "bool": False,
    "uuid": None,
    "float64": 0.0,
    "timedelta_i32": timedelta(),
    "timedelta_i64": timedelta(),
    "datetime_i64": None,
}
