"""CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode

from sparrow.base.errors import InvalidConfig, NotAuthorized, SparrowError
from sparrow.frontends.kafka.call import NO_THROTTLE, encode_large
from sparrow.frontends.kafka.deadlines import outcomes
from sparrow.frontends.kafka.errors import DONE, RequestOutcome, RequestRefusal, outcome_of
from sparrow.frontends.kafka.replicas import check_assignment, check_new_assignments, check_replication_factor
from sparrow.frontends.kafka.wire_codes import CONFIG_SOURCE_CODES

if TYPE_CHECKING:
    import uuid
    from collections.abc import Hashable, Iterable
    from datetime import timedelta

    from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
    from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
    from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as NamedDeleteTopicsRequest
    from kio.schema.delete_topics.v6.request import DeleteTopicsRequest

    from sparrow.frontends.kafka.call import Call

MAX_NEW_PARTITIONS: Final = 10_000
"""Limit of one request, as in Kafka."""
_DESCRIBED_AT_ONCE: Final = 20
"""Topics described before the loop runs other tasks."""
_TWICE: Final = RequestOutcome(ErrorCode.invalid_request, "Duplicate topic name.")


def _repeated(names: Iterable[Hashable]) -> set[Hashable]:
    return {name for name, count in Counter(names).items() if count > 1}


# ── create ────────────────────────────────────────────────────────────────────────────────────────


async def create(request: CreateTopicsRequest, call: Call) -> Any:
    """Handle CreateTopics. Topics named twice are not created."""
    topics = {topic.name: topic for topic in request.topics}
    twice = _repeated(topic.name for topic in request.topics)
    wanted = [topic for name, topic in topics.items() if name not in twice]
    is_too_much = sum(map(_requested_partitions, wanted)) > MAX_NEW_PARTITIONS
    works = [
        _create(topic, call, validate_only=request.validate_only, refused=is_too_much) for topic in wanted
    ]
    ended = await outcomes(request.timeout, works)
    results = []
    for topic, outcome in zip(wanted, ended, strict=True):
        results.append(_created(topic, outcome, call))
        if len(results) % _DESCRIBED_AT_ONCE == 0:
            await asyncio.sleep(0)
    results += [_not_created(topics[name], _TWICE) for name in topics if name in twice]
    response = CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=tuple(results))
    return await encode_large(lambda: response, sum(1 + len(each.configs or ()) for each in results), call)


def _requested_partitions(topic: CreatableTopic) -> int:
    return len(topic.assignments) or max(1, topic.num_partitions)


async def _create(topic: CreatableTopic, call: Call, *, validate_only: bool, refused: bool) -> None:
    # checked before anything else is reported
    call.broker.topics.require_create(call.principal, topic.name)
    if refused:
        raise RequestRefusal(
            ErrorCode.policy_violation, f"A request may create at most {MAX_NEW_PARTITIONS} partitions."
        )
    partitions = _partitions_of(topic, call)
    config = _config_of(topic)
    await call.broker.topics.create(
        topic.name, partitions, config, validate_only=validate_only, principal=call.principal
    )


def _partitions_of(topic: CreatableTopic, call: Call) -> int:
    """Return the number of partitions requested; -1: the default."""
    if not topic.assignments:
        check_replication_factor(topic.replication_factor, call.frontend.limits.max_replication_factor)
        return topic.num_partitions
    for what, given in (
        ("replication factor", topic.replication_factor),
        ("numPartitions", topic.num_partitions),
    ):
        if given != -1:
            raise RequestRefusal(
                ErrorCode.invalid_request,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    return check_new_assignments(
        [(a.partition_index, a.broker_ids) for a in topic.assignments], call.frontend.node_id
    )


def _config_of(topic: CreatableTopic) -> dict[str, str]:
    empty = [config.name for config in topic.configs if config.value is None]
    if empty:
        raise InvalidConfig(f"Null value not supported for topic configs: {', '.join(empty)}")
    return {config.name: config.value or "" for config in topic.configs}


def _created(topic: CreatableTopic, outcome: RequestOutcome, call: Call) -> CreatableTopicResult:
    if outcome != DONE:
        return _not_created(topic, outcome)
    topic_id = call.broker.topics.id_of(topic.name)
    try:
        described = call.broker.configs.preview(topic.name, _config_of(topic), principal=call.principal)
    except NotAuthorized:
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_code=ErrorCode.none,
            error_message=None,
            topic_config_error_code=ErrorCode.topic_authorization_failed,
            configs=(),
        )
    configs = tuple(
        CreatableTopicConfigs(
            name=each.name,
            value=each.value,
            read_only=each.is_read_only,
            config_source=CONFIG_SOURCE_CODES[each.source],
            is_sensitive=each.is_sensitive,
        )
        for each in described
    )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=_count(topic, call),
        replication_factor=1,
        configs=configs,
    )


def _count(topic: CreatableTopic, call: Call) -> int:
    asked = len(topic.assignments) or topic.num_partitions
    return call.broker.config.default_partitions if asked == -1 else asked


def _not_created(topic: CreatableTopic, outcome: RequestOutcome) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name, topic_id=None, error_code=outcome.code, error_message=outcome.text, configs=()
    )


# ── delete ────────────────────────────────────────────────────────────────────────────────────────

_Named = tuple[str | None, "uuid.UUID | None"]
"""A topic by name, or (None, id); responses have both."""


async def delete_named(request: NamedDeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    """Handle DeleteTopics before version 6: by name only."""
    return await _delete([(name, None) for name in request.topic_names], request.timeout, call)


async def delete(request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    """Handle DeleteTopics, by name or by id."""
    return await _delete([(each.name, each.topic_id) for each in request.topics], request.timeout, call)


async def _delete(topics: list[_Named], timeout: timedelta, call: Call) -> DeleteTopicsResponse:
    """Delete topics; those named twice are not deleted."""
    twice = _repeated(topics)
    results: dict[_Named, DeletableTopicResult | None] = dict.fromkeys(topics)
    found: dict[_Named, tuple[str, uuid.UUID]] = {}
    for wanted in results:
        try:
            found[wanted] = _find(wanted, call, is_repeated=wanted in twice)
        except (SparrowError, RequestRefusal) as error:
            results[wanted] = _deleted(wanted, outcome_of(error))
    works = [call.broker.topics.delete(name, principal=call.principal) for name, _ in found.values()]
    ended = await outcomes(timeout, works)
    for (wanted, topic), outcome in zip(found.items(), ended, strict=True):
        results[wanted] = _deleted(topic, outcome)
    return DeleteTopicsResponse(
        throttle_time=NO_THROTTLE, responses=tuple(each for each in results.values() if each is not None)
    )


def _find(wanted: _Named, call: Call, *, is_repeated: bool) -> tuple[str, uuid.UUID]:
    """Return name and id of a topic that the client may delete.

    Raises:
        UnknownTopic, NotAuthorized, RequestRefusal: clients that may not describe a topic do not
            learn if it exists.
    """
    name, topic_id = wanted
    if is_repeated:
        what = "id" if name is None else "name"
        raise RequestRefusal(ErrorCode.invalid_request, f"Duplicate topic {what}.")
    if name is not None and topic_id is not None:
        raise RequestRefusal(ErrorCode.invalid_request, "You may not specify both topic name and topic id.")
    if name is not None:
        return name, call.broker.topics.identify_deletable(name, principal=call.principal)
    if topic_id is None:
        raise RequestRefusal(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
    name = call.broker.topics.name_of(topic_id)
    if name is None:
        raise RequestRefusal(ErrorCode.unknown_topic_id, f"There is no topic with the id {topic_id}.")
    return name, call.broker.topics.identify_deletable(name, principal=call.principal)


def _deleted(topic: _Named, outcome: RequestOutcome) -> DeletableTopicResult:
    name, topic_id = topic
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=outcome.code, error_message=outcome.text
    )


# ── grow ──────────────────────────────────────────────────────────────────────────────────────────


async def create_partitions(request: CreatePartitionsRequest, call: Call) -> CreatePartitionsResponse:
    """Handle CreatePartitions. Topics named twice are not changed."""
    topics = {topic.name: topic for topic in request.topics}
    twice = _repeated(topic.name for topic in request.topics)
    wanted = [topic for name, topic in topics.items() if name not in twice]
    works = [_grow(topic, call, validate_only=request.validate_only) for topic in wanted]
    ended = await outcomes(request.timeout, works)
    results = [_grown(topic.name, outcome) for topic, outcome in zip(wanted, ended, strict=True)]
    results += [_grown(name, _TWICE) for name in topics if name in twice]
    return CreatePartitionsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


async def _grow(topic: CreatePartitionsTopic, call: Call, *, validate_only: bool) -> None:
    broker, principal = call.broker, call.principal
    before = await broker.topics.add_partitions(
        topic.name, topic.count, validate_only=True, principal=principal
    )
    if topic.assignments is not None:
        _check_assignments(topic, topic.count - before.partition_count, call)
    if not validate_only:
        await broker.topics.add_partitions(topic.name, topic.count, principal=principal)


def _check_assignments(topic: CreatePartitionsTopic, new: int, call: Call) -> None:
    assignments = topic.assignments or ()
    if len(assignments) != new:
        raise RequestRefusal(
            ErrorCode.invalid_replica_assignment,
            f"Attempted to add {new} additional partition(s), but only {len(assignments)} "
            "assignment(s) were specified.",
        )
    for assignment in assignments:
        check_assignment(assignment.broker_ids, call.frontend.node_id)


def _grown(name: str, outcome: RequestOutcome) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=outcome.code, error_message=outcome.text)
