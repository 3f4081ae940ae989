"""A table's directory, changed so that plain Parquet readers see every row once, and a crash at any
point leaves it repairable.

New files are first written to `_sparrow/` in the directory, which readers of Parquet directories
ignore (names that begin with `_` or `.` are not data), and their names end in `.staged` for readers
that only look at names. A change has three steps:

1. all new files are written and synced there;
2. a journal is written by one rename. At this moment the change is decided;
3. the journal is carried out: files and directories are renamed, the manifest is replaced, the
   journal is removed.

A crash before step 2 leaves files in `_sparrow/staged`, which the next run removes; a crash after
it is rolled forward by the next run. Each action of step 3 may be repeated.

New files of an archive are renamed into it one by one. A directory whose small files became larger
ones is exchanged as a whole by one system call (`RENAME_EXCHANGE`, Linux): a listing shows either
the old files or the new ones. A reader that has listed the old ones and opens them later gets a "no
such file", never wrong rows. The old directory is emptied some seconds later, because a running
listing still reads it. If the kernel or the file system cannot exchange, two renames are used,
between which the directory is missing for an instant.

A lock on `_sparrow/lock` lets one process change the directory at a time. All paths are relative to
the directory, and inside it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import Conflict, InvalidArgument
from sparrow.pipelines.builtin import manifest as manifests
from sparrow.pipelines.builtin.manifest import Manifest, check_inside

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE: Final = "_sparrow"
STAGED_SUFFIX: Final = ".staged"
_MANIFEST: Final = "manifest.json"
_JOURNAL: Final = "journal.json"
_LOCK: Final = "lock"
_STAGED: Final = "staged"
LISTING_S: Final = 2.0
"""Seconds that a listing of a directory may take."""
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


class Move(msgspec.Struct, frozen=True):
    """A file to be renamed."""

    source: str
    target: str


class Exchange(msgspec.Struct, frozen=True):
    """A directory to be exchanged with another one."""

    prepared: str
    live: str
    marker: str
    """A name that only the prepared directory has; it shows whether they were already exchanged."""


class ExchangeJournal(msgspec.Struct, frozen=True):
    """A decided change."""

    run: str
    moves: list[Move] = []
    exchanges: list[Exchange] = []
    manifest: Manifest | None = None
    version: int = 1


class TableDirectory:
    """A directory of Parquet files, with Sparrow's own files in `_sparrow`. One thread at a
    time.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.state = os.path.join(self.root, STATE)

    @property
    def manifest_path(self) -> str:
        """Return the path of the manifest, which need not exist."""
        return os.path.join(self.state, _MANIFEST)

    @property
    def is_archive(self) -> bool:
        """Return True if there is a manifest, or a decided change that brings one."""
        return os.path.exists(self.manifest_path) or os.path.exists(os.path.join(self.state, _JOURNAL))

    def path(self, relative: str) -> str:
        """Return the absolute path of a relative one."""
        return os.path.join(self.root, *relative.split("/"))

    def staged(self, run: str) -> str:
        """Return the directory into which a run writes, relative to this directory."""
        return f"{STATE}/{_STAGED}/{run}"

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    def maybe_manifest(self) -> Manifest | None:
        """Return the manifest, or None if the directory is not an archive.

        Raises:
            InvalidArgument: the manifest cannot be read.
        """
        try:
            with open(self.manifest_path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
        return manifests.decode(data, self.manifest_path)

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Lock the directory for reading by its manifest, so that no process compacts it meanwhile.

        Raises:
            Conflict: another process changes it now.
            InvalidArgument: a decided change is not finished, and this process may not finish it.
        """
        if os.path.exists(os.path.join(self.state, _JOURNAL)):
            if not os.access(self.state, os.W_OK):
                raise InvalidArgument(
                    f"{self.root} is in the middle of a change that this user may not finish; run "
                    "the archive or compact-table again that made it"
                )
            with self.exclusive():
                pass
        with self._locked(fcntl.LOCK_SH):
            yield

    # ── changing ──────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the directory for a change. Finish or remove an interrupted change first.

        Raises:
            Conflict: another process changes or reads it now.
        """
        os.makedirs(self.state, exist_ok=True)
        with self._locked(fcntl.LOCK_EX):
            self._recover()
            yield

    @contextlib.contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        path = os.path.join(self.state, _LOCK)
        try:
            # O_CREAT of a file that exists needs no right to write the directory.
            flags = os.O_RDWR | os.O_CREAT if kind == fcntl.LOCK_EX else os.O_RDONLY
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            yield  # A read-only directory that was never locked.
            return
        try:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(
                    f"another archive, replay or compact-table is at work in {self.root}; try "
                    "again when it is done"
                ) from None
            yield
        finally:
            os.close(descriptor)

    def commit(self, journal: ExchangeJournal) -> None:
        """Decide a change and carry it out. The caller holds `exclusive`, and all files that the
        journal names are synced.
        """
        _write_durably(os.path.join(self.state, _JOURNAL), msgspec.json.encode(journal))
        self._roll_forward(journal)

    def _recover(self) -> None:
        try:
            with open(os.path.join(self.state, _JOURNAL), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            pass
        else:
            self._roll_forward(self._decoded(data))
        shutil.rmtree(os.path.join(self.state, _STAGED), ignore_errors=True)

    def _decoded(self, data: bytes) -> ExchangeJournal:
        where = os.path.join(self.state, _JOURNAL)
        try:
            journal = msgspec.json.decode(data, type=ExchangeJournal)
        except msgspec.DecodeError as error:
            raise InvalidArgument(f"{where} cannot be read: {error}") from None
        for path in (
            *(path for move in journal.moves for path in (move.source, move.target)),
            *(path for each in journal.exchanges for path in (each.prepared, each.live)),
        ):
            check_inside(path, where)
        return journal

    def _roll_forward(self, journal: ExchangeJournal) -> None:
        for move in journal.moves:
            self._move(move)
        for exchange in journal.exchanges:
            self._exchange(exchange)
        for directory in {os.path.dirname(self.path(move.target)) for move in journal.moves}:
            _sync_directory(directory)
        if journal.manifest is not None:
            _write_durably(self.manifest_path, manifests.encode(journal.manifest))
        os.unlink(os.path.join(self.state, _JOURNAL))
        _sync_directory(self.state)
        if journal.exchanges:
            time.sleep(LISTING_S)
        shutil.rmtree(self.path(self.staged(journal.run)), ignore_errors=True)

    def _move(self, move: Move) -> None:
        source, target = self.path(move.source), self.path(move.target)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        try:
            os.rename(source, target)
        except FileNotFoundError:
            if not os.path.exists(target):
                raise

    def _exchange(self, exchange: Exchange) -> None:
        prepared, live = self.path(exchange.prepared), self.path(exchange.live)
        if os.path.exists(os.path.join(live, exchange.marker)):
            return
        aside = f"{prepared}.old"
        if os.path.isdir(live) and not _maybe_exchanged(prepared, live):
            os.rename(live, aside)
        if not os.path.exists(os.path.join(live, exchange.marker)):
            os.rename(prepared, live)
        _sync_directory(os.path.dirname(live))


def _maybe_exchanged(one: str, other: str) -> bool:
    """Exchange two directories in one step. Return False if the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), other)


def _write_durably(path: str, data: bytes) -> None:
    """Replace a file in one step."""
    fresh = f"{path}.new"
    with open(fresh, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    _sync_directory(os.path.dirname(path))


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ── a table whose files lie in the directory itself ───────────────────────────────────────────────


def root_sibling(table: TableDirectory, run: str) -> str:
    """Return the path for a copy of the whole table. It is beside the table, because a directory
    cannot be exchanged with one inside it.
    """
    parent, name = os.path.split(table.root)
    return os.path.join(parent, f".{name}.sparrow-{run}")


def remove_leftovers(table: TableDirectory) -> None:
    """Remove copies of the whole table that an interrupted run left: the new files before the
    exchange, the old ones after it.
    """
    parent, name = os.path.split(table.root)
    for entry in os.listdir(parent):
        if entry.startswith(f".{name}.sparrow-"):
            shutil.rmtree(os.path.join(parent, entry), ignore_errors=True)


def exchange_root(table: TableDirectory, prepared: str) -> None:
    """Exchange the whole table with a copy of it, in one step and without a journal.

    Raises:
        InvalidArgument: the system cannot do it in one step.
    """
    state = os.path.join(prepared, STATE)
    os.makedirs(state)
    # Link the lock into the copy, so that processes that wait for it keep waiting.
    os.link(os.path.join(table.state, _LOCK), os.path.join(state, _LOCK))
    _sync_directory(prepared)
    if not _maybe_exchanged(prepared, table.root):
        shutil.rmtree(prepared, ignore_errors=True)
        raise InvalidArgument(
            f"{table.root} has its files in no directories, and this file system cannot exchange "
            "it as a whole; compact it on a local disk of Linux"
        )
    _sync_directory(os.path.dirname(table.root))
    time.sleep(LISTING_S)
    shutil.rmtree(prepared, ignore_errors=True)
