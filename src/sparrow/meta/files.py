"""What the meta store does to files beside SQLite, which does the rest; and by which of SQLite's file systems.

A seam as `storage.filesystem` is one for the logs: with another implementation, and an SQLite VFS that goes with it, the whole store lies on something else than
the operating system's files.
"""

from __future__ import annotations

import os
from typing import Protocol
from urllib.parse import quote


class Files(Protocol):
    """Errors are `OSError`."""

    def uri(self, path: str) -> str:
        """What SQLite is to open for a path (https://sqlite.org/uri.html)."""
        ...

    def prepare(self, path: str) -> None:
        """Make the file and its directory where they are missing."""
        ...

    def extend(self, path: str, size: int) -> None:
        """Give an existing file zeros up to a size at least, on stable storage."""
        ...

    def free_bytes(self, path: str) -> int:
        """Room on the device of a file."""
        ...


class LocalFiles:
    """The operating system's."""

    def uri(self, path: str) -> str:
        return f"file:{quote(os.fsencode(os.path.abspath(path)))}"

    def prepare(self, path: str) -> None:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        # It holds what passwords can be guessed against. SQLite gives its other files the same mode.
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
