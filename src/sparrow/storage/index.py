"""A segment's two sparse indexes: offset to position, and time to offset.

Kafka's formats, big-endian (`OffsetIndex`, `TimeIndex`), so that its tools read them:

    .index      0 relative offset  i32   a batch's last offset - the segment's base offset
                4 position         i32   where that batch begins in the .log file
    .timeindex  0 timestamp        i64   the largest timestamp (ms) so far
                8 relative offset  i32   last offset of the batch that brought it

An entry is added when more than `interval_bytes` were appended since the last one; the time index
gets one only when the largest timestamp grew. Both are therefore sorted, and a lookup returns a
place that is never too late:

* `position_for(offset)`: every batch before that position ends before `offset`;
* `offset_for(timestamp)`: every record before that offset's batch is older than `timestamp`.

The indexes are a function of the batches alone: `add`ing the batches of a file again gives the same
entries, which is how recovery and compaction make theirs. The time index of a closed
segment ends with its largest timestamp.

Not thread-safe for writing (the log's loop adds). Reading is safe from any thread: entries are only
appended, positions before offsets.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

import google_crc32c

ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
DEFAULT_INTERVAL_BYTES = 4096
MAX_RECENT = 64
"""The number of latest batches that are found without an entry."""

_SWAP = sys.byteorder == "little"
_TIME_ENTRY = struct.Struct(">qi")


class IndexState(NamedTuple):
    """The state of an index beyond its entries; kept in the checkpoint."""

    entries: int = 0
    time_entries: int = 0
    unindexed_bytes: int = 0
    """Bytes since the last entry's batch began."""
    max_timestamp: int = -1
    max_timestamp_offset: int = -1
    """Last offset of the batch that contains it."""


