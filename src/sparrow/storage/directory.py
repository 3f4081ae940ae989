"""The data directory: its owner, its format, and the mark of a clean shutdown.

    <path>/format   text: "sparrow data directory" newline "version: 2" newline
    <path>/.lock    an exclusive flock while a broker runs; contains its process id, decimal
    <path>/.clean   exists while no broker runs and everything is on stable storage: removed
                    at start, written at close
    <path>/meta.db  the meta store's file
    <path>/journal/ the journal, see `local_journal`
    <path>/logs/    the logs, see `names`

Version 1 had no journal. A directory of that version becomes one of version 2 when it is opened, so
that an older Sparrow refuses it: it would not see what is in the journal alone.

The lock is the kernel's, so it ends with the process, however that ends. To change the format:
raise `VERSION`, describe the difference here, convert at open, and keep a directory of the old
version in the tests.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from sparrow.base.errors import DirectoryInUse, DirectoryUnreadable, NewerFormat
from sparrow.storage.filesystem import read_file, replace_file, write_all
from sparrow.storage.names import JOURNAL_DIRECTORY, LOGS_DIRECTORY

if TYPE_CHECKING:
    from sparrow.storage.filesystem import FileSystem

VERSION = 2
_TITLE = "sparrow data directory"
_FORMAT = f"{_TITLE}\nversion: {VERSION}\n".encode()


class DataDirectory:
    """A data directory that this process owns until `release`."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        """Lock the directory, creating it when missing. Blocking.

        Raises:
            DirectoryInUse: another process owns it.
            NewerFormat: a later Sparrow wrote it.
            DirectoryUnreadable: it cannot be read or written, or is something else.
        """
        self.path = os.path.abspath(path)
        self._fs = fs
        try:
            self._make()
            self._lock_fd = self._lock()
        except OSError as error:
            raise _unreadable(self.path, error) from error
        try:
            self._check_format()
            self.was_clean = self._take_clean_marker()
        except OSError as error:
            fs.close(self._lock_fd)
            raise _unreadable(self.path, error) from error
        except BaseException:
            fs.close(self._lock_fd)
            raise

    @property
    def logs(self) -> str:
        return f"{self.path}/{LOGS_DIRECTORY}"

    def release(self, *, clean: bool) -> None:
        """Release the directory; `clean` says that everything in it is on stable storage and
        complete.

        Raises:
            OSError: the marker cannot be written; the directory is released nevertheless.
        """
        try:
            if clean:
                replace_file(self._fs, f"{self.path}/.clean", b"clean\n")
        finally:
            self._fs.close(self._lock_fd)

    def _make(self) -> None:
        for path in _missing(self._fs, self.path):
            self._fs.mkdir(path)
            self._fs.sync_dir(os.path.dirname(path) or "/")

    def _lock(self) -> int:
        path = f"{self.path}/.lock"
        fd = self._fs.lock(path)
        if fd is None:
            owner = (read_file(self._fs, path) or b"").decode("ascii", "replace").strip() or "unknown"
            raise DirectoryInUse(
                f"the data directory {self.path} is in use by process {owner}; "
                f"stop that broker or give this one another directory"
            )
        self._fs.truncate(fd, 0)
        write_all(self._fs, fd, [b"%d\n" % os.getpid()], 0)
        return fd

    def _check_format(self) -> None:
        path = f"{self.path}/format"
        data = read_file(self._fs, path)
        if data is None:
            self._refuse_foreign()
            self._fs.mkdir(self.logs)
            with contextlib.suppress(PermissionError):
                # A start that was killed may have created the directory without syncing its name.
                self._fs.sync_dir(os.path.dirname(self.path) or "/")
            replace_file(self._fs, path, _FORMAT)
            return
        check_version(path, data)
        self._fs.mkdir(self.logs)
        if data != _FORMAT:
            replace_file(self._fs, path, _FORMAT)

    def _refuse_foreign(self) -> None:
        """Refuse a directory with other files in it: most likely the path is wrong."""
        ours = {".lock", JOURNAL_DIRECTORY, LOGS_DIRECTORY, "format.tmp", "lost+found"}
        foreign = [
            name
            for name in self._fs.listdir(self.path)
            if name not in ours and not name.startswith("meta.db")
        ]
        if foreign:
            raise DirectoryUnreadable(
                f"{self.path} has no `format` file but holds {foreign[0]!r}, so it is not a "
                "Sparrow data directory; "
                f"give an empty or a new one"
            )

    def _take_clean_marker(self) -> bool:
        path = f"{self.path}/.clean"
        was_clean = self._fs.size(path) is not None
        if was_clean:
            self._fs.unlink(path)
        # A start that was killed may have created `format` and `logs` without syncing their names.
        self._fs.sync_dir(self.path)
        return was_clean


def check_version(path: str, data: bytes) -> None:
    """Check the content of a `format` file.

    Raises:
        NewerFormat: a later Sparrow wrote it.
        DirectoryUnreadable: it is something else.
    """
    title, _, rest = data.decode("utf-8", "replace").partition("\n")
    version = rest.strip().removeprefix("version: ")
    if title != _TITLE or not version.isdecimal():
        raise DirectoryUnreadable(
            f"{path} is damaged or not Sparrow's; restore it or give another data directory"
        )
    if int(version) > VERSION:
        raise NewerFormat(
            f"the data directory has format {version} (in {path}), this Sparrow reads up to {VERSION}; "
            f"start the newer Sparrow that wrote it"
        )


def _missing(fs: FileSystem, path: str) -> list[str]:
    """Return the directories to create so that `path` exists, outermost first."""
    found: list[str] = []
    while path not in ("", "/") and fs.size(path) is None:
        found.insert(0, path)
        path = os.path.dirname(path)
    return found


def _unreadable(path: str, error: OSError) -> DirectoryUnreadable:
    reason = error.strerror or str(error)
    advice = {
        errno.EACCES: "make it readable and writable for this user",
        errno.EPERM: "make it readable and writable for this user",
        errno.EROFS: "the device is mounted read-only",
        errno.ENOTDIR: "a part of the path is a file",
        errno.ENOSPC: "the device is full; free some space",
    }.get(error.errno or 0, "check the path and the device")
    return DirectoryUnreadable(f"the data directory {path} cannot be used: {reason}; {advice}")
