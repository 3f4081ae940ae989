"""A second reader of records: slow, plain, written from the format's description alone. `decode`
has to give the same records.
"""

from __future__ import annotations

import io
import struct
from typing import Any

import google_crc32c

NAIVE_HEADER = struct.Struct(">qiibIhiqqqhii")


class Malformed(Exception):
    """The bytes are no records."""


def naive_records(batch: bytes, body: bytes) -> list[tuple[Any, ...]]:
    """Return (offset, timestamp, key, value, headers) of each record of `body`, the decompressed
    records of `batch`.
    """
    header = NAIVE_HEADER.unpack_from(batch)
    base_offset, attributes, last_delta = header[0], header[5], header[6]
    base_timestamp, max_timestamp, count = header[7], header[8], header[12]
    source = io.BytesIO(body)
    records = []
    least = 0
    for _ in range(count):
        record = io.BytesIO(_take(source, _number(source, 32)))
        _take(record, 1)
        stamp = _number(record, 64)
        delta = _number(record, 32)
        if not least <= delta <= last_delta:
            raise Malformed("offset delta")
        least = delta + 1
        key, value = _nullable(record), _nullable(record)
        headers = tuple((_name(record), _nullable(record)) for _ in range(_natural(record)))
        if record.read():
            raise Malformed("bytes after the headers")
        timestamp = max_timestamp if attributes & 8 else base_timestamp + stamp
        records.append((base_offset + delta, timestamp, key, value, headers))
    if source.read():
        raise Malformed("bytes after the records")
    return records


def fields_of(records: list[Any]) -> list[tuple[Any, ...]]:
    """Return decoded records in the form of `naive_records`."""
    return [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in records]


def corrected(batch: bytes) -> bytes:
    """Return the batch with its length and CRC corrected."""
    crc = google_crc32c.value(batch[21:])
    return batch[:8] + struct.pack(">i", len(batch) - 12) + batch[12:17] + struct.pack(">I", crc) + batch[21:]


def with_fields(batch: bytes, **fields: int) -> bytes:
    """Return the batch with other numbers in its header, and a CRC that fits."""
    names = ("base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta")
    names += (
        "base_timestamp",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "record_count",
    )
    values = dict(zip(names, NAIVE_HEADER.unpack_from(batch), strict=True)) | fields
    return corrected(NAIVE_HEADER.pack(*values.values()) + batch[NAIVE_HEADER.size :])


def _take(source: io.BytesIO, size: int) -> bytes:
    if size < 0:
        raise Malformed("negative size")
    data = source.read(size)
    if len(data) != size:
        raise Malformed("too short")
    return data


def _number(source: io.BytesIO, bits: int) -> int:
    folded = shift = 0
    while True:
        byte = _take(source, 1)[0]
        folded |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
        if shift >= bits:
            raise Malformed("number too long")
    if folded >> bits:
        raise Malformed("number too large")
    return folded // 2 if folded % 2 == 0 else -(folded + 1) // 2


def _natural(source: io.BytesIO) -> int:
    number = _number(source, 32)
    if number < 0:
        raise Malformed("negative count")
    return number


def _nullable(source: io.BytesIO) -> bytes | None:
    size = _number(source, 32)
    return None if size == -1 else _take(source, size)


def _name(source: io.BytesIO) -> str:
    raw = _nullable(source)
    if raw is None:
        raise Malformed("null name")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Malformed("name is not UTF-8") from None
