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
    from sparrow.storage.tail import Tails
    from sparrow.storage.workers import Workers


class Forgetful(Protocol):
    """An object with an index in memory that it can read from its file again."""

    def forget_index(self) -> None: ...


class IndexCache:
    """The indexes of closed segments that are in memory, least recently loaded first, bounded in
    bytes. Thread-safe.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._sizes: OrderedDict[Forgetful, int] = OrderedDict()
        self._total_bytes = 0
        self._lock = threading.Lock()

    def admit(self, segment: Forgetful, size_bytes: int) -> None:
        """Add `segment`, which has loaded its index; others may have to forget theirs."""
        with self._lock:
            self._total_bytes += size_bytes - self._sizes.pop(segment, 0)
            self._sizes[segment] = size_bytes
            while self._total_bytes > self._max_bytes and len(self._sizes) > 1:
                oldest, size = self._sizes.popitem(last=False)
                self._total_bytes -= size
                oldest.forget_index()

    def drop(self, segment: Forgetful) -> None:
        """Remove `segment`, which is gone."""
        with self._lock:
            self._total_bytes -= self._sizes.pop(segment, 0)


@dataclass(frozen=True, slots=True)
class Resources:
    """The shared resources of one store."""

    fs: FileSystem
    clock: Clock
    options: StorageOptions
    handles: Handles
    indexes: IndexCache
    flusher: Flusher
    workers: Workers
    disk_space: DiskSpace
    points: RecoveryPoints
    redo: RedoLog
    tails: Tails
    damages: Damages
