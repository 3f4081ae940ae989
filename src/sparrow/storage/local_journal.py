"""The journal on local files: two files of fixed size, used in turn.

    <data directory>/journal/0, /1       see `journal_frames` for their bytes

Frames fill one file, then the other, if a checkpoint covers all that is in it. Both are written
with zeros once and never change their size. The last block of a file is written again with each
frame that begins in it, with the same bytes before the frame.

Concurrency: `sync` runs in the flusher's thread, everything else on the loop. `_lock` guards what
both use: the waiting records, except that one more may be appended at any time, and the files'
numbers.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import mmap
import os
import struct
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import (
    DirectoryUnreadable,
    NewerFormat,
    Overloaded,
    SparrowError,
    StorageFailed,
)
from sparrow.base.futures import end_future
from sparrow.storage.filesystem import BLOCK_BYTES, read_file, translate, write_all
from sparrow.storage.flusher import SHORT_BYTES, Flusher
from sparrow.storage.journal import MAX_RECORD_BYTES
from sparrow.storage.journal_frames import (
    VERSION,
    Contents,
    decode_header,
    encode_frame,
    encode_header,
    frame_bytes,
    frames_after,
    read_frames,
)
from sparrow.storage.redo import is_redo
from sparrow.storage.segment import translate_failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from sparrow.base.futures import Then
    from sparrow.base.histogram import Histogram
    from sparrow.storage.direct_writes import DirectWrites
    from sparrow.storage.filesystem import FileSystem

_WRITE_BYTES: Final = 1 << 18
"""Largest single write to a file."""
_ID_BYTES: Final = 16
_FREE_FOR_FILES: Final = 4
"""The files are made if the device has this many times their size free: the last room of a disk is
for acknowledgements.
"""
_NUMBER_BITS: Final = 20
"""Frames of one opening are numbered from the wall time in ms, shifted by this many bits: beyond
all numbers of earlier openings, those that a backup knows nothing of included.
"""
_MARK = struct.Struct("<16sQQ?")


class JournalPosition(NamedTuple):
    """A position in a journal, as checkpoints have it."""

    journal_id: bytes
    number: int
    """Number of the last frame before the mark."""
    synced: int
    """Number of the last frame of the same broker that was on stable storage when the mark was
    made; 0: none.
    """
    is_final: bool = False
    """True if no frame was appended behind it."""

    def encode(self) -> bytes:
        """Return the form for a checkpoint."""
        return _MARK.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> JournalPosition:
        """Return the mark of a checkpoint.

        Raises:
            DirectoryUnreadable: it is none.
        """
        try:
            return cls(*_MARK.unpack(data))
        except struct.error:
            raise DirectoryUnreadable(
                "the mark of the journal in meta.db cannot be read; restore the data directory from a backup"
            ) from None


class Found(NamedTuple):
    """The content of a journal behind a mark."""

    records: list[memoryview]
    last: int
    """Number of the last frame."""
    loss: str = ""
    """Loss that is known behind these records; "" if there is none."""


def read_journal(fs: FileSystem, directory: str, encoded_mark: bytes | None) -> Found:
    """Read what can be replayed of a journal, and change nothing. Blocking.

    Args:
        encoded_mark: that of the last checkpoint; None: there was none, so nothing is needed.

    Raises:
        DirectoryUnreadable: the mark is none.
        NewerFormat: a later Sparrow wrote the journal.
        OSError
    """
    if encoded_mark is None:
        return Found([], 0)
    mark = JournalPosition.decode(encoded_mark)
    if mark.is_final:
        return Found([], mark.number)
    data = {path: read_file(fs, path) for path in _paths(directory)}
    views = {path: memoryview(each) for path, each in data.items() if each is not None}
    files = {path: read_frames(view) for path, view in views.items()}
    for path, each in files.items():
        if each.header is not None and each.header.version > VERSION:
            raise NewerFormat(
                f"{path} has format {each.header.version}, this Sparrow reads up to {VERSION}; "
                "start the version that wrote it, or a newer one"
            )
    headed = [each for each in files.values() if each.header is not None]
    if any(each.header is not None and each.header.journal_id != mark.journal_id for each in headed):
        return Found([], mark.number, "its files belong to another data directory")
    found = _join(headed, mark)
    if None in data.values():
        return found._replace(loss="a file is missing")
    synced = max(
        (frame.synced for view in views.values() for frame in frames_after(view, found.last)), default=0
    )
    if synced > found.last and not found.loss:
        found = found._replace(loss=f"at least {synced - found.last} of its records are damaged")
    return found


def _join(files: list[Contents], mark: JournalPosition) -> Found:
    """Return the records behind the mark, of both files."""
    records: list[memoryview] = []
    last, reached = mark.number, mark.synced == 0
    for file in sorted(files, key=lambda each: each.first):
        first, end = file.first, file.next_number - 1
        reached |= first <= mark.number + 1 and end >= mark.synced
        if first > last + 1:
            return Found(records, last, f"{first - last - 1} of its records are damaged")
        if end > last:
            records += file.payloads[last + 1 - first :]
            last = end
    return Found(records, last, "" if reached else "records that the last checkpoint saw are not in it")


def loss_of(directory: str, loss: str) -> DirectoryUnreadable:
    """Return the error of a journal that lacks records."""
    return DirectoryUnreadable(
        f"the journal in {directory} cannot be replayed: {loss}. It has leases, acknowledgements and "
        "delivery counts of queues since their last checkpoint, and a second copy of the newest messages. "
        "Restore the data directory from a backup, or go on without them (`sparrow doctor --accept-loss`): "
        "messages that were acknowledged may then be delivered again, and after a power failure the newest "
        "ones may be missing"
    )


def _is_of(fs: FileSystem, directory: str, journal_id: bytes) -> bool:
    """Return True if no file of a directory has the header of another journal."""
    for path in _paths(directory):
        if fs.size(path):
            fd = fs.open(path)
            try:
                header = decode_header(memoryview(fs.read_at(fd, BLOCK_BYTES, 0)))
            finally:
                fs.close(fd)
            if header is not None and header.journal_id != journal_id:
                return False
    return True


def _divided(records: Iterable[memoryview]) -> tuple[list[memoryview], list[memoryview]]:
    """Return the redo records, and those of the owner."""
    redo: list[memoryview] = []
    others: list[memoryview] = []
    for each in records:
        (redo if is_redo(each) else others).append(each)
    return redo, others


def _memory(size: int) -> tuple[mmap.mmap, int]:
    """Return memory that begins at a block, and its address."""
    memory = mmap.mmap(-1, size)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _paths(directory: str) -> list[str]:
    return [f"{directory}/{number}" for number in range(2)]


class LocalJournal:
    """A `Journal` on two local files.

    Args:
        mark: that of the owner's last checkpoint; None: there is none.
        wall_ms: the wall time.
        threads: 1, or 0 to sync on the loop itself, for tests that must repeat exactly.
        settle_logs: syncs the files of all logs that have redo records in the journal.

    Raises:
        DirectoryUnreadable: records that were confirmed are missing, or damaged.
        NewerFormat: a later Sparrow wrote it.
        StorageFailed: it cannot be read.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        mark: bytes | None,
        wall_ms: int,
        *,
        threads: int = 1,
        file_bytes: int = 4 << 20,
        settle_logs: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._file_bytes = file_bytes
        self.max_record_bytes = min(MAX_RECORD_BYTES, file_bytes // 4)
        try:
            found = read_journal(fs, directory, mark)
        except OSError as error:
            raise translate(error, "reading the journal in", directory) from error
        if found.loss:
            raise loss_of(directory, found.loss)
        self._redo, self._records = _divided(found.records)
        self._settle_logs = settle_logs
        self._when_filling: Callable[[], None] = lambda: None
        self._id = JournalPosition.decode(mark).journal_id if mark is not None else os.urandom(_ID_BYTES)
        self._flusher = Flusher(threads, 0, syncs_on_loop=True)
        # on the loop
        self._last = (max(found.last, wall_ms << _NUMBER_BITS) >> _NUMBER_BITS) + 1 << _NUMBER_BITS
        """Number of the last appended frame; before the first one, of none."""
        self._synced = 0
        """Number of the last durable frame of this opening; 0: none yet."""
        self._appends: deque[tuple[int, Then]] = deque()
        self._failure: StorageFailed | None = None
        self._is_begun = False
        self._is_in_use = False
        """True if a checkpoint says that the journal is in use."""
        self._refuses_redo = False
        """True from a final mark, or from the refusal of a record, until another checkpoint."""
        self._is_closed = False
        self._marked_file = 0
        # in both threads
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque()
        """Records that are not written yet: their numbers follow the last one that is."""
        self._released = self._last
        self._has_failed = False
        """True from a failed write until the loop has failed all futures."""
        self._is_stuck = False
        """True if frames wait for the space of a file that no checkpoint covers."""
        # in the flusher's thread
        self._fds: list[int] = []
        self._file = 0
        self._file_ends = [0, 0]
        """Number of the last frame of each file; 0: none."""
        self._position = file_bytes
        """Where the next frame goes in the current file: the first one begins a file."""
        self._tail = b""
        """Bytes of the last block before the position."""
        self._written = self._last
        self._attempted = self._last
        """Number of the last frame of a write that was begun."""
        self._buffer, self._address = _memory(_WRITE_BYTES)
        # on the loop, while no thread syncs
        self._direct: DirectWrites | None = None

    @property
    def sync_times(self) -> Histogram:
        return self._flusher.times

    def take_records(self) -> list[memoryview]:
        records, self._records = self._records, []
        return records

    def take_redo(self) -> list[memoryview]:
        """Return the redo records that were found behind the mark at opening, once."""
        records, self._redo = self._redo, []
        return records

    @property
    def takes_redo(self) -> bool:
        """True if logs may append redo records, and need not wait for a checkpoint."""
        is_able = self._is_in_use and self._failure is None and not self._is_closed
        return is_able and not self._refuses_redo and not self._is_stuck

    async def begin(self) -> bytes:
        """See `Journal.begin`."""
        if not self._is_begun:
            try:
                await self._run(self._make_files)
            except OSError as error:
                raise translate(error, "making the journal in", self._directory) from error
            self._is_begun = True
            if self._flusher.has_threads:
                self._use_direct_writes()
        return self.mark()

    def _use_direct_writes(self) -> None:
        self._direct = self._fs.direct_writes(self._fds[0], asyncio.get_running_loop())
        if self._direct is not None:
            self._flusher.use_starts(self._begin_sync)

    async def _run(self, work: Callable[[], None]) -> None:
        if self._flusher.has_threads:
            await asyncio.to_thread(work)
        else:
            work()

    def append(self, record: bytes) -> asyncio.Future[None]:
        """See `Journal.append`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.append_then(record, partial(end_future, future))
        return future

    def append_then(self, record: bytes, then: Then) -> None:
        """See `Journal.append_then`."""
        if self._failure is not None or self._is_closed:
            error = self._failure or self._closed_error()
            asyncio.get_running_loop().call_soon(then, StorageFailed(error.text))
            return
        self._last += 1
        self._appends.append((self._last, then))
        self._waiting.append(record)
        self._flusher.request(self)

    def append_redo(self, record: bytes, then: Then) -> None:
        """Append a record of a log, as `append_then` does. `then` gets Overloaded if a checkpoint
        must come first.
        """
        if not self._is_in_use:
            self._when_filling()
            refusal = Overloaded(f"the journal in {self._directory} is not in use yet; try again in a moment")
            asyncio.get_running_loop().call_soon(then, refusal)
            return
        self.append_then(record, then)
        if self.is_filling:
            self._when_filling()

    def _closed_error(self) -> StorageFailed:
        return StorageFailed(f"the journal in {self._directory} is closed")

    def call_when_filling(self, call: Callable[[], None]) -> None:
        """See `Journal.call_when_filling`."""
        self._when_filling = call

    def mark(self, *, is_final: bool = False) -> bytes:
        self._marked_file = self._file
        self._refuses_redo |= is_final
        # Frames of a failed write may be on the disk: behind the mark they would be replayed over
        # newer values, which the owner's checkpoint has.
        last = self._last if self._failure is None else max(self._last, self._attempted)
        return JournalPosition(self._id, last, self._synced, is_final).encode()

    async def settle(self) -> None:
        """See `Journal.settle`."""
        if self._settle_logs is not None:
            await self._settle_logs()

    def release(self, mark: bytes) -> None:
        position = JournalPosition.decode(mark)
        self._is_in_use = self._is_begun
        self._refuses_redo = position.is_final
        with self._lock:
            self._released = max(self._released, position.number)
            is_stuck = self._is_stuck
        if is_stuck:
            self._flusher.request(self)

    def refuse_waiting(self, error: SparrowError) -> None:
        """See `Journal.refuse_waiting`."""
        with self._lock:
            if not self._is_stuck:
                return
            self._waiting.clear()
            self._is_stuck = False
            self._last = self._written
        self._refuses_redo = True  # logs need not wait for it: they have their files
        refused: list[Then] = []
        while self._appends and self._appends[-1][0] > self._last:
            refused.append(self._appends.pop()[1])
        for then in reversed(refused):  # in the order of the appends
            then(type(error)(error.text))

    @property
    def is_filling(self) -> bool:
        return self._file != self._marked_file or self._is_stuck

    async def close(self) -> None:
        with self._lock:
            self._is_closed = True
        # Without a checkpoint there is no space for them.
        self.refuse_waiting(self._closed_error())
        if self._appends:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._appends.append((self._last, partial(end_future, ended)))
            with suppress(SparrowError):  # their callers have it
                await ended
        self._flusher.close()
        if self._direct is not None:
            self._direct.close()
        for fd in self._fds:
            self._fs.close(fd)
        self._fds.clear()

    # ── results, on the loop ──────────────────────────────────────────────────────────────────────

    @property
    def is_short(self) -> bool:
        """See `Syncable.is_short`."""
        return not self._is_stuck and sum(map(len, self._waiting)) <= SHORT_BYTES

    def synced(self, durable_offset: int, error: SparrowError | None) -> None:
        """Report to the callers that a round serves (interface of the flusher)."""
        if error is None:
            while self._appends and self._appends[0][0] <= durable_offset:
                self._synced, then = self._appends.popleft()
                then(None)
            return
        self._failure = error if isinstance(error, StorageFailed) else StorageFailed(error.text)
        failed, self._appends = self._appends, deque()
        with self._lock:
            self._waiting.clear()
            self._has_failed = False
            self._last = self._written  # the numbers of frames have no gaps
        for _, then in failed:
            then(type(error)(error.text))

    # ── in the flusher's thread ───────────────────────────────────────────────────────────────────

    def sync(self) -> int:
        """Write the frames that wait, each on stable storage when this returns. Return the number
        of the last one.

        Raises:
            StorageFailed: the device failed, and nothing is written any more.
        """
        try:
            while records := self._take():
                self._write_filled(*self._fill(records))
                self._written = self._attempted
        except OSError as error:
            raise self._failed(error) from error
        return self._written

    def _failed(self, error: OSError) -> StorageFailed:
        with self._lock:
            self._has_failed = True  # frames behind the failed ones must not be written
        return translate_failed(error, "writing the journal in", self._directory)

    def _begin_sync(self, done: Callable[[int, SparrowError | None], None]) -> None:
        """Do as `sync`, one write after the other, on the loop; `done` gets what it returns or
        raises.
        """
        assert self._direct is not None, "the flusher got it with these writes"
        try:
            records = self._take()
            if not records:
                asyncio.get_running_loop().call_soon(done, self._written, None)
                return
            size, position = self._fill(records)
            ended = partial(self._ended, done)
            try:
                self._direct.begin(self._fds[self._file], self._address, size, position, ended)
            except OSError:  # the kernel may have no room for it
                self._write_filled(size, position)
                asyncio.get_running_loop().call_soon(ended, None)
        except OSError as error:
            asyncio.get_running_loop().call_soon(done, -1, self._failed(error))

    def _ended(self, done: Callable[[int, SparrowError | None], None], error: OSError | None) -> None:
        if error is not None:
            done(-1, self._failed(error))
            return
        self._written = self._attempted
        done(self._written, None)
        if self._waiting:
            self._flusher.request(self)  # for those that did not fit into this write

    def after_sync(self) -> None:
        """Nothing is left to do after a round."""

    def _take(self) -> list[bytes]:
        """Take records that fit into one write, and turn to the other file if need be."""
        with self._lock:
            waiting = self._waiting
            if not waiting or self._has_failed:
                return []
            self._is_stuck = False
            size = frame_bytes(len(waiting[0]))
            if self._position + size > self._file_bytes:
                other = 1 - self._file
                if self._file_ends[other] > self._released:
                    if self._is_closed:  # no checkpoint comes any more
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    self._is_stuck = True
                    return []
                self._file, self._position = other, BLOCK_BYTES
                self._tail = b""
            taken = [waiting.popleft()]
            while waiting:
                more = frame_bytes(len(waiting[0]))
                if size + more > _WRITE_BYTES or self._position + size + more > self._file_bytes:
                    break
                size += more
                taken.append(waiting.popleft())
            return taken

    def _write_filled(self, size: int, position: int) -> None:
        with memoryview(self._buffer) as view, view[:size] as data:
            self._fs.write_synced(self._fds[self._file], data, position)

    def _fill(self, records: list[bytes]) -> tuple[int, int]:
        """Fill the buffer with whole blocks, the last one padded with zeros. Return their size in
        bytes, and their position in the file.
        """
        synced = self._written
        self._attempted = self._file_ends[self._file] = synced + len(records)
        frames = [encode_frame(each, number, synced) for number, each in enumerate(records, synced + 1)]
        if self._position == BLOCK_BYTES:  # a new file: its header is part of the first write
            start, self._tail = 0, encode_header(self._id, synced + 1)
        else:
            start = self._position - len(self._tail)
        blocks = b"".join((self._tail, *frames))
        end = len(blocks)
        self._position = start + end
        tail_bytes = end % BLOCK_BYTES
        self._tail = blocks[end - tail_bytes :]
        size = end + -end % BLOCK_BYTES
        if size > len(self._buffer):
            self._buffer, self._address = _memory(size)
        self._buffer[:size] = blocks.ljust(size, b"\0")
        return size, start

    def _make_files(self) -> None:
        fs, directory = self._fs, self._directory
        fs.mkdir(directory)
        keeps = _is_of(fs, directory, self._id)
        missing = sum(max(0, self._file_bytes - (fs.size(path) or 0)) for path in _paths(directory))
        if missing and fs.space(directory).free_bytes < _FREE_FOR_FILES * missing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for path in _paths(directory):
            size = fs.size(path) or 0 if keeps else 0
            fd = fs.open(path, write=True, create=True)
            try:
                for position in range(size, self._file_bytes, _WRITE_BYTES):
                    zeros = bytes(min(_WRITE_BYTES, self._file_bytes - position))
                    write_all(fs, fd, [zeros], position)
                fs.sync(fd)
            finally:
                fs.close(fd)
        fs.sync_dir(directory)
        fs.sync_dir(os.path.dirname(directory))
        self._fds = [fs.open_synced(path) for path in _paths(directory)]
