"""OffsetForLeaderEpoch (KIP-320): the end of an epoch. There is one epoch, and it has not ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

from sparrow.base.errors import SparrowError
from sparrow.broker.partition import LEADER_EPOCH
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import code_of

if TYPE_CHECKING:
    from kio.schema.offset_for_leader_epoch.v4.request import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
    )

    from sparrow.frontends.kafka.call import Call

NO_EPOCH = -1


def epoch_error(current_epoch: int) -> ErrorCode:
    """Return the error code for the leader epoch that a client assumes (-1: it assumes none)."""
    if current_epoch in {NO_EPOCH, LEADER_EPOCH}:
        return ErrorCode.none
    return ErrorCode.fenced_leader_epoch if current_epoch < LEADER_EPOCH else ErrorCode.unknown_leader_epoch


async def handle(request: OffsetForLeaderEpochRequest, call: Call) -> OffsetForLeaderEpochResponse:
    """Return the end offset of each requested epoch; (-1, -1) for one that never existed."""
    return OffsetForLeaderEpochResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            [
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=tuple([await _end(topic.topic, each, call) for each in topic.partitions]),
                )
                for topic in request.topics
            ]
        ),
    )


async def _end(topic: str, wanted: OffsetForLeaderPartition, call: Call) -> EpochEndOffset:
    code = epoch_error(wanted.current_leader_epoch)
    if code is ErrorCode.none:
        try:
            partition = call.broker.topics.partition(topic, wanted.partition, principal=call.principal)
            await partition.opened()
            end = partition.visible_end
        except SparrowError as error:
            code = code_of(error)
    if code is not ErrorCode.none:
        return EpochEndOffset(error_code=code, partition=wanted.partition)
    if wanted.leader_epoch != LEADER_EPOCH:
        return EpochEndOffset(error_code=ErrorCode.none, partition=wanted.partition)
    return EpochEndOffset(
        error_code=ErrorCode.none, partition=wanted.partition, leader_epoch=LEADER_EPOCH, end_offset=end
    )
