"""Fetch: records of many partitions, with sessions (KIP-227), isolation levels (KIP-98), topic ids
(KIP-516) and a long poll.

Versions differ in how topics are named (names up to 12, ids from 13); all else is shared.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12 import response as named
from kio.schema.fetch.v18 import response as identified
from msgspec import Struct, field

from sparrow.base.errors import SparrowError
from sparrow.broker.access.authz import Operation
from sparrow.broker.reading.fetch import Fetched, FetchRequest
from sparrow.frontends.kafka.call import MAX_ENTRIES_ON_LOOP, NO_THROTTLE, encode_large
from sparrow.frontends.kafka.errors import code_of
from sparrow.frontends.kafka.fetch_sessions import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    NO_SESSION,
    FetchSession,
    SessionPartition,
    TopicIdPartition,
)
from sparrow.frontends.kafka.handlers.leader_epochs import epoch_error
from sparrow.frontends.kafka.throttle import after_fetch, max_fetch_bytes, with_throttle_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparrow.frontends.kafka.call import Call

FIRST_WITH_IDS = 13
FIRST_WITH_ZSTD = 10
READ_COMMITTED = 1


class _Plan(Struct):
    """The partitions of one request after its session was looked up."""

    partitions: dict[TopicIdPartition, SessionPartition]
    session: FetchSession | None = None
    """Set for incremental requests."""
    session_id: int = NO_SESSION
    errors: dict[TopicIdPartition, ErrorCode] = field(default_factory=dict)


async def handle(request: Any, call: Call) -> Any:
    """Return records when there are `min_bytes`, `max_wait` is over, a partition has an error, or
    the frontend closes.
    """
    plan = _plan(request, call)
    if isinstance(plan, ErrorCode):
        return _response(call, plan, NO_SESSION, ())
    wanted = await _wanted(plan, call)
    min_bytes = 0 if plan.errors else request.min_bytes
    max_bytes = max_fetch_bytes(call, min(max(request.max_bytes, 0), call.frontend.limits.max_fetch_bytes))
    reservation = call.reserve()
    results = await call.broker.records.fetch(
        [fetch for _, fetch in wanted],
        max_bytes=max_bytes,
        min_bytes=min(min_bytes, max_bytes),
        max_wait_ms=round(request.max_wait.total_seconds() * 1000),
        committed=request.isolation_level == READ_COMMITTED,
        stop=call.frontend.draining,
        memory=reservation,
        is_patient=True,
        principal=call.principal,
    )
    size_bytes = sum(result.size_bytes for result in results)
    throttle_ms = after_fetch(call, size_bytes)
    if throttle_ms:
        reservation.give_back()
        return _throttled(plan, call, throttle_ms)
    fetched = {key: result for (key, _), result in zip(wanted, results, strict=True)}
    response = _fetch_response(plan, call, fetched, committed=request.isolation_level == READ_COMMITTED)
    return await encode_large(lambda: response, len(plan.partitions), call)


def _throttled(plan: _Plan, call: Call, throttle_ms: int) -> Any:
    """Return an empty response. A session that this request began is closed: a full response would
    have to name every partition.
    """
    if plan.session is None:
        call.frontend.fetch_sessions.close(plan.session_id)
    session_id = NO_SESSION if plan.session is None else plan.session_id
    return with_throttle_time(_response(call, ErrorCode.none, session_id, ()), throttle_ms)


# ── the session ───────────────────────────────────────────────────────────────────────────────────


def _plan(request: Any, call: Call) -> _Plan | ErrorCode:
    sessions = call.frontend.fetch_sessions
    now = asyncio.get_running_loop().time()
    uses_ids = call.version >= FIRST_WITH_IDS
    session_id = getattr(request, "session_id", NO_SESSION)
    epoch = getattr(request, "session_epoch", FINAL_EPOCH)
    session = sessions.find(session_id)
    if session is not None and session.owner != call.principal:
        session = None
    if epoch in {FINAL_EPOCH, FIRST_EPOCH}:
        if session is not None:
            sessions.close(session_id)
        partitions = dict(_requested(request, call))
        created = NO_SESSION
        if epoch == FIRST_EPOCH and partitions:
            created = sessions.create(partitions, now, uses_ids=uses_ids, owner=call.principal)
        return _Plan(dict(partitions), None, created)
    if session is None:
        return ErrorCode.fetch_session_id_not_found
    return _resume(session, request, call)


def _resume(session: FetchSession, request: Any, call: Call) -> _Plan | ErrorCode:
    """Apply the next request of a session."""
    sessions = call.frontend.fetch_sessions
    if session.epoch != request.session_epoch:
        return ErrorCode.invalid_fetch_session_epoch
    if session.uses_ids != (call.version >= FIRST_WITH_IDS):
        return ErrorCode.fetch_session_topic_id_error
    sessions.advance(session, asyncio.get_running_loop().time())
    before = len(session.partitions)
    _update(session, _requested(request, call))
    for key in _forgotten(request, call):
        session.partitions.pop(key, None)
    if not session.partitions:
        sessions.close(session.id)
        return _Plan({})
    if len(session.partitions) > before and not sessions.has_room(0):
        sessions.close(session.id)
        # the client starts again and then gets no session
        return ErrorCode.fetch_session_id_not_found
    return _Plan(dict(session.partitions), session, session.id)


def _update(session: FetchSession, requested: Iterable[tuple[TopicIdPartition, SessionPartition]]) -> None:
    for key, wanted in requested:
        known = session.partitions.get(key)
        if known is None:
            session.partitions[key] = wanted
        else:
            known.offset, known.max_bytes = wanted.offset, wanted.max_bytes
            known.current_leader_epoch = wanted.current_leader_epoch


def _requested(request: Any, call: Call) -> Iterator[tuple[TopicIdPartition, SessionPartition]]:
    has_ids, has_epochs = call.version >= FIRST_WITH_IDS, call.version >= 9
    for topic in request.topics:
        name = topic.topic_id if has_ids else topic.topic
        for each in topic.partitions:
            epoch = each.current_leader_epoch if has_epochs else -1
            yield (
                (name, each.partition),
                SessionPartition(each.fetch_offset, each.partition_max_bytes, epoch),
            )


def _forgotten(request: Any, call: Call) -> Iterator[TopicIdPartition]:
    has_ids = call.version >= FIRST_WITH_IDS
    for topic in request.forgotten_topics_data:
        name = topic.topic_id if has_ids else topic.topic
        for partition in topic.partitions:
            yield name, partition


# ── what to read ──────────────────────────────────────────────────────────────────────────────────


async def _wanted(plan: _Plan, call: Call) -> list[tuple[TopicIdPartition, FetchRequest]]:
    """Return the partitions to read; errors found so far go to `plan.errors`."""
    wanted = []
    for count, (key, each) in enumerate(plan.partitions.items(), 1):
        if count % MAX_ENTRIES_ON_LOOP == 0:
            await asyncio.sleep(0)
        code, name = _check(key, each, call)
        if code is ErrorCode.none:
            wanted.append((key, FetchRequest(name, key[1], each.offset, max(each.max_bytes, 0))))
        else:
            plan.errors[key] = code
    return wanted


def _check(key: TopicIdPartition, wanted: SessionPartition, call: Call) -> tuple[ErrorCode, str]:
    topic, partition = key
    if isinstance(topic, str):
        name = topic
    else:
        found = call.broker.topics.name_of(topic)
        if found is None:
            return ErrorCode.unknown_topic_id, ""
        name = found
    try:
        config = call.broker.topics.partition(
            name, partition, operation=Operation.READ, principal=call.principal
        ).config
    except SparrowError as error:
        return code_of(error), name
    if config.compression == "zstd" and call.version < FIRST_WITH_ZSTD:
        return ErrorCode.unsupported_compression_type, name
    return epoch_error(wanted.current_leader_epoch, call.broker.leader_epoch), name


# ── the response ──────────────────────────────────────────────────────────────────────────────────


def _fetch_response(
    plan: _Plan, call: Call, fetched: dict[TopicIdPartition, Fetched], *, committed: bool
) -> Any:
    session = plan.session or call.frontend.fetch_sessions.find(plan.session_id)
    schema = _schema(call)
    entries: list[tuple[TopicIdPartition, Any]] = []
    for key in plan.partitions:
        result = fetched.get(key)
        if result is None or result.error is not None:
            code = plan.errors[key] if result is None else code_of(result.error)
            entries.append((key, _failed(key, code, schema)))
            if session is not None and key in session.partitions:
                # name the partition again after it recovers
                session.partitions[key].high_watermark = -1
            continue
        has_moved = session is None or _note(session, key, result)
        if plan.session is None or has_moved or result.size_bytes:
            entries.append((key, _data(key, result, schema, committed=committed)))
    return _response(call, ErrorCode.none, plan.session_id, entries)


def _note(session: FetchSession, key: TopicIdPartition, result: Fetched) -> bool:
    """Remember the offsets that the client learns. Return True if one has moved."""
    known = session.partitions.get(key)
    if known is None:
        return True
    seen = (known.high_watermark, known.log_start_offset, known.last_stable_offset)
    now = (result.high_watermark, result.log_start_offset, result.last_stable_offset)
    known.high_watermark, known.log_start_offset, known.last_stable_offset = now
    if result.size_bytes:
        session.move_to_end(key)
    return seen != now


def _data(key: TopicIdPartition, result: Fetched, schema: Any, *, committed: bool) -> Any:
    return schema.PartitionData(
        partition_index=key[1],
        error_code=ErrorCode.none,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        aborted_transactions=tuple(
            schema.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in result.aborted
        )
        if committed
        else None,
        records=result.chunk.data if result.chunk is not None else b"",
    )


def _failed(key: TopicIdPartition, code: ErrorCode, schema: Any) -> Any:
    return schema.PartitionData(
        partition_index=key[1], error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )


def _schema(call: Call) -> Any:
    """Return the classes that name topics as the client's version does."""
    return identified if call.version >= FIRST_WITH_IDS else named


def _response(
    call: Call, code: ErrorCode, session_id: int, entries: Iterable[tuple[TopicIdPartition, Any]]
) -> Any:
    schema = _schema(call)
    by_topic: dict[Any, list[Any]] = {}
    for (topic, _), data in entries:
        by_topic.setdefault(topic, []).append(data)
    name = "topic_id" if schema is identified else "topic"
    responses = tuple(
        schema.FetchableTopicResponse(**{name: topic}, partitions=tuple(data))
        for topic, data in by_topic.items()
    )
    return schema.FetchResponse(
        throttle_time=NO_THROTTLE, error_code=code, session_id=session_id, responses=responses
    )
