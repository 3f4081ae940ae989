"""Redo records: the newest bytes of logs, on stable storage in the journal before the log's own
file is synced.

A sync of two files costs twice as much as one of both. So a short append that somebody waits for is
written to its segment, where readers find it, and once more to the journal, whose next sync covers
it together with the leases and acknowledgements of that moment. The segment is synced later: in the
background, and at the latest before a checkpoint lets the journal forget the record.

After a power failure the segment may lack these bytes. `replay` writes them again before any log is
opened, and recovery then finds them as if the segment had been synced. A record concerns bytes
behind the log's recovery point only: everything before it was synced, and may have been compacted
or dropped since.

A log that has failed for good may be unable to sync these bytes. Then no checkpoint is written any
more, and the next start has them: the journal is their only copy.

A redo record is one byte, which no other record of the journal begins with, and a msgpack array:
topic, topic id (16 bytes), partition, base offset of the segment, position in it, bytes.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from sparrow.storage import checkpoint as checkpoints
from sparrow.storage import names
from sparrow.storage.filesystem import read_file, write_all
from sparrow.storage.store import LogId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparrow.base.futures import Then
    from sparrow.storage.checkpoint import Checkpoint
    from sparrow.storage.filesystem import FileSystem

PREFIX: Final = b"\x01"
_OVERHEAD_BYTES: Final = 512
"""More than what a record has beside the bytes of the segment."""
_log = logging.getLogger(__name__)

_encode = msgspec.msgpack.Encoder(uuid_format="bytes").encode


class RedoRecord(msgspec.Struct, array_like=True, frozen=True):
    """Bytes of one segment."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    segment: int
    """Base offset."""
    position: int
    data: bytes

    @property
    def log_id(self) -> LogId:
        return LogId(self.topic, self.topic_id, self.partition)


_decode = msgspec.msgpack.Decoder(RedoRecord).decode


def encode(log_id: LogId, segment: int, position: int, data: bytes) -> bytes:
    """Return a redo record as the journal has it."""
    record = RedoRecord(log_id.topic, log_id.topic_id, log_id.partition, segment, position, data)
    return PREFIX + _encode(record)


def is_redo(record: memoryview) -> bool:
    """Return True if a record of the journal is a redo record."""
    return bytes(record[:1]) == PREFIX


class HasFiles(Protocol):
    """A log whose files can be synced, whatever the journal has (`Durability`)."""

    is_closed: bool

    def files_synced(self, *, even_if_failed: bool = False) -> asyncio.Future[None]: ...


class TakesRedo(Protocol):
    """A journal (`LocalJournal`)."""

    @property
    def max_record_bytes(self) -> int: ...

    @property
    def takes_redo(self) -> bool: ...

    def append_redo(self, record: bytes, then: Then) -> None: ...


class RedoLog:
    """The logs' way to the journal. Loop thread only."""

    def __init__(self) -> None:
        self._journal: TakesRedo | None = None
        self._logs: dict[HasFiles, None] = {}
        """Logs with bytes that are synced in the journal only."""

    def use(self, journal: TakesRedo) -> None:
        """Write to this journal from now on, as soon as its owner has written a checkpoint."""
        self._journal = journal

    @property
    def max_bytes(self) -> int:
        """The largest number of bytes of a segment that fit into one record; 0 while the journal
        takes none.
        """
        journal = self._journal
        return journal.max_record_bytes - _OVERHEAD_BYTES if journal is not None and journal.takes_redo else 0

    def append(
        self,
        log: HasFiles,
        log_id: LogId,
        segment: int,
        position: int,
        data: bytes,
        *,
        then: Then,
    ) -> None:
        """Append bytes of a segment. `then` is called as that of `Journal.append_then`."""
        assert self._journal is not None, "the caller has asked for `max_bytes`"
        self._logs[log] = None
        self._journal.append_redo(encode(log_id, segment, position, data), then)

    def forget(self, log: HasFiles) -> None:
        """Remove a log that is closed or deleted."""
        self._logs.pop(log, None)

    async def settle(self) -> None:
        """Sync the files of all logs of which the journal has records by now.

        Raises:
            StorageFailed, Overloaded: a file could not be synced.
        """
        logs, self._logs = self._logs, {}
        files = {log: log.files_synced(even_if_failed=True) for log in logs}
        try:
            if files:
                await asyncio.wait(files.values())
            for log, synced in files.items():
                # A log that was closed meanwhile is synced, or deleted.
                if not log.is_closed:
                    synced.result()
        except BaseException:
            self._logs |= {
                log: None for log, synced in files.items() if not log.is_closed and not _is_good(synced)
            }
            raise
        finally:
            for synced in files.values():
                synced.add_done_callback(_is_good)  # it may fail when nobody waits for it


