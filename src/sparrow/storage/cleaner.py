"""Compaction of a log's closed segments: read, write beside, swap. Blocking; runs in a thread while
the log is in use.

The segments it reads never change, and it changes none: it writes new ones. The swap of a group of
segments for one is made safe by names:

    42.log.cleaned, 42.index.cleaned, 42.timeindex.cleaned
                                            written and synced; a crash here leaves rubbish
    42.log.cleaned → 42-99.swap, directory synced
                                            from here on the new segment is authoritative
    segments 43 … 98 removed, 42.index, 42.timeindex replaced, directory synced
    42-99.swap → 42.log, directory synced   done

Recovery removes `.cleaned` files and finishes a `.swap` (see `recovery.tidy`). The log keeps the
old files open during the swap, so readers of the old segments continue.

It shares the interpreter with the event loop, and yields after every fifty records (some 200 µs):
otherwise each system call of the loop would wait for the interpreter's switch interval (5 ms)
before it runs again. A sleep of no time takes about 60 µs on Linux, in which the other thread takes
over.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from sparrow.records.batch import parse_header
from sparrow.storage import names
from sparrow.storage.batch_compaction import BatchCompaction
from sparrow.storage.filesystem import translate, write_all
from sparrow.storage.index import SegmentIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.base.errors import CorruptBatch
    from sparrow.storage.batch_compaction import Survey
    from sparrow.storage.compaction import Range
    from sparrow.storage.filesystem import FileSystem
    from sparrow.storage.segment import Segment
    from sparrow.storage.store import LogId

WRITE_BYTES = 1 << 20
RECORDS_PER_YIELD = 50


class Stopped(Exception):
    """The log is closed or deleted; the compaction gives up."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A compacted segment that is not installed yet."""

    stem: str
    base_offset: int
    end_offset: int
    size: int
    index: SegmentIndex


