"""Encoding of responses in the version of the request.

A writer is made once for each pair of classes (the wire's version, the handler's version). It takes
the fields of the wire's class from the response: fields that the wire's version does not know are
omitted, those that the response lacks get the schema's default. Large bytes (records) are not
copied: a response is a list of buffers, written together.
"""

from __future__ import annotations

import struct
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sparrow.frontends.kafka.codec.schema import Class, WireField, response_class, wire_fields
from sparrow.frontends.kafka.codec.varint import write_varint

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

Piece = bytes | memoryview

API_VERSIONS = 18
_FIXED = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
}
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_HEADER = struct.Struct(">ii")
_NULLABLE_ALWAYS = frozenset({"uuid", "datetime_i64"})
"""Kinds with a value for null."""
_NO_TAGS = b"\x00"
_NO_UUID = bytes(16)


def write_response(api_key: int, version: int, correlation_id: int, response: Any) -> list[Piece]:
    """Encode the frame of a response: length, header, body."""
    target = response_class(api_key, version)
    pieces: list[Piece] = [b""]
    # ApiVersions uses the oldest header, so that clients of any age can read it (KIP-511).
    if target.__flexible__ and api_key != API_VERSIONS:
        pieces.append(_NO_TAGS)
    source: Class = type(response)
    _writer(target, source)(pieces.append, response)
    pieces[0] = _HEADER.pack(sum(map(len, pieces)) + 4, correlation_id)
    return pieces


@cache
def _writer(target: Class, source: Class) -> Callable[[Any, Any], None]:
    """Return a function that writes a message of class `source` as one of class `target`."""
    known = {each.name: each for each in wire_fields(source)}
    is_flexible = target.__flexible__
    steps: list[Callable[[Any, Any], None]] = []
    fixed: list[WireField] = []
    for each in wire_fields(target):
        if each.tag is not None:
            continue
        if each.kind in _FIXED and not each.is_array and each.name in known:
            fixed.append(each)
            continue
        if fixed:
            steps.append(_fixed_run(fixed))
            fixed = []
        steps.append(_field_step(each, known.get(each.name), is_flexible=is_flexible))
    if fixed:
        steps.append(_fixed_run(fixed))
    if is_flexible:
        steps.append(
            _tags_step([f for f in wire_fields(target) if f.tag is not None and f.name in known], known)
        )
    if len(steps) == 1:
        return steps[0]

    def write(add: Any, message: Any) -> None:
        for step in steps:
            step(add, message)

    return write


def _fixed_run(run: list[WireField]) -> Callable[[Any, Any], None]:
    """Pack adjacent fields of fixed size together."""
    pack = struct.Struct(">" + "".join(_FIXED[each.kind] for each in run)).pack
    if len(run) == 1:
        name = run[0].name
        return lambda add, message: add(pack(getattr(message, name)))
    values = attrgetter(*(each.name for each in run))
    return lambda add, message: add(pack(*values(message)))


def _field_step(
    field: WireField, known: WireField | None, *, is_flexible: bool
) -> Callable[[Any, Any], None]:
    write = _value_writer(field, known, is_flexible=is_flexible)
    if known is None:
        pieces: list[Piece] = []
        write(pieces.append, field.default)
        constant = b"".join(pieces)
        return lambda add, _: add(constant)
    name = field.name
    return lambda add, message: write(add, getattr(message, name))


def _tags_step(tagged: list[WireField], known: dict[str, WireField]) -> Callable[[Any, Any], None]:
    if not tagged:
        return lambda add, _: add(_NO_TAGS)
    tagged = sorted(tagged, key=lambda each: each.tag or 0)
    writers = [
        (each, _value_writer(each, known[each.name], is_flexible=True, is_tagged=True)) for each in tagged
    ]

    def write(add: Any, message: Any) -> None:
        present: list[Piece] = []
        count = 0
        for field, write_value in writers:
            value = getattr(message, field.name)
            # The default of a nested message belongs to the response's own version.
            if value == field.default or value == known[field.name].default:
                continue
            count += 1
            pieces: list[Piece] = []
            write_value(pieces.append, value)
            present += [write_varint(field.tag or 0), write_varint(sum(map(len, pieces))), *pieces]
        add(write_varint(count))
        for piece in present:
            add(piece)

    return write


def _value_writer(
    field: WireField, known: WireField | None, *, is_flexible: bool, is_tagged: bool = False
) -> Callable[[Any, Any], None]:
    if field.entity is not None:
        source = known.entity if known is not None and known.entity is not None else field.entity
        one = _writer(field.entity, source)
    else:
        one = _primitive_writer(field.kind, is_flexible=is_flexible)
    if field.is_array:
        write = _array_writer(one, is_flexible=is_flexible)
    elif field.entity is not None and field.is_nullable and not is_tagged:
        write = _nullable(one)
    else:
        write = one
    if field.is_nullable or known is None or not known.is_nullable or field.kind in _NULLABLE_ALWAYS:
        return write
    # The field became nullable later: older versions use an empty value instead.
    empty = field.default
    return lambda add, value: write(add, empty if value is None else value)


def _nullable(one: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Write nullable messages after a byte: -1 null, 1 present (KIP-893)."""

    def write(add: Any, value: Any) -> None:
        if value is None:
            add(b"\xff")
        else:
            add(b"\x01")
            one(add, value)

    return write


def _array_writer(one: Callable[[Any, Any], None], *, is_flexible: bool) -> Callable[[Any, Any], None]:
    def write(add: Any, values: Any) -> None:
        if values is None:
            add(b"\x00" if is_flexible else b"\xff\xff\xff\xff")
            return
        add(write_varint(len(values) + 1) if is_flexible else _INT32.pack(len(values)))
        for value in values:
            one(add, value)

    return write


def _primitive_writer(kind: str, *, is_flexible: bool) -> Callable[[Any, Any], None]:
    if kind in _FIXED:
        pack = struct.Struct(">" + _FIXED[kind]).pack
        return lambda add, value: add(pack(value))
    if kind == "string":
        return _write_compact_string if is_flexible else _write_string
    if kind in {"bytes", "records"}:
        return _write_compact_bytes if is_flexible else _write_bytes
    return _OTHERS[kind]


def _write_string(add: Any, value: str | None) -> None:
    if value is None:
        add(b"\xff\xff")
        return
    data = value.encode()
    add(_INT16.pack(len(data)) + data)


def _write_compact_string(add: Any, value: str | None) -> None:
    if value is None:
        add(b"\x00")
        return
    data = value.encode()
    add(write_varint(len(data) + 1) + data)


def _write_bytes(add: Any, value: Piece | None) -> None:
    if value is None:
        add(b"\xff\xff\xff\xff")
        return
    add(_INT32.pack(len(value)))
    add(value)


def _write_compact_bytes(add: Any, value: Piece | None) -> None:
    if value is None:
        add(b"\x00")
        return
    add(write_varint(len(value) + 1))
    add(value)


def _write_uuid(add: Any, value: Any) -> None:
    add(_NO_UUID if value is None else value.bytes)


def _milliseconds(delta: timedelta) -> int:
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000


def _write_time(add: Any, value: int | None) -> None:
    """Write a time given in milliseconds, as the broker has it."""
    add(_INT64.pack(-1 if value is None else value))


_OTHERS: dict[str, Callable[[Any, Any], None]] = {
    "uuid": _write_uuid,
    "timedelta_i32": lambda add, value: add(_INT32.pack(_milliseconds(value))),
    "timedelta_i64": lambda add, value: add(_INT64.pack(_milliseconds(value))),
    "datetime_i64": _write_time,
}
