"""The SQLite file of the meta store: opening it, changing it, reading it. Synchronous; one thread
at a time.

Decisions:

* One table, `WITHOUT ROWID`, keyed by (kind, key): an entry is found by one descent of one tree.
* WAL with `synchronous=FULL`: a commit is one sequential write and one sync. Space for the WAL and
  for the main file is reserved ahead (`reserved_space`): the sync changes no file size, and small
  changes still succeed on a disk that is full.
* `locking_mode=EXCLUSIVE`: a second owner is refused, no shared memory file is needed, and no
  reader can hold a checkpoint back. Nothing here opens and closes the main file beside SQLite,
  because that would drop its POSIX locks.
* Checkpoints run after the results were delivered, when an upper estimate of the pages in the WAL
  passes a bound.
* Batches of one commit are separated by savepoints only where a batch can fail half way: it has
  several writes and one of them is conditional. A single conditional write changes its row or
  nothing.
* A commit that finds no space is split until each batch that still fits (deletes, small updates) is
  in.

The format has a version in `PRAGMA user_version`. To change it: raise `FORMAT_VERSION`, append to
`_MIGRATIONS` the statements that lead from the version before, keep a file written by the old
version in the tests.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import (
    DirectoryInUse,
    DirectoryUnreadable,
    DiskFull,
    NewerFormat,
    SparrowError,
    StorageFailed,
)
from sparrow.meta.checks import condition_failed
from sparrow.meta.files import LocalFiles
from sparrow.meta.reserved_space import PAGE_BYTES, ReservedSpace
from sparrow.meta.store import ABSENT, ANY, Delete, Entry, Put, Write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.meta.files import Files


FORMAT_VERSION: Final = 1
APPLICATION_ID: Final = 0x53505257  # "SPRW"

_CREATE: Final = (
    "CREATE TABLE fact (kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL,"
    " PRIMARY KEY (kind, key)) WITHOUT ROWID"
)
_CREATE_ROOM: Final = "CREATE TABLE room (filler BLOB NOT NULL)"
_MIGRATIONS: Final = ((_CREATE, _CREATE_ROOM),)
"""The statements that lead from format n to format n + 1, at index n."""

_PUT_ANY: Final = (
    "INSERT INTO fact (kind, key, value, version) VALUES (?, ?, ?, 1)"
    " ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, version = version + 1"
)
_PUT_ABSENT: Final = (
    "INSERT INTO fact (kind, key, value, version) VALUES (?, ?, ?, 1) ON CONFLICT (kind, key) DO NOTHING"
)
_PUT_VERSION: Final = (
    "UPDATE fact SET value = ?, version = version + 1 WHERE kind = ? AND key = ? AND version = ?"
)
_DELETE_ANY: Final = "DELETE FROM fact WHERE kind = ? AND key = ?"
_DELETE_VERSION: Final = "DELETE FROM fact WHERE kind = ? AND key = ? AND version = ?"
_GET: Final = "SELECT value, version FROM fact WHERE kind = ? AND key = ?"
_ALL: Final = "SELECT kind, key, value, version FROM fact"
_SCAN: Final = "SELECT key, value, version FROM fact WHERE kind = ? AND key >= ? ORDER BY key"

_IN_LEAF: Final = (PAGE_BYTES - 12) * 64 // 255 - 64
"""Bytes of a row that a leaf of the table takes, its header and version not counted."""
_IN_USE: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNREADABLE: Final = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_AUTH,
    }
)


class Database:
    """The open file. The constructor opens or creates it; blocking.

    Args:
        path: the database file; its directory is created when missing.
        max_bytes: maximum size of the main file; beyond it the disk counts as full. None: no limit.
        wal_bytes: blocks kept for the WAL; a checkpoint runs when about half of them are used.
        busy_timeout_ms: how long opening waits for another owner to release the file.
        files: the file system; None: the operating system's.

    Raises:
        DirectoryInUse: another process owns the file.
        NewerFormat: a newer Sparrow wrote it.
        DirectoryUnreadable: it is damaged, no Sparrow file, or may not be read or written.
        DiskFull: no space to create it.
        StorageFailed: any other failure of the device.
    """

    def __init__(
        self,
        path: str,
        *,
        max_bytes: int | None = None,
        wal_bytes: int = 4 << 20,
        busy_timeout_ms: int = 1000,
        files: Files | None = None,
    ) -> None:
        self.path = path
        files = files or LocalFiles()
        self.commits = 0
        self.checkpoints = 0
        self._wal_bytes = wal_bytes
        self._pages_in_wal = 0
        self._failed: StorageFailed | None = None
        try:
            files.prepare(path)
            self._sql = sqlite3.connect(
                files.uri(path),
                timeout=busy_timeout_ms / 1000,
                isolation_level=None,
                check_same_thread=False,
                uri=True,
            )
        except OSError as exc:
            raise _unreadable(path, exc.strerror or str(exc)) from exc
        except sqlite3.Error as exc:
            raise _translate(exc, path) from exc
        try:
            self._open()
            self._reserved = ReservedSpace(self._sql, path, files, max_bytes=max_bytes, wal_bytes=wal_bytes)
            self._reserved.prepare()
        except sqlite3.Error as exc:
            self._sql.close()
            raise _translate(exc, path) from exc
        except BaseException:
            self._sql.close()
            raise

    # ── changing ──────────────────────────────────────────────────────────────────────────────────

    def commit(self, batches: Sequence[Sequence[Write]]) -> list[SparrowError | None]:
        """Apply the batches in order in one transaction, on stable storage when it returns.

        Return for each batch None or the reason why it was not written (ConditionFailed, DiskFull,
        StorageFailed); a batch is written whole or not at all.
        """
        if self._failed:
            return [self._failed] * len(batches)
        try:
            return self._commit_and_grow(batches)
        # a bug of Sparrow, not a fault of the disk
        except (sqlite3.InterfaceError, sqlite3.ProgrammingError):
            self._roll_back()
            raise
        except sqlite3.Error as exc:
            self._roll_back()
            error = _translate(exc, self.path)
        if isinstance(error, DiskFull):
            return self._commit_what_fits(batches, error)
        self._failed = StorageFailed(f"{error.text} The broker takes no more changes until it is restarted.")
        return [self._failed] * len(batches)

    def checkpoint_when_due(self) -> None:
        """Copy the WAL into the main file if it has grown. A failure is harmless: the WAL keeps
        everything.
        """
        if self._pages_in_wal * PAGE_BYTES * 2 < self._wal_bytes:
            return
        with contextlib.suppress(sqlite3.Error):
            busy, _, _ = self._sql.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if not busy:
                self._pages_in_wal = 0
                self.checkpoints += 1
                self._reserved.reserve_wal()

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    def get(self, kind: str, key: str) -> Entry | None:
        """Return the entry, or None."""
        try:
            row = self._sql.execute(_GET, (kind, key)).fetchone()
        except sqlite3.Error as exc:
            raise _translate(exc, self.path) from exc
        return Entry(kind, key, *row) if row else None

    def scan(self, kind: str, prefix: str) -> list[Entry]:
        """Return all entries of a kind whose key starts with `prefix`, by key (code point
        order).
        """
        entries: list[Entry] = []
        try:
            with contextlib.closing(self._sql.execute(_SCAN, (kind, prefix))) as rows:
                for key, value, version in rows:
                    if not key.startswith(prefix):
                        break
                    entries.append(Entry(kind, key, value, version))
        except sqlite3.Error as exc:
            raise _translate(exc, self.path) from exc
        return entries

    def all(self) -> list[Entry]:
        """Return all entries."""
        try:
            with contextlib.closing(self._sql.execute(_ALL)) as rows:
                return [Entry(*row) for row in rows]
        except sqlite3.Error as exc:
            raise _translate(exc, self.path) from exc

    def close(self) -> None:
        """Copy the WAL into the main file (if there is space) and close both."""
        try:
            self._sql.close()
        except sqlite3.Error as exc:
            raise _translate(exc, self.path) from exc

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _open(self) -> None:
        self._configure()
        self._check_identity()
        self._migrate()

    def _configure(self) -> None:
        self._sql.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        self._sql.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._sql.execute("PRAGMA journal_mode = WAL")
        self._sql.execute("PRAGMA synchronous = FULL")
        self._sql.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone stops at the drive's cache
        self._sql.execute("PRAGMA secure_delete = OFF")
        self._sql.execute(f"PRAGMA journal_size_limit = {self._wal_bytes}")
        self._sql.execute(
            f"PRAGMA wal_autocheckpoint = {4 * self._wal_bytes // PAGE_BYTES}"
        )  # only a backstop

    def _check_identity(self) -> None:
        owner = self._pragma("application_id")
        version = self._pragma("user_version")
        if owner != APPLICATION_ID and (owner or version or self._pragma("schema_version")):
            raise DirectoryUnreadable(
                f"{self.path} is an SQLite file of another program; give Sparrow a data directory of its own."
            )
        if version > FORMAT_VERSION:
            raise NewerFormat(
                f"{self.path} has format {version}, this Sparrow knows formats up to {FORMAT_VERSION}; "
                "start the version that wrote it, or a newer one."
            )

    def _migrate(self) -> None:
        self._sql.execute("BEGIN IMMEDIATE")  # also takes the exclusive lock, to be kept
        version = self._pragma("user_version")
        for statements in _MIGRATIONS[version:]:
            for statement in statements:
                self._sql.execute(statement)
        if version < FORMAT_VERSION:
            self._sql.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._sql.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        self._sql.execute("COMMIT")

    def _commit_and_grow(self, batches: Sequence[Sequence[Write]]) -> list[SparrowError | None]:
        while True:
            try:
                return self._commit(batches)
            except sqlite3.OperationalError as exc:
                self._roll_back()
                if exc.sqlite_errorcode != sqlite3.SQLITE_FULL or not self._reserved.grow_for(
                    _pages(batches)
                ):
                    raise

    def _commit(self, batches: Sequence[Sequence[Write]]) -> list[SparrowError | None]:
        self._sql.execute("BEGIN IMMEDIATE")
        outcomes = [self._apply(batch) for batch in batches]
        self._sql.execute("COMMIT")
        self.commits += 1
        self._pages_in_wal += _pages(batches)
        return outcomes

    def _commit_what_fits(
        self, batches: Sequence[Sequence[Write]], full: DiskFull
    ) -> list[SparrowError | None]:
        if len(batches) <= 1:
            return [full for _ in batches]
        half = len(batches) // 2
        return self.commit(batches[:half]) + self.commit(batches[half:])

    def _apply(self, batch: Sequence[Write]) -> SparrowError | None:
        if len(batch) == 1 or all(write.if_version == ANY for write in batch):
            return self._apply_each(batch)
        self._sql.execute("SAVEPOINT batch")
        failed = self._apply_each(batch)
        if failed:
            self._sql.execute("ROLLBACK TO batch")
        self._sql.execute("RELEASE batch")
        return failed

    def _apply_each(self, batch: Sequence[Write]) -> SparrowError | None:
        for write in batch:
            is_applied = self._put(write) if isinstance(write, Put) else self._delete(write)
            if not is_applied:
                return condition_failed(write)
        return None

    def _put(self, put: Put) -> bool:
        if put.if_version == ANY:
            self._sql.execute(_PUT_ANY, (put.kind, put.key, put.value))
            return True
        if put.if_version == ABSENT:
            return self._sql.execute(_PUT_ABSENT, (put.kind, put.key, put.value)).rowcount == 1
        return self._sql.execute(_PUT_VERSION, (put.value, put.kind, put.key, put.if_version)).rowcount == 1

    def _delete(self, delete: Delete) -> bool:
        if delete.if_version == ANY:
            self._sql.execute(_DELETE_ANY, (delete.kind, delete.key))
            return True
        if delete.if_version == ABSENT:
            return self._sql.execute(_GET, (delete.kind, delete.key)).fetchone() is None
        return self._sql.execute(_DELETE_VERSION, (delete.kind, delete.key, delete.if_version)).rowcount == 1

    def _roll_back(self) -> None:
        """Roll back; SQLite has already done so after some errors, not after others."""
        with contextlib.suppress(sqlite3.Error):
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")

    def _pragma(self, name: str) -> int:
        return int(self._sql.execute(f"PRAGMA {name}").fetchone()[0])


def _pages(batches: Sequence[Sequence[Write]]) -> int:
    """Return an upper estimate of the pages that the writes change: the leaf of each, its overflow,
    and the pages of a split.
    """
    writes = [write for batch in batches for write in batch]
    return 2 + len(writes) + sum(_overflow_pages(write) for write in writes if isinstance(write, Put))


def _overflow_pages(put: Put) -> int:
    """Return how many pages a row takes beside its leaf, at most. A row of more than `_IN_LEAF`
    bytes is in overflow pages, but for a part that may be as small as an eighth of a page
    (https://sqlite.org/fileformat2.html, "Cell Payload Overflow Pages").
    """
    size = len(put.value) + 4 * (len(put.kind) + len(put.key))
    return 0 if size <= _IN_LEAF else -(-size // (PAGE_BYTES - 4))


def _translate(exc: sqlite3.Error, path: str) -> SparrowError:
    # The low byte of an extended code is the primary one (https://sqlite.org/rescode.html).
    code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return DiskFull(
            f"No space to change {path}; nothing was written. Free some space; the broker then continues."
        )
    if code in _IN_USE:
        return DirectoryInUse(
            f"{path} is in use by another process; stop it, or choose another data directory."
        )
    if code in _UNREADABLE:
        return _unreadable(path, str(exc))
    return StorageFailed(f"SQLite failed on {path}: {exc}. Check the device and the system's log.")


def _unreadable(path: str, why: str) -> DirectoryUnreadable:
    return DirectoryUnreadable(
        f"{path} cannot be used as the meta store: {why}. Check its permissions; if it is damaged, "
        "put back a backup of the "
        "data directory."
    )
