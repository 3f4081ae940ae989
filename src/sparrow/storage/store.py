"""The seam of the log store: the interface of durable logs of record batches.

Two small interfaces. A `LogStore` opens and deletes logs; a `PartitionLog` is one of them. The
embedded implementation (`local.LocalLogStore`) keeps segment files; another may keep objects in a
bucket. Nothing above this seam knows a path, a descriptor or an `fsync`, and nothing above it may
assume an offset before `append` has promised it.

Invariants that every implementation keeps (checked by the conformance suite in
`tests/conformance/log_store.py`):

* offsets of a log only grow: a batch gets `end_offset` at its append, and the log start never moves
  back;
* what `append` promised as durable survives a crash of the process and of the machine;
* what `append` promised at all survives a crash of the process (kill -9);
* a read returns whole batches as they were appended (base offset and leader epoch stamped), never
  part of one, and begins with the batch that *contains* the requested offset;
* a refused batch (`DiskFull`, `StorageFailed`) never appears later;
* appends are kept in the order of the calls. Where an append is not kept at once, its future is
  done in the same step of the loop in which `end_offset` passes it. When one fails, all later
  appends fail with it, in that same step, so that a log never has the second of two batches without
  the first;
* closing or deleting a log settles the pending appends: each is kept, or fails;
* a log that has less than what was on stable storage when its last checkpoint was written is not
  opened (`LogDamaged`); no offset is given out again. The other logs are opened;
* after a failed write or sync the log takes no more appends (`StorageFailed`): the kernel may have
  dropped the pages. The log can still be read.

Concurrency: unless a method says otherwise, call it on the event loop's thread. Methods that may
touch the disk for long are coroutines; they do the blocking part in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    import asyncio
    import uuid

    from sparrow.base.errors import CorruptBatch, SparrowError
    from sparrow.base.futures import Then
    from sparrow.base.histogram import Histogram
    from sparrow.model.topics import RemovedBatch
    from sparrow.records.batch import BatchHeader
    from sparrow.storage.damage import Damage, Damages
    from sparrow.storage.journal import Journal


@dataclass(frozen=True, slots=True)
class LogId:
    """The identity of a log: the topic's name (for people), the topic's id (a topic that is deleted
    and created again has another one), the partition.
    """

    topic: str
    topic_id: uuid.UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The configuration of one log. Times in milliseconds, sizes in bytes; -1 means no limit."""

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


class Appended(Struct, frozen=True, gc=False):
    """The promise of an append: the offsets the records got."""

    base_offset: int
    last_offset: int


