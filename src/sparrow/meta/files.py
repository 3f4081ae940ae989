"""The file operations of the meta store beside SQLite's own, and the choice of SQLite's file
system.

A seam as `storage.filesystem` is one for the logs: with another implementation, and an SQLite VFS
that goes with it, the whole store can use other files than the operating system's.
"""

from __future__ import annotations

import os
from typing import Protocol
from urllib.parse import quote


class Files(Protocol):
    """The interface to files. Errors are `OSError`."""

    def uri(self, path: str) -> str:
        """Return the URI that SQLite opens for a path (https://sqlite.org/uri.html)."""
        ...

    def prepare(self, path: str) -> None:
        """Create the file and its directory where they are missing."""
        ...

    def extend(self, path: str, size: int) -> None:
        """Extend an existing file with zeros to at least a size, on stable storage."""
        ...

    def free_bytes(self, path: str) -> int:
        """Return the free space on the device of a file."""
        ...


class LocalFiles:
    """The operating system's files."""

    def uri(self, path: str) -> str:
        return f"file:{quote(os.fsencode(os.path.abspath(path)))}"

    def prepare(self, path: str) -> None:
        os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
        # The file contains password hashes. SQLite gives its other files the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def extend(self, path: str, size: int) -> None:
        with open(path, "r+b", buffering=0) as file:
            missing = size - file.seek(0, os.SEEK_END)
            while missing > 0:
                missing -= file.write(bytes(missing))
            os.fsync(file.fileno())

    def free_bytes(self, path: str) -> int:
        device = os.statvfs(os.path.dirname(os.path.abspath(path)))
        return device.f_bavail * device.f_frsize
