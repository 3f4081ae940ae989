"""ShareFetch: a member of a share group acquires records, and acknowledges earlier ones (KIP-932,
KIP-1206, KIP-1222).

The group is a queue of the broker; the member is a consumer of it. At most `max_records` are
acquired in both acquire modes: Kafka's "batch optimized" mode may acquire more to keep batches
whole, here the others are left to other members. A fetch waits for its first record, not for
`min_bytes`.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.share_fetch.v2.response import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from msgspec import Struct, field

from sparrow.base.errors import SparrowError, StaleMember, UnknownGroup, UnknownQueue
from sparrow.frontends.kafka import share_sessions as sessions
from sparrow.frontends.kafka.call import MAX_ENTRIES_ON_LOOP, NO_THROTTLE, encode_large
from sparrow.frontends.kafka.errors import DONE, RequestOutcome, RequestRefusal, outcome_of
from sparrow.frontends.kafka.handlers.share_acknowledge import (
    begin,
    lock_timeout,
    member_of,
    readable,
    session_outcome,
)
from sparrow.frontends.kafka.throttle import after_share_fetch, max_fetch_bytes, with_throttle_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kio.schema.share_fetch.v2.request import ShareFetchRequest

    from sparrow.broker.queues.rules.settlement import Leased
    from sparrow.frontends.kafka.call import Call
    from sparrow.frontends.kafka.share_sessions import ShareSession, TopicIdPartition

_FIRST_WITH_RENEWALS: Final = 2
_ACQUIRE_MODES: Final = (0, 1)
_MILLISECOND: Final = timedelta(milliseconds=1)


class _Fetched(Struct):
    """The records and errors of one fetch."""

    leased: dict[TopicIdPartition, Leased] = field(default_factory=dict)
    errors: dict[TopicIdPartition, RequestOutcome] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(len(each.data) for each in self.leased.values())


async def handle(request: ShareFetchRequest, call: Call) -> Any:
    """Return when there is a record for the member, `max_wait` is over, or the frontend closes, and
    the acknowledgements are durable.
    """
    try:
        session = _session(request, call)
        acknowledgements = await begin(request.topics, session, call, is_renewing=request.is_renew_ack)
        fetched = await _fetch(request, session, call) if _wants_records(request) else _Fetched()
    except (RequestRefusal, SparrowError) as error:
        return await _refused(outcome_of(error), request, call)
    except sessions.ShareSessionError as error:
        return await _refused(session_outcome(error), request, call)
    outcomes = await acknowledgements.finish()
    if request.share_session_epoch == sessions.FINAL_EPOCH:
        await call.frontend.share_members.close(session)
    throttle_ms = after_share_fetch(call, fetched.size_bytes)
    response = _response(fetched, outcomes, lock_timeout(session, call))
    entries = len(fetched.errors) + len(outcomes) + sum(len(each.ranges) for each in fetched.leased.values())
    return await encode_large(lambda: with_throttle_time(response, throttle_ms), entries, call)


# ── the session ───────────────────────────────────────────────────────────────────────────────────


def _session(request: ShareFetchRequest, call: Call) -> ShareSession:
    """Validate a request and return its session.

    Raises:
        RequestRefusal, ShareSessionError
    """
    member = member_of(request, call)
    _check(request, call)
    known = call.frontend.share_members.sessions
    epoch = request.share_session_epoch
    if epoch == sessions.FINAL_EPOCH:
        return known.find(member, call.principal)
    if epoch == sessions.FIRST_EPOCH:
        return known.open(member, _requested(request), call.connection, call.principal)
    session = known.advance(member, epoch, call.principal)
    known.update(session, _requested(request), _forgotten(request))
    return session


def _check(request: ShareFetchRequest, call: Call) -> None:
    if request.is_renew_ack and call.version >= _FIRST_WITH_RENEWALS:
        asked = (request.max_bytes, request.min_bytes, request.max_records, request.max_wait // _MILLISECOND)
        if any(asked):
            raise RequestRefusal(
                ErrorCode.invalid_request,
                "A fetch that renews must not ask for records: maximum and minimum bytes, maximum records "
                "and wait must be 0.",
            )
    if request.share_acquire_mode not in _ACQUIRE_MODES:
        raise RequestRefusal(
            ErrorCode.invalid_request, f"There is no acquire mode {request.share_acquire_mode}."
        )
    if request.share_session_epoch == sessions.FIRST_EPOCH and any(
        each.acknowledgement_batches for topic in request.topics for each in topic.partitions
    ):
        raise RequestRefusal(
            ErrorCode.invalid_request, "A fetch that opens a share session has nothing to acknowledge yet."
        )


def _requested(request: ShareFetchRequest) -> Iterator[TopicIdPartition]:
    for topic in request.topics:
        for each in topic.partitions:
            yield _key(topic, each.partition_index)


def _forgotten(request: ShareFetchRequest) -> Iterator[TopicIdPartition]:
    for topic in request.forgotten_topics_data:
        for number in topic.partitions:
            yield _key(topic, number)


def _key(topic: Any, partition: int) -> TopicIdPartition:
    if topic.topic_id is None:
        raise RequestRefusal(ErrorCode.unknown_topic_id, "A topic without an id was asked for.")
    return topic.topic_id, partition


# ── acquiring ─────────────────────────────────────────────────────────────────────────────────────


def _wants_records(request: ShareFetchRequest) -> bool:
    """Return True if the request asks for records."""
    return (
        request.share_session_epoch != sessions.FINAL_EPOCH
        and not request.is_renew_ack
        and request.max_records > 0
        and request.max_bytes > 0
    )


async def _fetch(request: ShareFetchRequest, session: ShareSession, call: Call) -> _Fetched:
    fetched = _Fetched()
    wanted = await _wanted(session, fetched, call)
    if not wanted:
        return fetched
    try:
        for each in await _lease(request, session, wanted, call):
            fetched.leased[wanted[each.topic, each.partition]] = each
    except UnknownQueue:
        session.consumer = None  # the group may be created again, with another queue
        raise UnknownGroup(
            f"There is no share group {session.group!r}; its first member creates it by a heartbeat."
        ) from None
    except StaleMember as error:
        if call.frontend.draining.done():
            return fetched
        call.frontend.share_members.sessions.close(session)
        raise sessions.SessionNotFound(error.text) from None
    except SparrowError as error:
        fetched.errors |= dict.fromkeys(wanted.values(), outcome_of(error))
    return fetched


async def _lease(
    request: ShareFetchRequest,
    session: ShareSession,
    wanted: dict[tuple[str, int], TopicIdPartition],
    call: Call,
) -> list[Leased]:
    consumer = call.frontend.share_members.consumer(session, call.client_id)
    max_bytes = max_fetch_bytes(call, min(request.max_bytes, call.frontend.limits.max_fetch_bytes))
    return await consumer.lease(
        request.max_records,
        max_bytes=max(1, max_bytes),
        wait_ms=max(0, request.max_wait // _MILLISECOND) if request.min_bytes > 0 else 0,
        sources=wanted,
        memory=call.reserve(),
    )


async def _wanted(
    session: ShareSession, fetched: _Fetched, call: Call
) -> dict[tuple[str, int], TopicIdPartition]:
    """Return the session's partitions by topic name; errors found so far go to `fetched.errors`."""
    wanted: dict[tuple[str, int], TopicIdPartition] = {}
    for count, key in enumerate(list(session.partitions), 1):
        if count % MAX_ENTRIES_ON_LOOP == 0:
            await asyncio.sleep(0)
        try:
            wanted[readable(key, call), key[1]] = key
        except (RequestRefusal, SparrowError) as error:
            fetched.errors[key] = outcome_of(error)
    return wanted


