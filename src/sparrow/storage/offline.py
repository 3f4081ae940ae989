"""Removal of a batch in a data directory that no broker uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import UnknownPartition
from sparrow.storage.local import LocalLogStore
from sparrow.storage.store import LogConfig

if TYPE_CHECKING:
    from sparrow.model.topics import RemovedBatch


async def remove_batch(
    data_dir: str, topic: str, partition: int, offset: int, *, force: bool, journal_mark: bytes | None
) -> RemovedBatch:
    """Remove a batch as `PartitionLog.remove_batch` does. If the last broker was not stopped
    cleanly, all logs are recovered, as at a start.

    Args:
        journal_mark: that of the last checkpoint of the journal, which may have the newest records
            of some logs; None: there is none.

    Raises:
        DirectoryInUse, NewerFormat, DirectoryUnreadable: the directory cannot be used.
        UnknownPartition: it has no such log.
        OffsetOutOfRange, InvalidArgument, DiskFull, StorageFailed: see `PartitionLog.remove_batch`.
    """
    store = LocalLogStore(data_dir)
    try:
        store.open_journal(journal_mark)
        wanted = None
        for log_id in store.ids():
            is_wanted = (log_id.topic, log_id.partition) == (topic, partition)
            # the clean-shutdown mark that closing leaves covers all logs
            if is_wanted or not store.clean_start:
                log = store.open(log_id, LogConfig())
                wanted = log if is_wanted else wanted
        if wanted is None:
            raise UnknownPartition(f"{data_dir} has no log of topic {topic!r}, partition {partition}")
        return await wanted.remove_batch(offset, force=force)
    finally:
        await store.close()
