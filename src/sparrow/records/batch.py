"""The record batch's header: parse it, check it, stamp it. Never its records.

Kafka's record batch v2 (KIP-98, "message format v2"), big-endian:

     0  base offset            i64   stamped by the log at append
     8  batch length           i32   bytes after this field
    12  partition leader epoch i32   stamped by the log at append
    16  magic                  i8    2
    17  crc                    u32   CRC-32C of everything from byte 21 on
    21  attributes             i16   bits 0-2 compression, 3 timestamp type,
                                     4 transactional, 5 control, 6 delete horizon
    23  last offset delta      i32
    27  base timestamp         i64   ms
    35  max timestamp          i64   ms
    43  producer id            i64   -1 without
    51  producer epoch         i16
    53  base sequence          i32
    57  record count           i32
    61  records …

Because the CRC starts at byte 21, the log may stamp the two fields in front of it without touching
the rest.
"""

from __future__ import annotations

import struct
from typing import Final

import google_crc32c
from msgspec import Struct

from sparrow.base.errors import CorruptBatch

HEADER_BYTES = 61
LENGTH_OFFSET = 8
CRC_START = 21
OVERHEAD_BYTES = 12
"""Base offset and length, which the batch length does not count."""

COMPRESSION: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
"""Bits of the attributes."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_STAMP = struct.Struct(">qii")


class BatchHeader(Struct, frozen=True, gc=False):
    """The 61 bytes in front of the records."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch."""
        return self.batch_length + OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """Number of the codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """True if `base_timestamp` is the time from which tombstones may be removed (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap at 2**31 (as Kafka's do)."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def parse_header(data: bytes | memoryview, position: int = 0) -> BatchHeader:
    """Read a header; check only that there are 61 bytes.

    Raises:
        CorruptBatch: fewer bytes than a header.
    """
    try:
        return BatchHeader(*_HEADER.unpack_from(data, position))
    except struct.error:
        raise CorruptBatch(
            f"a record batch needs {HEADER_BYTES} bytes for its header, found {len(data) - position}"
        ) from None


def check(data: bytes | memoryview, position: int = 0) -> BatchHeader:
    """Parse and check one whole batch that starts at `position`: size, magic, counts, CRC-32C.

    Raises:
        CorruptBatch: names the first thing that is wrong.
    """
    header = parse_header(data, position)
    check_parsed(header, data, position)
    return header


def check_parsed(header: BatchHeader, data: bytes | memoryview, position: int = 0) -> None:
    """Check as `check` a batch whose header was parsed."""
    if header.magic != 2:
        raise CorruptBatch(f"record batch of magic {header.magic}; only magic 2 is taken")
    size = header.batch_length + OVERHEAD_BYTES
    end = position + size
    if size < HEADER_BYTES or end > len(data):
        raise CorruptBatch(f"record batch says it is {size} bytes long, {len(data) - position} are there")
    if header.last_offset_delta < 0 or header.record_count < 0:
        raise CorruptBatch(
            f"record batch with {header.record_count} records and last offset delta "
            f"{header.last_offset_delta}"
        )
    # The library takes bytes alone; the copy costs a tenth of the sum itself.
    actual = google_crc32c.value(bytes(data[position + CRC_START : end]))
    if actual != header.crc:
        raise CorruptBatch(f"record batch's CRC is {header.crc:#010x}, its bytes give {actual:#010x}")


def split(data: bytes | memoryview) -> list[tuple[BatchHeader, memoryview]]:
    """Return the headers of checked batches, back to back, until the end of `data`; each with its
    bytes (no copy).

    Raises:
        CorruptBatch: as `check`; also for a rest that is no whole batch.
    """
    view = memoryview(data)
    batches = []
    position, total = 0, len(view)
    while position < total:
        header = check(view, position)
        end = position + header.batch_length + OVERHEAD_BYTES
        batches.append((header, view[position:end]))
        position = end
    return batches


def stamp(header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """Return the first 16 bytes of the batch as the log keeps them."""
    return _STAMP.pack(base_offset, header.batch_length, leader_epoch)