def _is_good(future: asyncio.Future[None]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def replay(
    fs: FileSystem, logs: str, second: Callable[[LogId], Checkpoint | None], records: Iterable[memoryview]
) -> None:
    """Write what segments may lack, and sync it. Blocking; no log may be open.

    Args:
        logs: the directory of all logs.
        second: returns the second copy of a log's checkpoint.
        records: redo records as the journal has them, in their order.

    Raises:
        OSError
    """
    found: dict[LogId, list[RedoRecord]] = {}
    for data in records:
        record = _decode(data[len(PREFIX) :])
        found.setdefault(record.log_id, []).append(record)
    for log_id, its_records in found.items():
        directory = f"{logs}/{log_id}"
        try:
            floor = _maybe_floor(fs, directory, log_id, second(log_id))
        except OSError as error:
            # Opening the log fails likewise, and closes this partition alone.
            _log.error("%s: %s; the journal has bytes of it, which it will forget", directory, error)
            continue
        if floor is not None:
            for base, pieces in _pieces(its_records, floor).items():
                path = f"{directory}/{names.segment_stem(base)}{names.LOG}"
                _write(fs, path, pieces, floor[1] if base == floor[0] else 0)


def _maybe_floor(
    fs: FileSystem, directory: str, log_id: LogId, second: Checkpoint | None
) -> tuple[int, int] | None:
    """Return base offset and position of a log's recovery point; None if the directory is gone, or
    another topic's.
    """
    metadata = read_file(fs, f"{directory}/{names.METADATA_FILE}")
    if not metadata or names.maybe_topic_id(metadata) != log_id.topic_id:
        return None
    return max(_points(fs, directory, second), default=(-1, 0))


def _points(fs: FileSystem, directory: str, second: Checkpoint | None) -> Iterator[tuple[int, int]]:
    """Yield base offset and position of the recovery points that are known."""
    path = f"{directory}/{names.CHECKPOINT_FILE}"
    data = read_file(fs, path)
    for checkpoint in (None if data is None else checkpoints.decode(data, path), second):
        if checkpoint is not None:
            yield checkpoint.point.segment, checkpoint.point.position


def _pieces(records: Iterable[RedoRecord], floor: tuple[int, int]) -> dict[int, dict[int, bytes]]:
    """Return the bytes behind the recovery point `floor`: by segment, then by position, in the
    order in which they are to be written.
    """
    found: dict[int, dict[int, bytes]] = {}
    for record in records:
        before = floor[1] - record.position if record.segment == floor[0] else 0
        if record.segment >= floor[0] and before < len(record.data):
            skipped = max(before, 0)
            found.setdefault(record.segment, {})[record.position + skipped] = record.data[skipped:]
    return found


def _write(fs: FileSystem, path: str, pieces: dict[int, bytes], floor: int) -> None:
    """Write the pieces of a segment, and sync it. `floor` is the number of bytes that were synced
    for certain.
    """
    end = fs.size(path)
    if end is None:  # dropped since, with all that was in it
        return
    fd = fs.open(path, write=True)
    try:
        for position, data in sorted(pieces.items()):
            if max(position, floor) > end:
                # It is shorter than when the journal was written: an older copy, or damaged. With a
                # hole in it, it would look whole.
                _log.error("%s ends at %d; the journal's bytes at %d do not fit", path, end, position)
                break
            write_all(fs, fd, [data], position)
            end = max(end, position + len(data))
        fs.sync(fd)
    finally:
        fs.close(fd)
