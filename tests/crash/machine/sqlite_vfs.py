"""SQLite on the simulated disk: a VFS (https://sqlite.org/vfs.html) whose calls go to a
`FaultyFileSystem`.

So the meta store is the real one, SQL, WAL and all, and one power failure takes from its files and
from the logs' what was not synced, in one moment. It promises to SQLite what the one for Unix
promises: a write changes no byte beside it (the fake keeps or loses whole sectors), and the first
sync of a new journal or WAL syncs the directory, too. There is no shared memory, so a database in
WAL mode must be opened with `locking_mode=EXCLUSIVE`. Locks are always granted: the data
directory's lock keeps others out.

Python hides SQLite's functions; where its module `_sqlite3` is linked with the library, they are
found through it. `why_unavailable` says why not.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.filesystem import write_all

_SECTOR_BYTES = 4096
_POWERSAFE_OVERWRITE = 0x1000
_ACCESS_EXISTS = 0
_SHORT_READ = sqlite3.SQLITE_IOERR_SHORT_READ
_OPEN_DELETE_ON_CLOSE, _OPEN_CREATE = 0x8, 0x4
_OPEN_SYNCS_DIRECTORY = 0x800 | 0x4000 | 0x80000
"""Main journal, super-journal, WAL."""
_MAX_PATH_BYTES = 512


class _Method:
    """The C type of a method, by its arguments."""

    OPEN = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_int, POINTER(c_int))
    DELETE = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
    ACCESS = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int, POINTER(c_int))
    FULL_PATH = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int, c_void_p)
    FILE = CFUNCTYPE(c_int, c_void_p)
    FILE_INT = CFUNCTYPE(c_int, c_void_p, c_int)
    FILE_SIZE = CFUNCTYPE(c_int, c_void_p, POINTER(c_int64))
    FILE_OUT = CFUNCTYPE(c_int, c_void_p, POINTER(c_int))
    TRUNCATE = CFUNCTYPE(c_int, c_void_p, c_int64)
    TRANSFER = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
    CONTROL = CFUNCTYPE(c_int, c_void_p, c_int, c_void_p)


class _FileMethods(Structure):
    """sqlite3_io_methods, version 1."""

    _fields_ = (
        ("version", c_int),
        ("close", _Method.FILE),
        ("read", _Method.TRANSFER),
        ("write", _Method.TRANSFER),
        ("truncate", _Method.TRUNCATE),
        ("sync", _Method.FILE_INT),
        ("file_size", _Method.FILE_SIZE),
        ("lock", _Method.FILE_INT),
        ("unlock", _Method.FILE_INT),
        ("check_reserved_lock", _Method.FILE_OUT),
        ("file_control", _Method.CONTROL),
        ("sector_size", _Method.FILE),
        ("device_characteristics", _Method.FILE),
    )


class _OpenFile(Structure):
    """sqlite3_file with our descriptor behind it."""

    _fields_ = (("methods", POINTER(_FileMethods)), ("fd", c_int64))


class _Vfs(Structure):
    """sqlite3_vfs, version 1."""


_Vfs._fields_ = (
    ("version", c_int),
    ("file_bytes", c_int),
    ("max_path_bytes", c_int),
    ("next", POINTER(_Vfs)),
    ("name", c_char_p),
    ("app_data", c_void_p),
    ("open", _Method.OPEN),
    ("delete", _Method.DELETE),
    ("access", _Method.ACCESS),
    ("full_path", _Method.FULL_PATH),
    ("dl_open", c_void_p),
    ("dl_error", c_void_p),
    ("dl_symbol", c_void_p),
    ("dl_close", c_void_p),
    ("randomness", c_void_p),
    ("sleep", c_void_p),
    ("current_time", c_void_p),
    ("last_error", c_void_p),
)


@dataclass(slots=True)
class _State:
    """State of an open file beside its descriptor."""

    path: str
    deletes: bool
    syncs_directory: bool


_names = itertools.count(1)
_left_open: list[_DiskVfs] = []


def why_unavailable() -> str:
    """Return why SQLite cannot be put on the simulated disk here; "" if it can."""
    try:
        _library()
    except (ImportError, OSError, AttributeError) as error:
        return f"this Python hides SQLite's function for file systems of one's own: {error}"
    return ""


@contextmanager
def sqlite_on(fs: FaultyFileSystem) -> Iterator[str]:
    """Register a VFS for the disk; return its name, for `vfs=` in a database's URI. Close the
    databases before the end.
    """
    library = _library()
    vfs = _DiskVfs(fs, f"simulated-{os.getpid()}-{next(_names)}", library)
    if library.sqlite3_vfs_register(ctypes.byref(vfs.structure), 0) != sqlite3.SQLITE_OK:
        raise RuntimeError("SQLite did not take the simulated disk")
    try:
        yield vfs.name
    finally:
        library.sqlite3_vfs_unregister(ctypes.byref(vfs.structure))
        # databases that a failed test left open would call into freed memory
        if vfs.has_open_files:
            _left_open.append(vfs)


def _library() -> Any:
    import _sqlite3

    library = ctypes.CDLL(_sqlite3.__file__)
    library.sqlite3_vfs_find.restype = POINTER(_Vfs)
    library.sqlite3_vfs_find.argtypes = [c_char_p]
    for function in (library.sqlite3_vfs_register, library.sqlite3_vfs_unregister):
        function.restype = c_int
    return library


class _DiskVfs:
    """The methods, and references that keep them alive. Called on any thread, by SQLite."""

    def __init__(self, fs: FaultyFileSystem, name: str, library: Any) -> None:
        self.name = name
        self._fs = fs
        self._files: dict[int, _State] = {}
        self._temporary = itertools.count(1)
        self._methods = self._file_methods()
        usual = library.sqlite3_vfs_find(None).contents
        self.structure = _Vfs(
            version=1,
            file_bytes=ctypes.sizeof(_OpenFile),
            max_path_bytes=_MAX_PATH_BYTES,
            name=name.encode(),
            open=_Method.OPEN(_guarded(self._open, sqlite3.SQLITE_CANTOPEN)),
            delete=_Method.DELETE(_guarded(self._delete, sqlite3.SQLITE_IOERR_DELETE)),
            access=_Method.ACCESS(_guarded(self._access, sqlite3.SQLITE_IOERR_ACCESS)),
            full_path=_Method.FULL_PATH(_guarded(self._full_path, sqlite3.SQLITE_CANTOPEN)),
            randomness=usual.randomness,
            sleep=usual.sleep,
            current_time=usual.current_time,
            last_error=usual.last_error,
        )

    def _file_methods(self) -> _FileMethods:
        def always(answer: int) -> Callable[..., int]:
            return lambda *_: answer

        return _FileMethods(
            version=1,
            close=_Method.FILE(_guarded(self._close, sqlite3.SQLITE_IOERR_CLOSE)),
            read=_Method.TRANSFER(_guarded(self._read, sqlite3.SQLITE_IOERR_READ)),
            write=_Method.TRANSFER(_guarded(self._write, sqlite3.SQLITE_IOERR_WRITE)),
            truncate=_Method.TRUNCATE(_guarded(self._truncate, sqlite3.SQLITE_IOERR_TRUNCATE)),
            sync=_Method.FILE_INT(_guarded(self._sync, sqlite3.SQLITE_IOERR_FSYNC)),
            file_size=_Method.FILE_SIZE(_guarded(self._file_size, sqlite3.SQLITE_IOERR_FSTAT)),
            lock=_Method.FILE_INT(always(sqlite3.SQLITE_OK)),
            unlock=_Method.FILE_INT(always(sqlite3.SQLITE_OK)),
            check_reserved_lock=_Method.FILE_OUT(_guarded(_not_reserved, sqlite3.SQLITE_IOERR)),
            file_control=_Method.CONTROL(always(sqlite3.SQLITE_NOTFOUND)),
            sector_size=_Method.FILE(always(_SECTOR_BYTES)),
            device_characteristics=_Method.FILE(always(_POWERSAFE_OVERWRITE)),
        )

    @property
    def has_open_files(self) -> bool:
        return bool(self._files)

    # ── names ──

    def _open(self, _vfs: int, name: bytes | None, file: int, flags: int, out_flags: Any) -> None:
        opened = _OpenFile.from_address(file)
        opened.methods = POINTER(_FileMethods)()  # until it is open, there is nothing to close
        path = name.decode() if name else f"/temporary-{next(self._temporary)}"
        opened.fd = self._fs.open(path, write=True, create=bool(flags & _OPEN_CREATE) or not name)
        self._files[opened.fd] = _State(
            path,
            deletes=bool(flags & _OPEN_DELETE_ON_CLOSE),
            syncs_directory=bool(flags & _OPEN_CREATE and flags & _OPEN_SYNCS_DIRECTORY),
        )
        opened.methods = ctypes.pointer(self._methods)
        if out_flags:
            out_flags[0] = flags

    def _delete(self, _vfs: int, name: bytes, syncs_directory: int) -> int | None:
        path = name.decode()
        if self._fs.size(path) is None:
            return int(sqlite3.SQLITE_IOERR_DELETE_NOENT)
        self._fs.unlink(path)
        if syncs_directory & 1:
            self._fs.sync_dir(os.path.dirname(path))
        return None

    def _access(self, _vfs: int, name: bytes, flags: int, out: Any) -> None:
        size = self._fs.size(name.decode())
        # An empty file counts as none, as in the VFS for Unix.
        out[0] = int(bool(size) if flags == _ACCESS_EXISTS else size is not None)

    def _full_path(self, _vfs: int, name: bytes, size: int, out: int) -> int | None:
        if len(name) + 1 > size:
            return int(sqlite3.SQLITE_CANTOPEN)
        ctypes.memmove(out, name + b"\0", len(name) + 1)
        return None

    # ── files ──

    def _close(self, file: int) -> None:
        fd = _OpenFile.from_address(file).fd
        state = self._files.pop(fd)
        self._fs.close(fd)
        if state.deletes:
            self._fs.unlink(state.path)

    def _read(self, file: int, buffer: int, size: int, position: int) -> int | None:
        data = self._fs.read_at(_OpenFile.from_address(file).fd, size, position)
        ctypes.memmove(buffer, data.ljust(size, b"\0"), size)
        return None if len(data) == size else int(_SHORT_READ)

    def _write(self, file: int, buffer: int, size: int, position: int) -> None:
        write_all(
            self._fs,
            _OpenFile.from_address(file).fd,
            [ctypes.string_at(buffer, size)] if size else [],
            position,
        )

    def _truncate(self, file: int, size: int) -> None:
        self._fs.truncate(_OpenFile.from_address(file).fd, size)

    def _sync(self, file: int, _flags: int) -> None:
        fd = _OpenFile.from_address(file).fd
        self._fs.sync(fd)
        state = self._files[fd]
        if state.syncs_directory:
            self._fs.sync_dir(os.path.dirname(state.path))
            state.syncs_directory = False

    def _file_size(self, file: int, out: Any) -> None:
        out[0] = self._fs.size(self._files[_OpenFile.from_address(file).fd].path) or 0


def _not_reserved(_file: int, out: Any) -> None:
    out[0] = 0


def _guarded(method: Callable[..., int | None], failure: int) -> Callable[..., int]:
    """Return a method for C: it returns a code, and raises nothing."""

    def answer(*arguments: Any) -> int:
        try:
            code = method(*arguments)
        except OSError as error:
            return int(sqlite3.SQLITE_FULL) if error.errno == errno.ENOSPC else int(failure)
        except Exception:
            return int(failure)
        return int(sqlite3.SQLITE_OK) if code is None else code

    return answer
