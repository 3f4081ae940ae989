"""The file system as the storage uses it, and the local one.

Everything that `storage/` does to a disk goes through this protocol, so that
`faulty.FaultyFileSystem` can fail it by seed. It is a thin cut of POSIX: every fault of a disk (it
writes less than requested, fails, is full, forgets what was not synced) shows at this seam and is
handled above it. Errors are `OSError`; `translate` converts them to Sparrow's at the border of the
storage.

Descriptors are plain integers and belong to the file system that gave them. All methods may be
called from any thread.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sparrow.base.errors import DiskFull, Overloaded, StorageFailed
from sparrow.storage.direct_writes import DirectWrites

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator, Sequence

    from sparrow.base.errors import SparrowError

Buffer = bytes | bytearray | memoryview
IOV_MAX = 1024
"""Buffers per vectored write; what Linux and macOS take."""

BLOCK_BYTES: Final = 4096
"""The unit of `write_synced`."""

PROBE_BYTES = 64 << 10
"""A larger read tests one byte of this many for blocking, and is then done as a whole."""

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_WOULD_BLOCK = frozenset({errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class Space(NamedTuple):
    """Free space of the device, in bytes."""

    free_bytes: int
    total_bytes: int


class FileSystem(Protocol):
    """The interface that the storage needs. Errors are `OSError`."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        """Return a descriptor for reading, or for both with `write`; `create` creates a missing
        file.
        """
        ...

    def close(self, fd: int) -> None: ...

    def write_at(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """Write at most `IOV_MAX` buffers back to back. Return the number of bytes written, which
        may be less than given.
        """
        ...

    def read_at(self, fd: int, size: int, position: int) -> bytes:
        """Read at most `size` bytes; fewer only at the end of the file. May block."""
        ...

    def read_at_nowait(self, fd: int, size: int, position: int) -> memoryview | None:
        """Read as `read_at`, but only what is in memory already, so it may return fewer bytes; None
        if the first would block.
        """
        ...

    def sync(self, fd: int) -> None:
        """Put the file's bytes and size on stable storage (fdatasync)."""
        ...

    def open_synced(self, path: str) -> int:
        """Return a descriptor of an existing file for `write_synced`."""
        ...

    def write_synced(self, fd: int, data: memoryview, position: int) -> None:
        """Write whole blocks of `BLOCK_BYTES`, which are on stable storage when the call returns.

        `data` begins at a page of memory and `position` at a block; the file has these blocks
        already, so that no metadata changes.
        """
        ...

    def direct_writes(self, fd: int, loop: asyncio.AbstractEventLoop) -> DirectWrites | None:
        """Return writes as those of `write_synced` that go on while the loop works; None if this
        system has none for this descriptor. On the loop.
        """
        ...

    def sync_dir(self, path: str) -> None:
        """Put the names in a directory on stable storage."""
        ...

    def truncate(self, fd: int, size: int) -> None: ...

    def size(self, path: str) -> int | None:
        """Return the file's size in bytes; None if there is no such file."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty if there is no such directory."""
        ...

    def mkdir(self, path: str) -> None:
        """Create a directory; its parent exists, and it may exist itself."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename atomically; a file at `target` is replaced."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is no error."""
        ...

    def rmdir(self, path: str) -> None: ...

    def space(self, path: str) -> Space: ...

    def lock(self, path: str) -> int | None:
        """Take the exclusive lock of the file at `path`, creating the file when missing; return
        None if another process has it. Closing the descriptor releases it; so does the end of the
        process.
        """
        ...


DIRECTORY_MODE: Final = 0o700
"""Default permissions of the data directory: its owner only."""
_NOT_EXECUTABLE: Final = 0o666


