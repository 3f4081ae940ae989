"""The meta store as queues use it: what changes often goes to the journal first.

`append` puts small batches of entries into the journal, where one sequential write makes them
durable, and remembers the last value of each entry. A checkpoint writes these values to the meta
store in one batch, together with the journal's mark. After a crash the records behind the mark are
replayed: the last value of an entry counts, so that replaying twice, or replaying what a checkpoint
has already, changes nothing. A checkpoint is one transaction: it is whole, or it did not happen.

`write` is for what changes rarely and must happen under a condition or with entries of other parts.
It goes to the meta store; if it touches an entry of which the journal has a newer value, a
checkpoint is part of the same transaction. So do the first batch after a start, which says that the
journal is in use, and a batch that is too large for the journal; and all batches while the disk has
no room for one.

A record of the journal is a msgpack list of [kind, key, value or nil]; nil deletes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import DirectoryUnreadable, DiskFull, InternalError, NewerFormat, SparrowError
from sparrow.base.futures import end_future
from sparrow.meta.store import Delete, Entry, Put

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparrow.base.futures import Then
    from sparrow.base.histogram import Histogram
    from sparrow.meta.store import MetaStore, Write
    from sparrow.storage.journal import Journal
    from sparrow.storage.store import LogStore

_LOG = logging.getLogger(__name__)
KIND: Final = "journal"
KEY: Final = "queues"
VERSION: Final = 1
RETRY_S: Final = 1.0
"""Delay after a failed checkpoint until the next."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[str, str, bytes | None]]).decode

_Key = tuple[str, str]


class _Checkpoint(msgspec.Struct, array_like=True):
    version: int
    mark: bytes


