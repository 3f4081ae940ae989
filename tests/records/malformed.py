"""Batches with one fault each and a right CRC: a publisher must not get them into a log."""

from __future__ import annotations

from typing import NamedTuple

import google_crc32c

from sparrow.records.batch import CRC_START
from sparrow.records.builder import BatchFields, assemble
from sparrow.records.varint import encode_varint, encode_varlong
from sparrow.records.walker import FaultKind

NOW_MS = 1_700_000_000_000
NULL = -1


def number(value: int) -> bytes:
    return encode_varlong(value)


def record(
    delta: int | bytes = 0,
    *,
    timestamp: int | bytes = 0,
    key: tuple[int, bytes] = (1, b"k"),
    value: tuple[int, bytes] = (1, b"v"),
    headers: bytes = b"\x00",
    attributes: int = 0,
    length: int | bytes | None = None,
) -> bytes:
    """Return a record whose every length may be wrong."""
    fields = (
        bytes([attributes]),
        timestamp if isinstance(timestamp, bytes) else number(timestamp),
        delta if isinstance(delta, bytes) else number(delta),
        number(key[0]) + key[1],
        number(value[0]) + value[1],
        headers,
    )
    body = b"".join(fields)
    if isinstance(length, bytes):
        return length + body
    return encode_varint(len(body) if length is None else length) + body


def header(name: tuple[int, bytes], value: tuple[int, bytes], *, count: int = 1) -> bytes:
    return number(count) + number(name[0]) + name[1] + number(value[0]) + value[1]


def batch_of(records: bytes, count: int, codec: int = 0, **fields: int) -> bytes:
    """Return a batch of any bytes with a right header and CRC."""
    times = {"base_timestamp": NOW_MS, "max_timestamp": NOW_MS} | fields
    return assemble(records, count, count - 1, BatchFields(**times), codec)


def with_crc(data: bytes | bytearray) -> bytes:
    """Return the batch with the CRC of its bytes."""
    crc = google_crc32c.value(bytes(data[CRC_START:]))
    return bytes(data[:17]) + crc.to_bytes(4, "big") + bytes(data[CRC_START:])


class Case(NamedTuple):
    """A malformed batch. `at` is the position of the fault in the records, `index` the number of
    its record.
    """

    name: str
    records: bytes
    count: int
    kind: FaultKind
    index: int
    at: int


GOOD = record()
_SIZE = len(GOOD)
K = FaultKind
_LATEST = (1 << 63) - 1