class Chunk(Struct, frozen=True):
    """Whole batches read from one log, in order, back to back.

    The first batch may begin before the requested offset; the next read begins at `next_offset`.
    """

    data: bytes | memoryview
    base_offset: int
    next_offset: int
    records: int
    """An upper bound: last offset - base offset + 1, summed over the batches (compaction leaves
    holes).
    """


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
        """The end of what is on stable storage. After an unclean restart it begins at the last
        checkpoint: later batches were read back, but may be in the page cache alone until the next
        `durable`.
        """
        ...

    @property
    def size_bytes(self) -> int:
        """Size of all batches, including those before the start that are still on disk."""
        ...

    @property
    def uncheckpointed_bytes(self) -> int:
        """Bytes appended since the last checkpoint, which a recovery would have to scan."""
        ...

    @property
    def max_timestamp(self) -> int:
        """Largest record timestamp (ms) in the log, -1 if none."""
        ...

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Offset ranges [first, end) that the disk lost and whose loss was accepted. A read there
        continues behind the gap.
        """
        ...

    @property
    def epochs(self) -> Sequence[tuple[int, int]]:
        """Where the epochs that the log has batches of begin, as `storage.epochs.Epochs`, as far as
        that is known; empty where there is one owner for ever.
        """
        ...

    @property
    def last_append_ms(self) -> int:
        """Wall time of the last append, -1 if there was none since the log was opened."""
        ...

    def append(
        self, batches: Sequence[tuple[BatchHeader, memoryview]], *, leader_epoch: int = 0
    ) -> asyncio.Future[Appended]:
        """Append checked batches as they are, back to back, stamping base offset and leader epoch
        (bytes 0-8, 12-16).

        The result is ready at once where the store keeps batches at once (local files: in the page
        cache). The caller may reuse the bytes when the call returns. Either all batches are
        appended or none.

        An append of no batches promises (end offset, end offset - 1).

        Raises:
            DiskFull: no space; the log is unchanged and readable.
            StorageFailed: an earlier write or sync failed, or the log is closed.
            Overloaded: the process has no descriptor left.
            InvalidArgument: the batches' headers claim more offsets together than a segment's index
                can hold.
        """
        ...

    def durable(self, offset: int) -> asyncio.Future[None]:
        """Return a future that is done when everything before `offset` is on stable storage (group
        commit).

        The call starts the sync. The future fails with StorageFailed when the sync fails, and with
        Overloaded when the process has no descriptor left: call again.

        Raises:
            OffsetOutOfRange: `offset` is after the end.
        """
        ...

    def when_durable(self, offset: int, then: Then) -> None:
        """Call `then` when the future of `durable` would be done: with None, or with the error it
        would fail with. If everything before `offset` is on stable storage, the call is made at
        once. For what every publish does: it needs no future, and no iteration of the loop.

        Args:
            then: does not raise.

        Raises:
            OffsetOutOfRange: as `durable`.
        """
        ...

    def read_nowait(self, offset: int, max_bytes: int) -> Chunk | None:
        """Return batches from the one that contains `offset` on, at most `max_bytes` but at least
        one batch; None if that would block on the disk: use `read`.

        An offset equal to `end_offset` gives an empty chunk. A chunk may end early (at the end of a
        segment). The batches' CRCs are not checked: the reader does that.

        Raises:
            OffsetOutOfRange: before the start or after the end.
            CorruptBatch: the bytes on disk are not batches; the message has file and position.
            StorageFailed: the device cannot read them; later reads may succeed.
        """
        ...

    async def read(self, offset: int, max_bytes: int) -> Chunk:
        """Read as `read_nowait`, but wait for the disk in a thread."""
        ...

    async def estimate_size(self, start: int, end: int) -> int:
        """Estimate how many bytes the batches with offsets in [start, end) have.

        No batch is read. The result is wrong by at most the distance of two positions that the
        store knows, and exact for the whole log. Offsets outside of the log count nothing.
        """
        ...

    async def estimate_offset(self, start: int, max_bytes: int) -> int:
        """Estimate the offset that is `max_bytes` behind `start`.

        The result is greater than `start` (except at the end of the log) and is the end of a batch
        whose position the store knows; it lies further than `max_bytes` only if no nearer one is
        known. A `start` before the log's start counts as the log's start.

        Raises:
            OffsetOutOfRange: `start` is behind the end.
        """
        ...

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record whose timestamp is >= `timestamp_ms`, or
        None.
        """
        ...

    def headers(self, offset: int) -> Iterator[BatchHeader]:
        """Iterate over the headers of all batches from the one that contains `offset` to the end.
        Blocking: call it in a thread or at start. Raises as `read_nowait`.
        """
        ...

    def headers_and_markers(self, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Iterate as `headers`; each header comes with the whole batch if it is a control batch (it
        may end a transaction), else with b"".
        """
        ...

    def producer_batches(self, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Iterate as `headers_and_markers`, over batches of producers and control batches alone: a
        store may know them without reading the others.
        """
        ...

    async def delete_records(self, before_offset: int) -> int:
        """Move the log start to `before_offset` (at most the end), durably. Return the new start.
        The next `enforce_retention` frees the bytes.
        """
        ...

    async def enforce_retention(self, now_ms: int) -> int:
        """Roll by age and drop whole segments by time and size as the configuration says. Return
        the number of freed bytes.
        """
        ...

    async def compact(self, now_ms: int) -> int:
        """Keep only the last record of each key if the configuration asks for it. Return the number
        of freed bytes.
        """
        ...

    @property
    def kept_unreadable(self) -> list[CorruptBatch]:
        """Batches that the last compaction kept as they are because their records are
        unreadable.
        """
        ...

    async def remove_batch(self, offset: int, *, force: bool = False) -> RemovedBatch:
        """Replace the batch that contains `offset` by an empty one, durably: same offsets, same
        producer, no records.

        The result equals what compaction leaves of a batch, so every reader continues behind it,
        and the sequences and transactions of producers are unaffected. A crash leaves the batch as
        it was, or removed.

        Args:
            force: remove a batch whose records can be read.

        Raises:
            OffsetOutOfRange: before the start or after the last offset.
            InvalidArgument: no batch contains the offset, it has no records (any more), it is a
                transaction marker, or its records can be read and `force` is False. DiskFull,
                StorageFailed, Overloaded
        """
        ...

    def find_unreadable(self, offset: int) -> list[Damage]:
        """Return where `headers_and_markers(offset)` fails, as damages that close the partition.
        Blocking.

        Raises:
            StorageFailed, Overloaded: a file cannot be read at all.
        """
        ...

    async def scrub(self, max_bytes: int) -> int:
        """Check about `max_bytes` that have long been on stable storage, beginning where the last
        call ended. Add damages to the store's `damages`. Return the number of checked bytes, 0 at
        the end of a pass.

        Raises:
            StorageFailed, Overloaded: they cannot be read now.
        """
        ...

    async def checkpoint(self, state: bytes) -> None:
        """Save `state`, the caller's fold of all batch headers before `end_offset` *now*, together
        with a point from which recovery scans. Wait for the sync of everything before it. A log
        that was never written to saves nothing.

        Raises:
            DiskFull, StorageFailed: the last checkpoint stays valid.
            Overloaded: the same; the process has no descriptor left.
        """
        ...

    def saved_state(self) -> tuple[int, bytes]:
        """Return (offset, state) of the last checkpoint that survived; (start_offset, b"") if there
        is none. The caller folds `headers(offset)` on top of it. A state of b"" counts as any
        other.
        """
        ...

    def configure(self, config: LogConfig) -> None:
        """Take a new configuration, used from the next append or maintenance on."""
        ...


class LogStore(Protocol):
    """All logs of a broker."""

    @property
    def clean_start(self) -> bool:
        """True if the last owner shut down cleanly; then opening a log reads no record data."""
        ...

    @property
    def leader_epoch(self) -> int:
        """Number of the present ownership of the logs; that of a later owner is greater. 0 where
        there is one owner for ever.
        """
        ...

    def is_current(self) -> bool:
        """Return False while another owner may have written since: then nothing may be answered
        from memory before `current` returns. Cheap: called for each request.
        """
        ...

    async def current(self) -> None:
        """Wait until `is_current`.

        Raises:
            Draining: another owner has the logs.
        """
        ...

    def ids(self) -> list[LogId]:
        """Return the id of every log that has been written to."""
        ...

    def open(self, log_id: LogId, config: LogConfig) -> PartitionLog:
        """Open a log; create it if it is missing, recover it if needed (cut a torn tail, rebuild
        indexes).

        Thread-safe and blocking, so that many logs are recovered at once. The same log must not be
        opened twice.

        Raises:
            LogDamaged: what was on stable storage at the last checkpoint is missing; nothing was
                changed.
            StorageFailed: the device cannot be read or written.
        """
        ...

    def open_nowait(self, log_id: LogId, config: LogConfig) -> PartitionLog | None:
        """Open a log on the loop if that needs no waiting, as for one that was never written to.
        Return None if it does: use `open` in a thread.
        """
        ...

    async def survey(self, log_ids: Iterable[LogId]) -> None:
        """Check whether logs that are not open lack what was on stable storage. Add what they lack
        to `damages`.

        Opens nothing, reads no records and waits for the store in threads.
        """
        ...

    async def forget_missing(self, log_id: LogId) -> bool:
        """Forget a log without data whose id is no longer in use. Return False, and do nothing, if
        it has data.

        Raises:
            StorageFailed, DiskFull: the log may still be listed.
        """
        ...

    async def delete(self, log: PartitionLog) -> None:
        """Close the log and remove its data. When the call returns, the data stays removed after
        any crash, and its name is free: await it before a topic of the same name is created.
        """
        ...

    async def purge(self, log_id: LogId) -> None:
        """Remove the data of a log that is not open (its topic was deleted and a crash came
        between).
        """
        ...

    def open_journal(self, mark: bytes | None) -> Journal:
        """Open the broker's journal, once. Blocking. `close` does not close it.

        Args:
            mark: that of the owner's last checkpoint; None: there is none.

        Raises:
            DirectoryUnreadable: records that were confirmed are missing or damaged.
            NewerFormat: a later Sparrow wrote it.
            StorageFailed: the device cannot be read.
        """
        ...

    @property
    def location(self) -> str:
        """The place where the logs are kept, for people: an absolute path, or a URL."""
        ...

    @property
    def sync_times(self) -> Histogram:
        """Durations of syncs, in seconds."""
        ...

    def free_bytes(self) -> int:
        """Return the free space of the device."""
        ...

    def total_bytes(self) -> int:
        """Return the size of the device."""
        ...

    @property
    def reserve_bytes(self) -> int:
        """The free space below which records are refused."""
        ...

    @property
    def damages(self) -> Damages:
        """All known losses and unreadable places, over all logs."""
        ...

    def refusal(self) -> SparrowError | None:
        """Return why appends are refused now, as far as that is known without trying one; None if
        they are not.
        """
        ...

    async def close(self) -> None:
        """Sync everything, write what makes the next start clean, release the directory.

        Raises:
            StorageFailed, DiskFull: a log could not be closed cleanly, so the next start recovers
                it; the directory is released nevertheless.
        """
        ...
