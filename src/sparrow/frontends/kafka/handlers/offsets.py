"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete (KIP-211, KIP-447, KIP-496, KIP-709,
KIP-848, KIP-1251).

The shapes differ by version (a topic's name or id, one group or several), so each key has several
handlers here; they share two functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v9 import response as commit_9
from kio.schema.offset_commit.v10 import response as commit_10
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kio.schema.offset_fetch.v7 import response as fetch_7
from kio.schema.offset_fetch.v9 import response as fetch_9
from kio.schema.offset_fetch.v10 import response as fetch_10
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from sparrow.base.errors import SparrowError
from sparrow.broker.groups.offsets import Committer, OffsetAndMetadata
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import group_code

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Mapping

    from kio.schema.offset_commit.v4.request import OffsetCommitRequest as Commit4
    from kio.schema.offset_commit.v9.request import OffsetCommitRequest as Commit9
    from kio.schema.offset_commit.v10.request import OffsetCommitRequest as Commit10
    from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
    from kio.schema.offset_fetch.v7.request import OffsetFetchRequest as Fetch7
    from kio.schema.offset_fetch.v9.request import OffsetFetchRequest as Fetch9
    from kio.schema.offset_fetch.v9.request import OffsetFetchRequestGroup as FetchGroup9
    from kio.schema.offset_fetch.v10.request import OffsetFetchRequest as Fetch10
    from kio.schema.offset_fetch.v10.request import OffsetFetchRequestGroup as FetchGroup10

    from sparrow.frontends.kafka.call import Call
    from sparrow.records.topic_partition import TopicPartition

_KNOWS_MEMBER_EPOCHS_SINCE: Final = 9
_GROUP_ERROR_SINCE: Final = 2
_UNKNOWN_ID: Final = ""
"""Placeholder for the name of a topic with an unknown id; no topic has this name."""

Named = Sequence[tuple[str, Sequence[int]]]
"""Topic names with partitions, as a request lists them."""
Result = OffsetAndMetadata | SparrowError | None


# ── OffsetCommit ──────────────────────────────────────────────────────────────────────────────────


async def commit_with_retention(request: Commit4, call: Call) -> commit_9.OffsetCommitResponse:
    """Commit offsets with a retention time (versions 2 to 4)."""
    retention_ms = round(request.retention_time.total_seconds() * 1000)
    kept_until_ms = -1 if retention_ms < 0 else call.broker.clock.wall_ms() + retention_ms
    committer = Committer(request.member_id, request.generation_id_or_member_epoch, knows_member_epochs=False)
    offsets = {
        (topic.name, each.partition_index): OffsetAndMetadata(
            each.committed_offset, each.committed_metadata or "", kept_until_ms=kept_until_ms
        )
        for topic in request.topics
        for each in topic.partitions
    }
    codes = await _commit(call, request.group_id, committer, offsets)
    return _commit_response(((topic.name, topic.partitions) for topic in request.topics), codes)


async def commit(request: Commit9, call: Call) -> commit_9.OffsetCommitResponse:
    """Commit offsets (versions 5 to 9)."""
    offsets = {
        (topic.name, each.partition_index): _offset(each)
        for topic in request.topics
        for each in topic.partitions
    }
    codes = await _commit(call, request.group_id, _committer(request, call), offsets)
    return _commit_response(((topic.name, topic.partitions) for topic in request.topics), codes)


async def commit_by_id(request: Commit10, call: Call) -> commit_10.OffsetCommitResponse:
    """Commit offsets of topics by id (version 10)."""
    names = [_name_of(topic.topic_id, call) for topic in request.topics]
    offsets = {
        (name, each.partition_index): _offset(each)
        for name, topic in zip(names, request.topics, strict=True)
        for each in topic.partitions
        if name != _UNKNOWN_ID
    }
    codes = await _commit(call, request.group_id, _committer(request, call), offsets)
    topics = tuple(
        commit_10.OffsetCommitResponseTopic(
            topic_id=topic.topic_id,
            partitions=tuple(
                commit_10.OffsetCommitResponsePartition(
                    partition_index=each.partition_index,
                    error_code=codes.get((name, each.partition_index), ErrorCode.unknown_topic_id),
                )
                for each in topic.partitions
            ),
        )
        for name, topic in zip(names, request.topics, strict=True)
    )
    return commit_10.OffsetCommitResponse(throttle_time=NO_THROTTLE, topics=topics)


def _committer(request: Commit9 | Commit10, call: Call) -> Committer:
    return Committer(
        request.member_id,
        request.generation_id_or_member_epoch,
        request.group_instance_id,
        knows_member_epochs=call.version >= _KNOWS_MEMBER_EPOCHS_SINCE,
    )


def _offset(partition: Any) -> OffsetAndMetadata:
    return OffsetAndMetadata(
        partition.committed_offset, partition.committed_metadata or "", partition.committed_leader_epoch
    )


async def _commit(
    call: Call, group: str, committer: Committer, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> dict[TopicPartition, ErrorCode]:
    """Return a code per partition; an error of the group applies to each partition."""
    try:
        results = await call.broker.groups.commit(group, offsets, committer, principal=call.principal)
    except SparrowError as error:
        return dict.fromkeys(offsets, group_code(error))
    return {p: ErrorCode.none if error is None else group_code(error) for p, error in results.items()}


def _commit_response(
    topics: Iterable[tuple[str, Sequence[Any]]], codes: Mapping[TopicPartition, ErrorCode]
) -> commit_9.OffsetCommitResponse:
    return commit_9.OffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            commit_9.OffsetCommitResponseTopic(
                name=TopicName(name),
                partitions=tuple(
                    commit_9.OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=codes[name, each.partition_index]
                    )
                    for each in partitions
                ),
            )
            for name, partitions in topics
        ),
    )


