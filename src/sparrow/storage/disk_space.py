"""The check of free space before an append. It runs before every one, so it must cost next to
nothing.

Some space is kept in reserve: a disk that is full for publishers still has space for
acknowledgements, checkpoints and the files of a compaction, so that reading, acknowledging and
deleting continue and the broker recovers without help. The device is asked about once per second,
after every `check_bytes` that were appended, and on every append while there is too little.

Used on the event loop's thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sparrow.base.errors import DiskFull
from sparrow.storage.filesystem import Space, translate

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.storage.filesystem import FileSystem

_log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
WARNING_SECONDS = 30.0
RESERVE_SHARE = 20
"""The reserve is at most this part of the device: one twentieth."""


class DiskSpace:
    """The free space of the device that holds `path`."""

    def __init__(
        self, fs: FileSystem, path: str, clock: Clock, *, reserve_bytes: int, check_bytes: int
    ) -> None:
        self._fs = fs
        self._path = path
        self._monotonic = clock.monotonic
        self._check_bytes = check_bytes
        self._most_reserve_bytes = reserve_bytes
        self._budget_bytes = -1
        self._next_check = 0.0
        self._next_warning = self._monotonic()
        self._space = Space(0, 0)

    def take(self, size: int) -> None:
        """Use `size` bytes of the device.

        Raises:
            DiskFull: they would touch the reserve.
            StorageFailed, Overloaded: the device could not be asked.
        """
        self._budget_bytes -= size
        if self._budget_bytes < 0 or self._monotonic() >= self._next_check:
            self._check(size)

    def space(self) -> Space:
        """Return the size and the free space of the device, the reserve included."""
        self._measure()
        return self._space

    def refusal(self) -> DiskFull | None:
        """Return why nothing more fits; None if something does."""
        self._measure()
        return None if self._space.free_bytes > self.reserve_bytes else self._full()

    def forget(self) -> None:
        """Ask the device before the next append: it reported that it is full."""
        self._budget_bytes = -1

    def _check(self, size: int) -> None:
        try:
            self._measure()
        except OSError as error:
            raise translate(error, "asking for the free space of", self._path) from error
        usable = self._space.free_bytes - self.reserve_bytes
        self._budget_bytes = min(self._check_bytes, usable) - size
        if size > usable:
            self.forget()
            refusal = self._full()
            self._log_refusal(refusal)
            raise refusal

    def _full(self) -> DiskFull:
        return DiskFull(
            f"the device of {self._path} has {self._space.free_bytes >> 20} MiB left and "
            f"{self.reserve_bytes >> 20} MiB are kept in reserve; free some space, or shorten the "
            "retention of topics"
        )

    def _log_refusal(self, refusal: DiskFull) -> None:
        """Log a refusal, at most once per interval; publishers get every one."""
        if self._monotonic() >= self._next_warning:
            self._next_warning = self._monotonic() + WARNING_SECONDS
            _log.warning("messages are refused: %s", refusal.text)

    def _measure(self) -> None:
        self._space = self._fs.space(self._path)
        self._next_check = self._monotonic() + CHECK_SECONDS

    @property
    def reserve_bytes(self) -> int:
        """The free space below which records are refused."""
        return min(self._most_reserve_bytes, self._space.total_bytes // RESERVE_SHARE)
