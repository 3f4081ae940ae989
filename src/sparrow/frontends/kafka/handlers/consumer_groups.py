"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups whose partitions the broker assigns
(KIP-848).
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from kio.schema.consumer_group_describe.v1 import response as describing
from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kio.schema.errors import ErrorCode

from sparrow.base.errors import SparrowError
from sparrow.broker.groups.consumer.member import Heartbeat, by_topic
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import group_code
from sparrow.frontends.kafka.handlers.group_descriptions import describe_groups, named_assignment

if TYPE_CHECKING:
    from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
    from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest

    from sparrow.broker.groups.consumer.description import ConsumerMemberDescription
    from sparrow.broker.groups.consumer.member import Assignment as Partitions
    from sparrow.broker.groups.consumer.member import HeartbeatResponse
    from sparrow.frontends.kafka.call import Call

_NO_ID: Final = uuid.UUID(int=0)
_MILLISECOND: Final = timedelta(milliseconds=1)
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
_FIRST_WITH_OWN_IDS: Final = 1


async def heartbeat(request: ConsumerGroupHeartbeatRequest, call: Call) -> ConsumerGroupHeartbeatResponse:
    """Let a member join, stay, or leave."""
    service = call.broker.groups.consumer
    try:
        beat_result = await service.heartbeat(
            request.group_id, _beat(request, call), principal=call.principal
        )
    except SparrowError as error:
        return _refused(error)
    return _heartbeat_response(beat_result, service.heartbeat_interval_ms(request.group_id))


def _beat(request: ConsumerGroupHeartbeatRequest, call: Call) -> Heartbeat:
    owned = request.topic_partitions
    return Heartbeat(
        request.member_id,
        request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout // _MILLISECOND,
        topics=request.subscribed_topic_names,
        regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=(
            None
            if owned is None
            else frozenset((each.topic_id or _NO_ID, number) for each in owned for number in each.partitions)
        ),
        client_id=call.client_id,
        client_host=call.client_host,
        must_have_id=call.version >= _FIRST_WITH_OWN_IDS,
    )


def _heartbeat_response(beat_result: HeartbeatResponse, interval_ms: int) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=beat_result.member_id,
        member_epoch=beat_result.member_epoch,
        heartbeat_interval=timedelta(milliseconds=interval_ms),
        assignment=None if beat_result.assignment is None else _assignment(beat_result.assignment),
    )


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(numbers))
            for topic_id, numbers in by_topic(partitions).items()
        )
    )


def _refused(error: SparrowError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=group_code(error),
        error_message=error.text,
        member_epoch=0,
        heartbeat_interval=NO_THROTTLE,
    )


# ── describing ────────────────────────────────────────────────────────────────────────────────────


def describe(request: ConsumerGroupDescribeRequest, call: Call) -> describing.ConsumerGroupDescribeResponse:
    """Describe groups; each has its own outcome."""
    find = call.broker.groups.consumer.describe
    return describing.ConsumerGroupDescribeResponse(
        throttle_time=NO_THROTTLE,
        groups=describe_groups(describing, request, call, find=find, member=_member, code=group_code),
    )


def _member(described: ConsumerMemberDescription) -> describing.Member:
    member = described.member
    return describing.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.regex,
        assignment=named_assignment(describing, described.assigned),
        target_assignment=named_assignment(describing, described.target),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )
