"""Batch headers as an array, so that a chunk of many small batches is checked by a few
operations.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from sparrow.records.batch import CRC_START, HEADER_BYTES, LENGTH_OFFSET, OVERHEAD_BYTES
from sparrow.records.layout import MIN_RECORD_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

    from sparrow.spark.kernels.contract import Bytes, Int64s
    from sparrow.spark.kernels.selection import Kernels

    Bools = npt.NDArray[np.bool_]

_HEADER: Final = np.dtype([
    ("base_offset", ">i8"),
    ("batch_length", ">i4"),
    ("leader_epoch", ">i4"),
    ("magic", "i1"),
    ("crc", ">u4"),
    ("attributes", ">i2"),
    ("last_offset_delta", ">i4"),
    ("base_timestamp", ">i8"),
    ("max_timestamp", ">i8"),
    ("producer_id", ">i8"),
    ("producer_epoch", ">i2"),
    ("base_sequence", ">i4"),
    ("record_count", ">i4"),
])  # fmt: skip
_LENGTH: Final = struct.Struct(">i")
_COMPRESSION: Final = 0x07
_LOG_APPEND: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_MAX_BASE_OFFSET: Final = (1 << 63) - (1 << 32)
"""The limit keeps every record's offset from overflowing."""


class BatchStarts(NamedTuple):
    """Start positions of batches."""

    places: list[int]
    end: int
    """Position after the last whole batch."""
    is_lost: bool
    """True if the data at `end` cannot be a batch, so that the start of the next one is not
    known.
    """


def find_batches(data: memoryview) -> BatchStarts:
    """Walk from batch to batch by their lengths, as far as they are whole."""
    places: list[int] = []
    position, size = 0, len(data)
    while position + HEADER_BYTES <= size:
        end = position + OVERHEAD_BYTES + _LENGTH.unpack_from(data, position + LENGTH_OFFSET)[0]
        if end < position + HEADER_BYTES:
            return BatchStarts(places, position, is_lost=True)
        if end > size:
            break
        places.append(position)
        position = end
    return BatchStarts(places, position, is_lost=not places and size > 0)


class Headers:
    """The headers of batches, column by column."""

    def __init__(self, data: Bytes, starts: list[int]) -> None:
        self.starts: Int64s = np.array(starts, np.int64)
        raw: Any = data[self.starts[:, None] + np.arange(HEADER_BYTES)].reshape(-1).view(_HEADER)
        self.base_offset = self._column(raw, "base_offset")
        self.last_delta = self._column(raw, "last_offset_delta")
        self.base_timestamp = self._column(raw, "base_timestamp")
        self.max_timestamp = self._column(raw, "max_timestamp")
        self.producer_id = self._column(raw, "producer_id")
        self.count = self._column(raw, "record_count")
        self.crc = self._column(raw, "crc")
        self.ends: Int64s = self.starts + OVERHEAD_BYTES + self._column(raw, "batch_length")
        self.next_offset: Int64s = self.base_offset + self.last_delta + 1
        self._magic = self._column(raw, "magic")
        attributes = self._column(raw, "attributes")
        self.codec: Int64s = attributes & _COMPRESSION
        self.log_append: Int64s = (attributes & _LOG_APPEND != 0).astype(np.int64)
        self.is_transactional: Bools = attributes & _TRANSACTIONAL != 0
        self.is_control: Bools = attributes & _CONTROL != 0

    def __len__(self) -> int:
        return len(self.starts)

    @staticmethod
    def _column(raw: Any, name: str) -> Int64s:
        column: Int64s = raw[name].astype(np.int64)
        return column

    def is_empty(self) -> Bools:
        """Return the mask of batches without records: compaction removed them, and left the batch
        for its last offset.
        """
        empty: Bools = (self.count == 0) & (self.ends - self.starts == HEADER_BYTES) & (self.codec == 0)
        return empty

    def is_wrong(self) -> Bools:
        """Return the mask of batches whose headers are wrong, whatever their records are."""
        stored = self.ends - self.starts - HEADER_BYTES
        wrong: Bools = (
            (self._magic != 2)
            | (self.last_delta < 0)
            | (self.count < 0)
            | (self.base_offset < 0)
            | (self.base_offset > _MAX_BASE_OFFSET)
            | (self.codec == 0) & (self.count * MIN_RECORD_BYTES > stored)
        )
        return wrong

    def misplaced(self, is_wrong: Bools) -> Int64s:
        """Return the batches whose base offset does not fit between their neighbours', which no CRC
        covers; batches in `is_wrong` are not neighbours. If two overlap, it is the one without
        which the others fit, or both.
        """
        numbers = np.flatnonzero(~is_wrong)
        base, following = self.base_offset[numbers], self.next_offset[numbers]
        found: list[int] = []
        for first in np.flatnonzero(base[1:] < following[:-1]).tolist():
            second = first + 1
            fits_without_first = first == 0 or base[second] >= following[first - 1]
            fits_without_second = second + 1 == len(base) or base[second + 1] >= following[first]
            if fits_without_first or not fits_without_second:
                found.append(first)
            if fits_without_second or not fits_without_first:
                found.append(second)
        misplaced: Int64s = numbers[found]
        return misplaced

    def has_wrong_crc(self, data: Bytes, kernels: Kernels) -> Bools:
        """Return the mask of batches whose CRC does not match their bytes."""
        wrong: Bools = kernels.crcs(data, self.starts + CRC_START, self.ends) != self.crc
        return wrong
