"""DescribeTopicPartitions (KIP-966): topics in order of name, a limited number of partitions at a
time.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from kio.schema.describe_topic_partitions.v0.response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kio.schema.errors import ErrorCode

from sparrow.base.errors import SparrowError
from sparrow.broker.access.authz import ResourceType
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import code_of
from sparrow.frontends.kafka.wire_codes import authorized_operations

if TYPE_CHECKING:
    from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest

    from sparrow.frontends.kafka.call import Call
    from sparrow.model.topics import TopicDescription

MAX_PARTITIONS: Final = 2000
"""Limit of one response (max.request.partition.size.limit)."""


def handle(request: DescribeTopicPartitionsRequest, call: Call) -> DescribeTopicPartitionsResponse:
    """Describe all topics (none named) or the named ones, starting at the cursor."""
    cursor = request.cursor
    first_name = cursor.topic_name if cursor is not None else ""
    if cursor is not None and cursor.partition_index < 0:
        refused = sorted({topic.name for topic in request.topics})
        return _response([_failed(name, ErrorCode.invalid_request) for name in refused], None)
    names = _names(request, call, first_name)
    left = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if left == 0:
            return _response(topics, Cursor(topic_name=name, partition_index=0))
        info = _info(name, call)
        if not isinstance(info, ErrorCode):
            start = cursor.partition_index if cursor is not None and name == first_name else 0
            end = min(info.partition_count, start + left)
            topics.append(_topic(info, range(start, end), call))
            left -= max(0, end - start)
            if end < info.partition_count:
                return _response(topics, Cursor(topic_name=name, partition_index=end))
        elif request.topics:
            topics.append(_failed(name, info))
    return _response(topics, None)


def _names(request: DescribeTopicPartitionsRequest, call: Call, first: str) -> list[str]:
    names = {str(topic.name) for topic in request.topics}
    if not request.topics:
        names = {info.name for info in call.broker.topics.listing(internal=True, principal=call.principal)}
    return sorted(name for name in names if name >= first)


def _info(name: str, call: Call) -> TopicDescription | ErrorCode:
    try:
        return call.broker.topics.summary(name, principal=call.principal)
    except SparrowError as error:
        return code_of(error)


def _failed(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=None, partitions=())


def _topic(info: TopicDescription, indexes: range, call: Call) -> DescribeTopicPartitionsResponseTopic:
    node = call.frontend.leader_id
    nodes = (node,) if node >= 0 else ()
    partitions = tuple(
        DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.none if nodes else ErrorCode.leader_not_available,
            partition_index=index,
            leader_id=node,
            leader_epoch=call.broker.leader_epoch,
            replica_nodes=nodes,
            isr_nodes=nodes,
            eligible_leader_replicas=(),
            last_known_elr=(),
        )
        for index in indexes
    )
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.none,
        name=info.name,
        topic_id=uuid.UUID(info.id),
        is_internal=call.broker.topics.is_internal(info.name),
        partitions=partitions,
        topic_authorized_operations=authorized_operations(call, ResourceType.TOPIC, info.name),
    )


def _response(
    topics: list[DescribeTopicPartitionsResponseTopic], cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        throttle_time=NO_THROTTLE, topics=tuple(topics), next_cursor=cursor
    )
