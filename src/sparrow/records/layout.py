"""The layout of one record, and the careful reader of it.

    length          varint   bytes after this field
    attributes      i8       unused, any value
    timestamp delta varlong  ms, to the batch's base timestamp; may be negative
    offset delta    varint   to the batch's base offset; grows from record to record
    key length      varint   -1 for null
    key
    value length    varint   -1 for null
    value
    header count    varint
    headers         (key length varint, key UTF-8, value length varint (-1 for null), value) each

(KIP-98, "message format v2".) The reader here checks everything, names the fault, and defines what
is right; the fast paths of `record` and `runs` handle what they fully recognise and leave the rest
to it. It is stricter than Kafka's own reader, which takes any negative length as null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import CorruptBatch
from sparrow.records import compression
from sparrow.records.batch import HEADER_BYTES
from sparrow.records.varint import decode_varint, decode_varlong

if TYPE_CHECKING:
    from sparrow.records.batch import BatchHeader

MIN_RECORD_BYTES: Final = 7
"""Size of the smallest record: six numbers and the attributes, a byte each."""


class Fields(NamedTuple):
    """The fields of one record as encoded, its headers unread."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers_at: int
    end: int


def plain_records(
    header: BatchHeader, batch: bytes | memoryview, max_bytes: int = compression.DEFAULT_MAX_BYTES
) -> bytes:
    """Return the records of a checked batch, decompressed.

    Raises:
        CorruptBatch: they cannot be decompressed, or the header counts more of them than fit.
        UnsupportedCompression: the header names no known codec.
        RecordTooLarge: they would exceed `max_bytes`.
    """
    stored = batch[HEADER_BYTES : header.size_bytes]
    data = (
        compression.decompress(header.compression, stored, max_bytes) if header.compression else bytes(stored)
    )
    if header.record_count * MIN_RECORD_BYTES > len(data):
        raise CorruptBatch(f"record batch counts {header.record_count} records in {len(data)} bytes")
    return data


def read_fields(data: bytes, position: int) -> Fields:
    """Read the record at `position`, all but its headers, each length checked.

    Raises:
        CorruptBatch: a length is negative or runs over the record's or the data's end.
    """
    length, start = decode_varint(data, position)
    end = start + length
    if length < MIN_RECORD_BYTES - 1 or end > len(data):
        raise CorruptBatch(
            f"record at byte {position} says it is {length} bytes long; {len(data) - start} are there"
        )
    timestamp_delta, at = decode_varlong(data, start + 1)
    offset_delta, at = decode_varint(data, at)
    key, at = _nullable(data, at, end)
    value, at = _nullable(data, at, end)
    return Fields(timestamp_delta, offset_delta, key, value, at, end)


def read_headers(data: bytes, position: int, end: int) -> tuple[tuple[str, bytes | None], ...]:
    """Read the headers at `position`, which must end where the record ends.

    Raises:
        CorruptBatch: a length is negative or runs over the end, a name is not UTF-8, or bytes are
            left.
    """
    count, at = decode_varint(data, position)
    # A header is at least two bytes; a wrong count is found before anything is read.
    if count < 0 or count * 2 > end - at:
        raise CorruptBatch(f"record that ends at byte {end} counts {count} headers in {end - at} bytes")
    headers = []
    for _ in range(count):
        name, at = _nullable(data, at, end)
        value, at = _nullable(data, at, end)
        headers.append((_text(name, at), value))
    if at != end:
        raise CorruptBatch(f"record that should end at byte {end} ends at byte {at}")
    return tuple(headers)


def _nullable(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, start = decode_varint(data, position)
    if length == -1:
        return None, start
    if length < 0 or start + length > end:
        raise CorruptBatch(
            f"length {length} at byte {position} does not fit a record that ends at byte {end}"
        )
    return data[start : start + length], start + length


def _text(name: bytes | None, position: int) -> str:
    if name is None:
        raise CorruptBatch(f"header before byte {position} has no name")
    try:
        return str(name, "utf-8")
    except UnicodeDecodeError:
        raise CorruptBatch(f"name of the header before byte {position} is not UTF-8") from None
