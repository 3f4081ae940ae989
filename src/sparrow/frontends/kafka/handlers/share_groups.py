"""ShareGroupHeartbeat and ShareGroupDescribe: groups whose members share partitions (KIP-932)."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode
from kio.schema.share_group_describe.v1 import response as describing
from kio.schema.share_group_heartbeat.v1.response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

from sparrow.base.errors import SparrowError
from sparrow.broker.groups.consumer.member import by_topic
from sparrow.broker.groups.share.member import ShareHeartbeat
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import group_code
from sparrow.frontends.kafka.handlers.group_descriptions import describe_groups, named_assignment

if TYPE_CHECKING:
    from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
    from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest

    from sparrow.broker.groups.consumer.member import HeartbeatResponse
    from sparrow.broker.groups.share.description import ShareMemberDescription
    from sparrow.frontends.kafka.call import Call


async def heartbeat(request: ShareGroupHeartbeatRequest, call: Call) -> ShareGroupHeartbeatResponse:
    """Let a member join, stay, or leave."""
    service = call.broker.groups.share
    beat = ShareHeartbeat(
        request.member_id,
        request.member_epoch,
        rack_id=request.rack_id,
        topics=request.subscribed_topic_names,
        client_id=call.client_id,
        client_host=call.client_host,
    )
    try:
        beat_result = await service.heartbeat(request.group_id, beat, principal=call.principal)
    except SparrowError as error:
        return ShareGroupHeartbeatResponse(
            throttle_time=NO_THROTTLE,
            error_code=group_code(error),
            error_message=error.text,
            member_epoch=0,
            heartbeat_interval=NO_THROTTLE,
        )
    return _heartbeat_response(beat_result, service.settings(request.group_id).heartbeat_interval_ms)


def _heartbeat_response(beat_result: HeartbeatResponse, interval_ms: int) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=beat_result.member_id,
        member_epoch=beat_result.member_epoch,
        heartbeat_interval=timedelta(milliseconds=interval_ms),
        assignment=None if beat_result.assignment is None else _assignment(by_topic(beat_result.assignment)),
    )


def _assignment(partitions: dict[uuid.UUID, list[int]]) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(numbers))
            for topic_id, numbers in partitions.items()
        )
    )


# ── describing ────────────────────────────────────────────────────────────────────────────────────


def describe(request: ShareGroupDescribeRequest, call: Call) -> describing.ShareGroupDescribeResponse:
    """Describe groups; each has its own outcome."""
    find = call.broker.groups.share.describe
    return describing.ShareGroupDescribeResponse(
        throttle_time=NO_THROTTLE,
        groups=describe_groups(describing, request, call, find=find, member=_member, code=group_code),
    )


def _member(described: ShareMemberDescription) -> describing.Member:
    member = described.member
    return describing.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        assignment=named_assignment(describing, described.assigned),
    )
