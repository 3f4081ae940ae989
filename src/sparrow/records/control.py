"""Control batches: the records that a transaction's coordinator writes into the log, never shown to
applications.

A control batch has one record. Its key has the kind, its value depends on it (KIP-98):

    key    version i16 (0), type i16 (0 abort, 1 commit)
    value  version i16 (0), coordinator epoch i32      of an end-of-transaction marker

Types above 1 are those of Kafka's own quorum (KIP-595 and later); readers skip unknown types, and
fields that a later version appends.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from sparrow.base.errors import CorruptBatch, InvalidArgument
from sparrow.records.batch import check
from sparrow.records.builder import (
    CONTROL,
    NO_LEADER_EPOCH,
    TRANSACTIONAL,
    BatchFields,
    assemble,
    encode_records,
)
from sparrow.records.layout import plain_records, read_fields

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0


class ControlType(IntEnum):
    """The kind of a control batch. `OTHER` is every kind that Sparrow does not write."""

    ABORT = 0
    COMMIT = 1
    OTHER = -1


class Marker(NamedTuple):
    """A parsed control batch."""

    type: ControlType
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """-1 where `type` is `OTHER`."""
    offset: int
    timestamp: int
    """Milliseconds."""


def build_marker(
    kind: ControlType,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    coordinator_epoch: int = 0,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Return the batch that ends a producer's transaction in one partition.

    Raises:
        InvalidArgument: `kind` is neither COMMIT nor ABORT.
    """
    if kind not in {ControlType.COMMIT, ControlType.ABORT}:
        raise InvalidArgument("a transaction ends with COMMIT or ABORT")
    records = encode_records([_VALUE.pack(_VERSION, coordinator_epoch)], [_KEY.pack(_VERSION, kind)])
    fields = BatchFields(
        timestamp_ms,
        timestamp_ms,
        TRANSACTIONAL | CONTROL,
        producer_id,
        producer_epoch,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    return assemble(records, 1, 0, fields)


def maybe_parse_marker(batch: bytes | memoryview) -> Marker | None:
    """Parse a control batch. Return None for one that compaction has emptied.

    Raises:
        InvalidArgument: no control batch.
        CorruptBatch: the batch is malformed.
    """
    header = check(batch)
    if not header.is_control:
        raise InvalidArgument(f"the batch at offset {header.base_offset} is no control batch")
    if not header.record_count:
        return None
    fields = read_fields(plain_records(header, batch), 0)
    kind, coordinator_epoch = _parse(fields.key or b"", fields.value or b"")
    return Marker(
        kind,
        header.producer_id,
        header.producer_epoch,
        coordinator_epoch,
        header.base_offset + fields.offset_delta,
        header.max_timestamp if header.is_log_append_time else header.base_timestamp + fields.timestamp_delta,
    )


def _parse(key: bytes, value: bytes) -> tuple[ControlType, int]:
    if len(key) < _KEY.size:
        raise CorruptBatch(f"control record with a key of {len(key)} bytes; {_KEY.size} are the least")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"control record of version {version}")
    if number not in {ControlType.ABORT, ControlType.COMMIT}:
        return ControlType.OTHER, -1
    if len(value) < _VALUE.size:
        raise CorruptBatch(f"end-of-transaction marker of {len(value)} bytes; {_VALUE.size} are the least")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise CorruptBatch(f"end-of-transaction marker of version {version}")
    return ControlType(number), coordinator_epoch
