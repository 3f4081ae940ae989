"""Unsigned varints (KIP-482): seven bits a byte, the lowest first."""

from __future__ import annotations

from sparrow.frontends.kafka.malformed import MalformedRequest

_MAX_SHIFT = 28


def read_varint(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """(value, offset behind it).

    Raises:
        MalformedRequest: it is cut short, or has more than five bytes.
    """
    value = shift = 0
    while offset < len(data):
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
        if shift > _MAX_SHIFT:
            raise MalformedRequest("a varint has more than five bytes")
    raise MalformedRequest("a varint is cut short")


def write_varint(value: int) -> bytes:
    """The bytes of a value that is not negative."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
