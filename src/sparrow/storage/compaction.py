"""The decisions of compaction; no file is touched here (see `cleaner`).

Kafka's rules (LogCleaner), with the offset as the criterion:

* Only closed segments that are on stable storage are considered, from the log's start to the first
  one that is too young (`min.compaction.lag.ms`). The part before the *clean offset* was processed
  before; the rest is dirty.
* Compaction runs when the dirty part is at least `min.cleanable.dirty.ratio` of all, or older than
  `max.compaction.lag.ms`.
* A record stays when no later record has its key. One without a key is removed. Control batches
  stay.
* A tombstone (null value) stays until the *delete horizon* of its batch, which is set when
  compaction first sees it: now + `delete.retention.ms` (KIP-534). A reader that is no slower than
  that sees every deletion.
* Inside a transaction only a commit makes a record count: a record of an open or aborted
  transaction never removes another. Compaction does not go beyond the first record of an open
  transaction.
* A batch that lost all its records stays as an empty one when it is the last of its producer, so
  that a restart knows the sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.records.rewrite import RawRecord
    from sparrow.storage.store import LogConfig

MAX_GROUP_SEGMENTS = 32
MAX_RELATIVE = (1 << 31) - 1
ENTRY_OVERHEAD_BYTES = 150
"""Approximate memory of one key in a dict beside the key's own bytes."""


class Candidate(NamedTuple):
    """A closed segment, as the rules see it."""

    base_offset: int
    end_offset: int
    size: int
    max_timestamp: int
    first_timestamp: int


class Range(NamedTuple):
    """The offsets to clean: the dirty part is [first_dirty, end)."""

    first_dirty: int
    end: int


def maybe_range(
    segments: Sequence[Candidate], clean_offset: int, config: LogConfig, now_ms: int
) -> Range | None:
    """Return the part of the log that is worth compacting now.

    Args:
        segments: the closed ones on stable storage, oldest first.
        clean_offset: everything before it was compacted before.
    """
    old_enough: list[Candidate] = []
    for segment in segments:
        if (
            segment.end_offset > clean_offset
            and now_ms - segment.max_timestamp < config.min_compaction_lag_ms
        ):
            break
        old_enough.append(segment)
    dirty = [segment for segment in old_enough if segment.end_offset > clean_offset and segment.size]
    if not dirty:
        return None
    dirty_bytes, total_bytes = sum(each.size for each in dirty), sum(each.size for each in old_enough)
    overdue = now_ms - dirty[0].first_timestamp > config.max_compaction_lag_ms
    if dirty_bytes < config.min_cleanable_dirty_ratio * total_bytes and not overdue:
        return None
    return Range(max(clean_offset, old_enough[0].base_offset), old_enough[-1].end_offset)


def groups(segments: Sequence[Candidate], segment_bytes: int) -> list[tuple[int, int]]:
    """Return the neighbours that become one segment each, as [first, after the last) numbers,
    grouped by their present sizes.
    """
    found: list[tuple[int, int]] = []
    first, size = 0, 0
    for number, segment in enumerate(segments):
        spans = segment.end_offset - segments[first].base_offset
        if number > first and (
            size + segment.size > segment_bytes
            or spans > MAX_RELATIVE
            or number - first >= MAX_GROUP_SEGMENTS
        ):
            found.append((first, number))
            first, size = number, 0
        size += segment.size
    if segments:
        found.append((first, len(segments)))
    return found


class LatestOffsets:
    """The last offset of each key in the dirty part, transactions resolved."""

    def __init__(self, max_bytes: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self._open: dict[int, tuple[int, dict[bytes, int]]] = {}
        self._max_bytes = max_bytes
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """True if the memory for keys is used up."""
        return self._bytes >= self._max_bytes

    def add(self, key: bytes, offset: int) -> None:
        self._bytes += 0 if key in self.offsets else len(key) + ENTRY_OVERHEAD_BYTES
        self.offsets[key] = max(offset, self.offsets.get(key, -1))

    def begin(self, producer_id: int, offset: int) -> dict[bytes, int]:
        """Return the keys of the producer's open transaction, which began at `offset` if it is
        new.
        """
        return self._open.setdefault(producer_id, (offset, {}))[1]

    def end(self, producer_id: int, *, committed: bool) -> None:
        """End the producer's transaction."""
        _, keys = self._open.pop(producer_id, (0, {}))
        for key, offset in keys.items() if committed else ():
            self.add(key, offset)

    def first_open(self) -> int | None:
        """Return the first offset of a transaction that did not end."""
        return min((offset for offset, _ in self._open.values()), default=None)


def keeps(record: RawRecord, latest: dict[bytes, int], end: int, *, tombstones_go: bool) -> bool:
    """Return True if a record stays.

    Args:
        latest: the last offset of each key in the dirty part.
        end: the dirty part's end; later records are not judged.
        tombstones_go: its batch's delete horizon has passed.
    """
    if record.offset >= end:
        return True
    if record.key is None or record.offset < latest.get(record.key, -1):
        return False
    return not (record.value_is_null and tombstones_go)
