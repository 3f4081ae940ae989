"""OffsetForLeaderEpoch (KIP-320): how far what a client read in an epoch is still there.

A broker of its own has one epoch, which has not ended. In a cluster each owner has another one,
which ends where the first batch of the next one begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

from sparrow.base.errors import SparrowError
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import code_of

if TYPE_CHECKING:
    from kio.schema.offset_for_leader_epoch.v4.request import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
    )

    from sparrow.frontends.kafka.call import Call

NO_EPOCH = -1


def epoch_error(assumed: int, epoch: int) -> ErrorCode:
    """Return the error code for the leader epoch that a client assumes (-1: it assumes none)."""
    if assumed in {NO_EPOCH, epoch}:
        return ErrorCode.none
    return ErrorCode.fenced_leader_epoch if assumed < epoch else ErrorCode.unknown_leader_epoch


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
    code = epoch_error(wanted.current_leader_epoch, call.broker.leader_epoch)
    if code is ErrorCode.none:
        try:
            partition = call.broker.topics.partition(topic, wanted.partition, principal=call.principal)
            await partition.opened()
            epoch, end = partition.end_of_epoch(wanted.leader_epoch)
        except SparrowError as error:
            code = code_of(error)
    if code is not ErrorCode.none:
        return EpochEndOffset(error_code=code, partition=wanted.partition)
    return EpochEndOffset(
        error_code=ErrorCode.none,
        partition=wanted.partition,
        leader_epoch=epoch,
        end_offset=end,
    )
