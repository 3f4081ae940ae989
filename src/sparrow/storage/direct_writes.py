"""Writes that the kernel carries out while the event loop works on: Linux AIO, io_submit(2).

A loop that waits for the device does nothing meanwhile, and a thread that waits for it competes
with the loop for the interpreter when it begins and when it reports. Here the loop hands the kernel
a write, and an eventfd in its selector reports the end. That is true of direct writes (O_DIRECT) to
blocks that the file has already; of others, `begin` returns when they are done.

The system calls are made by number, because no library that is kept offers them. They do not wait,
so the interpreter is not released for them. Rejected: io_uring, which containers forbid by default.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class _Numbers(NamedTuple):
    """Numbers of the system calls."""

    setup: int
    destroy: int
    submit: int
    getevents: int


_GENERIC: Final = _Numbers(setup=0, destroy=1, submit=2, getevents=4)
_NUMBERS: Final = {
    "x86_64": _Numbers(setup=206, destroy=207, submit=209, getevents=208),
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
}
_CONTROL: Final = struct.Struct("<QIIHhIQQqQII")
"""`struct iocb` of linux/aio_abi.h: data, key, flags of the write, operation, priority, file,
address, bytes, position, reserved, flags, eventfd.
"""
_PWRITE: Final = 1
_HAS_EVENTFD: Final = 1
_EVENT_WORDS: Final = 4
"""`struct io_event`: data, control block, result, second result; 8 bytes each."""
_RESULT: Final = 2


class DirectWrites:
    """Direct writes, one at a time. Loop thread only.

    Raises:
        OSError: the system has no AIO, forbids it, or has none left (fs.aio-max-nr).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        numbers = _NUMBERS.get(platform.machine()) if sys.maxsize > 1 << 32 else None
        if sys.platform != "linux" or numbers is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._loop = loop
        self._numbers = numbers
        self._syscall = ctypes.PyDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        if self._syscall(numbers.setup, 1, ctypes.byref(self._context)) < 0:
            raise _failure()
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._control = ctypes.create_string_buffer(_CONTROL.size)
        self._controls = (ctypes.c_void_p * 1)(ctypes.addressof(self._control))
        self._event = (ctypes.c_int64 * _EVENT_WORDS)()
        self._no_time = ctypes.create_string_buffer(16)
        self._done: Callable[[OSError | None], None] | None = None
        self._fd = self._address = self._size = self._position = 0
        loop.add_reader(self._eventfd, self._ended)

    @staticmethod
    def takes(fd: int) -> bool:
        """Return True if writes to the file are direct, so that `begin` does not wait for them."""
        return sys.platform == "linux" and bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)

    def begin(
        self, fd: int, address: int, size: int, position: int, done: Callable[[OSError | None], None]
    ) -> None:
        """Begin a write; the one before has ended. `done` is called on the loop, with the error if
        it failed.

        Args:
            address: of the bytes in memory, at a block; they stay as they are until the end.
            size: whole blocks.

        Raises:
            OSError: it could not begin.
        """
        assert self._done is None, "one write at a time"
        self._fd, self._address, self._size, self._position = fd, address, size, position
        self._submit()
        self._done = done

    def close(self) -> None:
        """Wait for the write that is under way, without a report of its end, and give everything
        back.
        """
        self._loop.remove_reader(self._eventfd)
        if self._syscall(self._numbers.destroy, self._context) < 0:
            raise _failure()
        os.close(self._eventfd)

    def _submit(self) -> None:
        _CONTROL.pack_into(
            self._control, 0, 0, 0, 0, _PWRITE, 0, self._fd, self._address, self._size, self._position, 0,
            _HAS_EVENTFD, self._eventfd,
        )  # fmt: skip
        if self._syscall(self._numbers.submit, self._context, 1, self._controls) < 0:
            raise _failure()

    def _ended(self) -> None:
        os.eventfd_read(self._eventfd)
        done = self._done
        if done is None:
            return
        ended = self._syscall(self._numbers.getevents, self._context, 0, 1, self._event, self._no_time)
        if ended < 0:
            raise _failure()
        if not ended:
            return
        written, error = self._event[_RESULT], None
        if written <= 0:
            number = -written or errno.EIO
            error = OSError(number, os.strerror(number))
        elif written < self._size:
            self._address, self._position = self._address + written, self._position + written
            self._size -= written
            try:
                self._submit()
            except OSError as refused:
                error = refused
            else:
                return
        self._done = None
        done(error)


def _failure() -> OSError:
    """Return the error of the last system call."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
