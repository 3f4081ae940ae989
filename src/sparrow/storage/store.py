"""The seam of the log store: what the broker may ask of durable logs of record batches.

Two small interfaces. A `LogStore` opens and deletes logs; a `PartitionLog` is one of them. The embedded implementation
(`local.LocalLogStore`) keeps segment files; another may keep objects in a bucket. Nothing above this seam knows a path, a
descriptor or an `fsync`, and nothing above it may assume an offset before `append` has promised it.

Invariants that every implementation keeps (held by the conformance suite in `tests/conformance/log_store.py`):

* offsets of a log only grow: a batch gets `end_offset` at its append, and the log start never moves back;
* what `append` promised as durable survives a crash of the process and of the machine;
* what `append` promised at all survives a crash of the process (kill -9);
* a read returns whole batches as they were appended (base offset and leader epoch stamped), never part of one, and the
  batch that *holds* the asked offset comes first;
* what was refused (`DiskFull`, `StorageFailed`) never appears later;
* after a failed write or sync the log takes no more appends (`StorageFailed`): the kernel may have dropped the pages. What
  it holds can still be read.

Concurrency: unless a method says otherwise, call it on the event loop's thread. Methods that may touch the disk for long
are coroutines; they do the blocking part in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    import uuid

    from sparrow.base.errors import SparrowError
    from sparrow.base.histogram import Histogram
    from sparrow.records.batch import BatchHeader


@dataclass(frozen=True, slots=True)
class LogId:
    """Which log: the topic's name (for people), its id (a topic deleted and made again is another), the partition."""

    topic: str
    topic_id: uuid.UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How one log is kept. Times in milliseconds, sizes in bytes; -1 means no limit."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 86_400_000
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 86_400_000
    retention_bytes: int = -1
    compact: bool = False
    delete: bool = True
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (1 << 63) - 1
    min_cleanable_dirty_ratio: float = 0.5


