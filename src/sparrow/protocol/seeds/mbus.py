r"""The protocols of Message Bus (mbus): a message per connection, and lines.

A producer writes one msgpack map, `{"Topic": str, "Data": bin}`, and closes its side. The names may
be in lower case, both values str or bin (old encoders know no bin), further entries with plain
values are skipped. A consumer writes the name of a topic and "\n" (or closes its side behind it),
and is sent each message with "\n" behind it.

The map is decoded by hand: a decoder for all of msgpack would allocate the lengths that it
announces.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sparrow.base.errors import BadFrame

MAX_ENTRIES: Final = 16
MAX_NAME_BYTES: Final = 0xFFFF
OVERHEAD_BYTES: Final = 1 << 17
"""Limit of a map's size besides the message's data: the topic, and entries that are skipped."""

_NIL: Final = 0xC0
_MAPS: Final = {0xDE: 2, 0xDF: 4}
_TEXTS: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC4: 1, 0xC5: 2, 0xC6: 4}
"""str and bin with a length field of this many bytes."""
_SCALARS: Final = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 0),
    **dict.fromkeys((0xCC, 0xD0), 1),
    **dict.fromkeys((0xCD, 0xD1), 2),
    **dict.fromkeys((0xCA, 0xCE, 0xD2), 4),
    **dict.fromkeys((0xCB, 0xCF, 0xD3), 8),
}
"""nil, booleans and numbers: this many bytes follow."""


class Sent(NamedTuple):
    """A producer's message."""

    topic: bytes
    data: bytes


def decode(data: bytes) -> Sent:
    """Decode the message of a connection.

    Raises:
        BadFrame: it is none; says why.
    """
    try:
        return _decode(data)
    except IndexError:
        raise BadFrame(f"a message ends in the middle, after {len(data)} bytes") from None


def _decode(data: bytes) -> Sent:
    count, position = _map(data)
    found: dict[bytes, bytes] = {}
    for _ in range(count):
        key, position = _text(data, position, "a name in a message")
        name = key.lower()
        if name in (b"topic", b"data"):
            found[name], position = _value(data, position, name.decode())
        else:
            position = _behind(data, position)
    if position != len(data):
        raise BadFrame(f"{len(data) - position} bytes follow a message; a connection carries one")
    if not found.get(b"topic"):
        raise BadFrame("a message has no Topic")
    if len(found[b"topic"]) > MAX_NAME_BYTES:
        raise BadFrame(f"a Topic of {len(found[b'topic'])} bytes; at most {MAX_NAME_BYTES} are taken")
    return Sent(found[b"topic"], found.get(b"data", b""))


def _map(data: bytes) -> tuple[int, int]:
    """Return the number of entries of the map, and the position of the first."""
    kind = data[0]
    if 0x80 <= kind <= 0x8F:
        return kind & 0x0F, 1
    width = _MAPS.get(kind)
    if width is None:
        raise BadFrame(f"a message is a msgpack map; this one begins with the byte {kind:#04x}")
    count = int.from_bytes(data[1 : 1 + width], "big")
    if count > MAX_ENTRIES:
        raise BadFrame(
            f"a message of {count} entries; it has Topic and Data, and {MAX_ENTRIES} in all at most"
        )
    return count, 1 + width


def _value(data: bytes, position: int, name: str) -> tuple[bytes, int]:
    """Return a text, or nil for an empty one, which some encoders write."""
    if data[position] == _NIL:
        return b"", position + 1
    return _text(data, position, f"the {name} of a message")


def _text(data: bytes, position: int, what: str) -> tuple[bytes, int]:
    """Return a str or bin as it is, and its end."""
    kind = data[position]
    position += 1
    if 0xA0 <= kind <= 0xBF:
        size = kind & 0x1F
    else:
        width = _TEXTS.get(kind)
        if width is None:
            raise BadFrame(f"{what} is neither str nor bin: it begins with the byte {kind:#04x}")
        size = int.from_bytes(data[position : position + width], "big")
        position += width
    end = position + size
    if end > len(data):
        raise BadFrame(f"{what} of {size} bytes was announced; {max(0, len(data) - position)} are there")
    return data[position:end], end


def _behind(data: bytes, position: int) -> int:
    """Return the end of a value that is skipped."""
    kind = data[position]
    if kind <= 0x7F or kind >= 0xE0:
        return position + 1
    width = _SCALARS.get(kind)
    if width is not None:
        return position + 1 + width
    return _text(data, position, "an entry of a message that is skipped")[1]


def line(data: bytes) -> bytes:
    """Return a message for a consumer."""
    return data + b"\n"