# ── OffsetFetch ───────────────────────────────────────────────────────────────────────────────────


async def fetch_of_one(request: Fetch7, call: Call) -> fetch_7.OffsetFetchResponse:
    """Return the offsets of one group (versions 1 to 7); from version 2, null means all topics."""
    wanted = _wanted(request.topics)
    found = await _fetch(call, request.group_id, wanted, require_stable=request.require_stable)
    code = ErrorCode.none
    if isinstance(found, SparrowError):
        code = group_code(found)
        has_group_error = call.version >= _GROUP_ERROR_SINCE
        found = {} if has_group_error or wanted is None else dict.fromkeys(_flat(wanted), found)
        wanted = () if has_group_error else wanted
    topics = tuple(
        fetch_7.OffsetFetchResponseTopic(
            name=TopicName(name),
            partitions=tuple(
                fetch_7.OffsetFetchResponsePartition(**_fields(index, found.get((name, index))))
                for index in indexes
            ),
        )
        for name, indexes in _shape(wanted, found)
    )
    return fetch_7.OffsetFetchResponse(throttle_time=NO_THROTTLE, topics=topics, error_code=code)


async def fetch(request: Fetch9, call: Call) -> fetch_9.OffsetFetchResponse:
    """Return the offsets of several groups (versions 8 and 9); from version 9 for a member at an
    epoch.
    """
    groups = tuple([await _fetch_group(group, request, call) for group in request.groups])
    return fetch_9.OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=groups)


async def _fetch_group(group: FetchGroup9, request: Fetch9, call: Call) -> fetch_9.OffsetFetchResponseGroup:
    wanted = _wanted(group.topics)
    found = await _fetch(
        call,
        group.group_id,
        wanted,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
        require_stable=request.require_stable,
    )
    if isinstance(found, SparrowError):
        return fetch_9.OffsetFetchResponseGroup(
            group_id=group.group_id, topics=(), error_code=group_code(found)
        )
    topics = tuple(
        fetch_9.OffsetFetchResponseTopics(
            name=TopicName(name),
            partitions=tuple(
                fetch_9.OffsetFetchResponsePartitions(**_fields(index, found.get((name, index))))
                for index in indexes
            ),
        )
        for name, indexes in _shape(wanted, found)
    )
    return fetch_9.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=ErrorCode.none)


async def fetch_by_id(request: Fetch10, call: Call) -> fetch_10.OffsetFetchResponse:
    """Return the offsets of topics by id (version 10)."""
    groups = tuple([await _fetch_group_by_id(group, request, call) for group in request.groups])
    return fetch_10.OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=groups)


