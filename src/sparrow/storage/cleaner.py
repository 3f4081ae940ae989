"""Compact a log's closed segments: read, write beside, swap. Blocking; runs in a thread while the log is in use.

The segments it reads never change, and it changes none: it writes new ones. The swap of a group of segments for one is
made safe by names:

    42.log.cleaned, 42.index.cleaned, 42.timeindex.cleaned     written and synced; a crash here leaves rubbish
    42.log.cleaned → 42-99.swap, directory synced              from here on the new segment is the truth
    segments 43 … 98 removed, 42.index, 42.timeindex replaced, directory synced
    42-99.swap → 42.log, directory synced                      done

Recovery removes `.cleaned` files and finishes a `.swap` (see `recovery.tidy`). The log keeps the old files open during the swap, so
readers of the old segments go on.

It shares the interpreter with the event loop. It gives way after every fifty records (some 200 µs): else each system call of
the loop would wait for the interpreter's switch interval (5 ms) to get its turn back. A sleep of no time is a real one of
about 60 µs on Linux, which is what lets the other thread take its turn.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from sparrow.records.batch import parse_header
from sparrow.records.control import ControlType, maybe_parse_marker
from sparrow.records.rewrite import iterate_raw, retain
from sparrow.storage import names
from sparrow.storage.compaction import LatestOffsets, Range, keeps
from sparrow.storage.filesystem import translate, write_all
from sparrow.storage.index import SegmentIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.records.batch import BatchHeader
    from sparrow.records.rewrite import RawRecord
    from sparrow.storage.filesystem import FileSystem
    from sparrow.storage.segment import Segment

WRITE_BYTES = 1 << 20
RECORDS_PER_TURN = 50


class Stopped(Exception):
    """The log is closed or deleted; the compaction gives up."""


class Survey(NamedTuple):
    """What one look along the log tells."""

    latest: dict[bytes, int]
    end: int
    """How far the look went: before it every record can be judged."""
    last_batches: frozenset[int]
    """Last offsets of batches that keep their producer's sequence."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A compacted segment that is not yet in its place."""

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
        now_ms: int,
        delete_retention_ms: int,
        producer_expiry_ms: int,
        map_bytes: int,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._fs = fs
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._oldest_producer_ms = now_ms - producer_expiry_ms
        self._map_bytes = map_bytes
        self._is_stopped = is_stopped
        self._records_in_turn = 0

    # ── looking ──

    def survey(self, segments: Sequence[Segment], dirty: Range) -> Survey:
        """Look along the dirty part for the last offset of each key, and along all for producers.

        Args:
            segments: all that will be cleaned, oldest first.

        Raises:
            CorruptBatch, StorageFailed: a segment cannot be read.
        """
        latest = LatestOffsets(self._map_bytes)
        end = dirty.end
        for segment in segments:
            if segment.base_offset >= dirty.end:
                break
            if latest.is_full:
                # What was not looked at stays dirty: a tombstone in it has not removed its key yet.
                end = min(end, segment.base_offset)
                break
            end = self._survey_segment(segment, dirty, latest)
        unfinished = latest.first_open()
        end = end if unfinished is None else min(end, unfinished)
        return Survey(latest.offsets, end, self._last_batches(segments))

    def _survey_segment(self, segment: Segment, dirty: Range, latest: LatestOffsets) -> int:
        for header, data in segment.batches(dirty.first_dirty):
            self._go_on()
            if latest.is_full:
                return header.base_offset
            if header.is_control:
                marker = maybe_parse_marker(data)
                if marker is not None and marker.type in {ControlType.COMMIT, ControlType.ABORT}:
                    latest.end(header.producer_id, committed=marker.type == ControlType.COMMIT)
            else:
                self._survey_batch(header, data, latest)
        return dirty.end

    def _survey_batch(self, header: BatchHeader, data: bytes, latest: LatestOffsets) -> None:
        pending = latest.begin(header.producer_id, header.base_offset) if header.is_transactional else None
        for record in iterate_raw(data):
            self._give_way()
            if record.key is None:
                continue
            if pending is not None:
                pending[record.key] = record.offset
            else:
                latest.add(record.key, record.offset)

    def _last_batches(self, segments: Sequence[Segment]) -> frozenset[int]:
        last: dict[int, int] = {}
        for segment in segments:
            for header in segment.headers(segment.base_offset, segment.size):
                if header.producer_id >= 0 and header.max_timestamp >= self._oldest_producer_ms:
                    last[header.producer_id] = header.last_offset
        return frozenset(last.values())

    # ── writing ──

    def clean(self, group: Sequence[Segment], end_offset: int, survey: Survey) -> Cleaned | None:
        """Write the segment that takes the group's place, and its indexes, synced; None when nothing would change.

        Args:
            end_offset: where the group's offsets end.

        Raises:
            CorruptBatch, StorageFailed, DiskFull: nothing changed.
        """
        stem, base = group[0].stem, group[0].base_offset
        index = SegmentIndex(base, group[0].interval_bytes)
        path = stem + names.LOG + names.CLEANED
        try:
            size, changed = self._write_log(path, group, index, survey)
            if not changed and len(group) == 1:
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
        """Remove what `clean` wrote."""
        for suffix in (names.LOG, names.INDEX, names.TIME_INDEX):
            with contextlib.suppress(OSError):  # recovery removes what stays
                self._fs.unlink(stem + suffix + names.CLEANED)

    def _write_log(
        self, path: str, group: Sequence[Segment], index: SegmentIndex, survey: Survey
    ) -> tuple[int, bool]:
        """(size in bytes, whether anything is different from before)."""
        changed = False
        with _Output(self._fs, path, index) as output:
            for segment in group:
                for header, data in segment.batches():
                    self._go_on()
                    kept = (
                        data if header.base_offset >= survey.end else self._clean_batch(header, data, survey)
                    )
                    changed = changed or kept != data
                    if kept is not None:
                        output.add(header.last_offset, kept)
            return output.finish(), changed

    def _clean_batch(self, header: BatchHeader, data: bytes, survey: Survey) -> bytes | None:
        if header.is_control:
            return data
        tombstones_go = header.has_delete_horizon and header.base_timestamp <= self._now_ms
        has_tombstone = False

        def keep(record: RawRecord) -> bool:
            nonlocal has_tombstone
            self._give_way()
            stays = keeps(record, survey.latest, survey.end, tombstones_go=tombstones_go)
            has_tombstone = has_tombstone or (stays and record.value_is_null and record.key is not None)
            return stays

        is_last = header.last_offset in survey.last_batches
        kept = retain(data, keep, keep_empty=is_last)
        if has_tombstone and not header.has_delete_horizon:
            return retain(data, keep, keep_empty=is_last, delete_horizon_ms=self._horizon_ms)
        return kept

    def _write_file(self, path: str, data: bytes) -> None:
        fd = self._fs.open(path, write=True, create=True)
        try:
            self._fs.truncate(fd, 0)
            write_all(self._fs, fd, [data] if data else [], 0)
            self._fs.sync(fd)
        finally:
            self._fs.close(fd)

    def _give_way(self) -> None:
        """Called for every record; gives the interpreter away after some."""
        self._records_in_turn += 1
        if self._records_in_turn >= RECORDS_PER_TURN:
            self._records_in_turn = 0
            time.sleep(0)

    def _go_on(self) -> None:
        """Called for every batch."""
        if self._is_stopped():
            raise Stopped
        self._give_way()

    # ── swapping ──

    def commit(self, cleaned: Cleaned) -> None:
        """From here on the new segment is the truth, and a restart would finish the swap.

        Raises:
            OSError: the device refused.
        """
        directory = cleaned.stem.rpartition("/")[0]
        self._fs.rename(cleaned.stem + names.LOG + names.CLEANED, _swap_path(cleaned))
        self._fs.sync_dir(directory)

    def finish(self, cleaned: Cleaned, group: Sequence[Segment]) -> None:
        """Put the new segment into its place. The caller holds the old ones open.

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
        """Sync; returns the file's size."""
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
