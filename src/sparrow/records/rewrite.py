"""Batches made from batches: the changes that the log's owner may make to published batches.

- `with_log_append_time`: the header alone; the records stay as they are, and readers take the
  header's time for each (KIP-32).
- `with_compression`: the same records under another codec, for topics with a `compression.type`.
- `retain`: some of the records, for compaction. Offsets never change: the base offset, each
  record's offset delta and the last offset delta stay, so the gaps show what is gone. The
  producer's fields stay, so that its sequence is known after a restart even from an empty batch.
- The delete horizon (KIP-534): the time from which a batch's tombstones may be removed replaces the
  base timestamp, and attribute bit 6 says so. Timestamp deltas still refer to the base timestamp,
  so each is rewritten.

`iterate_raw` walks records without making `Record`s of them; the log's own work uses it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import google_crc32c
from msgspec.structs import replace

from sparrow.base.errors import CorruptBatch
from sparrow.records.batch import CRC_START, parse_header
from sparrow.records.builder import BatchFields, assemble
from sparrow.records.compression import Compression
from sparrow.records.layout import plain_records, read_fields
from sparrow.records.varint import decode_varint, decode_varlong, encode_varint, encode_varlong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparrow.records.batch import BatchHeader

LOG_APPEND_TIME: Final = 0x08
DELETE_HORIZON: Final = 0x40

_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_ATTRIBUTES: Final = struct.Struct(">h")
_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35


class RawRecord(NamedTuple):
    """One record of a batch, by reference to its bytes."""

    offset: int
    timestamp: int
    """Milliseconds."""
    key: bytes | None
    value_is_null: bool
    raw: bytes
    """The whole record, its length in front."""


def with_log_append_time(header: BatchHeader, data: bytes | memoryview, timestamp_ms: int) -> bytes:
    """Return the batch with that time for every record, and a new CRC."""
    return _with_times(header, data, header.attributes | LOG_APPEND_TIME, timestamp_ms)


def with_max_timestamp(header: BatchHeader, data: bytes | memoryview, timestamp_ms: int) -> bytes:
    """Return the batch with that greatest timestamp in its header, and a new CRC."""
    return _with_times(header, data, header.attributes, timestamp_ms)


def _with_times(
    header: BatchHeader, data: bytes | memoryview, attributes: int, max_timestamp_ms: int
) -> bytes:
    changed = bytearray(data[: header.size_bytes])
    _ATTRIBUTES.pack_into(changed, CRC_START, attributes)
    _TIMESTAMP.pack_into(changed, _MAX_TIMESTAMP_AT, max_timestamp_ms)
    _CRC.pack_into(changed, _CRC_AT, google_crc32c.value(bytes(changed[CRC_START:])))
    return bytes(changed)


def with_compression(
    header: BatchHeader, data: bytes | memoryview, compression: str | int
) -> bytes | memoryview:
    """Return the batch under that codec (a name or number); the very same one if it is so already.

    Raises:
        CorruptBatch, RecordTooLarge: its records cannot be decompressed.
        UnsupportedCompression: no such codec.
    """
    codec = Compression.parse(compression) if isinstance(compression, str) else compression
    if codec == header.compression:
        return data
    records = plain_records(header, data)
    return assemble(records, header.record_count, header.last_offset_delta, _fields(header), codec)


def retain(
    batch: bytes | memoryview,
    keep: Callable[[RawRecord], bool],
    *,
    delete_horizon_ms: int | None = None,
    keep_empty: bool = False,
) -> bytes | None:
    """Return a checked batch with the records that `keep` accepts; None if it accepts none.

    The maximum timestamp becomes that of the kept records, unless the batch has one time for all.

    Args:
        delete_horizon_ms: set the delete horizon to this, if the batch has none yet.
        keep_empty: return an empty batch instead of None if no records are left.

    Raises:
        CorruptBatch, RecordTooLarge, UnsupportedCompression: its records are unreadable.
    """
    header = parse_header(batch)
    kept = [record for record in iterate_raw(batch) if keep(record)]
    sets_horizon = delete_horizon_ms is not None and not header.has_delete_horizon
    if len(kept) == header.record_count and not sets_horizon and (kept or keep_empty):
        return bytes(batch[: header.size_bytes])
    if not kept:
        return emptied(header) if keep_empty else None
    fields = _fields(header)
    if not header.is_log_append_time:
        fields = replace(fields, max_timestamp=_within_64_bits(max(record.timestamp for record in kept)))
    raws = [record.raw for record in kept]
    if delete_horizon_ms is not None and sets_horizon:
        shift = header.base_timestamp - delete_horizon_ms
        raws = [_shifted(raw, shift) for raw in raws]
        fields = replace(
            fields, base_timestamp=delete_horizon_ms, attributes=fields.attributes | DELETE_HORIZON
        )
    return assemble(b"".join(raws), len(raws), header.last_offset_delta, fields, header.compression)


def iterate_raw(batch: bytes | memoryview) -> Iterator[RawRecord]:
    """Iterate over the records of a checked batch in order, also those of a control batch. Headers
    are not parsed.

    Raises:
        CorruptBatch, RecordTooLarge, UnsupportedCompression: they are unreadable.
    """
    header = parse_header(batch)
    data = plain_records(header, batch)
    is_constant = header.is_log_append_time
    base_offset, base_timestamp, timestamp = header.base_offset, header.base_timestamp, header.max_timestamp
    position = 0
    for _ in range(header.record_count):
        fields = read_fields(data, position)
        if not is_constant:
            timestamp = base_timestamp + fields.timestamp_delta
        raw = data[position : fields.end]
        yield RawRecord(base_offset + fields.offset_delta, timestamp, fields.key, fields.value is None, raw)
        position = fields.end
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes follow the last of {header.record_count} records")


def keyless_records(batch: bytes | memoryview) -> list[int]:
    """Return which records of a checked batch, counted from 0, have no key, which a compacted topic
    does not take.

    Raises:
        CorruptBatch, RecordTooLarge, UnsupportedCompression: its records are unreadable.
    """
    header = parse_header(batch)
    data = plain_records(header, batch)
    position = 0
    keyless = []
    for index in range(header.record_count):
        length, start = decode_varint(data, position)
        _, offset_at = decode_varlong(data, start + 1)
        _, key_at = decode_varint(data, offset_at)
        if decode_varint(data, key_at)[0] < 0:
            keyless.append(index)
        if length < 0:
            raise CorruptBatch(f"record at byte {position} says it is {length} bytes long")
        position = start + length
    return keyless


def _fields(header: BatchHeader) -> BatchFields:
    return BatchFields(
        header.base_timestamp,
        header.max_timestamp,
        header.attributes,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.base_offset,
        header.leader_epoch,
    )


def emptied(header: BatchHeader) -> bytes:
    """Return the header alone, as Kafka's cleaner writes it: not compressed, both timestamps the
    maximum.
    """
    attributes = header.attributes & ~DELETE_HORIZON
    fields = replace(_fields(header), base_timestamp=header.max_timestamp, attributes=attributes)
    return assemble(b"", 0, header.last_offset_delta, fields)


def _shifted(raw: bytes, shift_ms: int) -> bytes:
    """Return a record whose timestamp delta is greater by `shift_ms`."""
    _, attributes_at = decode_varint(raw, 0)
    delta, offset_at = decode_varlong(raw, attributes_at + 1)
    body = (
        raw[attributes_at : attributes_at + 1]
        + encode_varlong(_within_64_bits(delta + shift_ms))
        + raw[offset_at:]
    )
    return encode_varint(len(body)) + body


def _within_64_bits(timestamp_ms: int) -> int:
    """Limit a time (or a difference) that a publisher put beyond the field's range: compaction must
    not end at such a batch.
    """
    return max(_MIN_INT64, min(timestamp_ms, _MAX_INT64))
