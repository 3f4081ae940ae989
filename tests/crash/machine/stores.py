"""Both stores of a broker on one simulated disk: the real ones, log and SQLite."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from sparrow.base.clock import Clock
from sparrow.meta.sqlite import SqliteMetaStore
from sparrow.server.config import ServerConfig
from sparrow.server.engine import META_FILE, Stores
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.filesystem import write_all
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions

if TYPE_CHECKING:
    from sparrow.server.engine import OpenStores

JOURNAL_FILE_BYTES = 128 << 10
DATA_DIR = "/data"


class DiskFiles:
    """`meta.files.Files` on a simulated disk and the VFS of its name."""

    def __init__(self, fs: FaultyFileSystem, vfs: str) -> None:
        self._fs = fs
        self._vfs = vfs

    def uri(self, path: str) -> str:
        return f"file:{quote(path)}?vfs={self._vfs}"

    def prepare(self, path: str) -> None:
        self._fs.close(self._fs.open(path, write=True, create=True))

    def extend(self, path: str, size: int) -> None:
        present = self._fs.size(path)
        fd = self._fs.open(path, write=True)
        try:
            if present is not None and present < size:
                write_all(self._fs, fd, [bytes(size - present)], present)
                self._fs.sync(fd)
        finally:
            self._fs.close(fd)

    def free_bytes(self, path: str) -> int:
        return self._fs.space(os.path.dirname(path)).free_bytes


def log_store(fs: FaultyFileSystem, clock: Clock | None, options: StorageOptions) -> LocalLogStore:
    """Return a log store with a small journal, which is reused more often, and whose images are
    small.
    """
    return LocalLogStore(DATA_DIR, fs, clock, replace(options, journal_file_bytes=JOURNAL_FILE_BYTES))


def meta_store(fs: FaultyFileSystem, vfs: str, *, wal_bytes: int = 4 << 20) -> SqliteMetaStore:
    return SqliteMetaStore(f"{DATA_DIR}/{META_FILE}", wal_bytes=wal_bytes, files=DiskFiles(fs, vfs))


def stores_on(fs: FaultyFileSystem, vfs: str) -> OpenStores:
    """Return the stores that a server opens instead of files."""

    async def open_stores(config: ServerConfig, opening: AsyncExitStack) -> Stores:
        logs = log_store(fs, None, config.storage)
        opening.push_async_callback(logs.close)
        meta = meta_store(fs, vfs)
        opening.push_async_callback(meta.close)
        return Stores(logs, meta)

    return open_stores
