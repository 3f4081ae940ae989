"""Inspection of a meta store's file without changing it: for `sparrow doctor`.

SQLite writes beside the file even when it only reads one with a WAL, so a copy of the file and its
WAL is inspected. The store must not be in use: the copy of a changing file is not consistent.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing

from sparrow.base.errors import DirectoryUnreadable, NewerFormat
from sparrow.meta.database import APPLICATION_ID, FORMAT_VERSION
from sparrow.meta.store import Entry


def inspect(path: str) -> tuple[dict[str, int], list[str]]:
    """Return the number of entries by kind, and the faults of the file (an empty list if there are
    none). Blocking.

    Raises:
        NewerFormat: a later Sparrow wrote it.
        DirectoryUnreadable: it cannot be read, or is no meta store.
    """
    with tempfile.TemporaryDirectory(prefix="sparrow-doctor-") as scratch:
        try:
            copied = _copy(path, scratch)
            with closing(sqlite3.connect(copied)) as sql:
                return _look(sql, path)
        except OSError as error:
            raise DirectoryUnreadable(
                f"{path} cannot be read: {error.strerror or error}; check its permissions"
            ) from None
        except sqlite3.Error as error:
            raise DirectoryUnreadable(
                f"{path} is damaged: {error}; put back a backup of the data directory"
            ) from None


def read_entry(path: str, kind: str, key: str) -> Entry | None:
    """Return one entry of a meta store, or None. Blocking.

    Raises:
        OSError
        DirectoryUnreadable: it is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="sparrow-doctor-") as scratch:
        try:
            with closing(sqlite3.connect(_copy(path, scratch))) as sql:
                row = sql.execute(
                    "SELECT value, version FROM fact WHERE kind = ? AND key = ?", (kind, key)
                ).fetchone()
        except sqlite3.Error as error:
            raise DirectoryUnreadable(
                f"{path} is damaged: {error}; put back a backup of the data directory"
            ) from None
    return Entry(kind, key, *row) if row else None


def _copy(path: str, scratch: str) -> str:
    target = os.path.join(scratch, "meta.db")
    shutil.copyfile(path, target)
    if os.path.exists(f"{path}-wal"):
        shutil.copyfile(f"{path}-wal", f"{target}-wal")
    return target


def _look(sql: sqlite3.Connection, path: str) -> tuple[dict[str, int], list[str]]:
    version = sql.execute("PRAGMA user_version").fetchone()[0]
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"{path} has format {version}, this Sparrow knows formats up to {FORMAT_VERSION};"
            " use the version that wrote it, or a newer one"
        )
    if sql.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise DirectoryUnreadable(f"{path} is an SQLite file of another program, not a meta store")
    problems = [row[0] for row in sql.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
    counts = dict(sql.execute("SELECT kind, count(*) FROM fact GROUP BY kind ORDER BY kind"))
    return counts, problems
