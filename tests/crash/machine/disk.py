"""The disk of the simulated machine: in memory, and as an image in a file while the machine is off.

Who pulls the plug is a number: after this many more calls that change something the power is gone,
inside that call, by any caller (a log, the meta store, in whatever thread). Then nothing of the
process runs any more: what had been answered before had been answered, nothing else ever is.
"""

from __future__ import annotations

import os
import pickle
import random
import time
from collections.abc import Callable

from sparrow.storage.faulty import DEVICE_BYTES, FaultyFileSystem


class Disk(FaultyFileSystem):
    """Counts the calls that change something, and calls `at_power_off` in place of the chosen
    one.
    """

    def __init__(
        self, seed: int = 0, *, capacity_bytes: int = DEVICE_BYTES, longest_sync_s: float = 0.0
    ) -> None:
        super().__init__(seed, capacity_bytes=capacity_bytes)
        self.calls = 0
        """Calls so far that changed something."""
        self.at_power_off: Callable[[], None] = lambda: None
        self.taken_bytes = 0
        """Bytes of the device that another program uses."""
        self._off_at: int | None = None
        self._longest_sync_s = longest_sync_s
        self._sync_dice = random.Random(seed)

    def power_off_after(self, calls: int) -> None:
        """Lose power in a later call; the next call is number 1."""
        with self._lock:
            self._off_at = self.calls + max(1, calls)

    def stay_on(self) -> None:
        """Cancel an announced loss of power."""
        with self._lock:
            self._off_at = None

    def lose_power(self) -> None:
        """Lose power now."""
        with self._lock:
            self._off_at = None
            self.crash()
            self.at_power_off()

    def fill(self, left_bytes: int) -> None:
        """Let another program use all but this many bytes."""
        with self._lock:
            self.taken_bytes = max(0, self.capacity_bytes - super().used_bytes - left_bytes)

    @property
    def used_bytes(self) -> int:
        return super().used_bytes + self.taken_bytes

    def sync(self, fd: int) -> None:
        """Sync, which takes time; others continue meanwhile, and their writes are not part of the
        sync.
        """
        if not self._longest_sync_s:
            super().sync(fd)
            return
        with self._lock:
            file = self._file(fd)[1]
            dirty, count = file.dirty, len(file.dirty)
        time.sleep(self._sync_dice.uniform(0, self._longest_sync_s))
        with self._lock:
            later = dirty[count:] if dirty is file.dirty else []
            del dirty[count:]
            super().sync(fd)
            file.dirty += later

    def _count_call(self, path: str) -> None:
        self.calls += 1
        if self._off_at is not None and self.calls >= self._off_at:
            self.lose_power()
        super()._count_call(path)

    # ── images ──

    def image(self) -> bytes:
        """Return the disk as it is, with the content of its cache. Descriptors and locks are not
        included: they end with the process.
        """
        with self._lock:
            return pickle.dumps({name: getattr(self, name) for name in _KEPT}, protocol=5)

    def load(self, image: bytes) -> None:
        """Become the disk of an image."""
        with self._lock:
            self.kill()
            for name, value in pickle.loads(image).items():
                setattr(self, name, value)

    def save(self, path: str) -> None:
        """Save the image to a file, whole or not at all."""
        image = self.image()
        with open(f"{path}.new", "wb") as file:
            file.write(image)
        os.replace(f"{path}.new", path)


_KEPT = ("_rng", "_nodes", "_durable_nodes", "_changes", "capacity_bytes", "taken_bytes", "calls")