CASES = [
    Case("no record at all", b"", 1, K.NUMBER, 0, 0),
    Case("fewer records than counted", GOOD, 2, K.NUMBER, 1, _SIZE),
    Case("more records than counted", GOOD + record(1), 1, K.BATCH_REST, 1, _SIZE),
    Case("a byte behind the last record", GOOD + b"\x00", 1, K.BATCH_REST, 1, _SIZE),
    Case("a negative length", record(length=-1), 1, K.LENGTH, 0, 0),
    Case("a length below the least", record(length=5), 1, K.LENGTH, 0, 0),
    Case("a length over the end", record(length=_SIZE), 1, K.LENGTH, 0, 0),
    Case("a length of six bytes", record(length=b"\x80\x80\x80\x80\x80\x00"), 1, K.NUMBER, 0, 0),
    Case("a length of more than 32 bits", record(length=b"\xff\xff\xff\xff\x1f"), 1, K.NUMBER, 0, 0),
    Case("a length that is cut", GOOD + b"\x80", 2, K.NUMBER, 1, _SIZE),
    Case("a timestamp delta of eleven bytes", record(timestamp=b"\x80" * 10 + b"\x00"), 1, K.NUMBER, 0, 2),
    Case(
        "a timestamp delta of more than 64 bits", record(timestamp=b"\xff" * 9 + b"\x02"), 1, K.NUMBER, 0, 2
    ),
    Case("a timestamp over 64 bits", record(timestamp=_LATEST), 1, K.TIMESTAMP, 0, 2),
    Case(
        "a timestamp delta over its record's end",
        record(length=6, timestamp=b"\x80" * 5 + b"\x00") + b"\x00" * 9,
        1,
        K.NUMBER,
        0,
        2,
    ),
    Case("an offset delta that begins at one", record(1), 1, K.OFFSET, 0, 3),
    Case("a negative offset delta", record(-1), 1, K.OFFSET, 0, 3),
    Case("an offset delta twice", GOOD + record(0), 2, K.OFFSET, 1, _SIZE + 3),
    Case("offset deltas with a hole", GOOD + record(2), 2, K.OFFSET, 1, _SIZE + 3),
    Case("offset deltas backwards", record(1) + record(0), 2, K.OFFSET, 0, 3),
    Case("an offset delta of six bytes", record(b"\x80\x80\x80\x80\x80\x00"), 1, K.NUMBER, 0, 3),
    Case("a key length of -2", record(key=(-2, b"")), 1, K.KEY, 0, 4),
    Case("a key over the record's end", record(key=(100, b"k")), 1, K.KEY, 0, 4),
    Case("a key as long as 31 bits allow", record(key=(0x7FFFFFFF, b"k")), 1, K.KEY, 0, 4),
    Case("a value length of -2", record(value=(-2, b"")), 1, K.VALUE, 0, 6),
    Case("a value over the record's end", record(value=(4, b"v")) + record(1), 2, K.VALUE, 0, 6),
    Case("no header count", record(headers=b"", value=(2, b"vv")), 1, K.NUMBER, 0, 9),
    Case("a negative header count", record(headers=number(-1)), 1, K.HEADER_COUNT, 0, 8),
    Case("more headers than fit", record(headers=number(1)), 1, K.HEADER_COUNT, 0, 8),
    Case("two thousand million headers", record(headers=number(0x7FFFFFFF)), 1, K.HEADER_COUNT, 0, 8),
    Case("a header without a name", record(headers=header((NULL, b""), (1, b"x"))), 1, K.HEADER_NAME, 0, 9),
    Case("a header name over the end", record(headers=header((9, b"n"), (1, b"x"))), 1, K.HEADER_NAME, 0, 9),
    Case(
        "a header name that is not UTF-8",
        record(headers=header((1, b"\xff"), (1, b"x"))),
        1,
        K.HEADER_TEXT,
        0,
        9,
    ),
    Case(
        "a header name of a surrogate",
        record(headers=header((3, b"\xed\xa0\x80"), (0, b""))),
        1,
        K.HEADER_TEXT,
        0,
        9,
    ),
    Case(
        "a header name that is cut in a character",
        record(headers=header((1, b"\xc3"), (0, b""))),
        1,
        K.HEADER_TEXT,
        0,
        9,
    ),
    Case(
        "a header value length of -2", record(headers=header((1, b"n"), (-2, b""))), 1, K.HEADER_VALUE, 0, 11
    ),
    Case(
        "a header value over the end", record(headers=header((1, b"n"), (2, b"x"))), 1, K.HEADER_VALUE, 0, 11
    ),
    Case("attributes", record(attributes=8), 1, K.ATTRIBUTES, 0, 1),
    Case(
        "attributes behind a hundred records without",
        b"".join(record(n) for n in range(100)) + record(100, attributes=0x80),
        101,
        K.ATTRIBUTES,
        100,
        64 * 9 + 36 * 10 + 1,
    ),
    Case("a byte behind the last header", record(headers=b"\x00\x00"), 1, K.RECORD_REST, 0, 9),
    Case(
        "a header that is not counted",
        record(headers=header((1, b"n"), (1, b"x"), count=0)),
        1,
        K.RECORD_REST,
        0,
        9,
    ),
    Case(
        "a fault behind a hundred good ones",
        b"".join(record(n) for n in range(100)) + record(100, key=(-2, b"")),
        101,
        K.KEY,
        100,
        64 * 9 + 36 * 10 + 5,
    ),
]

RIGHT = {
    "null key and value": record(key=(NULL, b""), value=(NULL, b"")),
    "empty key and value": record(key=(0, b""), value=(0, b"")),
    "numbers longer than necessary": record(b"\x80\x80\x80\x80\x00", timestamp=b"\x80" * 9 + b"\x00"),
    "a length longer than necessary": record(length=bytes([2 * (_SIZE - 1) | 0x80, 0])),
    "a header with a null value": record(headers=header((1, b"n"), (NULL, b""))),
    "a header with a name with a zero byte": record(headers=header((3, b"a\x00b"), (1, b"x"))),
    "a header with an empty name": record(headers=header((0, b""), (1, b"x"))),
    "a header with a name of many characters": record(
        headers=header((len("ü€\U0001f600".encode()), "ü€\U0001f600".encode()), (0, b""))
    ),
    "a time before 1970": record(timestamp=-NOW_MS - 5),
    "no time": record(timestamp=-NOW_MS - 1),
}
"""Records that are unusual, and correct."""
