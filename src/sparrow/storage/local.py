"""The log store on local files: the implementation of `store.LogStore` that a broker has by default.

    store = LocalLogStore("/var/lib/sparrow")
    log = store.open(LogId("orders", topic_id, 0), LogConfig())

It owns the data directory (lock, format, clean-shutdown marker; see `directory`) and what all logs share: open files, memory
for indexes, the threads that sync and that read, the watch over free space. A topic is deleted by renaming its logs
away, which is at once and durable; the bytes go afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from sparrow.base.clock import SystemClock
from sparrow.base.errors import InternalError, InvalidTopicName, SparrowError
from sparrow.storage import names
from sparrow.storage.directory import DataDirectory
from sparrow.storage.filesystem import LocalFileSystem, read_file, remove_tree, replace_file, translate
from sparrow.storage.flusher import Flusher
from sparrow.storage.handles import Handles
from sparrow.storage.log import LocalLog
from sparrow.storage.options import StorageOptions
from sparrow.storage.recovery import Recovered, recover
from sparrow.storage.resources import IndexCache, Resources
from sparrow.storage.room import Room
from sparrow.storage.store import LogId, PartitionLog
from sparrow.storage.workers import Workers

if TYPE_CHECKING:
    import uuid

    from sparrow.base.clock import Clock
    from sparrow.base.histogram import Histogram
    from sparrow.storage.filesystem import FileSystem, Space
    from sparrow.storage.recovery import Repair
    from sparrow.storage.store import LogConfig

_log = logging.getLogger(__name__)
CLOSE_AT_ONCE = 16
"""Logs that are closed at the same time."""


class LocalLogStore:
    """All logs under one data directory. `open` may be called from any thread, the rest on the event loop."""

    def __init__(
        self,
        path: str,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        options: StorageOptions | None = None,
    ) -> None:
        """Take the data directory. Blocking.

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
            indexes=IndexCache(options.index_cache_bytes),
            flusher=Flusher(options.flush_threads, options.flush_interval_ms),
            workers=Workers(options.worker_threads),
            room=Room(
                fs,
                self._directory.path,
                clock,
                reserve_bytes=options.reserve_bytes,
                check_bytes=options.space_check_bytes,
            ),
        )
        self._logs: dict[str, LocalLog] = {}
        self._opening = threading.Lock()
        self._closed = False
        self.repairs: list[Repair] = []
        """What opening logs has repaired, for the log of the broker."""
        self._remove_deleted()

    @property
    def path(self) -> str:
        """The data directory, absolute."""
        return self._directory.path

    @property
    def clean_start(self) -> bool:
        return self._directory.was_clean

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

    def refusal(self) -> SparrowError | None:
        try:
            full = self._resources.room.refusal()
        except OSError as error:
            return translate(error, "asking for the free space of", self.path)
        return full or next((log.failure for log in self._logs.values() if log.failure is not None), None)

    def _space(self) -> Space:
        try:
            return self._resources.room.space()
        except OSError as error:
            raise translate(error, "asking for the free space of", self.path) from error

    def ids(self) -> list[LogId]:
        """Every log that has been written to. Blocking.

        Raises:
            StorageFailed: the directory cannot be read.
        """
        try:
            found = (self._maybe_id(name) for name in self._resources.fs.listdir(self._directory.logs))
            return [log_id for log_id in found if log_id is not None]
        except OSError as error:
            raise translate(error, "listing the logs in", self._directory.logs) from error

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
        except OSError as error:
            raise translate(error, "opening the log in", directory) from error
        recovered = (
            recover(self._resources.fs, directory, config.index_interval_bytes)
            if exists
            else Recovered(directory)
        )
        log = LocalLog(self._resources, log_id, config, recovered, exists=exists)
        with self._opening:
            self._logs[directory] = log
            self.repairs += recovered.repairs
        return log

    def _directory_of(self, log_id: LogId) -> str:
        if "/" in log_id.topic or "\0" in log_id.topic or not log_id.topic:
            raise InvalidTopicName(
                f"{log_id.topic!r} cannot be the name of a directory, so it cannot be a topic's"
            )
        return f"{self._directory.logs}/{log_id}"

    def _claim(self, log_id: LogId, directory: str) -> bool:
        """Whether the log's directory exists. One of another topic of that name is moved away, and kept.

        Metadata that cannot be read was never synced (or has rotted): the log is taken for the asked one, as Kafka does
        where the file is missing. A deleted topic's directory cannot be meant, because `delete` is durable.
        """
        fs = self._resources.fs
        if fs.size(directory) is None:
            return False
        path = f"{directory}/{names.METADATA_FILE}"
        found = names.maybe_topic_id(read_file(fs, path) or b"")
        if found is not None and found != log_id.topic_id:
            self._set_aside(directory, log_id, found)
            return False
        if found is None:
            self._write_metadata(path, log_id)
        return True

    def _set_aside(self, directory: str, log_id: LogId, found: uuid.UUID) -> None:
        """No broker leaves such a directory; lost meta data does. So it is kept for a person to decide."""
        fs, logs = self._resources.fs, self._directory.logs
        if str(log_id) not in fs.listdir(logs):
            raise InvalidTopicName(
                f"the file system of {logs} takes {str(log_id)!r} for the directory of another topic; "
                f"topic names must differ in more than upper and lower case there"
            )
        target = f"{logs}/{names.STRAY_DIRECTORY}/{log_id}.{found}"
        fs.mkdir(f"{logs}/{names.STRAY_DIRECTORY}")
        fs.rename(directory, target)
        fs.sync_dir(f"{logs}/{names.STRAY_DIRECTORY}")
        fs.sync_dir(logs)
        _log.warning(
            "%s belonged to another topic of that name (id %s) and was moved to %s; remove it if nobody needs it",
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

    async def _remove(self, directory: str, log_id: LogId) -> None:
        try:
            await self._resources.workers.run(self._remove_blocking, directory, log_id)
        except OSError as error:
            raise translate(error, "removing the log in", directory) from error

    def _remove_blocking(self, directory: str, log_id: LogId) -> None:
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
        """What a crash left of deleted logs."""
        fs, trash = self._resources.fs, f"{self._directory.logs}/{names.DELETED_DIRECTORY}"
        try:
            for name in fs.listdir(trash):
                remove_tree(fs, f"{trash}/{name}")
        except OSError as error:
            _log.warning("the rest of deleted logs in %s could not be removed: %s", trash, error)

    # ── closing ──

    async def close(self) -> None:
        """Sync everything, write what makes the next start clean, give the directory back.

        Raises:
            StorageFailed, DiskFull: some log could not be closed cleanly; the next start recovers it. The directory is
                given back all the same.
        """
        if self._closed:
            return
        self._closed = True
        failures = await self._close_logs()
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
