"""The resources that all logs of one store share, in one object that is passed to them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.storage.damage import Damages
    from sparrow.storage.disk_space import DiskSpace
    from sparrow.storage.filesystem import FileSystem
    from sparrow.storage.flusher import Flusher
    from sparrow.storage.handles import Handles
    from sparrow.storage.options import StorageOptions
    from sparrow.storage.recovery_points import RecoveryPoints
    from sparrow.storage.redo import RedoLog
    from sparrow.storage.workers import Workers


class Forgetful(Protocol):
    """An object with data in memory that it can read from its file again."""

    def forget(self) -> None: ...


class MemoryBudget:
    """Objects with data in memory that they can do without, least recently admitted first, bounded
    in bytes. Thread-safe.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._sizes: OrderedDict[Forgetful, int] = OrderedDict()
        self._total_bytes = 0
        self._lock = threading.Lock()

    def admit(self, owner: Forgetful, size_bytes: int) -> None:
        """Note that `owner` has so many bytes now; others may have to forget theirs."""
        with self._lock:
            self._total_bytes += size_bytes - self._sizes.pop(owner, 0)
            self._sizes[owner] = size_bytes
            while self._total_bytes > self._max_bytes and len(self._sizes) > 1:
                oldest, size = self._sizes.popitem(last=False)
                self._total_bytes -= size
                oldest.forget()

    def drop(self, owner: Forgetful) -> None:
        """Note that `owner` has none any more."""
        with self._lock:
            self._total_bytes -= self._sizes.pop(owner, 0)


@dataclass(frozen=True, slots=True)
class Resources:
    """The shared resources of one store."""

    fs: FileSystem
    clock: Clock
    options: StorageOptions
    handles: Handles
    indexes: MemoryBudget
    """Indexes of closed segments."""
    flusher: Flusher
    workers: Workers
    disk_space: DiskSpace
    points: RecoveryPoints
    redo: RedoLog
    tails: MemoryBudget
    damages: Damages