@dataclass(frozen=True, slots=True)
class Appended:
    """The promise of an append: the offsets the records got."""

    base_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches read from one log, in order, back to back.

    The first batch may begin before the offset that was asked for; `next_offset` is where to read on.
    """

    data: bytes | memoryview
    base_offset: int
    next_offset: int
    records: int
    """An upper bound: last offset - base offset + 1, summed over the batches (compaction leaves holes)."""


class PartitionLog(Protocol):
    """One partition's log. See the module's text for the invariants."""

    id: LogId
    config: LogConfig

    @property
    def start_offset(self) -> int:
        """The first offset that may be read; moved by retention and `delete_records`."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        ...

    @property
    def durable_offset(self) -> int:
        """Everything before it is on stable storage. After a restart that was not clean it begins at the last checkpoint:
        what lies behind was read back, but may be in the page cache alone until the next `durable`."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches, those before the start that are still on disk included."""
        ...

    @property
    def uncheckpointed_bytes(self) -> int:
        """Bytes appended since the last checkpoint: what recovery would have to scan."""
        ...

    @property
    def max_timestamp(self) -> int:
        """Largest record timestamp (ms) in the log, -1 if none."""
        ...

    @property
    def last_append_ms(self) -> int:
        """Wall time of the last append, -1 if there was none since the log was opened."""
        ...

    def append(
        self, batches: Sequence[tuple[BatchHeader, memoryview]], *, leader_epoch: int = 0
    ) -> asyncio.Future[Appended]:
        """Append checked batches as they are, back to back, stamping base offset and leader epoch (bytes 0-8, 12-16).

        The result is ready at once where the store keeps batches at once (local files: in the page cache). The bytes may
        be reused by the caller when the call returns. Nothing is appended, or everything is.

        An append of no batches promises (end offset, end offset - 1).

        Raises:
            DiskFull: no room; the log is as before, and readable.
            StorageFailed: an earlier write or sync failed, or the log is closed.
            Overloaded: the log is being truncated, or the process has no descriptor left.
            InvalidArgument: the batches' headers claim more offsets together than a segment's index can hold.
        """
        ...

    def durable(self, offset: int) -> asyncio.Future[None]:
        """A future that is done when everything before `offset` is on stable storage (group commit).

        Asking starts the sync. The future fails with StorageFailed when the sync fails, with OffsetOutOfRange when
        `truncate` took away what was waited for, and with Overloaded when the process has no descriptor left: ask again.

        Raises:
            OffsetOutOfRange: after the end.
        """
        ...

    def read_nowait(self, offset: int, max_bytes: int) -> Chunk | None:
        """Batches from the one that holds `offset`, at most `max_bytes` but at least one batch. None: it would block on
        the disk, use `read`.

        An offset equal to `end_offset` gives an empty chunk. A chunk may end early (at the end of a segment). The batches'
        CRCs are not checked: the reader does.

        Raises:
            OffsetOutOfRange: before the start or after the end.
            CorruptBatch: the bytes on disk are not batches; the message has file and position.
            StorageFailed: the device cannot read them; later reads may succeed.
        """
        ...

    async def read(self, offset: int, max_bytes: int) -> Chunk:
        """As `read_nowait`, but waits for the disk in a thread."""
        ...

    async def weigh(self, start: int, end: int) -> int:
        """About how many bytes the batches with offsets in [start, end) have. Looks at no batch: wrong by the distance of what the
        store knows of positions, exact for the whole log. Offsets outside of the log count nothing."""
        ...

    async def reach(self, start: int, max_bytes: int) -> int:
        """How far about `max_bytes` reach from `start` on: an offset behind it (but the end at the end), where a batch ends whose place
        the store knows; more than `max_bytes` only to get that far. An offset before the start stands for the start.

        Raises:
            OffsetOutOfRange: `start` is behind the end.
        """
        ...

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record whose timestamp is >= `timestamp_ms`, or None if there is none."""
        ...

    def headers(self, offset: int) -> Iterator[BatchHeader]:
        """The headers of all batches from the one that holds `offset` to the end. Blocking: call it in a thread or at start.
        Raises as `read_nowait`."""
        ...

    def headers_and_markers(self, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """As `headers`, each with the whole batch where it is a control batch (it may end a transaction), else with b""."""
        ...

    async def truncate(self, offset: int) -> None:
        """Drop every batch that holds `offset` or comes after it, durably. Appends are refused meanwhile. A saved state from
        behind the new end is forgotten. Interrupted by a crash, it is done in part or not at all."""
        ...

    async def delete_records(self, before_offset: int) -> int:
        """Move the log start to `before_offset` (at most the end), durably; returns the new start. Bytes are freed by the
        next `enforce_retention`."""
        ...

    async def enforce_retention(self, now_ms: int) -> int:
        """Roll by age, drop whole segments by time and size as the configuration says; returns the bytes freed."""
        ...

    async def compact(self, now_ms: int) -> int:
        """Keep the last record of each key where the configuration asks for it; returns the bytes freed."""
        ...

    async def checkpoint(self, state: bytes) -> None:
        """Remember `state`, the caller's fold of all batch headers before `end_offset` *now*, together with a point from
        which recovery scans. Waits for the sync of everything before it. A log that was never written to remembers nothing.

        Raises:
            DiskFull, StorageFailed: the last checkpoint stays.
            Overloaded: so too; the log was truncated meanwhile, or the process has no descriptor left.
        """
        ...

    def saved_state(self) -> tuple[int, bytes]:
        """What the last checkpoint that survived holds: (offset, state); (start_offset, b"") if there is none. The caller
        folds `headers(offset)` on top of it."""
        ...

    def configure(self, config: LogConfig) -> None:
        """Take a new configuration; used from the next append or housekeeping on."""
        ...


class LogStore(Protocol):
    """All logs of a broker."""

    @property
    def clean_start(self) -> bool:
        """Whether the last owner shut down cleanly; then opening a log reads no record data."""
        ...

    def ids(self) -> list[LogId]:
        """Every log that has been written to."""
        ...

    def open(self, log_id: LogId, config: LogConfig) -> PartitionLog:
        """Open a log, creating it when missing; recovers it if needed (cuts a torn tail, rebuilds indexes).

        Thread-safe and blocking, so that many logs are recovered at once. The same log must not be opened twice.
        """
        ...

    async def delete(self, log: PartitionLog) -> None:
        """Close the log and remove its data. When it returns the data stays removed after any crash, and its name is free:
        await it before a topic of the same name is made."""
        ...

    async def purge(self, log_id: LogId) -> None:
        """Remove the data of a log that is not open (a topic deleted while a crash came between)."""
        ...

    @property
    def location(self) -> str:
        """Where the logs are kept, for people: an absolute path, or a URL."""
        ...

    @property
    def sync_times(self) -> Histogram:
        """How long syncs took, in seconds."""
        ...

    def free_bytes(self) -> int:
        """Room left on the device."""
        ...

    def total_bytes(self) -> int:
        """Size of the device."""
        ...

    def refusal(self) -> SparrowError | None:
        """Why appends are refused now, as far as that is known without one; None: they are not."""
        ...

    async def close(self) -> None:
        """Sync everything, write what makes the next start clean, give the directory back.

        Raises:
            StorageFailed, DiskFull: a log could not be closed cleanly, so the next start recovers it; the directory is
                given back all the same.
        """
        ...
