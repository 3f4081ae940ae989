"""The meta store of a shard: its entries are rows of the ledger, and all of them are in memory.

The node that owns the shard is the only writer, so conditions are checked in memory, against the
entries as they will be when all that waits is committed. Writes of one moment share a commit with
everything else of the shard.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import StorageFailed
from sparrow.cluster.ledger import EntryRow
from sparrow.cluster.settlement import settle_future
from sparrow.meta.checks import check_write, condition_failed
from sparrow.meta.store import ANY, Entry, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sparrow.base.errors import SparrowError
    from sparrow.base.histogram import Histogram
    from sparrow.cluster.committer import ShardCommitter
    from sparrow.meta.store import Write

PREFIX: Final = b"M"
"""First byte of the kinds of entries, in the ledger."""

_Key = tuple[str, str]


def entries_of(rows: Iterable[EntryRow]) -> Iterator[Entry]:
    """Iterate over the entries of the meta store among the rows of a shard."""
    for row in rows:
        if row.kind[:1] == PREFIX:
            yield Entry(row.kind[1:].decode(), row.key.decode(), row.value, row.version)


class LedgerMetaStore:
    """A `MetaStore` over a committer.

    Args:
        rows: the shard's entries; those of other stores are ignored.
        when_closed: awaited at the end of `close`.
    """

    def __init__(
        self,
        rows: Iterable[EntryRow],
        committer: ShardCommitter,
        *,
        when_closed: Callable[[], object] = lambda: None,
    ) -> None:
        self._committer = committer
        self._when_closed = when_closed
        self._committed: dict[_Key, Entry] = {}
        for entry in entries_of(rows):
            self._committed[entry.kind, entry.key] = entry
        self._ahead: dict[_Key, Entry | None] = {}
        """Entries that wait to be committed."""
        self._waits: dict[_Key, int] = {}
        """Number of waiting writes of an entry."""
        self._last: asyncio.Future[None] | None = None
        self._is_closed = False

    @property
    def commit_times(self) -> Histogram:
        return self._committer.commit_times

    async def write(self, writes: Sequence[Write]) -> None:
        batch = tuple(writes)
        for write in batch:
            check_write(write)
        self._refuse_when_closed()
        changed: dict[_Key, Entry | None] = {}
        for write in batch:
            key = (write.kind, write.key)
            present = changed[key] if key in changed else self._present(key)
            version = 0 if present is None else present.version
            if write.if_version not in (ANY, version):
                raise condition_failed(write)
            changed[key] = Entry(*key, write.value, version + 1) if isinstance(write, Put) else None
        if changed:
            await self._commit(changed)

    def _present(self, key: _Key) -> Entry | None:
        return self._ahead[key] if key in self._ahead else self._committed.get(key)

    async def _commit(self, changed: dict[_Key, Entry | None]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        end = settle_future(future, None)

        def settle(error: SparrowError | None) -> None:
            self._settle(changed, error)
            end(error)

        self._committer.add_entries(
            [_row(entry) for entry in changed.values() if entry is not None],
            [_stored_key(key) for key, entry in changed.items() if entry is None],
            settle,
        )
        self._ahead.update(changed)
        for key in changed:
            self._waits[key] = self._waits.get(key, 0) + 1
        self._last = future
        await future

    def _settle(self, changed: dict[_Key, Entry | None], error: SparrowError | None) -> None:
        for key, entry in changed.items():
            self._waits[key] -= 1
            if not self._waits[key]:
                del self._waits[key], self._ahead[key]
            if error is not None:
                continue  # all later writes fail with it
            if entry is None:
                self._committed.pop(key, None)
            else:
                self._committed[key] = entry

    async def get(self, kind: str, key: str) -> Entry | None:
        await self._settled()
        return self._committed.get((kind, key))

    async def scan(self, kind: str, prefix: str = "") -> list[Entry]:
        await self._settled()
        found = (
            entry for entry in self._committed.values() if entry.kind == kind and entry.key.startswith(prefix)
        )
        return sorted(found, key=lambda entry: entry.key)

    async def _settled(self) -> None:
        """Wait until the requested writes are committed, or have failed."""
        self._refuse_when_closed()
        if self._waits:
            await self._committer.settled()

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await self._committer.settled()
        found = self._when_closed()
        if asyncio.iscoroutine(found):
            await found

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise StorageFailed("The meta store is closed.")


def _stored_key(key: _Key) -> tuple[bytes, bytes]:
    return PREFIX + key[0].encode(), key[1].encode()


def _row(entry: Entry) -> EntryRow:
    return EntryRow(*_stored_key((entry.kind, entry.key)), entry.value, entry.version)
