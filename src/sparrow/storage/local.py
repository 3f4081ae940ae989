"""The log store on local files: the broker's default implementation of `store.LogStore`.

    store = LocalLogStore("/var/lib/sparrow")
    log = store.open(LogId("orders", topic_id, 0), LogConfig())

It owns the data directory (lock, format, clean-shutdown marker; see `directory`) and what all logs
share: open files, memory for indexes, the threads that sync and that read, the check of free space.
A topic is deleted by renaming its logs, which is immediate and durable; the bytes are removed
afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from sparrow.base.clock import SystemClock
from sparrow.base.errors import (
    DirectoryUnreadable,
    InternalError,
    InvalidTopicName,
    LogDamaged,
    SparrowError,
    StorageFailed,
)
from sparrow.storage import names, tail
from sparrow.storage.damage import Damages
from sparrow.storage.directory import DataDirectory
from sparrow.storage.disk_space import DiskSpace
from sparrow.storage.filesystem import LocalFileSystem, read_file, remove_tree, replace_file, translate
from sparrow.storage.flusher import Flusher
from sparrow.storage.handles import Handles
from sparrow.storage.index import DEFAULT_INTERVAL_BYTES
from sparrow.storage.local_journal import LocalJournal
from sparrow.storage.log import LocalLog
from sparrow.storage.options import StorageOptions
from sparrow.storage.recovery import Recovered, examine, find_damages, maybe_unreachable, recover
from sparrow.storage.recovery_points import RecoveryPoints
from sparrow.storage.redo import RedoLog, replay
from sparrow.storage.resources import MemoryBudget, Resources
from sparrow.storage.store import LogId, PartitionLog
from sparrow.storage.workers import Workers

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Sequence

    from sparrow.base.clock import Clock
    from sparrow.base.histogram import Histogram
    from sparrow.storage.checkpoint import Checkpoint
    from sparrow.storage.damage import Damage
    from sparrow.storage.filesystem import FileSystem, Space
    from sparrow.storage.recovery import Repair
    from sparrow.storage.store import LogConfig

_log = logging.getLogger(__name__)
CLOSE_AT_ONCE = 16
"""Number of logs that are closed at the same time."""
SURVEYED_AT_ONCE = 50
"""Number of logs whose files are examined in one step."""


class LocalLogStore:
    """All logs under one data directory. `open` may be called from any thread, the rest on the
    event loop.
    """

    def __init__(
        self,
        path: str,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        options: StorageOptions | None = None,
    ) -> None:
        """Lock and open the data directory. Blocking.

        Raises:
            DirectoryInUse, NewerFormat, DirectoryUnreadable: see `directory.DataDirectory`.
        """
        fs, clock, options = fs or LocalFileSystem(), clock or SystemClock(), options or StorageOptions()
        self._directory = DataDirectory(fs, path)
        self._resources = Resources(
            fs=fs,
            clock=clock,
            options=options,
            handles=Handles(fs, options.max_open_files),
            indexes=MemoryBudget(options.index_cache_bytes),
            flusher=Flusher(options.flush_threads, options.flush_interval_ms),
            workers=Workers(options.worker_threads),
            disk_space=DiskSpace(
                fs,
                self._directory.path,
                clock,
                reserve_bytes=options.reserve_bytes,
                check_bytes=options.space_check_bytes,
            ),
            points=self._open_points(fs),
            redo=RedoLog(),
            tails=MemoryBudget(tail.MAX_BYTES),
            damages=Damages(),
        )
        self._logs: dict[str, LocalLog] = {}
        self._opening = threading.Lock()
        self._closed = False
        self.repairs: list[Repair] = []
        """The repairs made while opening logs, for the broker's log."""
        self._remove_deleted()

    def _open_points(self, fs: FileSystem) -> RecoveryPoints:
        path = f"{self._directory.logs}/{names.POINTS_FILE}"
        try:
            return RecoveryPoints(fs, path)
        except OSError as error:
            self._directory.release(clean=False)
            raise DirectoryUnreadable(
                f"{path} cannot be used: {error.strerror or error}; check the device"
            ) from error
        except SparrowError:
            self._directory.release(clean=False)
            raise

    @property
    def damages(self) -> Damages:
        return self._resources.damages

    @property
    def path(self) -> str:
        """The absolute path of the data directory."""
        return self._directory.path

    @property
    def clean_start(self) -> bool:
        return self._directory.was_clean

    leader_epoch = 0

    def is_current(self) -> bool:
        return True

    async def current(self) -> None:
        """Return at once: the directory is locked by this process."""

    @property
    def location(self) -> str:
        return self._directory.logs

    @property
    def sync_times(self) -> Histogram:
        return self._resources.flusher.times

    def free_bytes(self) -> int:
        return self._space().free_bytes

    def total_bytes(self) -> int:
        return self._space().total_bytes

    @property
    def reserve_bytes(self) -> int:
        return self._resources.disk_space.reserve_bytes

    def refusal(self) -> SparrowError | None:
        try:
            full = self._resources.disk_space.refusal()
        except OSError as error:
            return translate(error, "asking for the free space of", self.path)
        return full or next((log.failure for log in self._logs.values() if log.failure is not None), None)

    def open_journal(self, mark: bytes | None) -> LocalJournal:
        if self._logs:
            raise InternalError("the journal must be opened before the first log, whose end it may have")
        resources = self._resources
        journal = LocalJournal(
            resources.fs,
            f"{self.path}/{names.JOURNAL_DIRECTORY}",
            mark,
            resources.clock.wall_ms(),
            threads=min(1, resources.options.flush_threads),
            file_bytes=resources.options.journal_file_bytes,
            settle_logs=resources.redo.settle,
        )
        try:
            replay(resources.fs, self._directory.logs, resources.points.get, journal.take_redo())
        except OSError as error:
            raise translate(error, "replaying the journal into the logs in", self._directory.logs) from error
        resources.redo.use(journal)
        return journal

    def _space(self) -> Space:
        try:
            return self._resources.disk_space.space()
        except OSError as error:
            raise translate(error, "asking for the free space of", self.path) from error

    def ids(self) -> list[LogId]:
        """Return the id of every log that has been written to. Blocking.

        Raises:
            StorageFailed: the directory cannot be read.
        """
        try:
            found = (self._maybe_id(name) for name in self._resources.fs.listdir(self._directory.logs))
            present = [log_id for log_id in found if log_id is not None]
            # Includes logs whose directory is gone: they must not begin again at offset 0.
            missing = set(self._resources.points.known()).difference(present)
            return present + sorted(missing, key=str)
        except OSError as error:
            raise translate(error, "listing the logs in", self._directory.logs) from error

    async def survey(self, log_ids: Iterable[LogId]) -> None:
        """See `LogStore.survey`."""
        remaining = list(log_ids)
        while remaining and not self._closed:
            some, remaining = remaining[:SURVEYED_AT_ONCE], remaining[SURVEYED_AT_ONCE:]
            for damage in await self._resources.workers.run(self._survey, some):
                self._resources.damages.add(damage)

    def _survey(self, log_ids: Sequence[LogId]) -> list[Damage]:
        found: list[Damage] = []
        for log_id in log_ids:
            try:
                found += self._survey_log(log_id, self._directory_of(log_id))
            except (OSError, SparrowError) as error:
                _log.warning("the files of %s could not be looked at: %s", log_id, error)
        return found

    def _survey_log(self, log_id: LogId, directory: str) -> list[Damage]:
        """Compare names and sizes only; examine a log that seems to lack something."""
        fs, points = self._resources.fs, self._resources.points
        point = points.get(log_id)
        if point is None or self._is_open(directory):
            return []
        bases = ((names.maybe_segment_base(name), name) for name in fs.listdir(directory))
        sizes = {base: fs.size(f"{directory}/{name}") or 0 for base, name in bases if base is not None}
        if not find_damages(str(log_id), directory, point, sizes):
            return []
        found = examine(fs, directory, DEFAULT_INTERVAL_BYTES, log=str(log_id), second=point)
        # A log that was opened or deleted meanwhile has changed; opening it checks again.
        is_same = points.get(log_id) is not None and not self._is_open(directory)
        return found.damages if is_same else []

    def _is_open(self, directory: str) -> bool:
        with self._opening:
            return directory in self._logs

    def _maybe_id(self, name: str) -> LogId | None:
        parts = names.maybe_log_name(name)
        metadata = (
            read_file(self._resources.fs, f"{self._directory.logs}/{name}/{names.METADATA_FILE}")
            if parts
            else None
        )
        topic_id = names.maybe_topic_id(metadata) if metadata else None
        return LogId(parts[0], topic_id, parts[1]) if parts and topic_id else None

    # ── opening ──

    def open(self, log_id: LogId, config: LogConfig) -> PartitionLog:
        directory = self._directory_of(log_id)
        with self._opening:
            if directory in self._logs:
                raise InternalError(f"the log {log_id} is open already")
        try:
            exists = self._claim(log_id, directory)
            recovered = self._recover(log_id, directory, config) if exists else Recovered(directory)
        except OSError as error:
            self._refuse_unreachable(log_id, directory, error)
            raise translate(error, "opening the log in", directory) from error
        except LogDamaged:
            raise
        except StorageFailed as error:
            if isinstance(error.__cause__, OSError):
                self._refuse_unreachable(log_id, directory, error.__cause__)
            raise
        log = LocalLog(self._resources, log_id, config, recovered, exists=exists)
        with self._opening:
            self._logs[directory] = log
            self.repairs += recovered.repairs
        return log

    def _refuse_unreachable(self, log_id: LogId, directory: str, error: OSError) -> None:
        """Raise LogDamaged if the system refuses to read a file of the log: all other logs can be
        opened.
        """
        second = self._resources.points.get(log_id)
        damage = maybe_unreachable(error, directory, str(log_id), second)
        if damage is not None:
            self._resources.damages.add(damage)
            raise damage.error() from error

    def open_nowait(self, log_id: LogId, config: LogConfig) -> PartitionLog | None:
        """Open as `LogStore.open_nowait`: a log without a directory needs no reading."""
        directory = self._directory_of(log_id)
        try:
            exists = self._resources.fs.size(directory) is not None
        except OSError as error:
            raise translate(error, "opening the log in", directory) from error
        return None if exists else self.open(log_id, config)

    def _recover(self, log_id: LogId, directory: str, config: LogConfig) -> Recovered:
        points = self._resources.points

        def keep(checkpoint: Checkpoint) -> None:
            points.put(log_id, checkpoint, sync=True)

        recovered = recover(
            self._resources.fs,
            directory,
            config.index_interval_bytes,
            log=str(log_id),
            second=points.get(log_id),
            keep=keep,
        )
        for damage in recovered.damages:
            self._resources.damages.add(damage)
        if recovered.damages:
            raise recovered.damages[0].error()
        if recovered.checkpoint is not None and points.get(log_id) is None:
            # A directory of an earlier version, or the file was lost.
            points.put(log_id, recovered.checkpoint, sync=False)
        return recovered

    def _directory_of(self, log_id: LogId) -> str:
        if "/" in log_id.topic or "\0" in log_id.topic or not log_id.topic:
            raise InvalidTopicName(
                f"{log_id.topic!r} cannot be the name of a directory, so it cannot be a topic's"
            )
        return f"{self._directory.logs}/{log_id}"

    def _claim(self, log_id: LogId, directory: str) -> bool:
        """Return True if the log's directory exists, or should. Move away, and keep, the directory
        of another topic of that name.

        Metadata that cannot be read was never synced (or has rotted): the directory counts as the
        requested log's, as in Kafka where the file is missing. It cannot be a deleted topic's,
        because `delete` is durable.
        """
        fs, points = self._resources.fs, self._resources.points
        is_known = points.get(log_id) is not None
        if fs.size(directory) is None:
            return is_known
        path = f"{directory}/{names.METADATA_FILE}"
        found = names.maybe_topic_id(read_file(fs, path) or b"")
        if found is not None and found != log_id.topic_id and is_known:
            other = LogId(log_id.topic, found, log_id.partition)
            found = found if points.get(other) is not None else None  # the metadata has rotted
        if found is not None and found != log_id.topic_id:
            self._set_aside(directory, log_id, found)
            return False
        if found is None:
            self._write_metadata(path, log_id)
        return True

    def _set_aside(self, directory: str, log_id: LogId, found: uuid.UUID) -> None:
        """Move away a directory of another topic. No broker leaves one; lost metadata does. So it
        is kept for a person to decide.
        """
        fs, logs = self._resources.fs, self._directory.logs
        if str(log_id) not in fs.listdir(logs):
            raise InvalidTopicName(
                f"the file system of {logs} takes {str(log_id)!r} for the directory of another topic; "
                f"topic names must differ in more than upper and lower case there"
            )
        target = f"{logs}/{names.STRAY_DIRECTORY}/{log_id}.{found}"
        self._resources.points.remove(LogId(log_id.topic, found, log_id.partition))
        fs.mkdir(f"{logs}/{names.STRAY_DIRECTORY}")
        fs.rename(directory, target)
        fs.sync_dir(f"{logs}/{names.STRAY_DIRECTORY}")
        fs.sync_dir(logs)
        _log.warning(
            "%s belonged to another topic of that name (id %s) and was moved to %s; remove it if "
            "it is not needed",
            directory,
            found,
            target,
        )

    def _write_metadata(self, path: str, log_id: LogId) -> None:
        replace_file(self._resources.fs, path, names.metadata_text(log_id.topic_id))

    # ── deleting ──

    async def delete(self, log: PartitionLog) -> None:
        directory = self._directory_of(log.id)
        mine = self._logs.get(directory)
        if mine is not log or mine is None:
            raise InternalError(f"the log {log.id} is not open in this store")
        await mine.stop()
        mine.abandon()
        await mine.end_writing()
        await self._remove(directory, log.id)
        del self._logs[directory]

    async def purge(self, log_id: LogId) -> None:
        directory = self._directory_of(log_id)
        if directory in self._logs:
            return
        await self._remove(directory, log_id)

    async def forget_missing(self, log_id: LogId) -> bool:
        """See `LogStore.forget_missing`."""
        directory = self._directory_of(log_id)
        if self._resources.fs.size(directory) is not None:
            return False
        try:
            await self._resources.workers.run(self._resources.points.remove, log_id)
        except OSError as error:
            raise translate(error, "forgetting the log in", directory) from error
        return True

    async def _remove(self, directory: str, log_id: LogId) -> None:
        try:
            await self._resources.workers.run(self._remove_blocking, directory, log_id)
        except OSError as error:
            raise translate(error, "removing the log in", directory) from error

    def _remove_blocking(self, directory: str, log_id: LogId) -> None:
        self._resources.points.remove(log_id)
        self._resources.damages.forget(str(log_id))
        metadata = read_file(self._resources.fs, f"{directory}/{names.METADATA_FILE}")
        found = names.maybe_topic_id(metadata or b"")
        if self._resources.fs.size(directory) is not None and found in (None, log_id.topic_id):
            self._move_away(directory, log_id)

    def _move_away(self, directory: str, log_id: LogId) -> None:
        fs = self._resources.fs
        trash = f"{self._directory.logs}/{names.DELETED_DIRECTORY}"
        fs.mkdir(trash)
        target = f"{trash}/{log_id.topic_id}-{log_id.partition}"
        if fs.size(target) is not None:
            remove_tree(fs, target)
        fs.rename(directory, target)
        fs.sync_dir(self._directory.logs)
        remove_tree(fs, target)

    def _remove_deleted(self) -> None:
        """Remove what a crash left of deleted logs."""
        fs, trash = self._resources.fs, f"{self._directory.logs}/{names.DELETED_DIRECTORY}"
        try:
            for name in fs.listdir(trash):
                remove_tree(fs, f"{trash}/{name}")
        except OSError as error:
            _log.warning("the rest of deleted logs in %s could not be removed: %s", trash, error)

    # ── closing ──

    async def close(self) -> None:
        """Sync everything, write what makes the next start clean, release the directory.

        Raises:
            StorageFailed, DiskFull: some log could not be closed cleanly; the next start recovers
                it. The directory is released nevertheless.
        """
        if self._closed:
            return
        self._closed = True
        failures = await self._close_logs()
        try:
            self._resources.points.close()
        except OSError as error:
            failures.append(translate(error, "closing the recovery points in", self.path))
        self._resources.flusher.close()
        self._resources.workers.close()
        self._resources.handles.close()
        try:
            self._directory.release(clean=not failures)
        except OSError as error:
            failures.append(translate(error, "closing", self.path))
        if failures:
            raise failures[0]

    async def _close_logs(self) -> list[SparrowError]:
        gate = asyncio.Semaphore(CLOSE_AT_ONCE)
        failures: list[SparrowError] = []

        async def close(log: LocalLog) -> None:
            async with gate:
                try:
                    await log.close()
                except SparrowError as error:
                    failures.append(error)
                except Exception as error:  # noqa: BLE001 - a bug in one must not keep the directory locked
                    _log.exception("closing the log %s failed", log.id)
                    failures.append(InternalError(f"closing the log {log.id} failed: {error!r}"))
                finally:
                    log.abandon()

        await asyncio.gather(*map(close, self._logs.values()))
        self._logs.clear()
        return failures
