"""Unsigned varints (KIP-482): seven bits per byte, the lowest first."""

from __future__ import annotations

from sparrow.frontends.kafka.frame_receiver import MalformedRequest

_MAX_SHIFT = 28


def read_varint(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Return the value and the offset after it.

    Raises:
        MalformedRequest: it is truncated, or has more than five bytes.
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
    raise MalformedRequest("a varint is truncated")


def write_varint(value: int) -> bytes:
    """Encode a non-negative value."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
