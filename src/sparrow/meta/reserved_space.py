"""Disk space for the meta store's file, reserved before it is needed.

A full disk must not stop small changes (committed offsets, acknowledgements), and must never leave
SQLite with a WAL that cannot be copied back. So disk blocks are reserved ahead:

* The main file grows in steps, and only while the device has several times as much free. A step
  writes a filler, copies it into the main file and deletes it; SQLite's own list of free pages
  remains, with real blocks under them. `max_page_count` forbids to grow in any other way. So a
  checkpoint only overwrites blocks that exist.
* The WAL is extended with zeros. SQLite overwrites them from the start, and bytes that are no valid
  frame end a recovery.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparrow.meta.files import Files

PAGE_BYTES: Final = 4096
_FREE_FOR_A_STEP: Final = 4
"""The device must have this many times a step free."""


class ReservedSpace:
    """The reserved space of one database; used by the thread that owns the connection.

    Args:
        sql: the connection, open and in WAL mode, with the table `room`.
        path: its main file.
        files: the file system.
        max_bytes: maximum size of the main file; None: no limit.
        wal_bytes: the size of the WAL; a quarter of it is the step of the main file.
    """

    def __init__(
        self, sql: sqlite3.Connection, path: str, files: Files, *, max_bytes: int | None, wal_bytes: int
    ) -> None:
        self._sql = sql
        self._path = path
        self._files = files
        self._max_pages = (1 << 30) if max_bytes is None else max_bytes // PAGE_BYTES
        self._wal_bytes = wal_bytes
        self._step_pages = max(8, wal_bytes // PAGE_BYTES // 4)
        self._wal_reserved = False

    def prepare(self) -> None:
        """Drop a filler left by a crash and reserve what can be reserved; called at open. A full
        disk does not prevent the start.
        """
        self._forbid_growth(0)
        try:
            self._sql.execute("DELETE FROM room")
            self.grow_for(self._step_pages // 2)
            self._checkpoint()
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
        self.reserve_wal()

    def grow_for(self, needed_pages: int) -> bool:
        """Make space for a change of about `needed_pages`. Return False if there is enough
        (something else failed), or none to be had.

        Raises sqlite3.Error when the step itself fails.
        """
        free = self._pragma("freelist_count")
        if free >= needed_pages:
            return False
        pages = self._pragma("page_count")
        step = min(max(self._step_pages, needed_pages - free), self._max_pages - pages)
        if free + step < needed_pages or self._free_bytes() < _FREE_FOR_A_STEP * step * PAGE_BYTES:
            return False
        self._grow(step, free)
        return self._pragma("page_count") > pages

    def reserve_wal(self) -> None:
        """Give the WAL real blocks, if that was not possible before. Call it when the WAL contains
        nothing that is needed.
        """
        if self._wal_reserved:
            return
        with contextlib.suppress(OSError):
            self._files.extend(f"{self._path}-wal", self._wal_bytes)
            self._wal_reserved = True

    def _grow(self, step: int, free: int) -> None:
        filler_bytes = (step + free - 2) * (
            PAGE_BYTES - 4
        )  # takes the free pages first; two are left for the tree itself
        self._forbid_growth(step)
        try:
            self._sql.execute("INSERT INTO room (filler) VALUES (zeroblob(?))", (max(0, filler_bytes),))
            self._checkpoint()
            self._sql.execute("DELETE FROM room")
        finally:
            self._forbid_growth(0)

    def _forbid_growth(self, except_pages: int) -> None:
        limit = min(self._pragma("page_count") + except_pages, self._max_pages)
        self._sql.execute(f"PRAGMA max_page_count = {limit}")

    def _checkpoint(self) -> None:
        self._sql.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _free_bytes(self) -> int:
        try:
            return self._files.free_bytes(self._path)
        except OSError:
            return 0

    def _pragma(self, name: str) -> int:
        return int(self._sql.execute(f"PRAGMA {name}").fetchone()[0])
