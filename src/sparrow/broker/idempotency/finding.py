"""Finding out, after a crash or a failed sync, which batches of a publish are in the log.

Each batch has the producer id that was made for its publish alone, and its number there for an epoch. One look at the headers behind the place
where the partition ended before tells whether it was appended; records are not read, and partitions remember nothing.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from sparrow.broker.producers import NO_SEQUENCE

if TYPE_CHECKING:
    from sparrow.broker.idempotency.kept import KeptPublish
    from sparrow.broker.topics import Topic, Topics
    from sparrow.records.batch import BatchHeader
    from sparrow.storage.store import PartitionLog


async def find_batches(topics: Topics, kept: KeptPublish) -> None:
    """Settle the runs whose batches are in the log, and are on stable storage when this returns. Nothing of this publish may be under way.

    Raises:
        StorageFailed, Overloaded: the log cannot be read or synced now.
        UnknownTopic: it is being deleted.
    """
    topic = topics.find_id(uuid.UUID(bytes=kept.topic_id))
    if topic is None:
        return
    for partition in sorted({run.partition for run in kept.runs if not run.is_settled}):
        await _find_in(topic, partition, kept)


async def _find_in(topic: Topic, partition: int, kept: KeptPublish) -> None:
    log = topic.partition(partition).log
    end = log.end_offset
    first = max(kept.looked_from[partition], log.start_offset)
    if first < end:
        found = await asyncio.to_thread(_look, log, first, kept.producer_id)
        for header in found:
            _take(kept, partition, header)
        if found:
            await log.durable(end)
    kept.looked_from[partition] = end


def _look(log: PartitionLog, first: int, producer_id: int) -> list[BatchHeader]:
    """The batches of a producer. In a thread."""
    return [header for header in log.headers(first) if header.producer_id == producer_id]


def _take(kept: KeptPublish, partition: int, header: BatchHeader) -> None:
    """Settle the run that a batch is of. Somebody else may write with any producer id: that is not taken for ours unless it is like it."""
    number = header.producer_epoch
    if header.base_sequence != NO_SEQUENCE or not 0 <= number < len(kept.runs):
        return
    run = kept.runs[number]
    if (run.partition, run.count) == (partition, header.record_count) and not run.is_settled:
        run.base_offset = header.base_offset
        run.append_time_ms = header.max_timestamp if header.is_log_append_time else -1
