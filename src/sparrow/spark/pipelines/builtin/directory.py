"""A table's directory, changed so that plain Parquet readers see every row once, and a crash at any point leaves it repairable.

What is being written lies in `_sparrow/` inside it, where readers of Parquet directories do not look (names that begin with `_` or `.` are not data), and its files
end in `.staged` for those that look at names only. A change goes in three steps:

1. all new files are written and synced there;
2. a journal is put in place by one rename. That is the moment at which the change is decided;
3. what the journal says is done: files and directories are renamed, the manifest is replaced, the journal is removed.

A crash before 2 leaves rubbish in `_sparrow/staged`, which the next run removes; a crash after 2 is rolled forward by the next run. Each step of 3 may be done twice.

New files of an archive are moved into place one by one. A directory whose small files became larger ones is exchanged as a whole by one call of the kernel
(`RENAME_EXCHANGE`, Linux): a listing shows the old files or the new ones. Who has listed the old ones and opens them later gets a "no such file", never wrong rows.
The old directory is emptied some seconds later, because a listing that had begun still reads it.
Where the kernel or the file system cannot exchange, two renames do, with an instant between them in which the directory is missing.

A lock on `_sparrow/lock` lets one process change the directory at a time. The rule holds for all paths: they are relative to the directory, and inside it.
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
from sparrow.spark.pipelines.builtin import manifest as manifests
from sparrow.spark.pipelines.builtin.manifest import Manifest, check_inside

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE: Final = "_sparrow"
STAGED_SUFFIX: Final = ".staged"
_MANIFEST: Final = "manifest.json"
_JOURNAL: Final = "journal.json"
_LOCK: Final = "lock"
_STAGED: Final = "staged"
LISTING_S: Final = 2.0
"""How long a listing of a directory may take."""
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


class Move(msgspec.Struct, frozen=True):
    """A file that goes to its place."""

    source: str
    target: str


class Exchange(msgspec.Struct, frozen=True):
    """A directory that takes the place of another one."""

    prepared: str
    live: str
    marker: str
    """A name that only the prepared one has, by which one sees whether they were exchanged already."""


class Journal(msgspec.Struct, frozen=True):
    """A change that was decided."""

    run: str
    moves: list[Move] = []
    exchanges: list[Exchange] = []
    manifest: Manifest | None = None
    version: int = 1


class TableDirectory:
    """A directory of Parquet files, with what Sparrow keeps about it in `_sparrow`. One thread at a time."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.state = os.path.join(self.root, STATE)

    @property
    def manifest_path(self) -> str:
        """Where the manifest is, if there is one."""
        return os.path.join(self.state, _MANIFEST)

    @property
    def is_archive(self) -> bool:
        """Whether there is a manifest, or a change that was decided and brings one."""
        return os.path.exists(self.manifest_path) or os.path.exists(os.path.join(self.state, _JOURNAL))

    def path(self, relative: str) -> str:
        """Of something inside."""
        return os.path.join(self.root, *relative.split("/"))

    def staged(self, run: str) -> str:
        """Where a run writes, relative to the directory."""
        return f"{STATE}/{_STAGED}/{run}"

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    def maybe_manifest(self) -> Manifest | None:
        """What is in the archive; None: it is none.

        Raises:
            InvalidArgument: what lies there is no manifest that can be read.
        """
        try:
            with open(self.manifest_path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
        return manifests.decode(data, self.manifest_path)

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """While the directory is read by its manifest: nobody compacts it meanwhile.

        Raises:
            Conflict: somebody changes it now.
            InvalidArgument: a change was decided and not finished, and this process may not finish it.
        """
        if os.path.exists(os.path.join(self.state, _JOURNAL)):
            if not os.access(self.state, os.W_OK):
                raise InvalidArgument(
                    f"{self.root} is in the middle of a change that this user may not finish; run the archive or compact-table again that made it"
                )
            with self.exclusive():
                pass
        with self._locked(fcntl.LOCK_SH):
            yield

    # ── changing ──────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """While the directory is changed. What an interrupted change left is finished or removed first.

        Raises:
            Conflict: somebody else changes or reads it now.
        """
        os.makedirs(self.state, exist_ok=True)
        with self._locked(fcntl.LOCK_EX):
            self._recover()
            yield

    @contextlib.contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        path = os.path.join(self.state, _LOCK)
        try:
            # O_CREAT of a file that is there needs no right to write the directory.
            flags = os.O_RDWR | os.O_CREAT if kind == fcntl.LOCK_EX else os.O_RDONLY
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            yield  # a read-only directory that nobody ever locked
            return
        try:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(
                    f"another archive, replay or compact-table is at work in {self.root}; try again when it is done"
                ) from None
            yield
        finally:
            os.close(descriptor)

    def commit(self, journal: Journal) -> None:
        """Decide a change and do it. The caller holds `exclusive`, and all files that the journal names are synced."""
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

    def _decoded(self, data: bytes) -> Journal:
        where = os.path.join(self.state, _JOURNAL)
        try:
            journal = msgspec.json.decode(data, type=Journal)
        except msgspec.DecodeError as error:
            raise InvalidArgument(f"{where} cannot be read: {error}") from None
        for path in (
            *(path for move in journal.moves for path in (move.source, move.target)),
            *(path for each in journal.exchanges for path in (each.prepared, each.live)),
        ):
            check_inside(path, where)
        return journal

    def _roll_forward(self, journal: Journal) -> None:
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
    """Exchange two directories in one step; False: the system cannot."""
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
    """Where a copy of the whole table is made: beside it, as a directory cannot change places with one inside it."""
    parent, name = os.path.split(table.root)
    return os.path.join(parent, f".{name}.sparrow-{run}")


def remove_leftovers(table: TableDirectory) -> None:
    """Copies of the whole table that an interrupted run left: the new files before the exchange, the old ones after it."""
    parent, name = os.path.split(table.root)
    for entry in os.listdir(parent):
        if entry.startswith(f".{name}.sparrow-"):
            shutil.rmtree(os.path.join(parent, entry), ignore_errors=True)


def exchange_root(table: TableDirectory, prepared: str) -> None:
    """Let a copy of the whole table take its place, in one step. There is no journal: it is done or not.

    Raises:
        InvalidArgument: the system cannot do it in one step.
    """
    state = os.path.join(prepared, STATE)
    os.makedirs(state)
    # The lock goes along, so that whoever waits for it waits on.
    os.link(os.path.join(table.state, _LOCK), os.path.join(state, _LOCK))
    _sync_directory(prepared)
    if not _maybe_exchanged(prepared, table.root):
        shutil.rmtree(prepared, ignore_errors=True)
        raise InvalidArgument(
            f"{table.root} has its files in no directories, and this file system cannot exchange it as a whole; compact it on a local disk of Linux"
        )
    _sync_directory(os.path.dirname(table.root))
    time.sleep(LISTING_S)
    shutil.rmtree(prepared, ignore_errors=True)