class Cleaner:
    """One compaction of one log."""

    def __init__(
        self,
        fs: FileSystem,
        *,
        log_id: LogId,
        now_ms: int,
        delete_retention_ms: int,
        producer_expiry_ms: int,
        map_bytes: int,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._fs = fs
        self._is_stopped = is_stopped
        self._records_since_yield = 0
        self._batches = BatchCompaction(
            log_id,
            now_ms=now_ms,
            delete_retention_ms=delete_retention_ms,
            producer_expiry_ms=producer_expiry_ms,
            map_bytes=map_bytes,
            on_record=self._yield_interpreter,
        )

    @property
    def unreadable(self) -> dict[int, CorruptBatch]:
        """See `BatchCompaction.unreadable`."""
        return self._batches.unreadable

    # ── looking ──

    def survey(self, segments: Sequence[Segment], dirty: Range) -> Survey:
        """Search the dirty part for the last offset of each key, and all of it for producers.

        Args:
            segments: all that will be cleaned, oldest first.

        Raises:
            CorruptBatch, StorageFailed: a segment cannot be read.
        """
        end = dirty.end
        for segment in segments:
            if segment.base_offset >= dirty.end:
                break
            if self._batches.is_full:
                # The part behind the end stays dirty: a tombstone in it has not removed its key
                # yet.
                end = min(end, segment.base_offset)
                break
            end = self._survey_segment(segment, dirty)
        return self._batches.surveyed(
            end, (header for each in segments for header in each.headers(each.base_offset, each.size))
        )

    def _survey_segment(self, segment: Segment, dirty: Range) -> int:
        for header, data in segment.batches(dirty.first_dirty):
            self._check_stopped()
            if self._batches.is_full:
                return header.base_offset
            self._batches.survey(header, data)
        return dirty.end

    # ── writing ──

    def clean(self, group: Sequence[Segment], end_offset: int, survey: Survey) -> Cleaned | None:
        """Write the segment that replaces the group, and its indexes, synced. Return None if
        nothing would change.

        Args:
            end_offset: end of the group's offsets.

        Raises:
            CorruptBatch, StorageFailed, DiskFull: nothing changed.
        """

        def write(path: str, index: SegmentIndex) -> int | None:
            size, changed = self._write_log(path, group, index, survey)
            return size if changed or len(group) > 1 else None

        return self._write_segment(group[0], end_offset, write)

    def replace(self, segment: Segment, end_offset: int, position: int, batch: bytes) -> Cleaned | None:
        """Write a segment that replaces another, with `batch` instead of the one at `position`,
        synced.

        The other batches are copied as they are, damaged ones too.

        Raises:
            CorruptBatch, StorageFailed, DiskFull: nothing changed.
        """

        def write(path: str, index: SegmentIndex) -> int:
            with _Output(self._fs, path, index) as output:
                for at, header, data in segment.raw_batches():
                    self._check_stopped()
                    output.add(header.last_offset, batch if at == position else data)
                return output.finish()

        return self._write_segment(segment, end_offset, write)

    def _write_segment(
        self, first: Segment, end_offset: int, write: Callable[[str, SegmentIndex], int | None]
    ) -> Cleaned | None:
        """Write a segment that replaces `first`; return None if `write` finds no need for it."""
        stem, base = first.stem, first.base_offset
        index = SegmentIndex(base, first.interval_bytes)
        path = stem + names.LOG + names.CLEANED
        try:
            size = write(path, index)
            if size is None:
                self._fs.unlink(path)
                return None
            index.seal()
            self._write_file(stem + names.INDEX + names.CLEANED, index.encode())
            self._write_file(stem + names.TIME_INDEX + names.CLEANED, index.encode_times())
            self._fs.sync_dir(stem.rpartition("/")[0])
        except BaseException as error:
            self.discard(stem)
            if isinstance(error, OSError):
                raise translate(error, "compacting into", path) from error
            raise
        return Cleaned(stem, base, end_offset, size, index)

    def discard(self, stem: str) -> None:
        """Remove the files that `clean` wrote."""
        for suffix in (names.LOG, names.INDEX, names.TIME_INDEX):
            with contextlib.suppress(OSError):  # recovery removes what stays
                self._fs.unlink(stem + suffix + names.CLEANED)

    def _write_log(
        self, path: str, group: Sequence[Segment], index: SegmentIndex, survey: Survey
    ) -> tuple[int, bool]:
        """Write the log file. Return (size in bytes, True if anything changed)."""
        changed = False
        with _Output(self._fs, path, index) as output:
            for segment in group:
                for header, data in segment.batches():
                    self._check_stopped()
                    kept = self._batches.clean(header, data, survey)
                    changed = changed or kept != data
                    if kept is not None:
                        output.add(header.last_offset, kept)
            return output.finish(), changed

    def _write_file(self, path: str, data: bytes) -> None:
        fd = self._fs.open(path, write=True, create=True)
        try:
            self._fs.truncate(fd, 0)
            write_all(self._fs, fd, [data] if data else [], 0)
            self._fs.sync(fd)
        finally:
            self._fs.close(fd)

    def _yield_interpreter(self) -> None:
        """Yield the interpreter after some records; called for every record."""
        self._records_since_yield += 1
        if self._records_since_yield >= RECORDS_PER_YIELD:
            self._records_since_yield = 0
            time.sleep(0)

    def _check_stopped(self) -> None:
        """Raise Stopped if the log is closed; called for every batch."""
        if self._is_stopped():
            raise Stopped
        self._yield_interpreter()

    # ── swapping ──

    def commit(self, cleaned: Cleaned) -> None:
        """Make the new segment authoritative: a restart would finish the swap.

        Raises:
            OSError: the device refused.
        """
        directory = cleaned.stem.rpartition("/")[0]
        self._fs.rename(cleaned.stem + names.LOG + names.CLEANED, _swap_path(cleaned))
        self._fs.sync_dir(directory)

    def finish(self, cleaned: Cleaned, group: Sequence[Segment]) -> None:
        """Install the new segment. The caller holds the old ones open.

        Raises:
            OSError: the device refused; a restart finishes it.
        """
        directory, stem = cleaned.stem.rpartition("/")[0], cleaned.stem
        for segment in group[1:]:
            segment.unlink()
        for suffix in (names.INDEX, names.TIME_INDEX):
            self._fs.rename(stem + suffix + names.CLEANED, stem + suffix)
        self._fs.sync_dir(directory)
        self._fs.rename(_swap_path(cleaned), stem + names.LOG)
        self._fs.sync_dir(directory)


class _Output:
    """The file of a compacted segment, written in large pieces."""

    def __init__(self, fs: FileSystem, path: str, index: SegmentIndex) -> None:
        self._fs = fs
        self._index = index
        self._fd = fs.open(path, write=True, create=True)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._written = 0

    def __enter__(self) -> Self:
        self._fs.truncate(self._fd, 0)
        return self

    def __exit__(self, *_: object) -> None:
        self._fs.close(self._fd)

    def add(self, last_offset: int, data: bytes) -> None:
        """Append a batch."""
        position = self._written + self._pending_bytes
        self._index.add(last_offset, position, len(data), parse_header(data).max_timestamp)
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= WRITE_BYTES:
            self._flush()

    def finish(self) -> int:
        """Sync. Return the file's size."""
        self._flush()
        self._fs.sync(self._fd)
        return self._written

    def _flush(self) -> None:
        write_all(self._fs, self._fd, self._pending, self._written)
        self._written += self._pending_bytes
        self._pending, self._pending_bytes = [], 0


def _swap_path(cleaned: Cleaned) -> str:
    directory = cleaned.stem.rpartition("/")[0]
    return f"{directory}/{names.swap_name(cleaned.base_offset, cleaned.end_offset)}"