class LocalFileSystem:
    """The operating system's files.

    Args:
        mode: permissions of new directories; new files have the same without the right to execute.
            The umask of the process reduces them.
    """

    def __init__(self, mode: int = DIRECTORY_MODE) -> None:
        self._mode = mode

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return os.open(path, flags, self._mode & _NOT_EXECUTABLE)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write_at(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        return os.pwritev(fd, buffers, position)

    def read_at(self, fd: int, size: int, position: int) -> bytes:
        data = os.pread(fd, size, position)
        if len(data) == size or not data:
            return data
        # A short read is the end of the file or a signal; the next one shows which.
        return data + self.read_at(fd, size - len(data), position + len(data))

    if hasattr(os, "RWF_NOWAIT"):

        def read_at_nowait(self, fd: int, size: int, position: int) -> memoryview | None:
            # A new buffer is zeroed before it is read into, which costs a third of a large read;
            # `pread` does without, but has no flag against waiting. So a large read first tests
            # whether its pages are there, at every stride.
            resident = size if size <= PROBE_BYTES else _resident(fd, size, position)
            if resident > PROBE_BYTES:
                return memoryview(os.pread(fd, resident, position))
            return _read_nowait(fd, min(size, PROBE_BYTES), position)

    else:  # macOS does not say whether a read would block, so every read goes to a thread

        def read_at_nowait(self, fd: int, size: int, position: int) -> memoryview | None:
            del fd, size, position
            return None

    if hasattr(os, "fdatasync"):

        def sync(self, fd: int) -> None:
            os.fdatasync(fd)

    else:

        def sync(self, fd: int) -> None:
            # fsync on macOS stops at the drive's cache; F_FULLFSYNC goes through it.
            fcntl.fcntl(fd, getattr(fcntl, "F_FULLFSYNC"))  # noqa: B009 - unknown to Linux's types

    if hasattr(os, "O_DIRECT"):

        def open_synced(self, path: str) -> int:
            # A direct write with O_DSYNC is one command to the device, where a write and an
            # fdatasync are two, and takes half the time.
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_DSYNC
            try:
                return os.open(path, flags | os.O_DIRECT)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                return os.open(path, flags)  # as on tmpfs

        def write_synced(self, fd: int, data: memoryview, position: int) -> None:
            write_all(self, fd, [data], position)

    else:

        def open_synced(self, path: str) -> int:
            return self.open(path, write=True)

        def write_synced(self, fd: int, data: memoryview, position: int) -> None:
            write_all(self, fd, [data], position)
            self.sync(fd)

    def direct_writes(self, fd: int, loop: asyncio.AbstractEventLoop) -> DirectWrites | None:
        if DirectWrites.takes(fd):
            with contextlib.suppress(OSError):
                return DirectWrites(loop)
        return None

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def size(self, path: str) -> int | None:
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return None

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def mkdir(self, path: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, self._mode)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def space(self, path: str) -> Space:
        stat = os.statvfs(path)
        return Space(stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize)

    def lock(self, path: str) -> int | None:
        fd = self.open(path, write=True, create=True)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd


def _read_nowait(fd: int, size: int, position: int) -> memoryview | None:
    buffer = bytearray(size)
    try:
        count = os.preadv(fd, (buffer,), position, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno in _WOULD_BLOCK:
            return None
        raise
    return memoryview(buffer)[:count]


def _resident(fd: int, size: int, position: int) -> int:
    """Return how many of the `size` bytes at `position` are in the page cache, by one byte of every
    stride.
    """
    probe = (bytearray(1),)
    places: list[int] = [*range(0, size, PROBE_BYTES), size - 1]
    for inside in places:
        try:
            os.preadv(fd, probe, position + inside, os.RWF_NOWAIT)
        except OSError:
            return inside
    return size


def write_all(fs: FileSystem, fd: int, buffers: Sequence[Buffer], position: int) -> None:
    """Write all buffers back to back at `position`, continuing after short writes.

    Raises:
        OSError: the device refused; what was written before stays, and the caller cuts it away.
    """
    rest: Sequence[Buffer] = buffers
    while rest:
        window = rest if len(rest) <= IOV_MAX else rest[:IOV_MAX]
        written = fs.write_at(fd, window, position)
        if written <= 0:
            raise OSError(errno.EIO, "the device took no bytes")
        rest = rest[len(window) :] if written == sum(map(len, window)) else _after(rest, written)
        position += written


def _after(buffers: Sequence[Buffer], count: int) -> list[Buffer]:
    """Return the buffers without their first `count` bytes."""
    for number, buffer in enumerate(buffers):
        if count < len(buffer):
            return [memoryview(buffer)[count:], *buffers[number + 1 :]]
        count -= len(buffer)
    return []


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Add the file's name to the system's errors of the block, where it is missing."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise


def read_file(fs: FileSystem, path: str) -> bytes | None:
    """Return the content of a small file; None if there is none."""
    size = fs.size(path)
    if size is None:
        return None
    fd = fs.open(path)
    try:
        with naming(path):
            return fs.read_at(fd, size, 0)
    finally:
        fs.close(fd)


def replace_file(fs: FileSystem, path: str, data: bytes) -> None:
    """Replace a small file so that after any crash either the old or the new content is there,
    whole.

    Temporary file, sync, rename, sync of the directory: durable when it returns.
    """
    temporary = f"{path}.tmp"
    fd = fs.open(temporary, write=True, create=True)
    try:
        fs.truncate(fd, 0)
        write_all(fs, fd, [data] if data else [], 0)
        fs.sync(fd)
    except OSError:
        with contextlib.suppress(OSError):
            fs.unlink(temporary)
        raise
    finally:
        fs.close(fd)
    fs.rename(temporary, path)
    fs.sync_dir(os.path.dirname(path))


def remove_tree(fs: FileSystem, path: str) -> None:
    """Remove a directory of files (no directories inside)."""
    for name in fs.listdir(path):
        fs.unlink(f"{path}/{name}")
    fs.rmdir(path)


def is_disk_full(error: OSError) -> bool:
    """Return True if the device (or the user's quota on it) is full."""
    return error.errno in _NO_ROOM


def translate(error: OSError, doing: str, path: str) -> SparrowError:
    """Return the error to raise above the storage for one of the operating system."""
    reason = error.strerror or str(error)
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return Overloaded(f"{doing} {path} failed: {reason}. Raise the limit of open files (ulimit -n)")
    if is_disk_full(error):
        return DiskFull(f"{doing} {path} failed: {reason}. Free some space on that device; nothing was lost")
    return StorageFailed(f"{doing} {path} failed: {reason}. Check the device and restart the broker")
