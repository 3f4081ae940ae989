"""Encoder of Arrow columns into record batches, each for one partition.

A record with a key goes to the partition that Kafka's clients choose for the key. Records without a
key all go to the same partition, and with the next columns to the next one, so that batches are
full (KIP-480). A partition that is given for a record has priority over both.

Rows are not moved: the kernel reads them in the order of their partitions, and within a partition
in their own. A batch ends before the record that would exceed its limit, before compression. Its
bytes equal those that `records.builder.build_batch` makes of the same records.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sparrow.base.errors import InvalidArgument, InvalidRecord, RecordTooLarge
from sparrow.records.batch import CRC_START, HEADER_BYTES, OVERHEAD_BYTES
from sparrow.records.builder import NO_LEADER_EPOCH, TRANSACTIONAL, BatchFields, assemble
from sparrow.records.compression import Compression
from sparrow.spark.kernels.columns import Rows, bytes_column, headers_column, timestamps_column
from sparrow.spark.kernels.selection import select

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.spark.kernels.contract import Bytes, Int64s
    from sparrow.spark.kernels.selection import Implementation

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""See `records.batch`."""
_CRC: Final = struct.Struct(">I")
_CRC_OFFSET: Final = 17
_MAX_BATCH_BYTES: Final = 0x7FFFFFFF
_NO_SEQUENCE: Final = -1
_LAST_SEQUENCE: Final = 0x7FFFFFFF
"""The sequence after it is 0."""
_MAX_RADIX_PARTITIONS: Final = 1 << 16


@dataclass(frozen=True)
class EncodeOptions:
    """Options for encoding records into batches."""

    partitions: int
    """Number of partitions of the topic."""
    compression: Compression = Compression.NONE
    max_batch_bytes: int = 1 << 20
    """Limit before compression. A record that is larger by itself makes a larger batch."""
    transactional: bool = False
    producer_id: int = -1
    producer_epoch: int = -1
    has_sequences: bool = False
    """Number the batches for the broker, which takes each once: the records of a partition from 0
    on, during the life of the encoder.
    """
    implementation: Implementation = "auto"

    def __post_init__(self) -> None:
        if not 1 <= self.partitions <= 0x7FFFFFFF:
            raise InvalidArgument(f"a topic has at least one partition, not {self.partitions}")
        if not HEADER_BYTES < self.max_batch_bytes <= _MAX_BATCH_BYTES:
            raise InvalidArgument(
                f"max_batch_bytes must be between {HEADER_BYTES + 1} and {_MAX_BATCH_BYTES}, not "
                f"{self.max_batch_bytes}"
            )


class EncodedBatch(NamedTuple):
    """A whole batch, ready to be sent."""

    partition: int
    record_count: int
    data: bytes


