"""ListOffsets: the offset for a timestamp, and of the beginning and end (KIP-79, KIP-734, KIP-1005,
KIP-1023).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from sparrow.base.errors import SparrowError
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import code_of
from sparrow.frontends.kafka.handlers.leader_epochs import epoch_error

if TYPE_CHECKING:
    from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest

    from sparrow.broker.partition import Partition
    from sparrow.frontends.kafka.call import Call

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
READ_COMMITTED = 1
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The version that introduced a special timestamp."""
_NOT_FOUND = (-1, -1)
_AT_ONCE = 256
"""Partitions looked up before the loop runs other tasks."""


async def handle(request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    """Return one offset per partition; -1 if no record is that late."""
    committed = request.isolation_level == READ_COMMITTED
    times = Counter(
        (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    )
    topics = []
    done = 0
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            done += 1
            if done % _AT_ONCE == 0:
                await asyncio.sleep(0)
            if times[topic.name, each.partition_index] > 1:
                partitions.append(_failed(each, ErrorCode.invalid_request))
            else:
                partitions.append(await _partition_response(topic.name, each, call, committed=committed))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


async def _partition_response(
    topic: str, wanted: ListOffsetsPartition, call: Call, *, committed: bool
) -> ListOffsetsPartitionResponse:
    code = epoch_error(wanted.current_leader_epoch, call.broker.leader_epoch)
    if code is not ErrorCode.none:
        return _failed(wanted, code)
    if wanted.timestamp < LATEST and call.version < _SINCE.get(
        wanted.timestamp, 1 if wanted.timestamp == EARLIEST else 99
    ):
        return _failed(wanted, ErrorCode.unsupported_version)
    try:
        partition = call.broker.topics.partition(topic, wanted.partition_index, principal=call.principal)
        offset, timestamp = await _find(partition, wanted.timestamp, committed=committed)
    except SparrowError as error:
        return _failed(wanted, code_of(error))
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.none,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=call.broker.leader_epoch if offset >= 0 else -1,
    )


async def _find(partition: Partition, timestamp: int, *, committed: bool) -> tuple[int, int]:
    """Return (offset, timestamp); (-1, -1) if there is no such record."""
    await partition.opened()
    end = partition.last_stable_offset if committed else partition.visible_end
    if timestamp == LATEST:
        return end, -1
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return partition.start_offset, -1
    if timestamp in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:
        return _NOT_FOUND  # there is no remote tier
    if timestamp == MAX_TIMESTAMP:
        found = await _latest_record(partition)
    else:
        found = await partition.log.offset_for_timestamp(timestamp)
    return found if found is not None and found[0] < end else _NOT_FOUND


async def _latest_record(partition: Partition) -> tuple[int, int] | None:
    """Return the first record with the greatest timestamp."""
    log = partition.log
    if log.start_offset == log.end_offset or log.max_timestamp < 0:
        return None
    found = await log.offset_for_timestamp(log.max_timestamp)
    if found is not None:
        return found
    # The record with that timestamp was deleted: search the remaining batches.
    left = await asyncio.to_thread(
        lambda: max((header.max_timestamp for header in log.headers(log.start_offset)), default=-1)
    )
    return await log.offset_for_timestamp(left) if left >= 0 else None


def _failed(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)
