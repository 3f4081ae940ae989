"""Decoding of requests, header and body, and conversion of old versions to the class of a
handler.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kio.serial import entity_reader

from sparrow.frontends.kafka.codec.produce import read_produce
from sparrow.frontends.kafka.codec.schema import Class, request_class, wire_fields
from sparrow.frontends.kafka.codec.skim import MAX_ELEMENTS, check_lengths
from sparrow.frontends.kafka.codec.varint import read_varint
from sparrow.frontends.kafka.frame_receiver import MalformedRequest

if TYPE_CHECKING:
    from collections.abc import Callable

_HEADER = struct.Struct(">hhih")
HEADER_BYTES = _HEADER.size
PRODUCE = 0


class Header(NamedTuple):
    """The fixed part of a request's header (version 1). `body_at`: offset of the tagged fields or
    the body.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def read_header(frame: bytes | memoryview) -> Header:
    """Decode the header of a frame.

    Raises:
        MalformedRequest: it is truncated, or the client id is not UTF-8.
    """
    if len(frame) < HEADER_BYTES:
        raise MalformedRequest(f"a request of {len(frame)} bytes is shorter than its header")
    api_key, version, correlation_id, size = _HEADER.unpack_from(frame)
    if size < 0:
        return Header(api_key, version, correlation_id, None, HEADER_BYTES)
    end = HEADER_BYTES + size
    if end > len(frame):
        raise MalformedRequest(f"a client id of {size} bytes does not fit into a request of {len(frame)}")
    try:
        client_id = bytes(frame[HEADER_BYTES:end]).decode()
    except UnicodeDecodeError as error:
        raise MalformedRequest("the client id is not UTF-8") from error
    return Header(api_key, version, correlation_id, client_id, end)


def read_request(frame: bytes | memoryview, header: Header) -> Any:
    """Decode the body of a request as kio's class of its version; a Produce as the class of
    `codec.produce`.

    Raises:
        MalformedRequest: the bytes do not follow the schema.
    """
    kind = request_class(header.api_key, header.version)
    offset = header.body_at
    if kind.__flexible__:
        offset = _skip_tagged_fields(frame, offset)
    if header.api_key == PRODUCE:
        return read_produce(frame, offset, header.version)
    check_lengths(kind, frame, offset)
    try:
        request, _ = _reader(kind)(frame, offset)
    # the reader raises several types, overflow and value errors among them
    except Exception as error:
        raise MalformedRequest(
            f"{kind.__name__} version {header.version}: {error} ({type(error).__name__})"
        ) from error
    return request


@cache
def _reader(kind: Class) -> Callable[[Any, int], tuple[Any, int]]:
    return entity_reader(kind)


def _skip_tagged_fields(frame: bytes | memoryview, offset: int) -> int:
    count, offset = read_varint(frame, offset)
    if count > MAX_ELEMENTS:
        raise MalformedRequest(f"{count} tagged fields are announced")
    for _ in range(count):
        _, offset = read_varint(frame, offset)
        size, offset = read_varint(frame, offset)
        offset += size
        if offset > len(frame):
            raise MalformedRequest("a tagged field reaches beyond the request")
    return offset


def lift(request: Any, target: Class) -> Any:
    """Convert the request to `target`, a class of a newer version; fields that its own version
    lacks get their defaults.
    """
    source: Class = type(request)
    return request if source is target else _lifter(source, target)(request)


@cache
def _lifter(source: Class, target: Class) -> Callable[[Any], Any]:
    known = {each.name for each in wire_fields(source)}
    given = [
        (each.name, _converter(source, each.name, each.entity, is_array=each.is_array))
        for each in wire_fields(target)
        if each.name in known
    ]
    missing = {each.name: each.default for each in wire_fields(target) if each.name not in known}

    def convert(request: Any) -> Any:
        values = {
            name: getattr(request, name) if converter is None else converter(getattr(request, name))
            for name, converter in given
        }
        return target(**values, **missing)

    return convert


def _converter(
    source: Class, name: str, target: Class | None, *, is_array: bool
) -> Callable[[Any], Any] | None:
    if target is None:
        return None
    (inner,) = (each.entity for each in wire_fields(source) if each.name == name)
    assert inner is not None
    convert = _lifter(inner, target)
    if is_array:
        return lambda values: None if values is None else tuple(map(convert, values))
    return lambda value: None if value is None else convert(value)