async def _fetch_group_by_id(
    group: FetchGroup10, request: Fetch10, call: Call
) -> fetch_10.OffsetFetchResponseGroup:
    wanted = None
    if group.topics is not None:
        wanted = [(_name_of(topic.topic_id, call), topic.partition_indexes) for topic in group.topics]
    known = None if wanted is None else [each for each in wanted if each[0] != _UNKNOWN_ID]
    found = await _fetch(
        call,
        group.group_id,
        known,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
        require_stable=request.require_stable,
    )
    if isinstance(found, SparrowError):
        return fetch_10.OffsetFetchResponseGroup(
            group_id=group.group_id, topics=(), error_code=group_code(found)
        )
    shape = _shape(wanted, found)
    ids = [_id_of(name, call) for name, _ in shape]
    if group.topics is not None:
        ids = [topic.topic_id for topic in group.topics]
    topics = tuple(
        fetch_10.OffsetFetchResponseTopics(
            topic_id=topic_id,
            partitions=tuple(
                fetch_10.OffsetFetchResponsePartitions(
                    **(
                        _failed(index, ErrorCode.unknown_topic_id)
                        if name == _UNKNOWN_ID
                        else _fields(index, found.get((name, index)))
                    )
                )
                for index in indexes
            ),
        )
        for topic_id, (name, indexes) in zip(ids, shape, strict=True)
    )
    return fetch_10.OffsetFetchResponseGroup(
        group_id=group.group_id, topics=topics, error_code=ErrorCode.none
    )


async def _fetch(
    call: Call,
    group: str,
    wanted: Named | None,
    *,
    member_id: str | None = None,
    member_epoch: int = -1,
    require_stable: bool = False,
) -> Mapping[TopicPartition, Result] | SparrowError:
    try:
        return await call.broker.groups.fetch(
            group,
            None if wanted is None else _flat(wanted),
            member_id=member_id,
            member_epoch=member_epoch,
            require_stable=require_stable,
            principal=call.principal,
        )
    except SparrowError as error:
        return error


def _wanted(topics: Sequence[Any] | None) -> Named | None:
    return None if topics is None else [(topic.name, topic.partition_indexes) for topic in topics]


def _flat(wanted: Named) -> list[TopicPartition]:
    return [(name, index) for name, indexes in wanted for index in indexes]


def _shape(wanted: Named | None, found: Mapping[TopicPartition, Result]) -> Named:
    """Return topics and partitions as requested, or all that were found."""
    if wanted is not None:
        return wanted
    by_topic: dict[str, list[int]] = {}
    for topic, index in found:
        by_topic.setdefault(topic, []).append(index)
    return list(by_topic.items())


def _fields(index: int, result: Result) -> dict[str, Any]:
    """Return the response fields of a partition; without a commit the offset is -1."""
    if result is None:
        return _failed(index, ErrorCode.none)
    if isinstance(result, SparrowError):
        return _failed(index, group_code(result))
    return {
        "partition_index": i32(index),
        "committed_offset": i64(result.offset),
        "committed_leader_epoch": i32(result.leader_epoch),
        "metadata": result.metadata,
        "error_code": ErrorCode.none,
    }


def _failed(index: int, code: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": i32(index),
        "committed_offset": i64(-1),
        "committed_leader_epoch": i32(-1),
        "metadata": "",
        "error_code": code,
    }


# ── OffsetDelete ──────────────────────────────────────────────────────────────────────────────────


async def delete(request: OffsetDeleteRequest, call: Call) -> OffsetDeleteResponse:
    """Delete the offsets of topics that no member reads (KIP-496)."""
    partitions = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    try:
        results = await call.broker.groups.delete_offsets(
            request.group_id, partitions, principal=call.principal
        )
    except SparrowError as error:
        return OffsetDeleteResponse(error_code=group_code(error), throttle_time=NO_THROTTLE, topics=())
    topics = tuple(
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetDeleteResponsePartition(
                    partition_index=each.partition_index,
                    error_code=_code(results[topic.name, each.partition_index]),
                )
                for each in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return OffsetDeleteResponse(error_code=ErrorCode.none, throttle_time=NO_THROTTLE, topics=topics)


def _code(error: SparrowError | None) -> ErrorCode:
    return ErrorCode.none if error is None else group_code(error)


# ── topic ids ─────────────────────────────────────────────────────────────────────────────────────


def _name_of(topic_id: uuid.UUID | None, call: Call) -> str:
    name = call.broker.topics.name_of(topic_id)
    return _UNKNOWN_ID if name is None else name


def _id_of(name: str, call: Call) -> uuid.UUID | None:
    return call.broker.topics.id_of(name)
