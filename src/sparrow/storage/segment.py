"""A segment: a file of record batches back to back, and its two sparse indexes.

The last segment of a log is active: it is appended to, and its index is in memory. The others are
closed: their bytes never change (compaction makes new files), and their indexes are read from disk
on demand.

The state of a segment belongs to the event loop: `size` is how much of the file is visible. Bytes
behind it belong to an append that failed or is under way; no reader uses them.

Concurrency: `append`, `seal` and the attributes belong to the loop. `read`, `sync`, `headers`,
`find_timestamp` and `write_index` block and are called in threads; they hold the file open while
they use it (see `handles`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from google_crc32c import extend as extend_crc32c
from google_crc32c import value as crc32c

from sparrow.base.errors import CorruptStoredBatch, StorageFailed
from sparrow.records.batch import HEADER_BYTES, parse_header
from sparrow.storage import index as indexes
from sparrow.storage import names, walk
from sparrow.storage.filesystem import read_file, translate, write_all
from sparrow.storage.handles import Handle
from sparrow.storage.index import ENTRY_BYTES, TIME_ENTRY_BYTES, SegmentIndex
from sparrow.storage.store import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sparrow.records.batch import BatchHeader
    from sparrow.storage.filesystem import Buffer
    from sparrow.storage.index import IndexState
    from sparrow.storage.resources import Resources

_log = logging.getLogger(__name__)
NO_BATCH = Chunk(b"", -1, -1, 0)
"""The segment has no batch at or after the requested offset (compaction left none)."""


class Segment:
    """One segment of a log. `stem` is its files' path without the suffixes."""

    __slots__ = (
        "_resources",
        "base_offset",
        "crcs",
        "created_ms",
        "first_timestamp",
        "handle",
        "in_journal",
        "index",
        "interval_bytes",
        "is_dense",
        "linked",
        "max_timestamp",
        "size",
        "stem",
        "synced",
        "written",
        "written_times",
    )

    def __init__(self, resources: Resources, directory: str, base_offset: int, interval_bytes: int) -> None:
        self._resources = resources
        self.base_offset = base_offset
        self.stem = f"{directory}/{names.segment_stem(base_offset)}"
        self.handle = Handle(self.stem + names.LOG)
        self.interval_bytes = interval_bytes
        self.size = 0
        self.max_timestamp = -1
        self.first_timestamp = -1
        """Timestamp of the first batch; -1 when empty or unknown."""
        self.created_ms = -1
        """Wall time of the first append; -1 when empty or unknown."""
        self.synced = 0
        """Number of bytes that are on stable storage."""
        self.in_journal = 0
        """Number of bytes that are on their way to stable storage, or there, if not in the file
        then in the journal.
        """
        self.linked = True
        """True if the file's name is on stable storage."""
        self.written: int = 0
        """Number of index entries that are in the file, synced."""
        self.written_times: int = 0
        self.crcs: tuple[int, int] | None = (0, 0)
        """CRC-32C of the written part of the two index files; None: unknown."""
        self.index: SegmentIndex | None = None
        self.is_dense = True
        """True if compaction has taken no offset out of it."""

    @property
    def path(self) -> str:
        return self.handle.path

    @property
    def needs_sync(self) -> bool:
        return self.synced < self.size or not self.linked

    # ── writing, on the loop ──

    def create(self) -> None:
        """Create the file.

        Raises:
            OSError: the device refused.
        """
        fd = self._resources.fs.open(self.path, write=True, create=True)
        self._resources.handles.adopt(self.handle, fd)
        self.index = SegmentIndex(self.base_offset, self.interval_bytes)
        self.linked = False

    def append(self, buffers: Sequence[Buffer], batches: Sequence[tuple[int, int, int]], now_ms: int) -> None:
        """Write batches at the end; all of them or none.

        Args:
            buffers: the batches' bytes, stamped.
            batches: last offset, size in bytes and largest timestamp of each.

        Raises:
            OSError: the device refused; the file is as before.
            StorageFailed: the device refused, and then refused to cut off what it had taken.
        """
        resources = self._resources
        fd = resources.handles.acquire(self.handle)
        try:
            write_all(resources.fs, fd, buffers, self.size)
        except OSError:
            self._cut_off(fd)
            raise
        finally:
            resources.handles.release(self.handle)
        if not self.size:
            self.created_ms, self.first_timestamp = now_ms, batches[0][2]
        assert self.index is not None, "the active segment has its index in memory"
        add, position = self.index.add, self.size
        for last_offset, size, max_timestamp in batches:
            add(last_offset, position, size, max_timestamp)
            position += size
        self.max_timestamp = self.index.max_timestamp
        self.size = position

    def _cut_off(self, fd: int) -> None:
        """Cut off a refused append, which must not come back at the next recovery."""
        try:
            self._resources.fs.truncate(fd, self.size)
        except OSError as error:
            raise translate_failed(error, "cutting a refused append off", self.path) from error

    def seal(self) -> None:
        """Take no more batches."""
        if self.index is not None:
            self.index.seal()

    # ── reading ──

    def read_nowait(self, offset: int, max_bytes: int) -> Chunk | None:
        """Read as `read`, without blocking; return None if it would block."""
        index = self.index
        if index is None:
            return None
        handles = self._resources.handles
        try:
            fd = handles.acquire(self.handle)
            try:
                return self._read(
                    index,
                    fd,
                    self._resources.fs.read_at_nowait,
                    offset=offset,
                    max_bytes=max_bytes,
                    size=self.size,
                )
            finally:
                handles.release(self.handle)
        except OSError as error:
            raise translate(error, "reading", self.path) from error

    def read(self, offset: int, max_bytes: int, size: int) -> Chunk:
        """Return the whole batches from the one that contains `offset` on, at most `max_bytes` but
        at least one; `NO_BATCH` if the segment has none there. Blocking.

        Args:
            size: how much of the file is visible.

        Raises:
            CorruptBatch: the bytes on disk are not batches.
            StorageFailed: the device cannot read them.
        """
        with self.opened() as fd:
            chunk = self._read(
                self.load_index(), fd, self._read_blocking, offset=offset, max_bytes=max_bytes, size=size
            )
            assert chunk is not None, "a blocking read does not block"
            return chunk

    def _read_blocking(self, fd: int, size: int, position: int) -> memoryview:
        data = self._resources.fs.read_at(fd, size, position)
        if len(data) < size:
            raise CorruptStoredBatch(
                f"{self.path} ends at {position + len(data)}, {size - len(data)} bytes too early; "
                f"restart the broker so that it recovers the log"
            )
        return memoryview(data)

    def _read(
        self,
        index: SegmentIndex,
        fd: int,
        read: Callable[[int, int, int], memoryview | None],
        *,
        offset: int,
        max_bytes: int,
        size: int,
    ) -> Chunk | None:
        position, last_offset = index.batch_for(offset)
        expected = self.base_offset if last_offset < 0 else -1
        wanted = max(max_bytes + self.interval_bytes, HEADER_BYTES)
        while position + HEADER_BYTES <= size:
            asked = min(wanted, size - position)
            data = read(fd, asked, position)
            if data is None:
                return None
            if last_offset >= 0 and len(data) >= HEADER_BYTES:
                # The index says where the first batch ends, and so where it begins.
                expected = last_offset - parse_header(data).last_offset_delta
                last_offset = -1
            span = walk.whole_batches(
                data,
                offset,
                max_bytes,
                f"position {position} of {self.path}",
                expected=expected,
                is_dense=self.is_dense,
            )
            if span.records:
                return Chunk(data[span.start : span.end], span.base_offset, span.next_offset, span.records)
            if len(data) < asked:
                return None
            position += span.start
            expected = span.next_offset if span.next_offset >= 0 else expected
            whole = span.end - span.start
            if whole > HEADER_BYTES:
                wanted = whole
                if position + whole > size:
                    raise CorruptStoredBatch(
                        f"the batch at position {position} of {self.path} is longer than the file; "
                        "run `sparrow doctor`"
                    )
        return NO_BATCH

    def headers(self, offset: int, size: int) -> Iterator[BatchHeader]:
        """Iterate over the headers from the batch that contains `offset` on. Blocking; raises as
        `read`.
        """
        with self.opened() as fd:
            start = self.load_index().position_for(offset)
            for _, header in walk.headers(self._resources.fs, fd, start, size, self.path):
                if header.next_offset > offset:
                    yield header

    def headers_and_markers(self, offset: int, size: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Iterate as `headers`, with the bytes of control batches (b"" for others). Blocking;
        raises as `read`.
        """
        with self.opened() as fd:
            start = self.load_index().position_for(offset)
            for header, data in walk.headers_and_markers(self._resources.fs, fd, start, size, self.path):
                if header.next_offset > offset:
                    yield header, data

    def batches(self, offset: int = 0) -> Iterator[tuple[BatchHeader, bytes]]:
        """Iterate over every batch that ends at or after `offset`, with its bytes, its CRC checked.
        Blocking; raises as `read`.
        """
        with self.opened() as fd:
            start = self.load_index().position_for(offset) if offset > self.base_offset else 0
            for header, data in walk.batches(self._resources.fs, fd, start, self.size, self.path):
                if header.next_offset > offset:
                    yield header, data

    def batches_since(self, timestamp_ms: int, offset: int, size: int) -> Iterator[bytes]:
        """Iterate over the bytes of the batches that end at or after `offset` and have a record
        that is not older than `timestamp_ms`. Blocking; raises as `read`.
        """
        with self.opened() as fd:
            index = self.load_index()
            start = index.position_for(max(index.offset_for(timestamp_ms), offset))
            for position, header in walk.headers(self._resources.fs, fd, start, size, self.path):
                if header.max_timestamp >= timestamp_ms and header.next_offset > offset:
                    yield self._resources.fs.read_at(fd, header.size_bytes, position)

    def find(self, offset: int) -> tuple[int, int]:
        """Return (position, base offset) of the batch that contains `offset` or is the first after
        it; the end of the file and `offset` if there is none. Blocking; raises as `read`.
        """
        with self.opened() as fd:
            start = self.load_index().position_for(offset)
            for position, header in walk.headers(self._resources.fs, fd, start, self.size, self.path):
                if header.last_offset >= offset:
                    return position, header.base_offset
        return self.size, offset

    def find_batch(self, offset: int) -> tuple[int, BatchHeader, bytes] | None:
        """Return (position, header, bytes) of the batch that contains `offset`, its CRC not
        checked; None if there is none. Blocking; raises as `read`.
        """
        with self.opened() as fd:
            start = self.load_index().position_for(offset)
            for position, header in walk.headers(self._resources.fs, fd, start, self.size, self.path):
                if header.base_offset > offset:
                    return None
                if header.last_offset >= offset:
                    return position, header, self._resources.fs.read_at(fd, header.size_bytes, position)
        return None

    def raw_batches(self) -> Iterator[tuple[int, BatchHeader, bytes]]:
        """Iterate over (position, header, bytes) of every batch, CRCs not checked. Blocking; raises
        as `read`.
        """
        with self.opened() as fd:
            for position, header in walk.headers(self._resources.fs, fd, 0, self.size, self.path):
                yield position, header, self._resources.fs.read_at(fd, header.size_bytes, position)

    def opened(self) -> _Reading:
        """Keep the file open inside this block, even when the segment leaves its log."""
        return _Reading(self._resources, self.handle)

    # ── the index ──

    def load_index(self) -> SegmentIndex:
        """Return the index; read it from its files if it is not in memory, rebuild it if they are
        damaged. Blocking.
        """
        index = self.index
        if index is None:
            index = self._read_index() or self._rebuild_index()
            self.index = index
            self._resources.indexes.admit(self, index.size_bytes)
        return index

    def pin_index(self) -> None:
        """Load the index and keep it until the segment is retired: its files are about to be
        replaced. Blocking.
        """
        index = self.load_index()
        self._resources.indexes.drop(self)
        self.index = index

    def _read_index(self) -> SegmentIndex | None:
        fs = self._resources.fs
        index, times = read_file(fs, self.stem + names.INDEX), read_file(fs, self.stem + names.TIME_INDEX)
        if index is None or times is None:
            return None
        if self.crcs is not None and self.crcs != (crc32c(index), crc32c(times)):
            _log.warning("an index of %s is damaged; it is made again from the batches", self.path)
            return None
        return indexes.decode(self.base_offset, self.interval_bytes, index, times, self.size)

    def _rebuild_index(self) -> SegmentIndex:
        index = SegmentIndex(self.base_offset, self.interval_bytes)
        with self.opened() as fd:
            for position, header in walk.headers(self._resources.fs, fd, 0, self.size, self.path):
                index.add(header.last_offset, position, header.size_bytes, header.max_timestamp)
        index.seal()
        return index

    def forget(self) -> None:
        """Drop the index from memory. Called by the cache of indexes, which has only closed
        segments.
        """
        self.index = None

    def write_index(self, state: IndexState | None) -> bool:
        """Put the indexes on stable storage: all of them, or as far as `state` counts. Blocking.

        Returns:
            True if a file may be new, so that the directory has to be synced.

        Raises:
            OSError: the device refused.
        """
        index = self.index
        if index is None:
            return False
        entries, times = (
            (state.entries, state.time_entries) if state else (len(index.offsets), len(index.times))
        )
        if state and (entries, times) == (self.written, self.written_times):
            return False
        data, time_data = (
            index.encode(self.written, entries),
            index.encode_times(self.written_times, times),
        )
        self._extend(names.INDEX, self.written * ENTRY_BYTES, data)
        self._extend(names.TIME_INDEX, self.written_times * TIME_ENTRY_BYTES, time_data)
        is_new = not (self.written or self.written_times)
        self.written, self.written_times = entries, times
        if self.crcs is not None:
            self.crcs = (extend_crc32c(self.crcs[0], data), extend_crc32c(self.crcs[1], time_data))
        return is_new

    def _extend(self, suffix: str, position: int, data: bytes) -> None:
        """Make the index file end with `data` at `position`, synced."""
        fs = self._resources.fs
        fd = fs.open(self.stem + suffix, write=True, create=True)
        try:
            fs.truncate(fd, position)
            write_all(fs, fd, [data] if data else [], position)
            fs.sync(fd)
        finally:
            fs.close(fd)

    # ── stable storage ──

    def sync(self) -> None:
        """Put all bytes that are visible now on stable storage. Blocking.

        Raises:
            StorageFailed: the device failed.
        """
        size = self.size
        with self.opened() as fd:
            self._resources.fs.sync(fd)
        self.synced = size

    def copy_bytes(self, start: int, end: int) -> bytes:
        """Return visible bytes that were appended a moment ago.

        Raises:
            StorageFailed: the device cannot read them.
        """
        with self.opened() as fd:
            data = self._resources.fs.read_at(fd, end - start, start)
        if len(data) < end - start:
            raise StorageFailed(f"{self.path} has no bytes at {start + len(data)}, where it was written")
        return data

    def retire(self) -> None:
        """Mark the segment as no longer in its log: running reads continue, no new one begins."""
        self._resources.handles.retire(self.handle)
        self._resources.indexes.drop(self)

    def unlink(self) -> None:
        """Remove the files. Blocking.

        Raises:
            OSError: the device refused.
        """
        for suffix in (names.LOG, names.INDEX, names.TIME_INDEX):
            self._resources.fs.unlink(self.stem + suffix)


class _Reading:
    """A block of code that holds a segment's file open; errors of the system leave it as Sparrow's
    errors.
    """

    __slots__ = ("_handle", "_resources")

    def __init__(self, resources: Resources, handle: Handle) -> None:
        self._resources = resources
        self._handle = handle

    def __enter__(self) -> int:
        try:
            return self._resources.handles.acquire(self._handle)
        except OSError as error:
            raise translate(error, "opening", self._handle.path) from error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._resources.handles.release(self._handle)
        if isinstance(error, OSError):
            raise translate_failed(error, "using", self._handle.path) from error


def translate_failed(error: OSError, doing: str, path: str) -> StorageFailed:
    """Translate as `filesystem.translate`, where a full disk is as bad as any other failure."""
    return StorageFailed(
        f"{doing} {path} failed: {error.strerror or error}. Check the device and restart the broker"
    )
