"""Validation of a request's bytes before kio decodes it: every length and count must fit into the
frame.

kio allocates as many elements as a count announces before it reads the first (version 0.6.5), so
that a request of sixty bytes can ask for a hundred gigabytes and end the process. It also accepts
null where the schema does not. This walk refuses both; it decodes nothing.

It also refuses requests with excessively many elements: each costs some microseconds and some
hundred bytes, however few it has on the wire.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from functools import cache
from typing import Final

from sparrow.frontends.kafka.codec.schema import Class, WireField, wire_fields
from sparrow.frontends.kafka.codec.varint import read_varint
from sparrow.frontends.kafka.frame_receiver import MalformedRequest

Buffer = bytes | memoryview
Step = Callable[[Buffer, int], int]
"""Function that walks over one value: (frame, its offset) → the offset after it, which may be
beyond the end of the frame.
"""

MAX_ELEMENTS: Final = 250_000
"""Elements of all arrays of a request together, tagged fields included."""


class _Left(threading.local):
    """Number of elements left to the request that this thread walks over."""

    elements = 0


_left: Final = _Left()

_SIZES: Final = {
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float64": 8,
    "bool": 1,
    "uuid": 16,
    "error_code": 2,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NULL_ENTITY: Final = 0xFF


def check_lengths(kind: Class, frame: Buffer, offset: int) -> None:
    """Walk over a message of class `kind` that begins at `offset`.

    Raises:
        MalformedRequest: it does not fit into the frame, a count or length is negative, null is not
            allowed, or there are too many elements.
    """
    _left.elements = MAX_ELEMENTS
    try:
        end = _message(kind)(frame, offset)
    except (struct.error, IndexError):
        end = len(frame) + 1
    if end > len(frame):
        raise MalformedRequest(f"{kind.__name__} version {kind.__version__} is truncated")


def _take(count: int) -> None:
    _left.elements -= count
    if _left.elements < 0:
        raise MalformedRequest(f"a request has more than {MAX_ELEMENTS} elements")


@cache
def _message(kind: Class) -> Step:
    steps = _steps([each for each in wire_fields(kind) if each.tag is None], is_flexible=kind.__flexible__)
    if kind.__flexible__:
        steps.append(_tags([each for each in wire_fields(kind) if each.tag is not None]))
    if len(steps) == 1:
        return steps[0]

    def walk(frame: Buffer, offset: int) -> int:
        for step in steps:
            offset = step(frame, offset)
        return offset

    return walk


def _steps(fields: list[WireField], *, is_flexible: bool) -> list[Step]:
    """Return the steps of the fields; adjacent fields of fixed size are one step."""
    steps: list[Step] = []
    fixed = 0
    for field in fields:
        if field.kind in _SIZES and not field.is_array:
            fixed += _SIZES[field.kind]
            continue
        if fixed:
            steps.append(_skip(fixed))
            fixed = 0
        steps.append(_step(field, is_flexible=is_flexible))
    if fixed:
        steps.append(_skip(fixed))
    return steps


def _step(field: WireField, *, is_flexible: bool) -> Step:
    if field.entity is not None:
        one = _message(field.entity)
    elif field.kind in _SIZES:
        one = _skip(_SIZES[field.kind])
    else:
        length = _compact_length if is_flexible else (_int16 if field.kind == "string" else _int32)
        # The array may be null, not its elements.
        one = _bytes(length, is_nullable=field.is_nullable and not field.is_array, name=field.name)
    if field.is_array:
        return _array(one, _compact_length if is_flexible else _int32, field)
    return _nullable(one) if field.entity is not None and field.is_nullable else one


def _skip(size: int) -> Step:
    return lambda _, offset: offset + size


def _int16(frame: Buffer, offset: int) -> tuple[int, int]:
    return _INT16.unpack_from(frame, offset)[0], offset + 2


def _int32(frame: Buffer, offset: int) -> tuple[int, int]:
    return _INT32.unpack_from(frame, offset)[0], offset + 4


def _compact_length(frame: Buffer, offset: int) -> tuple[int, int]:
    value, offset = read_varint(frame, offset)
    return value - 1, offset


Length = Callable[[Buffer, int], tuple[int, int]]


def _bytes(length: Length, *, is_nullable: bool, name: str) -> Step:
    least = -1 if is_nullable else 0

    def walk(frame: Buffer, offset: int) -> int:
        size, offset = length(frame, offset)
        if size < least:
            raise MalformedRequest(f"{name} has a length of {size}")
        return offset + size if size > 0 else offset

    return walk


def _array(one: Step, length: Length, field: WireField) -> Step:
    least = -1 if field.is_nullable else 0
    fixed = _SIZES.get(field.kind, 0)

    def walk(frame: Buffer, offset: int) -> int:
        count, offset = length(frame, offset)
        if not least <= count <= len(frame) - offset:
            raise MalformedRequest(
                f"{field.name} announces {count} elements, {max(0, len(frame) - offset)} bytes are left"
            )
        if count > 0:
            _take(count)
        if fixed:
            return offset + max(0, count) * fixed
        for _ in range(count):
            offset = one(frame, offset)
        return offset

    return walk


def _nullable(one: Step) -> Step:
    """Skip a message after a byte that says if it is present (KIP-893)."""
    return lambda frame, offset: offset + 1 if frame[offset] == _NULL_ENTITY else one(frame, offset + 1)


def _tags(fields: list[WireField]) -> Step:
    known = {field.tag: _step_of_tag(field) for field in fields}

    def walk(frame: Buffer, offset: int) -> int:
        count, offset = read_varint(frame, offset)
        _take(count)
        for _ in range(count):
            tag, offset = read_varint(frame, offset)
            size, offset = read_varint(frame, offset)
            step = known.get(tag)
            if step is not None and step(frame, offset) != offset + size:
                raise MalformedRequest(f"tagged field {tag} is not as long as it says")
            offset += size
            if offset > len(frame):
                raise MalformedRequest(f"tagged field {tag} reaches beyond the request")
        return offset

    return walk


def _step_of_tag(field: WireField) -> Step:
    """Return the step of a tagged field: instead of null it is absent, except for strings and
    bytes, which encode null.
    """
    if field.entity is not None and not field.is_array:
        return _message(field.entity)
    return _step(field, is_flexible=True)
