"""Zigzag varints, in which records have their lengths, deltas and counts.

The rule is Protocol Buffers' (`sint32`, `sint64`), taken over by Kafka's record format (KIP-98): a
signed number is folded so that small magnitudes of either sign become small numbers (0, -1, 1, -2 →
0, 1, 2, 3), then written seven bits a byte, least significant first, the top bit set on every byte
but the last. A *varint* has 32 bits in at most 5 bytes, a *varlong* 64 bits in at most 10.

Longer than necessary but within these limits is accepted, as Kafka accepts it; a number that does
not fit is corrupt, where Kafka's reader would drop the excess bits.

Nearly every number in a batch is a small natural one, so `VARINTS` keeps the encoding of 0 …
`TABLE_SIZE` - 1 ready-made.
"""

from __future__ import annotations

from typing import Final

from sparrow.base.errors import CorruptBatch, InvalidArgument

TABLE_SIZE: Final = 8192
"""The numbers that take at most two bytes."""

MAX_VARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10
NULL: Final = b"\x01"
"""-1: the length of a null key, value or header value."""


def _table() -> list[bytes]:
    ones = [bytes((n << 1,)) for n in range(64)]
    twos = [bytes(((n << 1) & 0x7F | 0x80, n >> 6)) for n in range(64, TABLE_SIZE)]
    return ones + twos


VARINTS: Final[list[bytes]] = _table()
"""`VARINTS[n]` is n encoded, for 0 <= n < `TABLE_SIZE`."""


def encode_varint(number: int) -> bytes:
    """Encode a signed 32-bit number as 1 to 5 bytes.

    Raises:
        InvalidArgument: the number does not fit 32 bits.
    """
    if 0 <= number < TABLE_SIZE:
        return VARINTS[number]
    if not -0x80000000 <= number <= 0x7FFFFFFF:
        raise InvalidArgument(f"{number} does not fit a signed 32-bit number")
    return _encode(number)


def encode_varlong(number: int) -> bytes:
    """Encode a signed 64-bit number as 1 to 10 bytes.

    Raises:
        InvalidArgument: the number does not fit 64 bits.
    """
    if 0 <= number < TABLE_SIZE:
        return VARINTS[number]
    if not -0x8000000000000000 <= number <= 0x7FFFFFFFFFFFFFFF:
        raise InvalidArgument(f"{number} does not fit a signed 64-bit number")
    return _encode(number)


def _encode(number: int) -> bytes:
    folded = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while folded > 0x7F:
        out.append(folded & 0x7F | 0x80)
        folded >>= 7
    out.append(folded)
    return bytes(out)


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the 32-bit number at `position`, and the position behind it.

    Raises:
        CorruptBatch: the data ends within it, or it does not fit.
    """
    if position + 1 < len(data):
        folded = data[position]
        if folded < 0x80:
            return (folded >> 1) ^ -(folded & 1), position + 1
        second = data[position + 1]
        if second < 0x80:
            folded += (second << 7) - 0x80
            return (folded >> 1) ^ -(folded & 1), position + 2
    return _decode(data, position, MAX_VARINT_BYTES, 32)


def decode_varlong(data: bytes, position: int) -> tuple[int, int]:
    """Return the 64-bit number at `position`, and the position behind it.

    Raises:
        CorruptBatch: the data ends within it, or it does not fit.
    """
    if position + 1 < len(data):
        folded = data[position]
        if folded < 0x80:
            return (folded >> 1) ^ -(folded & 1), position + 1
        second = data[position + 1]
        if second < 0x80:
            folded += (second << 7) - 0x80
            return (folded >> 1) ^ -(folded & 1), position + 2
    return _decode(data, position, MAX_VARLONG_BYTES, 64)


def _decode(data: bytes, position: int, max_bytes: int, bits: int) -> tuple[int, int]:
    folded = shift = 0
    for byte in data[position : position + max_bytes]:
        position += 1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            if folded >> bits:
                raise CorruptBatch(f"a number before byte {position} of the records does not fit {bits} bits")
            return (folded >> 1) ^ -(folded & 1), position
        shift += 7
    if shift < 7 * max_bytes:
        raise CorruptBatch(f"a number of the records runs over their end at byte {len(data)}")
    raise CorruptBatch(f"a number before byte {position} of the records is longer than {max_bytes} bytes")
