"""DeleteRecords: moving the start of partitions forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.deadlines import outcomes

if TYPE_CHECKING:
    from kio.schema.delete_records.v2.request import DeleteRecordsRequest

    from sparrow.frontends.kafka.call import Call

_UNKNOWN_LOW_WATERMARK: Final = -1


async def handle(request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    """Delete records; each partition has its own outcome."""
    wanted = [
        (topic.name, each.partition_index, each.offset)
        for topic in request.topics
        for each in topic.partitions
    ]
    starts: dict[tuple[str, int], int] = {}

    async def delete(name: str, partition: int, offset: int) -> None:
        found = await call.broker.topics.delete_records(name, {partition: offset}, principal=call.principal)
        starts[name, partition] = found[partition]

    ended = await outcomes(request.timeout, [delete(*each) for each in wanted])
    results: dict[str, list[DeleteRecordsPartitionResult]] = {topic.name: [] for topic in request.topics}
    for (name, partition, _), outcome in zip(wanted, ended, strict=True):
        results[name].append(
            DeleteRecordsPartitionResult(
                partition_index=partition,
                low_watermark=starts.get((name, partition), _UNKNOWN_LOW_WATERMARK),
                error_code=outcome.code,
            )
        )
    topics = tuple(
        DeleteRecordsTopicResult(name=name, partitions=tuple(partitions))
        for name, partitions in results.items()
    )
    return DeleteRecordsResponse(throttle_time=NO_THROTTLE, topics=topics)
