"""Metadata: the broker, the topics, their partitions. Missing topics are created if client and
broker both allow it.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v10.response import MetadataResponse as MetadataResponseWithCluster
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from sparrow.base.errors import NotAuthorized, SparrowError, TopicExists
from sparrow.broker.access.authz import ResourceType
from sparrow.frontends.kafka.call import MAX_ENTRIES_ON_LOOP, NO_THROTTLE, encode_large
from sparrow.frontends.kafka.errors import code_of
from sparrow.frontends.kafka.wire_codes import authorized_operations, cluster_operations

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic

    from sparrow.frontends.kafka.call import Call
    from sparrow.model.topics import TopicDescription

NOT_REQUESTED = -(1 << 31)
"""Value of `authorized_operations` if it was not requested (KIP-430)."""
_ALL_TOPICS_VERSION_0 = 0
_IDS_SINCE_VERSION = 12
"""Versions 10 and 11 have the field, but Kafka accepts ids, and null for a name, only from here on;
earlier responses must have a name.
"""
_NO_NODE = -1
_AT_ONCE = 100
"""Topics that are looked up, and created, concurrently."""


def handle(request: MetadataRequest, call: Call) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    """Return all topics (null), or those named or identified by id."""
    wanted = request.topics
    if wanted is None or (call.version == _ALL_TOPICS_VERSION_0 and not wanted):
        infos = call.broker.topics.listing(internal=True, principal=call.principal)
        response = _response(request, call, [_topic(info, call) for info in infos])
        entries = sum(info.partition_count for info in infos)
        return encode_large(lambda: response, entries, call) if entries > MAX_ENTRIES_ON_LOOP else response
    return _handle_some(request, call, wanted)


async def _handle_some(
    request: MetadataRequest, call: Call, wanted: tuple[MetadataRequestTopic, ...]
) -> MetadataResponse:
    if call.version < _IDS_SINCE_VERSION and any(each.name is None or each.topic_id for each in wanted):
        refused = [_failed(ErrorCode.invalid_request, name=each.name or "") for each in wanted]
        return _response(request, call, refused)
    may_create = request.allow_auto_topic_creation or call.version < 4
    different = list({each.name or each.topic_id or "": each for each in wanted}.values())
    if len(different) == 1:
        return _response(request, call, [await _find(different[0], call, may_create=may_create)])
    topics: list[MetadataResponseTopic] = []
    for first in range(0, len(different), _AT_ONCE):
        some = different[first : first + _AT_ONCE]
        # New topics share a commit; looking up existing ones is fast, so the loop is not blocked.
        topics += await asyncio.gather(*(_find(each, call, may_create=may_create) for each in some))
    return _response(request, call, topics)


async def _find(wanted: MetadataRequestTopic, call: Call, *, may_create: bool) -> MetadataResponseTopic:
    name = wanted.name
    # Java sends an empty name with an id
    if name is None or (not name and wanted.topic_id is not None):
        return _find_by_id(wanted.topic_id, call)
    try:
        if may_create:
            try:
                info = await call.broker.topics.ensure(name, principal=call.principal)
            except TopicExists:  # created by another request meanwhile
                info = call.broker.topics.summary(name, principal=call.principal)
        else:
            info = call.broker.topics.summary(name, principal=call.principal)
    except SparrowError as error:
        return _failed(code_of(error), name=name)
    return _topic(info, call)


def _find_by_id(topic_id: uuid.UUID | None, call: Call) -> MetadataResponseTopic:
    name = call.broker.topics.name_of(topic_id)
    if name is None:
        return _failed(ErrorCode.unknown_topic_id, topic_id=topic_id)
    try:
        return _topic(call.broker.topics.summary(name, principal=call.principal), call)
    except NotAuthorized as error:  # ids are not secret, as in Kafka; the name is
        return _failed(code_of(error), topic_id=topic_id)


def _failed(
    code: ErrorCode, *, name: str | None = None, topic_id: uuid.UUID | None = None
) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=())


def _topic(info: TopicDescription, call: Call) -> MetadataResponseTopic:
    partitions = _partitions(call.frontend.leader_id, call.broker.leader_epoch, info.partition_count)
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=info.name,
        topic_id=uuid.UUID(info.id),
        is_internal=call.broker.topics.is_internal(info.name),
        partitions=partitions,
    )


@lru_cache(maxsize=128)
def _partitions(node: int, epoch: int, count: int) -> tuple[MetadataResponsePartition, ...]:
    """Return the partitions of any topic with that many: they are all alike. `node`: -1 if nobody
    leads them.
    """
    has_leader = node != _NO_NODE
    nodes = (node,) if has_leader else ()
    return tuple(
        MetadataResponsePartition(
            error_code=ErrorCode.none if has_leader else ErrorCode.leader_not_available,
            partition_index=index,
            leader_id=node,
            leader_epoch=epoch,
            replica_nodes=nodes,
            isr_nodes=nodes,
        )
        for index in range(count)
    )


def _response(request: MetadataRequest, call: Call, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        topics = [_with_operations(topic, call) for topic in topics]
    host, port = call.frontend.advertised(call.connection)
    response = MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=(
            MetadataResponseBroker(node_id=call.frontend.node_id, host=host, port=port),
            # Clients try those when this broker is gone: they forget the addresses they began with.
            *(
                MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port)
                for each in call.broker.standbys
                if each.listener == call.connection.listener.name
            ),
        ),
        cluster_id=call.broker.cluster_id,
        controller_id=call.frontend.leader_id,
        topics=tuple(topics),
        error_code=ErrorCode.none,
    )
    # Up to version 10 Metadata also has the operations on the cluster; later DescribeCluster has
    # them.
    if getattr(request, "include_cluster_authorized_operations", False):
        return _with_cluster_operations(response, call)
    return response


def _with_operations(topic: MetadataResponseTopic, call: Call) -> MetadataResponseTopic:
    if topic.error_code is not ErrorCode.none or topic.name is None:
        return topic
    return replace(
        topic, topic_authorized_operations=authorized_operations(call, ResourceType.TOPIC, topic.name)
    )


def _with_cluster_operations(response: MetadataResponse, call: Call) -> MetadataResponse:
    """Convert the response to version 10, which has one field more and one less."""
    values: dict[str, Any] = {each.name: getattr(response, each.name) for each in fields(response)}
    del values["error_code"]
    return cast(
        MetadataResponse,
        MetadataResponseWithCluster(**values, cluster_authorized_operations=cluster_operations(call)),
    )
