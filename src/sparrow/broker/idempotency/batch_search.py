"""Search of the log for the batches of a publish, after a crash or a failed sync.

Each batch has the producer id that was created for its publish alone, and its number in the publish
as epoch. One pass over the headers behind the former end of the partition shows whether it was
appended; records are not read, and partitions remember nothing.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from sparrow.broker.produced_batches import find_produced
from sparrow.broker.producers import NO_SEQUENCE

if TYPE_CHECKING:
    from sparrow.broker.idempotency.stored_publish import StoredPublish
    from sparrow.broker.topics.registry import Topic, TopicRegistry
    from sparrow.records.batch import BatchHeader


async def find_batches(topics: TopicRegistry, kept: StoredPublish) -> None:
    """Settle the runs whose batches are in the log; these are on stable storage when this returns.
    Nothing of this publish may be under way.

    Raises:
        StorageFailed, Overloaded: the log cannot be read or synced now.
        UnknownTopic: it is being deleted.
    """
    topic = topics.find_id(uuid.UUID(bytes=kept.topic_id))
    if topic is None:
        return
    for partition in sorted({run.partition for run in kept.runs if not run.is_settled}):
        await _find_in(topic, partition, kept)


async def _find_in(topic: Topic, partition: int, kept: StoredPublish) -> None:
    log = topic.partition(partition).log
    end = log.end_offset
    found = await find_produced(log, kept.producer_id, kept.looked_from[partition])
    for header in found:
        _take(kept, partition, header)
    if found:
        await log.durable(end)
    kept.looked_from[partition] = end


def _take(kept: StoredPublish, partition: int, header: BatchHeader) -> None:
    """Settle the run of a batch. Another client may write with any producer id: such a batch is
    ignored unless it matches the run.
    """
    number = header.producer_epoch
    if header.base_sequence != NO_SEQUENCE or not 0 <= number < len(kept.runs):
        return
    run = kept.runs[number]
    if (run.partition, run.count) == (partition, header.record_count) and not run.is_settled:
        run.base_offset = header.base_offset
        run.append_time_ms = header.max_timestamp if header.is_log_append_time else -1
