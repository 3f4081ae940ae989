"""The public fake of the meta store: same contract, kept in a dictionary, with failures on demand
or by seed.

It passes the same conformance suite as the real one. Nothing survives the process; pass `entries`
to a new store to simulate a restart.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from msgspec import Struct

from sparrow.base.errors import DiskFull, SparrowError, StorageFailed
from sparrow.base.histogram import Histogram
from sparrow.meta.checks import check_write, condition_failed
from sparrow.meta.store import ANY, Entry, Put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.meta.store import Write

Key = tuple[str, str]


class MetaFaults(Struct, frozen=True):
    """Probabilities (0.0 to 1.0) with which a write fails, decided by a generator with this
    seed.
    """

    seed: int = 0
    disk_full: float = 0.0
    storage_failed: float = 0.0
    """Probability of a failure after which the store takes no more writes, as after a failed
    sync.
    """


class MemoryMetaStore:
    """A `MetaStore` without a disk.

    Attributes:
        entries: the stored entries, by (kind, key).
        full: while set, every batch with a `Put` is refused with DiskFull.
        commits: batches written.
    """

    def __init__(self, entries: dict[Key, Entry] | None = None, faults: MetaFaults | None = None) -> None:
        self.entries: dict[Key, Entry] = entries if entries is not None else {}
        self.full = False
        self.commit_times = Histogram()
        self.commits = 0
        self._faults = faults or MetaFaults()
        self._random = random.Random(self._faults.seed)  # noqa: S311 - faults must be repeatable
        self._failed: StorageFailed | None = None
        self._closed = False

    async def write(self, writes: Sequence[Write]) -> None:
        """See `MetaStore.write`."""
        batch = tuple(writes)
        for write in batch:
            check_write(write)
        self._refuse_when_closed()
        error = self._fault(batch) or self._apply(batch)
        await asyncio.sleep(0)  # as in the real one: never done at once
        if error:
            raise error

    async def get(self, kind: str, key: str) -> Entry | None:
        """See `MetaStore.get`."""
        self._refuse_when_closed()
        await asyncio.sleep(0)
        return self.entries.get((kind, key))

    async def scan(self, kind: str, prefix: str = "") -> list[Entry]:
        """See `MetaStore.scan`."""
        self._refuse_when_closed()
        await asyncio.sleep(0)
        found = (
            entry for entry in self.entries.values() if entry.kind == kind and entry.key.startswith(prefix)
        )
        return sorted(found, key=lambda entry: entry.key)

    async def close(self) -> None:
        """See `MetaStore.close`."""
        self._closed = True

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise StorageFailed("The meta store is closed.")

    def _fault(self, batch: Sequence[Write]) -> SparrowError | None:
        if self._failed is None and self._random.random() < self._faults.storage_failed:
            self._failed = StorageFailed("The meta store failed, as its seed wanted.")
        if self._failed:
            return self._failed
        if self.full and any(isinstance(write, Put) for write in batch):
            return DiskFull("The meta store is full: `full` is set.")
        if self._random.random() < self._faults.disk_full:
            return DiskFull("The meta store is full, as its seed wanted.")
        return None

    def _apply(self, batch: Sequence[Write]) -> SparrowError | None:
        changed: dict[Key, Entry | None] = {}
        for write in batch:
            key = (write.kind, write.key)
            present = changed[key] if key in changed else self.entries.get(key)
            version = present.version if present else 0
            if write.if_version not in (ANY, version):
                return condition_failed(write)
            changed[key] = Entry(*key, write.value, version + 1) if isinstance(write, Put) else None
        self._keep(changed)
        return None

    def _keep(self, changed: dict[Key, Entry | None]) -> None:
        for key, entry in changed.items():
            if entry is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = entry
        self.commits += bool(changed)
