"""A file system in memory that fails by seed: the public fake of `filesystem.FileSystem`.

    fs = FaultyFileSystem(seed=7, short_writes=0.1)
    …                  # run a store on it
    fs.crash()         # the machine loses power: what was not synced is lost, in part or torn
    …                  # open the store again and compare with what it had promised

It models what POSIX allows:

* written bytes are in the page cache until `sync`; at a crash every page of them may have reached
  the disk or not, and a page behind the last synced size may be zeros or garbage; the file may have
  any size between the synced and the current one;
* names (new files, renames, removals) are in the cache until `sync_dir` of their directory; at a
  crash each may have happened or not (by seed: a prefix of them, as on a journaling file system, or
  any part);
* a failed `sync` drops the pages: the next one succeeds without them (Linux);
* `kill` ends the process alone: descriptors and locks are gone, the cache stays.

* damage that no crash explains: bytes that change (`corrupt`), files that are gone (`lose`) or end
  early (`lose_end`).

Faults are switched on by attributes, which a test may change at any time. Probabilities are per
call. The same seed and the same calls give the same faults. Thread-safe, but calls from several
threads have no fixed order.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrow.storage.filesystem import BLOCK_BYTES, Space, write_all

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from sparrow.storage.filesystem import Buffer

PAGE_BYTES = 512
"""The unit of a disk's writes."""
DEVICE_BYTES = 1 << 40


class _File:
    """The bytes of one file: as the process sees them, and as the disk has them."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.dirty: list[tuple[int, int]] = []

    def write(self, data: bytes, position: int) -> None:
        end = position + len(data)
        if position > len(self.data):
            self.data += bytes(position - len(self.data))
        self.data[position:end] = data
        self.dirty.append((position, end))

    def truncate(self, size: int) -> None:
        if size < len(self.data):
            del self.data[size:]
            self.dirty = [(start, min(end, size)) for start, end in self.dirty if start < size]
        else:
            self.dirty.append((len(self.data), size))
            self.data += bytes(size - len(self.data))

    def sync(self) -> None:
        _resize(self.durable, len(self.data))
        for start, end in self.dirty:
            self.durable[start:end] = self.data[start:end]
        self.dirty.clear()

    def crash(self, rng: random.Random) -> None:
        """Keep what was synced and, by chance, parts of the rest."""
        synced = len(self.durable)
        survived = bytearray(self.durable)
        if self.dirty or synced != len(self.data):
            _resize(survived, rng.randint(*sorted((synced, len(self.data)))))
        for page in sorted({page for start, end in self.dirty for page in _pages(start, end)}):
            self._crash_page(survived, page, synced, rng)
        self.data, self.durable, self.dirty = survived, bytearray(survived), []

    def _crash_page(self, survived: bytearray, page: int, synced: int, rng: random.Random) -> None:
        end = min(page + PAGE_BYTES, len(survived), len(self.data))
        if page >= end:
            return
        fate = rng.random()
        if fate < 0.5:
            survived[page:end] = self.data[page:end]
        elif fate < 0.6 and page >= synced:
            survived[page:end] = rng.randbytes(end - page)


def _resize(data: bytearray, size: int) -> None:
    del data[size:]
    data += bytes(size - len(data))


def _pages(start: int, end: int) -> range:
    return range(start - start % PAGE_BYTES, end, PAGE_BYTES)


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of names that is not on the disk yet: `node` leaves `source` (if any) and appears at
    `target` (if any).
    """

    node: _Node
    source: str = ""
    target: str = ""
    parent: _Node | None = None
    """The directory in which a new name appears: it may be removed, and another take its path,
    before the change is on the disk.
    """

    @property
    def directories(self) -> set[str]:
        return {os.path.dirname(path) for path in (self.source, self.target) if path}


class _Directory:
    """A directory in the tree; its names are found by their paths."""


_Node = _File | _Directory


