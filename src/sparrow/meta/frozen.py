"""A meta store that only reads: entries that another process writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import Draining
from sparrow.base.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparrow.meta.store import Entry, Write


class FrozenMetaStore:
    """A `MetaStore` of given entries, which refuses every write."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = {(entry.kind, entry.key): entry for entry in entries}
        self.commit_times = Histogram()

    async def write(self, writes: Sequence[Write]) -> None:
        """Refuse to write anything.

        Raises:
            Draining: there is something to write.
        """
        if writes:
            raise Draining("this broker stands by and changes nothing; connect to the owner of the data")

    async def get(self, kind: str, key: str) -> Entry | None:
        """See `MetaStore.get`."""
        return self._entries.get((kind, key))

    async def scan(self, kind: str, prefix: str = "") -> list[Entry]:
        """See `MetaStore.scan`."""
        found = [
            entry for entry in self._entries.values() if entry.kind == kind and entry.key.startswith(prefix)
        ]
        return sorted(found, key=lambda entry: entry.key)

    async def close(self) -> None:
        """Do nothing: nothing is open."""