class StateStore:
    """A meta store with a journal before it. Loop thread only; made by `open`."""

    def __init__(self, meta: MetaStore, journal: Journal) -> None:
        self._meta = meta
        self._journal = journal
        self._newer: dict[_Key, Write] = {}
        """Entries of which the meta store has not got the last value."""
        self._saving: dict[_Key, Write] = {}
        """Those that a running checkpoint writes."""
        self._is_begun = False
        self._checkpoint_lock = asyncio.Lock()
        self._held: deque[tuple[Sequence[Write], bytes, Then]] = deque()
        """Batches behind one that goes to the meta store."""
        self._working: asyncio.Task[None] | None = None
        self._saver: asyncio.Task[None] | None = None
        self._is_closed = False
        journal.call_when_filling(self._save_soon)

    @classmethod
    async def open(cls, meta: MetaStore, logs: LogStore) -> StateStore:
        """Open the journal, and replay what is behind the last checkpoint.

        Raises:
            DirectoryUnreadable, NewerFormat, StorageFailed: from the journal.
        """
        entry = await meta.get(KIND, KEY)
        mark = None if entry is None else decode_mark(entry)
        store = cls(meta, logs.open_journal(mark))
        for record in store._journal.take_records():
            store._newer.update(_entries(record))
        return store

    @property
    def commit_times(self) -> Histogram:
        return self._meta.commit_times

    @property
    def sync_times(self) -> Histogram:
        """Durations of the journal's syncs, in seconds."""
        return self._journal.sync_times

    # ── writing ───────────────────────────────────────────────────────────────────────────────────

    def append(self, writes: Sequence[Write]) -> asyncio.Future[None]:
        """Write entries unconditionally, all or none. The future is done when they are on stable
        storage.

        Calls take effect in their order. The future fails with DiskFull, StorageFailed or
        Overloaded; then so do those of the calls after it that are not done.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.append_then(writes, partial(end_future, future))
        return future

    def append_then(self, writes: Sequence[Write], then: Then) -> None:
        """Write as `append`; call `then` when its future would be done, with its error or None. As
        `Journal.append_then`.
        """
        record = _encode(
            [(write.kind, write.key, write.value if isinstance(write, Put) else None) for write in writes]
        )
        if self._working is None and self._is_begun and len(record) <= self._journal.max_record_bytes:
            self._append(writes, record, then)
            return
        self._held.append((writes, record, then))
        if self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._write_held())

    def _append(self, writes: Sequence[Write], record: bytes, then: Then) -> None:
        self._journal.append_then(record, then)
        for write in writes:
            self._newer[write.kind, write.key] = write
        if self._journal.is_filling:
            self._save_soon()

    def _save_soon(self) -> None:
        if self._saver is None and not self._is_closed:
            self._saver = asyncio.get_running_loop().create_task(self._save_until_done())

    async def _write_held(self) -> None:
        try:
            while self._held:
                writes, record, then = self._held[0]
                if self._is_begun and len(record) <= self._journal.max_record_bytes:
                    self._held.popleft()
                    self._append(writes, record, then)
                else:
                    await self._save(writes)
                    self._held.popleft()
                    then(None)
        except SparrowError as error:
            self._fail_held(error)
        except Exception:  # noqa: BLE001 - a bug must not leave consumers waiting for ever
            _LOG.exception("the state of queues could not be kept")
            self._fail_held(
                InternalError("The state of the queue could not be kept; the broker's log has the reason.")
            )
        finally:
            self._working = None

    def _fail_held(self, error: SparrowError) -> None:
        held, self._held = self._held, deque()
        for _, _, then in held:
            then(error)

    async def write(self, writes: Sequence[Write]) -> None:
        """See `MetaStore.write`."""
        while self._working is not None:
            await asyncio.wait([self._working])
        if any((write.kind, write.key) in each for write in writes for each in (self._newer, self._saving)):
            await self._save(writes)
        else:
            await self._meta.write(writes)

    # ── checkpoints ───────────────────────────────────────────────────────────────────────────────

    async def _save(self, also: Sequence[Write] = (), *, is_final: bool = False) -> None:
        """Write a checkpoint, and `also` behind it, in one transaction."""
        async with self._checkpoint_lock:
            begins = not self._is_begun and await self._begin()
            mark = self._journal.mark(is_final=is_final or not (self._is_begun or begins))
            self._saving, self._newer = self._newer, {}
            checkpoint = Put(KIND, KEY, _encode(_Checkpoint(VERSION, mark)))
            try:
                await self._journal.settle()
                await self._meta.write([*self._saving.values(), checkpoint, *also])
            except BaseException:
                self._newer = self._saving | self._newer
                raise
            finally:
                self._saving = {}
            self._journal.release(mark)
            self._is_begun |= begins

    async def _begin(self) -> bool:
        """Prepare the journal. Return False if the disk has no room for it: then the meta store,
        which has some in reserve, keeps everything.
        """
        try:
            await self._journal.begin()
        except DiskFull:
            return False
        return True

    async def _save_until_done(self) -> None:
        try:
            while True:
                try:
                    await self._save()
                except SparrowError as error:
                    _LOG.warning("a checkpoint of the state of queues failed: %s", error.text)
                    self._journal.refuse_waiting(error)
                    await asyncio.sleep(RETRY_S)
                else:
                    return
        finally:
            self._saver = None

    async def close(self) -> None:
        """Write the last checkpoint, and close the journal.

        Raises:
            DiskFull, StorageFailed: there is no checkpoint; the next start replays the journal.
        """
        while self._working is not None:
            await asyncio.wait([self._working])
        self._is_closed = True  # the last checkpoint is the one below
        if self._saver is not None:
            self._saver.cancel()
            await asyncio.wait([self._saver])
        try:
            if self._is_begun or self._newer:
                await self._save(is_final=True)
        finally:
            await self._journal.close()

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    async def get(self, kind: str, key: str) -> Entry | None:
        """See `MetaStore.get`."""
        newer = self._newer.get((kind, key)) or self._saving.get((kind, key))
        found = await self._meta.get(kind, key)
        if newer is None:
            return found
        return _entry(newer, found)

    async def scan(self, kind: str, prefix: str = "") -> list[Entry]:
        """See `MetaStore.scan`."""
        newer = {
            key: write
            for (its_kind, key), write in (self._saving | self._newer).items()
            if its_kind == kind and key.startswith(prefix)
        }
        entries = {entry.key: entry for entry in await self._meta.scan(kind, prefix)}
        if not newer:
            return list(entries.values())
        for key, write in newer.items():
            entry = _entry(write, entries.pop(key, None))
            if entry is not None:
                entries[key] = entry
        return [entries[key] for key in sorted(entries)]


def _entries(record: memoryview) -> Iterator[tuple[_Key, Write]]:
    for kind, key, value in _decode(record):
        yield (kind, key), Delete(kind, key) if value is None else Put(kind, key, value)


async def accept_loss(meta: MetaStore, records: Sequence[memoryview]) -> None:
    """Write what could be read of a damaged journal to the meta store, and forget the rest. The
    next broker begins a new journal.
    """
    entries: dict[_Key, Write] = {}
    for record in records:
        entries.update(_entries(record))
    await meta.write([*entries.values(), Delete(KIND, KEY)])


def decode_mark(entry: Entry) -> bytes:
    """Return the journal's mark that a checkpoint has.

    Raises:
        DirectoryUnreadable, NewerFormat
    """
    try:
        stored = msgspec.msgpack.decode(entry.value, type=_Checkpoint)
    except msgspec.DecodeError:
        raise DirectoryUnreadable(
            f"the {entry.kind} {entry.key!r} of the meta store cannot be read; restore meta.db from a backup"
        ) from None
    if stored.version > VERSION:
        raise NewerFormat(
            f"the {entry.kind} {entry.key!r} was written by a later Sparrow (version {stored.version}); "
            "start that one"
        )
    return stored.mark


def _entry(write: Write, before: Entry | None) -> Entry | None:
    """Return the entry that a write leaves."""
    if isinstance(write, Delete):
        return None
    return Entry(write.kind, write.key, write.value, (before.version if before is not None else 0) + 1)
