"""The checkpoint of a log: from where recovery scans, where the log begins, and the broker's fold of its headers.

One small file per log, replaced atomically (write, sync, rename, sync of the directory). Before it is written,
everything that it vouches for is on stable storage: all bytes before the recovery point and the indexes' entries for
them. So opening a log reads the checkpoint, the index files and what lies behind the recovery point, nothing else.

Format version 1, big-endian:

      0  magic                 4 bytes "SPCK"
      4  version               u16   1
      6  flags                 u16   0
      8  log start offset      i64   the first offset that may be read
     16  clean offset          i64   compaction has looked at everything before it
     24  segment               i64   recovery point: base offset of the segment …
     32  position              i64   … and the position in its file
     40  end offset            i64   … and the offset of the batch that begins there
     48  entries               i32   entries of that segment's .index before the position
     52  time entries          i32   … and of its .timeindex
     56  unindexed bytes       i64   bytes since the last entry's batch began
     64  max timestamp         i64   largest in that segment before the position, -1 without
     72  its offset            i64   last offset of the batch that holds it
     80  first timestamp       i64   of that segment's first batch, -1 when empty
     88  created               i64   wall time (ms) of that segment's first append, -1 when empty
     96  state offset          i64   the fold holds all batches before it
    104  state length          u32
    108  state                 bytes of the broker
      …  crc                   u32   CRC-32C of everything before

To change it: a new version number, a decoder for each version that a release wrote, a fixture in the tests. A version
from the future is refused (NewerFormat); a file that is damaged is no checkpoint, and recovery scans the whole log.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import google_crc32c

from sparrow.base.errors import NewerFormat
from sparrow.storage.index import IndexState

VERSION = 1
_MAGIC = b"SPCK"
_FIXED = struct.Struct(">4sHHqqqqqiiqqqqqqI")
_CRC = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """Everything before it is on stable storage, indexes included."""

    segment: int
    position: int
    end_offset: int
    index: IndexState = field(default_factory=IndexState)
    first_timestamp: int = -1
    created_ms: int = -1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of the file."""

    log_start: int
    point: RecoveryPoint
    clean_offset: int = 0
    state_offset: int = 0
    state: bytes = b""

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
        )
        return body + _CRC.pack(google_crc32c.value(body))


def decode(data: bytes, path: str) -> Checkpoint | None:
    """The checkpoint in a file's bytes; None when they are damaged.

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
            f"{path} has format {version}, this Sparrow reads up to {VERSION}; open the data with the newer Sparrow"
        )
    *index, first_timestamp, created_ms, state_offset, state_length = numbers
    point = RecoveryPoint(segment, position, end_offset, IndexState(*index), first_timestamp, created_ms)
    state = body[_FIXED.size :]
    if len(state) != state_length:
        return None
    return Checkpoint(log_start, point, clean_offset, state_offset, state)
