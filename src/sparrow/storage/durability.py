"""The part of a log that is on stable storage, the callers that wait for it, and the checkpoint
that records it.

The order of writes is what matters here. A sync round puts the segments on disk from the oldest to
the newest, then the names of new files; only then do waiting callers get their result. A closed
segment is *settled* once it is synced: its indexes are written and synced, and then the
checkpoint's recovery point moves behind it. So the file `checkpoint` never vouches for a byte that
could be lost, and recovery reads only what lies behind it.

After a failed sync the log takes no more writes: the kernel may have dropped the pages and would
report success next time. It may even serve them to a broker that is restarted on the same machine,
as if they were on the disk. So the empty file `sync-failed` stays behind (in the page cache, which
lives as long as those false pages), and recovery writes again what it reads.

Concurrency: `wait`, `call_when_durable`, `add_segment`, `synced` and the attributes belong to the
loop; `sync` and `after_sync` run in a flusher's thread; `save`, `settle` and `save_point` block and
run in any thread, one at a time (`_files`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import itertools
import logging
import threading
from collections import deque
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from sparrow.base.errors import Overloaded, SparrowError, StorageFailed
from sparrow.base.futures import end_future
from sparrow.storage import names
from sparrow.storage.checkpoint import Checkpoint, RecoveryPoint, SavedSegment
from sparrow.storage.filesystem import replace_file, translate
from sparrow.storage.segment import translate_failed

if TYPE_CHECKING:
    from sparrow.base.futures import Then
    from sparrow.storage.resources import Resources
    from sparrow.storage.row import SegmentRow
    from sparrow.storage.segment import Segment
    from sparrow.storage.store import LogId
    from sparrow.storage.tail import Tail

_log = logging.getLogger(__name__)
REDO_BYTES = 16 << 10
"""More new bytes of a log than this are synced in its file at once: writing them twice would cost
more than the second sync.
"""
_NOT_TRIED = frozenset({errno.EBADF, errno.ENOENT})
"""Error of a file that was gone before the device was asked."""


class Durability:
    """Durability of one log.

    Args:
        row: the log's segments, and its end.
    """

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        resources: Resources,
        log_id: LogId,
        directory: str,
        saved: Checkpoint,
        durable_offset: int,
        row: SegmentRow,
        tail: Tail,
    ) -> None:
        self._resources = resources
        self._log_id = log_id
        self._directory = directory
        self._row = row
        self._tail = tail
        self._replacing: tuple[list[Segment], Segment] | None = None
        self.saved = saved
        self.durable_offset = durable_offset
        self.failure: StorageFailed | None = None
        self.is_new = False
        """True while the directory and its metadata may not be on stable storage."""
        self.unsettled: deque[Segment] = deque()
        """Segments from the recovery point's one to the active one."""
        self._ended = False
        self._sync_failure: StorageFailed | None = None
        """The error of a failed sync; set in its thread, before the loop learns of it."""
        self._waiters: list[tuple[int, int, Then]] = []
        """Functions to call, a heap by offset, so that a round visits only those that it completes;
        the number keeps equal offsets apart.
        """
        self._file_waiters: list[tuple[list[tuple[Segment, int]], asyncio.Future[None]]] = []
        self._asked = 0
        self._redo_breaks = 0
        """Number of times that the journal refused bytes: what it has behind them is not durable
        by that.
        """
        self._journal_end = 0
        """The offset before which everything is on its way through the journal, or there; 0 after
        the journal refused bytes.
        """
        self.is_closed = False
        """True when the log is closed or deleted."""
        self._is_requested = False
        """True if a sync is about to be asked for."""
        self._files = threading.Lock()

    # ── on the loop ──

    is_short = False
    """See `Syncable`: what is short goes to the journal, where there is one."""

    def wait(self, offset: int) -> asyncio.Future[None]:
        """Return a future that is done when everything before `offset` is durable. The call starts
        the sync.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.call_when_durable(offset, partial(end_future, future))
        return future

    def call_when_durable(self, offset: int, then: Then) -> None:
        """Call `then` when everything before `offset` is durable, or cannot become so. The call
        starts the sync.
        """
        if offset <= self.durable_offset:
            then(None)
        elif self.failure is not None:
            then(StorageFailed(self.failure.text))
        else:
            self._asked += 1
            heappush(self._waiters, (offset, self._asked, then))
            if not self._is_requested and offset > self._journal_end:
                self._is_requested = True
                asyncio.get_running_loop().call_soon(self._request)

    def _request(self) -> None:
        """Ask for a sync. It is asked for at the end of the iteration: readers that an append has
        woken are served before the flusher's thread competes for the interpreter.
        """
        self._is_requested = False
        segment = self._maybe_redo()
        if segment is None:
            self._resources.flusher.request(self)
        else:
            self._append_redo(segment)

    def _maybe_redo(self) -> Segment | None:
        """Return the active segment if its new bytes can go to the journal: they are few, and all
        older segments and the file's name are on stable storage.
        """
        room = self._resources.redo.max_bytes
        if not room or self.is_new or self.is_closed or len(self.unsettled) != 1:
            return None
        segment = self.unsettled[0]
        size = segment.size - max(segment.synced, segment.in_journal)
        return segment if segment.linked and size <= min(REDO_BYTES, room) else None

    def _append_redo(self, segment: Segment) -> None:
        size, synced = segment.size, segment.synced
        if synced >= size:
            # A sync that began before the last append took it along, and reports less.
            self.durable_offset = self._row.end
            self._wake()
            return
        if segment.in_journal == size:  # it is under way
            return
        start = max(synced, segment.in_journal)
        data = self._tail.maybe_bytes(segment.base_offset, start, size)
        if data is None:
            try:
                data = segment.copy_bytes(start, size)
            except SparrowError:
                self._resources.flusher.request(self)
                return
        segment.in_journal = size
        self._journal_end = self._row.end
        written = partial(self._in_journal, segment, self._journal_end, self._redo_breaks)
        self._resources.redo.append(self, self._log_id, segment.base_offset, start, data, then=written)

    def _in_journal(self, segment: Segment, end_offset: int, breaks: int, error: SparrowError | None) -> None:
        if error is not None:
            segment.in_journal = self._journal_end = 0
            self._redo_breaks += 1
            self._resources.flusher.request(self)
        elif breaks == self._redo_breaks and self.failure is None:
            self.durable_offset = max(self.durable_offset, min(end_offset, self._row.end))
            self._wake()

    def files_synced(self, *, even_if_failed: bool = False) -> asyncio.Future[None]:
        """Return a future that is done when the files of the log have all bytes that are visible
        now on stable storage; `wait` may be served by the journal. The call starts the sync.

        Args:
            even_if_failed: try it in a log that takes no more appends, if no sync has failed.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        needed = [(segment, segment.size) for segment in tuple(self.unsettled) if segment.needs_sync]
        if self.is_closed:
            future.set_exception(StorageFailed(f"the log in {self._directory} is closed"))
        elif self.failure is not None and not even_if_failed:
            future.set_exception(StorageFailed(self.failure.text))
        elif not needed:
            future.set_result(None)
        else:
            self._file_waiters.append((needed, future))
            self._resources.flusher.request(self)
        return future

    def _wake_file_waiters(self) -> None:
        waiters, self._file_waiters = self._file_waiters, []
        for needed, future in waiters:
            if any(segment.synced < size or not segment.linked for segment, size in needed):
                self._file_waiters.append((needed, future))
            else:
                end_future(future, None)

    def close(self) -> None:
        """Forget the log: it is closed or deleted."""
        self.is_closed = True
        self._resources.flusher.forget(self)
        self._resources.redo.forget(self)
        self._end_file_waiters(StorageFailed(f"the log in {self._directory} is closed"))

    def add_segment(self, segment: Segment) -> None:
        """Make `segment` the active one; the one before is synced and settled soon."""
        self.unsettled.append(segment)
        if len(self.unsettled) > 1:
            self._resources.flusher.request(self)

    def synced(self, durable_offset: int, error: SparrowError | None) -> None:
        """Complete the futures that a finished round serves."""
        if isinstance(error, StorageFailed):
            self.fail(error)
        elif error is not None:
            self._end_waiters(error)
        else:
            self.durable_offset = max(self.durable_offset, durable_offset)
            self._wake()
            self._wake_file_waiters()

    def fail(self, error: StorageFailed) -> None:
        """Take no more appends, and fail everything that waits."""
        self.failure = self.failure or error
        self._end_waiters(self.failure)

    def _wake(self) -> None:
        waiters = self._waiters
        while waiters and waiters[0][0] <= self.durable_offset:
            heappop(waiters)[2](None)

    def _end_waiters(self, error: SparrowError) -> None:
        waiters, self._waiters = self._waiters, []
        for _, _, then in waiters:
            then(type(error)(error.text))
        self._end_file_waiters(error)

    def _end_file_waiters(self, error: SparrowError) -> None:
        files, self._file_waiters = self._file_waiters, []
        for _, future in files:
            end_future(future, type(error)(error.text))

    # ── in a flusher's thread ──

    def sync(self) -> int:
        """Sync all segments that need it, oldest first. Return the offset before which everything
        is durable.

        Raises:
            StorageFailed: the device failed; nothing after the last good round is durable.
            Overloaded: the process has no descriptor left; the next round may succeed.
        """
        if self._sync_failure is not None:
            raise self._sync_failure
        target = self._row.end
        try:
            self._sync_all()
        except StorageFailed as error:
            # A later round must not even try: it would succeed without the pages that this one
            # lost.
            self._sync_failure = error
            if not (isinstance(error.__cause__, OSError) and error.__cause__.errno in _NOT_TRIED):
                self._leave_note()
            raise
        return target

    def _leave_note(self) -> None:
        with self._files, contextlib.suppress(OSError):
            if not self._ended:
                fs = self._resources.fs
                fs.close(fs.open(f"{self._directory}/{names.FAILED_SYNC_FILE}", write=True, create=True))

    def _sync_all(self) -> None:
        segments = [segment for segment in tuple(self.unsettled) if segment.needs_sync]
        for segment in segments:
            segment.sync()
        try:
            self._sync_names(segments)
        except OSError as error:
            translated = translate(error, "syncing", self._directory)
            # no descriptor: nothing was tried, so nothing was lost
            if isinstance(translated, Overloaded):
                raise translated from error
            raise translate_failed(error, "syncing", self._directory) from error

    def _sync_names(self, segments: list[Segment]) -> None:
        fs, unlinked = self._resources.fs, [segment for segment in segments if not segment.linked]
        if self.is_new:
            fd = fs.open(f"{self._directory}/{names.METADATA_FILE}", write=True)
            try:
                fs.sync(fd)
            finally:
                fs.close(fd)
        if unlinked or self.is_new:
            fs.sync_dir(self._directory)
        if self.is_new:
            fs.sync_dir(self._directory.rpartition("/")[0])
            self.is_new = False
        for segment in unlinked:
            segment.linked = True

    def after_sync(self) -> None:
        """Settle closed segments. A failure does not harm the log: settling is tried again after
        the next sync.
        """
        if len(self.unsettled) < 2 or self._ended:
            return
        try:
            self.settle()
        except SparrowError as error:
            _log.warning("the indexes of %s could not be written: %s", self._directory, error)

    # ── in any thread ──

    def settle(self) -> None:
        """Write the indexes of closed and synced segments, then move the recovery point behind
        them.

        Raises:
            DiskFull, StorageFailed: the device refused; nothing changed.
        """
        with self._files:
            self._settle()

    def save(self, *, log_start: int = 0, clean_offset: int = 0) -> None:
        """Write the checkpoint with these offsets, which only grow. Raises as `save_point`."""
        with self._files:
            saved = self.saved
            self._write(
                dataclasses.replace(
                    saved,
                    log_start=max(saved.log_start, log_start),
                    clean_offset=max(saved.clean_offset, clean_offset),
                ),
                leaves=True,
            )

    def save_replaced(self, group: list[Segment], segment: Segment) -> None:
        """Record in every checkpoint from now on that `segment` is about to replace `group`. Raises
        as `save_point`.
        """
        with self._files:
            self._replacing = (group, segment)
            self._write(self.saved, leaves=True)

    def save_point(self, segment: Segment, point: RecoveryPoint, state: tuple[int, bytes] | None) -> None:
        """Write the checkpoint with recovery point `point` in `segment`; everything before it is
        synced already.

        Args:
            state: (offset, fold) to save; None keeps the present one.

        Raises:
            DiskFull, StorageFailed: the device refused; nothing changed.
        """
        with self._files:
            self._settle()
            saved = self.saved
            if state is not None:
                saved = dataclasses.replace(saved, state_offset=state[0], state=state[1])
            if (point.segment, point.position) >= (saved.point.segment, saved.point.position):
                self._write_index(segment, point)
                saved = dataclasses.replace(saved, point=point)
            self._write(saved)

    def end(self) -> None:
        """Write nothing more: the directory is about to be removed, and its name may soon be
        another log's. Wait for a running write.
        """
        with self._files:
            self._ended = True

    def _settle(self) -> None:
        settled: list[Segment] = []
        following = -1
        for segment, after in itertools.pairwise(tuple(self.unsettled)):
            if segment.needs_sync:
                break
            if not segment.handle.retired:
                self._write_index(segment, None)
            settled.append(segment)
            following = after.base_offset
        if following > self.saved.point.segment:
            point = RecoveryPoint(following, 0, following)
            self._write(dataclasses.replace(self.saved, point=point))
        for segment in settled:
            self.unsettled.popleft()
            if segment.index is not None and not segment.handle.retired:
                self._resources.indexes.admit(segment, segment.index.size_bytes)

    def _refuse_if_ended(self) -> None:
        if self._ended:
            raise StorageFailed(f"the log in {self._directory} is deleted")

    def _write_index(self, segment: Segment, point: RecoveryPoint | None) -> None:
        self._refuse_if_ended()
        try:
            if segment.write_index(point.index if point else None):
                self._resources.fs.sync_dir(self._directory)
        except OSError as error:
            raise translate(error, "writing the indexes of", segment.path) from error

    def _write(self, checkpoint: Checkpoint, *, leaves: bool = False) -> None:
        """Write both copies. `leaves`: files are about to leave the log, which both copies must
        record first.
        """
        self._refuse_if_ended()
        checkpoint = dataclasses.replace(
            checkpoint,
            segments=self._saved_segments(checkpoint.point),
            gaps=tuple(gap for gap in checkpoint.gaps if gap.end > checkpoint.log_start),
        )
        path = f"{self._directory}/{names.CHECKPOINT_FILE}"
        try:
            if self.is_new:
                # For recovery, a checkpoint means that the directory is on stable storage.
                self._sync_names([])
            # The second copy first: the one in the directory is authoritative, so nothing is valid
            # before all is written.
            self._resources.points.put(self._log_id, checkpoint, sync=leaves)
            replace_file(self._resources.fs, path, checkpoint.encode())
        except OSError as error:
            raise translate(error, "writing", path) from error
        self.saved = checkpoint

    def _saved_segments(self, point: RecoveryPoint) -> tuple[SavedSegment, ...]:
        segments = self._row.segments
        if self._replacing is not None and self._replacing[0][0] in segments:
            group, segment = self._replacing
            first = segments.index(group[0])
            segments = [*segments[:first], segment, *segments[first + len(group) :]]
        return tuple(
            _saved(each, point)
            for each in segments
            if (each.base_offset, 0) < (point.segment, point.position)
        )


def _saved(segment: Segment, point: RecoveryPoint) -> SavedSegment:
    if segment.base_offset < point.segment:
        return SavedSegment(
            segment.base_offset, segment.size, segment.max_timestamp, segment.crcs, segment.is_dense
        )
    # The active one may have grown since the point was taken, and its index files never end behind
    # the point.
    return SavedSegment(
        segment.base_offset, point.position, point.index.max_timestamp, segment.crcs, segment.is_dense
    )
