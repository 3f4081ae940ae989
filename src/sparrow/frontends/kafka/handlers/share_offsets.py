"""DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets: positions of share
groups (KIP-932).

The offset is the start offset of a partition: everything before it is finished. The lag (version 1,
KIP-1226) counts the unfinished records from there to the end. Unknown values are -1, as in Kafka:
asking for them is not an error.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Final

from kio.schema.alter_share_group_offsets.v0 import response as altering
from kio.schema.delete_share_group_offsets.v0 import response as deleting
from kio.schema.describe_share_group_offsets.v1 import response as describing
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from sparrow.base.errors import SparrowError
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import group_code

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kio.schema.alter_share_group_offsets.v0.request import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequestTopic,
    )
    from kio.schema.delete_share_group_offsets.v0.request import DeleteShareGroupOffsetsRequest
    from kio.schema.describe_share_group_offsets.v1.request import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
        DescribeShareGroupOffsetsRequestTopic,
    )

    from sparrow.broker.groups.share.queues import GroupProgress
    from sparrow.frontends.kafka.call import Call
    from sparrow.records.topic_partition import TopicPartition

_UNKNOWN: Final = -1
_NO_ID: Final = uuid.UUID(int=0)
_DENIED_TEXT: Final = "Authorization failed."
_AT_ONCE: Final = 200
"""Partitions written before the loop runs other tasks."""


# ── describe ──────────────────────────────────────────────────────────────────────────────────────


async def describe(
    request: DescribeShareGroupOffsetsRequest, call: Call
) -> describing.DescribeShareGroupOffsetsResponse:
    """Describe groups, each with its own outcome: the given topics, or (null) all that it reads."""
    groups = [await _describe(group, call) for group in request.groups]
    return describing.DescribeShareGroupOffsetsResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))


async def _describe(
    wanted: DescribeShareGroupOffsetsRequestGroup, call: Call
) -> describing.DescribeShareGroupOffsetsResponseGroup:
    try:
        found = await call.broker.groups.share.progress(wanted.group_id, principal=call.principal)
    except SparrowError as error:
        return describing.DescribeShareGroupOffsetsResponseGroup(
            group_id=wanted.group_id, topics=(), error_code=group_code(error), error_message=error.text
        )
    topics = _all(found, call) if wanted.topics is None else await _asked(wanted.topics, found, call)
    return describing.DescribeShareGroupOffsetsResponseGroup(
        group_id=wanted.group_id, topics=tuple(topics), error_code=ErrorCode.none
    )


def _all(
    found: Mapping[TopicPartition, GroupProgress], call: Call
) -> list[describing.DescribeShareGroupOffsetsResponseTopic]:
    by_topic: dict[str, list[describing.DescribeShareGroupOffsetsResponsePartition]] = {}
    for (topic, number), progress in found.items():
        by_topic.setdefault(topic, []).append(_partition(number, progress))
    return [_topic(topic, partitions, call) for topic, partitions in by_topic.items()]


async def _asked(
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic],
    found: Mapping[TopicPartition, GroupProgress],
    call: Call,
) -> list[describing.DescribeShareGroupOffsetsResponseTopic]:
    responses = []
    count = 0
    for topic in topics:
        if call.broker.groups.share.is_hidden(topic.topic_name, principal=call.principal):
            responses.append(_topic(topic.topic_name, [_denied(n) for n in topic.partitions], None))
        else:
            partitions = [_partition(n, found.get((topic.topic_name, n))) for n in topic.partitions]
            responses.append(_topic(topic.topic_name, partitions, call))
        count += len(topic.partitions)
        if count >= _AT_ONCE:
            count = 0
            await asyncio.sleep(0)
    return responses


def _topic(
    name: str,
    partitions: Iterable[describing.DescribeShareGroupOffsetsResponsePartition],
    call: Call | None,
) -> describing.DescribeShareGroupOffsetsResponseTopic:
    return describing.DescribeShareGroupOffsetsResponseTopic(
        topic_name=TopicName(name),
        topic_id=_NO_ID if call is None else _id_of(name, call),
        partitions=tuple(partitions),
    )


def _partition(
    number: int, progress: GroupProgress | None
) -> describing.DescribeShareGroupOffsetsResponsePartition:
    return describing.DescribeShareGroupOffsetsResponsePartition(
        partition_index=number,
        start_offset=_UNKNOWN if progress is None else progress.start_offset,
        leader_epoch=0,
        lag=_UNKNOWN if progress is None else progress.lag,
        error_code=ErrorCode.none,
    )


def _denied(number: int) -> describing.DescribeShareGroupOffsetsResponsePartition:
    return describing.DescribeShareGroupOffsetsResponsePartition(
        partition_index=number,
        start_offset=_UNKNOWN,
        leader_epoch=0,
        lag=_UNKNOWN,
        error_code=ErrorCode.topic_authorization_failed,
        error_message=_DENIED_TEXT,
    )


def _id_of(topic: str, call: Call) -> uuid.UUID:
    return call.broker.topics.id_of(topic) or _NO_ID


# ── alter ─────────────────────────────────────────────────────────────────────────────────────────


async def alter(
    request: AlterShareGroupOffsetsRequest, call: Call
) -> altering.AlterShareGroupOffsetsResponse:
    """Set start offsets of a group without members; a missing group is created."""
    if not request.group_id:
        return _not_altered(ErrorCode.invalid_group_id, "The name of the group is missing.")
    offsets = {
        (topic.topic_name, partition.partition_index): partition.start_offset
        for topic in request.topics
        for partition in topic.partitions
    }
    try:
        results = await call.broker.groups.share.move(request.group_id, offsets, principal=call.principal)
    except SparrowError as error:
        return _not_altered(group_code(error), error.text)
    return altering.AlterShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        responses=tuple(_altered(topic, results, call) for topic in request.topics),
    )


def _not_altered(code: ErrorCode, text: str) -> altering.AlterShareGroupOffsetsResponse:
    return altering.AlterShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE, error_code=code, error_message=text, responses=()
    )


def _altered(
    topic: AlterShareGroupOffsetsRequestTopic,
    results: Mapping[TopicPartition, SparrowError | None],
    call: Call,
) -> altering.AlterShareGroupOffsetsResponseTopic:
    partitions = []
    for partition in topic.partitions:
        error = results[topic.topic_name, partition.partition_index]
        partitions.append(
            altering.AlterShareGroupOffsetsResponsePartition(
                partition_index=partition.partition_index,
                error_code=ErrorCode.none if error is None else group_code(error),
                error_message=None if error is None else error.text,
            )
        )
    return altering.AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, topic_id=_shown_id(topic.topic_name, call), partitions=tuple(partitions)
    )


def _shown_id(topic: str, call: Call) -> uuid.UUID:
    """Return the id of a topic if the caller may describe it."""
    return call.broker.topics.visible_id(topic, principal=call.principal) or _NO_ID


# ── delete ────────────────────────────────────────────────────────────────────────────────────────


async def delete(
    request: DeleteShareGroupOffsetsRequest, call: Call
) -> deleting.DeleteShareGroupOffsetsResponse:
    """Delete the positions of topics in a group without members."""
    if not request.group_id:
        return _not_deleted(ErrorCode.invalid_group_id, "The name of the group is missing.")
    topics = [topic.topic_name for topic in request.topics]
    try:
        results = await call.broker.groups.share.drop_topics(
            request.group_id, topics, principal=call.principal
        )
    except SparrowError as error:
        return _not_deleted(group_code(error), error.text)
    return deleting.DeleteShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        responses=tuple(_deleted(topic, error, call) for topic, error in results.items()),
    )


def _not_deleted(code: ErrorCode, text: str) -> deleting.DeleteShareGroupOffsetsResponse:
    return deleting.DeleteShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE, error_code=code, error_message=text, responses=()
    )


def _deleted(
    topic: str, error: SparrowError | None, call: Call
) -> deleting.DeleteShareGroupOffsetsResponseTopic:
    return deleting.DeleteShareGroupOffsetsResponseTopic(
        topic_name=TopicName(topic),
        topic_id=_NO_ID if error is not None else _shown_id(topic, call),
        error_code=ErrorCode.none if error is None else group_code(error),
        error_message=None if error is None else error.text,
    )
