"""A data directory whose content goes into a cluster.

It is opened as a start of a broker would open it, and closed as its end: a torn end of a log is cut
off, the journal is replayed, and the queues' state goes into the meta store. Nothing else changes.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import CorruptBatch, CorruptStoredBatch, DirectoryUnreadable
from sparrow.broker.queues.persistence import state_store
from sparrow.meta.sqlite import SqliteMetaStore
from sparrow.records.batch import split
from sparrow.storage.local import LocalLogStore
from sparrow.storage.store import LogConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sparrow.meta.store import Entry
    from sparrow.records.batch import BatchHeader
    from sparrow.storage.store import PartitionLog

META_FILE: Final = "meta.db"
READ_BYTES: Final = 4 << 20
_TOPIC_KIND: Final = "topic"


class ImportSource:
    """The content of a data directory. Use `open_source`.

    Attributes:
        entries: of the meta store, but for the journal's mark.
        is_clean: the last broker was stopped cleanly.
    """

    def __init__(
        self, directory: str, logs: list[PartitionLog], entries: list[Entry], *, is_clean: bool
    ) -> None:
        self.directory = directory
        self.logs = logs
        self.entries = entries
        self.is_clean = is_clean

    @property
    def size_bytes(self) -> int:
        """Size of all batches."""
        return sum(log.size_bytes for log in self.logs)

    @property
    def identity(self) -> bytes:
        """The id that a broker gave this data at its first start; b"" if there was none."""
        return next((each.value for each in self.entries if (each.kind, each.key) == ("cluster", "id")), b"")

    async def read(self, log: PartitionLog, offset: int) -> list[tuple[BatchHeader, memoryview]]:
        """Return batches from an offset on, checked; none at the end.

        Raises:
            CorruptStoredBatch: one cannot be read.
            StorageFailed
        """
        chunk = await log.read(offset, READ_BYTES)
        try:
            return list(split(chunk.data))
        except CorruptBatch as error:
            raise CorruptStoredBatch(
                f"{self.directory}: a batch of {log.id} from offset {offset} on is damaged ({error.text}); "
                f"look at it with `sparrow doctor --all {self.directory}`, and restore the directory from a "
                f"backup, or remove the batch with `sparrow log skip {log.id.topic} {log.id.partition} "
                f"OFFSET --data-dir {self.directory}`",
                offset,
            ) from None


@asynccontextmanager
async def open_source(directory: str) -> AsyncIterator[ImportSource]:
    """Open a data directory that no broker uses. It has to exist: otherwise it would be made.

    Raises:
        DirectoryInUse, NewerFormat, DirectoryUnreadable: it cannot be used.
        LogDamaged, StorageFailed: a log, or the journal, lacks what was confirmed.
    """
    path = os.path.join(directory, META_FILE)
    if not await asyncio.to_thread(os.path.exists, path):
        raise DirectoryUnreadable(
            f"{path} is missing, without which no topic is known; restore the directory from a backup"
        )
    logs = await asyncio.to_thread(LocalLogStore, directory)
    try:
        meta = SqliteMetaStore(path)
        try:
            yield await _open(directory, logs, meta)
        finally:
            await meta.close()
    finally:
        await logs.close()


async def _open(directory: str, logs: LocalLogStore, meta: SqliteMetaStore) -> ImportSource:
    states = await state_store.StateStore.open(meta, logs)  # before any log: it may have their ends
    await states.close()  # which writes what the journal has to the meta store
    ids = sorted(logs.ids(), key=lambda each: (each.topic, each.partition, each.topic_id))
    found = [await asyncio.to_thread(logs.open, log_id, LogConfig()) for log_id in ids]
    entries = [each for each in await meta.all() if each.kind != state_store.KIND]
    if found and not any(each.kind == _TOPIC_KIND for each in entries):
        raise DirectoryUnreadable(
            f"{directory}/{META_FILE} names no topic, but there are {len(found)} logs; restore the directory "
            "from a backup"
        )
    return ImportSource(directory, found, entries, is_clean=logs.clean_start)