class Encoder:
    """Encodes the columns that a task writes.

    Args:
        first_unkeyed: the partition of records without a key in the first columns; each call uses
            the next one. Tasks should begin at different ones.
    """

    def __init__(self, options: EncodeOptions, *, first_unkeyed: int = 0) -> None:
        self.options = options
        self._unkeyed = first_unkeyed % options.partitions
        self._kernels = select(options.implementation)
        self._out: Bytes = np.empty(options.max_batch_bytes, np.uint8)
        self._sequences: dict[int, int] = {}
        """The next sequence of each partition."""

    def encode(self, records: Any, *, timestamp_ms: int) -> Iterator[EncodedBatch]:
        """Yield the batches of an Arrow record batch.

        Its columns, each of which may be missing: `key` and `value` (binary or string), `headers`
        (array of key and value), `timestamp` (a timestamp, or int64 in ms), `partition` (a whole
        number). Others are ignored.

        Args:
            timestamp_ms: of records that have none.

        Raises:
            InvalidRecord: a column of another type; a partition that the topic does not have; a
                header without a name.
            InvalidTimestamp: negative, or beyond 2**62.
            RecordTooLarge: a record that no batch can hold (2 GiB).
        """
        if not records.num_rows:
            return
        rows = _rows(records, timestamp_ms)
        partitions = self._partitions(rows, _column(records, "partition"))
        counts = np.bincount(partitions)
        order = _sorted_by(partitions, self.options.partitions)
        first = 0
        for partition in np.flatnonzero(counts).tolist():
            last = first + int(counts[partition])
            yield from self._encode_partition(rows, order[first:last], partition)
            first = last

    # ── partitions ────────────────────────────────────────────────────────────────────────────────

    def _partitions(self, rows: Rows, given: Any) -> Int64s:
        """Return the partition of each row."""
        count = self.options.partitions
        found = np.full(len(rows.timestamps), self._unkeyed, np.int64)
        keyed = rows.key.lengths >= 0
        if keyed.any():
            hashes = self._kernels.murmur2(rows.key)
            found = np.where(keyed, (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % count, found)
        if not keyed.all():
            self._unkeyed = (self._unkeyed + 1) % count
        return found if given is None else self._given(given, found)

    def _given(self, given: Any, otherwise: Int64s) -> Int64s:
        if given.type == pa.null():
            return otherwise
        if not pa.types.is_integer(given.type):
            raise InvalidRecord(f"column partition must be a whole number, not {given.type}; cast it first")
        found: Int64s = np.where(
            given.is_valid().to_numpy(zero_copy_only=False),
            given.fill_null(0).cast(pa.int64(), safe=False).to_numpy(),
            otherwise,
        )
        if found.min() < 0 or found.max() >= self.options.partitions:
            wrong = int(found.min() if found.min() < 0 else found.max())
            raise InvalidRecord(
                f"a record is for partition {wrong}; the topic has 0 to {self.options.partitions - 1}"
            )
        return found

    # ── batches ───────────────────────────────────────────────────────────────────────────────────

    def _encode_partition(self, rows: Rows, order: Int64s, partition: int) -> Iterator[EncodedBatch]:
        first, last = 0, len(order)
        timestamps = rows.timestamps[order]
        while first < last:
            end, size_bytes, needed = self._kernels.encode(
                rows, order, first, last, self._out, start=HEADER_BYTES, limit=self.options.max_batch_bytes
            )
            if needed:
                self._make_room(needed)
                continue
            stamps = timestamps[first:end]
            sequence = self._sequence(partition, end - first)
            data = self._assemble(
                end - first, size_bytes, int(stamps[0]), int(stamps.max()), sequence=sequence
            )
            yield EncodedBatch(partition, end - first, data)
            first = end

    def _sequence(self, partition: int, count: int) -> int:
        """Return the base sequence of the partition's next batch."""
        if not self.options.has_sequences:
            return _NO_SEQUENCE
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = (sequence + count) & _LAST_SEQUENCE
        return sequence

    def _make_room(self, needed: int) -> None:
        if needed > _MAX_BATCH_BYTES:
            raise RecordTooLarge(
                f"a record of {needed} bytes; a batch, which has at most {_MAX_BATCH_BYTES}, cannot hold it"
            )
        self._out = np.empty(needed, np.uint8)

    def _assemble(
        self, count: int, size_bytes: int, base_timestamp: int, max_timestamp: int, *, sequence: int
    ) -> bytes:
        """Return the batch whose records are in the buffer, after the space for its header."""
        options, out = self.options, self._out.data
        attributes = TRANSACTIONAL if options.transactional else 0
        producer = (options.producer_id, options.producer_epoch, sequence)
        if options.compression:
            fields = BatchFields(base_timestamp, max_timestamp, attributes, *producer)
            records = bytes(out[HEADER_BYTES:size_bytes])
            return assemble(records, count, count - 1, fields, options.compression)
        numbers = (attributes, count - 1, base_timestamp, max_timestamp, *producer, count)
        _HEADER.pack_into(out, 0, 0, size_bytes - OVERHEAD_BYTES, NO_LEADER_EPOCH, 2, 0, *numbers)
        starts, ends = np.array([CRC_START], np.int64), np.array([size_bytes], np.int64)
        _CRC.pack_into(out, _CRC_OFFSET, int(self._kernels.crcs(self._out, starts, ends)[0]))
        return bytes(out[:size_bytes])


def _rows(records: Any, timestamp_ms: int) -> Rows:
    count = records.num_rows
    headers = _column(records, "headers")
    return Rows(
        bytes_column("key", _column(records, "key"), count),
        bytes_column("value", _column(records, "value"), count),
        headers_column(headers, count),
        headers is not None,
        timestamps_column(_column(records, "timestamp"), count, timestamp_ms),
    )


def _column(records: Any, name: str) -> Any:
    return records.column(name) if name in records.schema.names else None


def _sorted_by(partitions: Int64s, count: int) -> Int64s:
    """Return the rows in the order of their partitions, those of one in their own order."""
    # numpy sorts 16-bit numbers by radix, in a few passes.
    narrow = partitions.astype(np.uint16) if count <= _MAX_RADIX_PARTITIONS else partitions
    return np.argsort(narrow, kind="stable").astype(np.int64)
