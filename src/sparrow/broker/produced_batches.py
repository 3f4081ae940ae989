"""Search of a log for the batches of a producer id that was made for one purpose.

Each such batch tells by its header alone that it was appended: records are not read, and partitions
remember nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrow.records.batch import BatchHeader
    from sparrow.storage.store import PartitionLog


async def find_produced(log: PartitionLog, producer_id: int, first_offset: int) -> list[BatchHeader]:
    """Return the headers of a producer's batches at an offset or behind it, in their order.

    Raises:
        CorruptBatch, StorageFailed, Overloaded: the log cannot be read.
    """
    first = max(first_offset, log.start_offset)
    if first >= log.end_offset:
        return []

    def look() -> list[BatchHeader]:
        return [header for header in log.headers(first) if header.producer_id == producer_id]

    return await asyncio.to_thread(look)
