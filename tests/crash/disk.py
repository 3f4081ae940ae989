"""A small disk that can be filled and freed: a tmpfs, which root may mount."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STEP_BYTES = 8 << 20


class SmallDisk:
    """A separate file system. `fill` uses up the space with a file, as another program on the same
    disk would.
    """

    def __init__(self, where: Path) -> None:
        self.where = where
        self._filler = where / "filler"

    def fill(self, left_bytes: int) -> None:
        with self._filler.open("wb") as filler:
            size, step = 0, _STEP_BYTES
            while step := min(step, self._room_bytes() - left_bytes):
                if step < 0:
                    return
                try:
                    os.posix_fallocate(filler.fileno(), size, step)
                    size += step
                except OSError:  # the broker was faster
                    step //= 2

    def _room_bytes(self) -> int:
        room = os.statvfs(self.where)
        return room.f_bavail * room.f_frsize

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)


class NoDisk(Exception):
    """No small disk is available, for the given reason."""


@contextmanager
def small_disk(where: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Yield a small disk. Raise NoDisk if none can be mounted."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        raise NoDisk("only root may mount a small file system")
    where.mkdir()
    options = f"size={size_bytes}"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(where)], capture_output=True, check=False
    )
    if mounted.returncode:
        raise NoDisk(f"a tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield SmallDisk(where)
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)