class SegmentIndex:
    """Both indexes of one segment, in memory."""

    __slots__ = (
        "_recent",
        "base_offset",
        "interval_bytes",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "positions",
        "time_offsets",
        "times",
        "unindexed_bytes",
    )

    def __init__(self, base_offset: int, interval_bytes: int = DEFAULT_INTERVAL_BYTES) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.offsets = array("i")
        self.positions = array("i")
        self.times = array("q")
        self.time_offsets = array("i")
        self._recent = (array("i"), array("i"))
        """Last offsets and positions of the latest batches, with or without an entry, in memory
        only: readers that keep up find their batch without a search through those before it. Only
        appended to, or replaced as a whole.
        """
        self.unindexed_bytes = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = -1

    @property
    def state(self) -> IndexState:
        return IndexState(
            len(self.offsets),
            len(self.times),
            self.unindexed_bytes,
            self.max_timestamp,
            self.max_timestamp_offset,
        )

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the entries."""
        return len(self.offsets) * ENTRY_BYTES + len(self.times) * TIME_ENTRY_BYTES

    def add(self, last_offset: int, position: int, size: int, max_timestamp: int) -> None:
        """Record a batch of `size` bytes at `position`."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.unindexed_bytes > self.interval_bytes:
            self.positions.append(position)
            self.offsets.append(last_offset - self.base_offset)
            self._add_time()
            self.unindexed_bytes = 0
        self.unindexed_bytes += size
        offsets, positions = self._recent
        positions.append(position)
        offsets.append(last_offset - self.base_offset)
        if len(offsets) >= MAX_RECENT:
            self._recent = (offsets[MAX_RECENT // 2 :], positions[MAX_RECENT // 2 :])

    def seal(self) -> None:
        """Close the index, as the segment takes no more batches: the time index ends with its
        largest timestamp.
        """
        self._add_time()
        self._forget_recent()

    def _forget_recent(self) -> None:
        self._recent = (array("i"), array("i"))

    def _add_time(self) -> None:
        if self.max_timestamp > (self.times[-1] if self.times else -1):
            self.time_offsets.append(self.max_timestamp_offset - self.base_offset)
            self.times.append(self.max_timestamp)

    def position_for(self, offset: int) -> int:
        """Return the position from which to search for the batch that contains `offset`."""
        found = bisect_right(self.offsets, offset - self.base_offset)
        return self.positions[found - 1] if found else 0

    def batch_for(self, offset: int) -> tuple[int, int]:
        """Return as `position_for`, with the last offset of the batch that begins there; -1 where
        it has no entry.
        """
        (recent, positions), relative = self._recent, offset - self.base_offset
        if recent and recent[0] < relative <= recent[-1]:
            number = bisect_left(recent, relative)
            return positions[number], self.base_offset + recent[number]
        found = bisect_right(self.offsets, offset - self.base_offset)
        return (self.positions[found - 1], self.base_offset + self.offsets[found - 1]) if found else (0, -1)

    def offset_for(self, timestamp_ms: int) -> int:
        """Return the offset from whose batch on to search for the first record that is not older
        than `timestamp_ms`.
        """
        found = bisect_right(self.times, timestamp_ms)
        return self.base_offset + (self.time_offsets[found - 1] if found else 0)

    def restore(self, state: IndexState) -> None:
        """Go back to `state`; entries added since are dropped."""
        self._forget_recent()
        del self.offsets[state.entries :], self.positions[state.entries :]
        del self.times[state.time_entries :], self.time_offsets[state.time_entries :]
        self.unindexed_bytes = state.unindexed_bytes
        self._set_max(state.max_timestamp, state.max_timestamp_offset)

    def _set_max(self, timestamp: int, offset: int) -> None:
        self.max_timestamp = timestamp
        self.max_timestamp_offset = offset

    def crcs(self, entries: int, time_entries: int) -> tuple[int, int]:
        """Return the CRC-32C of the first entries of both files."""
        return (
            google_crc32c.value(self.encode(0, entries)),
            google_crc32c.value(self.encode_times(0, time_entries)),
        )

    def encode(self, first: int = 0, count: int | None = None) -> bytes:
        """Return the bytes of the `.index` file from entry `first` up to (not with) entry
        `count`.
        """
        flat = array("i", bytes(ENTRY_BYTES * len(self.offsets[first:count])))
        flat[0::2] = self.offsets[first:count]
        flat[1::2] = self.positions[first:count]
        return _big_endian(flat)

    def encode_times(self, first: int = 0, count: int | None = None) -> bytes:
        """Return the bytes of the `.timeindex` file from entry `first` up to (not with) entry
        `count`.
        """
        pairs = zip(self.times[first:count], self.time_offsets[first:count], strict=True)
        return b"".join(_TIME_ENTRY.pack(*pair) for pair in pairs)


def decode(
    base_offset: int, interval_bytes: int, index: bytes, time_index: bytes, log_bytes: int
) -> SegmentIndex | None:
    """Return the indexes of a closed segment of `log_bytes` from its two files; None if they cannot
    be right.
    """
    if len(index) % ENTRY_BYTES or len(time_index) % TIME_ENTRY_BYTES:
        return None
    found = SegmentIndex(base_offset, interval_bytes)
    flat = array("i")
    flat.frombytes(index)
    if _SWAP:
        flat.byteswap()
    found.offsets, found.positions = flat[0::2], flat[1::2]
    for timestamp, offset in _TIME_ENTRY.iter_unpack(time_index):
        found.times.append(timestamp)
        found.time_offsets.append(offset)
    if found.times:
        found._set_max(found.times[-1], base_offset + found.time_offsets[-1])  # noqa: SLF001 - its own constructor
    return found if _is_sane(found, log_bytes) else None


def _is_sane(index: SegmentIndex, log_bytes: int) -> bool:
    """Return True if the entries are in range and sorted, judged by their ends."""
    positions, offsets, times = index.positions, index.offsets, index.times
    if positions and not (0 < positions[0] <= positions[-1] < log_bytes and 0 <= offsets[0] <= offsets[-1]):
        return False
    return not times or (0 <= times[0] <= times[-1] and index.time_offsets[0] >= 0)


def _big_endian(values: array[int]) -> bytes:
    if _SWAP:
        values.byteswap()
    return values.tobytes()


def last_time(entry: bytes) -> int:
    """Return the timestamp in the bytes of one entry of a time index."""
    timestamp: int = _TIME_ENTRY.unpack(entry)[0]
    return timestamp
