"""A bounded set of open files, shared by all logs of a store.

A log has many segments and a store many logs, but a process few descriptors. Each segment file has
a `Handle`; its descriptor is opened when it is needed and closed when too many others were used
since (least recently used first).

Invariant: a descriptor is never closed under a thread that uses it. A user of a descriptor pins it;
eviction and retirement skip pinned handles, and the last `release` does what was deferred. The
limit may therefore be exceeded by as many files as threads use at that moment, no more.

Thread-safe. The lock is kept while a file is opened: two threads must not open one file twice.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrow.storage.filesystem import FileSystem

DEFAULT_LIMIT = 256
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})


class Handle:
    """One file that may be open. Created by any caller, used through `Handles` alone."""

    __slots__ = ("fd", "path", "pins", "retired")

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = -1
        self.pins = 0
        self.retired = False


class Handles:
    """The open files, least recently used first."""

    def __init__(self, fs: FileSystem, limit: int = DEFAULT_LIMIT) -> None:
        self._fs = fs
        self._limit = max(limit, 1)
        self._open: OrderedDict[Handle, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def acquire(self, handle: Handle) -> int:
        """Return the file's descriptor, to be given back by `release`; open the file if needed.

        Raises:
            OSError: the file cannot be opened, or was retired (its name may belong to another file
                by now).
        """
        with self._lock:
            if handle.fd >= 0:
                self._open.move_to_end(handle)
            else:
                self._open_file(handle)
            handle.pins += 1
            return handle.fd

    def release(self, handle: Handle) -> None:
        """Give a descriptor back."""
        with self._lock:
            handle.pins -= 1
            if not handle.pins and (handle.retired or len(self._open) > self._limit):
                self._close_file(handle)

    def adopt(self, handle: Handle, fd: int) -> None:
        """Take over a descriptor that the caller opened for `handle`, which is not open."""
        with self._lock:
            while len(self._open) >= self._limit and self._close_idle():
                pass
            handle.fd = fd
            self._open[handle] = None

    def retire(self, handle: Handle) -> None:
        """Never open this file again; close it as soon as it is unused."""
        with self._lock:
            handle.retired = True
            if not handle.pins:
                self._close_file(handle)

    def close(self) -> None:
        """Close all unused files."""
        with self._lock:
            while self._close_idle():
                pass

    def _open_file(self, handle: Handle) -> None:
        if handle.retired:
            raise FileNotFoundError(2, "the segment was removed", handle.path)
        while len(self._open) >= self._limit and self._close_idle():
            pass
        handle.fd = self._open_path(handle.path)
        self._open[handle] = None

    def _open_path(self, path: str) -> int:
        while True:
            try:
                return self._fs.open(path, write=True)
            except OSError as error:
                # Sockets may have taken the process's last descriptor; then an idle file is closed.
                if error.errno not in _NO_DESCRIPTOR or not self._close_idle():
                    raise

    def _close_idle(self) -> bool:
        idle = next((handle for handle in self._open if not handle.pins), None)
        if idle is not None:
            self._close_file(idle)
        return idle is not None

    def _close_file(self, handle: Handle) -> None:
        if handle.fd >= 0:
            self._fs.close(handle.fd)
            handle.fd = -1
            del self._open[handle]