class FaultyFileSystem:
    """A simulated file system, see the module's text. Paths are absolute."""

    def __init__(
        self,
        seed: int = 0,
        *,
        short_writes: float = 0.0,
        write_errors: float = 0.0,
        read_errors: float = 0.0,
        sync_errors: float = 0.0,
        would_block: float = 0.0,
        capacity_bytes: int = DEVICE_BYTES,
    ) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self.short_writes = short_writes
        """Probability that a write takes only a part."""
        self.write_errors = write_errors
        """Probability that a write fails with EIO after taking a part."""
        self.read_errors = read_errors
        self.sync_errors = sync_errors
        self.would_block = would_block
        """Probability that a read without waiting finds nothing in memory."""
        self.capacity_bytes = capacity_bytes
        """Size of the device; a write beyond it fails with ENOSPC after taking what fits."""
        self.calls_left: int | None = None
        """Number of changing calls after which the device is gone: each later one fails with EIO.
        Used to stop at every step.
        """
        self.read_bytes: dict[str, int] = {}
        """Bytes read so far, by path."""
        self.syncs = 0
        """Successful `sync` calls."""
        self._nodes: dict[str, _Node] = {"/": _Directory()}
        self._durable_nodes: dict[str, _Node] = dict(self._nodes)
        self._changes: list[_Change] = []
        self._open: dict[int, tuple[str, _File]] = {}
        self._locks: dict[int, str] = {}
        self._next_fd = 1000
        self._lock = threading.RLock()

    # ── the ends of processes and machines ──

    def kill(self) -> None:
        """End the process: its descriptors and locks are gone, what it wrote stays."""
        with self._lock:
            self._open.clear()
            self._locks.clear()

    def crash(self) -> None:
        """Cut the machine's power and start it again."""
        with self._lock:
            self.kill()
            self._crash_names()
            for _, node in sorted(self._nodes.items(), key=lambda named: named[0]):
                if isinstance(node, _File):
                    node.crash(self._rng)

    def _changes_here(self) -> list[_Change]:
        """Return the changes of names here, without directories that were moved away and whose
        paths others may have.
        """
        return [
            each
            for each in self._changes
            if each.parent in {None, self._nodes.get(os.path.dirname(each.target))}
        ]

    def _crash_names(self) -> None:
        survived = dict(self._durable_nodes)
        in_order = self._rng.random() < 0.5
        keep = self._rng.randint(0, len(self._changes))
        for number, change in enumerate(self._changes_here()):
            if number < keep if in_order else self._rng.random() < 0.5:
                _apply(survived, change)
        self._nodes = {path: node for path, node in survived.items() if _has_parents(survived, path)}
        self._durable_nodes = dict(self._nodes)
        self._changes.clear()

    # ── FileSystem ──

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        del write
        with self._lock:
            node = self._nodes.get(path)
            if node is None and create:
                self._require_parent(path)
                node = _File()
                self._change(_Change(node, target=path, parent=self._nodes[os.path.dirname(path)]))
            if node is None:
                raise _error(errno.ENOENT, path)
            if isinstance(node, _Directory):
                raise _error(errno.EISDIR, path)
            self._next_fd += 1
            self._open[self._next_fd] = (path, node)
            return self._next_fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._open.pop(fd, None)
            self._locks.pop(fd, None)

    def write_at(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        with self._lock:
            path, file = self._file(fd)
            self._count_call(path)
            data = b"".join(buffers)
            taken = min(len(data), self._room_at(file, position))
            fault = self._rng.random()
            if fault < self.short_writes + self.write_errors and data:
                taken = min(taken, self._rng.randint(0, len(data) - 1))
            file.write(data[:taken], position)
            if self.write_errors and fault < self.write_errors:
                raise _error(errno.EIO, path)
            if data and not taken:
                if not self._room_at(file, position):
                    raise _error(errno.ENOSPC, path)
                file.write(data[:1], position)
                taken = 1
            return taken

    def read_at(self, fd: int, size: int, position: int) -> bytes:
        with self._lock:
            path, file = self._file(fd)
            if self._rng.random() < self.read_errors:
                raise _error(errno.EIO, path)
            data = bytes(file.data[position : position + size])
            self.read_bytes[path] = self.read_bytes.get(path, 0) + len(data)
            return data

    def read_at_nowait(self, fd: int, size: int, position: int) -> memoryview | None:
        with self._lock:
            if self._rng.random() < self.would_block:
                return None
            return memoryview(self.read_at(fd, size, position))

    def sync(self, fd: int) -> None:
        with self._lock:
            path, file = self._file(fd)
            self._count_call(path)
            if self._rng.random() < self.sync_errors:
                file.dirty.clear()
                raise _error(errno.EIO, path)
            file.sync()
            self.syncs += 1

    def open_synced(self, path: str) -> int:
        return self.open(path, write=True)

    def direct_writes(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        """Return None: all writes are done when the call returns."""

    def write_synced(self, fd: int, data: memoryview, position: int) -> None:
        if position % BLOCK_BYTES or len(data) % BLOCK_BYTES:
            raise _error(errno.EINVAL, self._file(fd)[0])
        write_all(self, fd, [data], position)
        self.sync(fd)

    def sync_dir(self, path: str) -> None:
        with self._lock:
            self._require_directory(path)
            self._count_call(path)
            kept: list[_Change] = []
            for change in self._changes_here():
                if path in change.directories:
                    _apply(self._durable_nodes, change)
                else:
                    kept.append(change)
            self._changes = kept

    def truncate(self, fd: int, size: int) -> None:
        with self._lock:
            path, file = self._file(fd)
            self._count_call(path)
            file.truncate(size)

    def size(self, path: str) -> int | None:
        with self._lock:
            node = self._nodes.get(path)
            if node is None:
                return None
            return len(node.data) if isinstance(node, _File) else 0

    def listdir(self, path: str) -> list[str]:
        with self._lock:
            return sorted(
                os.path.basename(each) for each in self._nodes if os.path.dirname(each) == path != each
            )

    def mkdir(self, path: str) -> None:
        with self._lock:
            self._require_parent(path)
            if path not in self._nodes:
                self._change(_Change(_Directory(), target=path, parent=self._nodes[os.path.dirname(path)]))

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            if source not in self._nodes:
                raise _error(errno.ENOENT, source)
            self._require_parent(target)
            self._change(_Change(self._nodes[source], source, target))

    def unlink(self, path: str) -> None:
        with self._lock:
            if path in self._nodes:
                self._change(_Change(self._nodes[path], source=path))

    def rmdir(self, path: str) -> None:
        with self._lock:
            self._require_directory(path)
            if self.listdir(path):
                raise _error(errno.ENOTEMPTY, path)
            self._change(_Change(self._nodes[path], source=path))

    def space(self, path: str) -> Space:
        del path
        with self._lock:
            return Space(max(self.capacity_bytes - self.used_bytes, 0), self.capacity_bytes)

    def lock(self, path: str) -> int | None:
        with self._lock:
            fd = self.open(path, write=True, create=True)
            if path in self._locks.values():
                self.close(fd)
                return None
            self._locks[fd] = path
            return fd

    # ── for tests ──

    @property
    def used_bytes(self) -> int:
        """Return the bytes of all files."""
        with self._lock:
            return sum(len(node.data) for node in self._nodes.values() if isinstance(node, _File))

    def paths(self) -> list[str]:
        """Return the paths of all files."""
        with self._lock:
            return sorted(path for path, node in self._nodes.items() if isinstance(node, _File))

    def corrupt(self, path: str, position: int, data: bytes) -> None:
        """Change bytes unnoticed, in the cache and on the disk."""
        with self._lock:
            node = self._nodes[path]
            if not isinstance(node, _File):
                raise _error(errno.EISDIR, path)
            for copy in (node.data, node.durable):
                copy[position : position + len(data)] = data

    def lose(self, path: str) -> None:
        """Remove a file, or a directory with its files, unnoticed, in the cache and on the disk."""
        with self._lock:
            for nodes in (self._nodes, self._durable_nodes):
                for each in [name for name in nodes if name == path or name.startswith(f"{path}/")]:
                    del nodes[each]
            self._changes = [each for each in self._changes if path not in {each.source, each.target}]

    def lose_end(self, path: str, size: int) -> None:
        """Cut a file to its first `size` bytes, in the cache and on the disk."""
        with self._lock:
            node = self._nodes[path]
            if not isinstance(node, _File):
                raise _error(errno.EISDIR, path)
            node.truncate(size)
            del node.durable[size:]

    # ── inside ──

    def _count_call(self, path: str) -> None:
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise _error(errno.EIO, path)

    def _file(self, fd: int) -> tuple[str, _File]:
        try:
            return self._open[fd]
        except KeyError:
            raise _error(errno.EBADF, str(fd)) from None

    def _room_at(self, file: _File, position: int) -> int:
        return max(len(file.data) - position, 0) + max(self.capacity_bytes - self.used_bytes, 0)

    def _change(self, change: _Change) -> None:
        self._count_call(change.source or change.target)
        _apply(self._nodes, change)
        self._changes.append(change)

    def _require_parent(self, path: str) -> None:
        self._require_directory(os.path.dirname(path))

    def _require_directory(self, path: str) -> None:
        node = self._nodes.get(path)
        if not isinstance(node, _Directory):
            raise _error(errno.ENOENT if node is None else errno.ENOTDIR, path)


def _apply(nodes: dict[str, _Node], change: _Change) -> None:
    """Apply the change where that is possible: the change before it may be lost. A directory takes
    its names along.
    """
    if not change.source:
        nodes[change.target] = change.node
    elif nodes.get(change.source) is change.node:
        inside = [path for path in nodes if path.startswith(change.source + "/")]
        for path in (change.source, *inside):
            node = nodes.pop(path)
            if change.target:
                nodes[change.target + path[len(change.source) :]] = node


def _has_parents(nodes: dict[str, _Node], path: str) -> bool:
    while path != "/":
        path = os.path.dirname(path)
        if not isinstance(nodes.get(path), _Directory):
            return False
    return True


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
