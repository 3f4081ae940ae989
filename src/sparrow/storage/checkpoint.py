"""The checkpoint of a log: the point from which recovery scans, the start of the log, and the
broker's fold of its headers.

One small file per log, replaced atomically (write, sync, rename, sync of the directory). Before it
is written, everything that it vouches for is on stable storage: all bytes before the recovery point
and the indexes' entries for them. So opening a log reads the checkpoint, the index files and what
lies behind the recovery point, nothing else.

Format version 2, big-endian:

      0  magic                 4 bytes "SPCK"
      4  version               u16   2
      6  flags                 u16   0
      8  log start offset      i64   the first offset that may be read
     16  clean offset          i64   compaction has processed everything before it
     24  segment               i64   recovery point: base offset of the segment …
     32  position              i64   … and the position in its file
     40  end offset            i64   … and the offset of the batch that begins there
     48  entries               i32   entries of that segment's .index before the position
     52  time entries          i32   … and of its .timeindex
     56  unindexed bytes       i64   bytes since the last entry's batch began
     64  max timestamp         i64   largest in that segment before the position, -1 without
     72  its offset            i64   last offset of the batch that contains it
     80  first timestamp       i64   of that segment's first batch, -1 when empty
     88  created               i64   wall time (ms) of that segment's first append, -1 when empty
     96  state offset          i64   the fold covers all batches before it
    104  state length          u32
    108  state                 bytes of the broker
      …  segments              u32   number of segments up to the recovery point's,
                                     oldest first, then of each:
         base offset           i64
         size                  i64   bytes of its .log; of the recovery point's: the position
         max timestamp         i64   -1 without
         index crc             u32   CRC-32C of its .index file (of the recovery point's:
                                     of the entries counted above)
         time index crc        u32   the same of its .timeindex
         flags                 u32   1: both CRCs are known, 2: compaction may have left holes
      …  gaps                  u32   number of gaps, then of each:
         first                 i64   first offset that was lost
         end                   i64   end of the lost offsets
      …  crc                   u32   CRC-32C of everything before

Version 1 ends, with its crc, after the state.

To change it: a new version number, a decoder for each version that a release wrote, a fixture in
the tests. A version from the future is refused (NewerFormat); a damaged file does not count as a
checkpoint, and recovery scans the whole log.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

import google_crc32c

from sparrow.base.errors import NewerFormat
from sparrow.storage.index import IndexState

VERSION = 2
_MAGIC = b"SPCK"
_FIXED = struct.Struct(">4sHHqqqqqiiqqqqqqI")
_CRC = struct.Struct(">I")
_SEGMENT = struct.Struct(">qqqIII")
_GAP = struct.Struct(">qq")
_HAS_CRCS, _HAS_HOLES = 1, 2


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """A position before which everything is on stable storage, indexes included."""

    segment: int
    position: int
    end_offset: int
    index: IndexState = field(default_factory=IndexState)
    first_timestamp: int = -1
    created_ms: int = -1


class SavedSegment(NamedTuple):
    """One segment in the state that the checkpoint vouches for."""

    base_offset: int
    size: int
    max_timestamp: int = -1
    crcs: tuple[int, int] | None = None
    """CRC-32C of its index files; None: unknown."""
    is_dense: bool = True
    """True if no offset is missing between its batches: compaction never changed it."""


class Gap(NamedTuple):
    """Offsets that were lost and accepted as lost: [first, end)."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of the file."""

    log_start: int
    point: RecoveryPoint
    clean_offset: int = 0
    state_offset: int = 0
    state: bytes = b""
    segments: tuple[SavedSegment, ...] | None = None
    """The segments up to the recovery point, oldest first; None: unknown (version 1)."""
    gaps: tuple[Gap, ...] = ()

    def encode(self) -> bytes:
        point, index = self.point, self.point.index
        body = (
            _FIXED.pack(
                _MAGIC,
                VERSION,
                0,
                self.log_start,
                self.clean_offset,
                point.segment,
                point.position,
                point.end_offset,
                index.entries,
                index.time_entries,
                index.unindexed_bytes,
                index.max_timestamp,
                index.max_timestamp_offset,
                point.first_timestamp,
                point.created_ms,
                self.state_offset,
                len(self.state),
            )
            + self.state
            + _encode_segments(self.segments or ())
            + struct.pack(">I", len(self.gaps))
            + b"".join(_GAP.pack(*gap) for gap in self.gaps)
        )
        return body + _CRC.pack(google_crc32c.value(body))


def decode(data: bytes, path: str) -> Checkpoint | None:
    """Return the checkpoint in a file's bytes; None if they are damaged.

    Raises:
        NewerFormat: a later version of Sparrow wrote it.
    """
    if len(data) < _FIXED.size + _CRC.size:
        return None
    body, (crc,) = data[: -_CRC.size], _CRC.unpack(data[-_CRC.size :])
    if google_crc32c.value(body) != crc or body[:4] != _MAGIC:
        return None
    (_, version, _, log_start, clean_offset, segment, position, end_offset, *numbers) = _FIXED.unpack_from(
        body
    )
    if version > VERSION:
        raise NewerFormat(
            f"{path} has format {version}, this Sparrow reads up to {VERSION}; open the data with "
            "the newer Sparrow"
        )
    *index, first_timestamp, created_ms, state_offset, state_length = numbers
    point = RecoveryPoint(segment, position, end_offset, IndexState(*index), first_timestamp, created_ms)
    if version == 1:
        state = body[_FIXED.size :]
        if len(state) != state_length:
            return None
        return Checkpoint(log_start, point, clean_offset, state_offset, state)
    try:
        state, segments, gaps = _decode_rest(body, state_length)
    except struct.error:
        return None
    return Checkpoint(log_start, point, clean_offset, state_offset, state, segments, gaps)


def _encode_segments(segments: tuple[SavedSegment, ...]) -> bytes:
    parts = [struct.pack(">I", len(segments))]
    for each in segments:
        index_crc, times_crc = each.crcs or (0, 0)
        flags = (_HAS_CRCS if each.crcs is not None else 0) | (0 if each.is_dense else _HAS_HOLES)
        parts.append(
            _SEGMENT.pack(each.base_offset, each.size, each.max_timestamp, index_crc, times_crc, flags)
        )
    return b"".join(parts)


def _decode_rest(body: bytes, state_length: int) -> tuple[bytes, tuple[SavedSegment, ...], tuple[Gap, ...]]:
    """Decode state, segments and gaps. Raises struct.error where the bytes end too early."""
    position = _FIXED.size + state_length
    state = body[_FIXED.size : position]
    (count,) = struct.unpack_from(">I", body, position)
    position += 4
    segments = []
    for _ in range(count):
        base, size, timestamp, index_crc, times_crc, flags = _SEGMENT.unpack_from(body, position)
        crcs = (index_crc, times_crc) if flags & _HAS_CRCS else None
        segments.append(SavedSegment(base, size, timestamp, crcs, not flags & _HAS_HOLES))
        position += _SEGMENT.size
    (count,) = struct.unpack_from(">I", body, position)
    position += 4
    gaps = tuple(Gap(*_GAP.unpack_from(body, position + number * _GAP.size)) for number in range(count))
    return state, tuple(segments), gaps