# ── the response ──────────────────────────────────────────────────────────────────────────────────


_NO_LEADER: Final = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
"""Kafka sets a leader only if it is another broker."""


def _response(
    fetched: _Fetched, outcomes: dict[TopicIdPartition, RequestOutcome], lock_timeout_: timedelta
) -> ShareFetchResponse:
    """Return the response: partitions with records, errors, or acknowledgements."""
    by_topic: dict[Any, list[PartitionData]] = {}
    for key in dict.fromkeys((*fetched.leased, *fetched.errors, *outcomes)):
        data = _partition(
            key[1], fetched.leased.get(key), fetched.errors.get(key, DONE), outcomes.get(key, DONE)
        )
        by_topic.setdefault(key[0], []).append(data)
    return ShareFetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        acquisition_lock_timeout=lock_timeout_,
        responses=tuple(
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(parts))
            for topic_id, parts in by_topic.items()
        ),
        node_endpoints=(),
    )


def _partition(
    number: int, leased: Leased | None, failed: RequestOutcome, acknowledged: RequestOutcome
) -> PartitionData:
    return PartitionData(
        partition_index=number,
        error_code=failed.code,
        error_message=failed.text,
        acknowledge_error_code=acknowledged.code.value,
        acknowledge_error_message=acknowledged.text,
        current_leader=_NO_LEADER,
        records=b"" if leased is None else leased.data,
        acquired_records=() if leased is None else tuple(_acquired(leased.ranges)),
    )


def _acquired(ranges: Iterable[tuple[int, int, int]]) -> Iterator[AcquiredRecords]:
    """Join adjacent ranges with the same delivery count."""
    first = last = count = -1
    for next_first, next_last, next_count in ranges:
        if first >= 0 and (next_first, next_count) == (last + 1, count):
            last = next_last
            continue
        if first >= 0:
            yield _one(first, last, count)
        first, last, count = next_first, next_last, next_count
    if first >= 0:
        yield _one(first, last, count)


def _one(first: int, last: int, count: int) -> AcquiredRecords:
    return AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)


async def _refused(outcome: RequestOutcome, request: ShareFetchRequest, call: Call) -> ShareFetchResponse:
    """Return an error response. Clients that would retry at once get it when their wait is over, as
    in Kafka.
    """
    if outcome.code in (ErrorCode.share_session_limit_reached, ErrorCode.group_id_not_found):
        wait_s = min(request.max_wait.total_seconds(), _MAX_PAUSE_S)
        await asyncio.wait([call.frontend.draining], timeout=max(0.0, wait_s))
    return ShareFetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=outcome.code,
        error_message=outcome.text,
        acquisition_lock_timeout=NO_THROTTLE,
        responses=(),
        node_endpoints=(),
    )


_MAX_PAUSE_S: Final = 30.0
