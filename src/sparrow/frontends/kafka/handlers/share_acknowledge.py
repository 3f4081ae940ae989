"""ShareAcknowledge: acknowledgements of records that a member of a share group has acquired
(KIP-932), and renewals (KIP-1222).

Fetches carry acknowledgements, too; they use the same functions (`begin`, `finish`).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.share_acknowledge.v2.response import (
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from msgspec import Struct, field

from sparrow.base.errors import InvalidArgument, NotAuthorized, SparrowError
from sparrow.broker.access.authz import Operation
from sparrow.broker.groups.share.checks import check_member_id
from sparrow.frontends.kafka import share_sessions as sessions
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import DONE, RequestOutcome, RequestRefusal, outcome_of
from sparrow.frontends.kafka.share_acknowledgements import settlements

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kio.schema.share_acknowledge.v2.request import ShareAcknowledgeRequest

    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.rules.settlement import Settlement
    from sparrow.frontends.kafka.call import Call
    from sparrow.frontends.kafka.share_sessions import ShareSession, TopicIdPartition

_FIRST_WITH_RENEWALS: Final = 2
_AT_ONCE: Final = 500
"""Settlements, or partitions, processed before the loop runs other tasks."""
_CODES: Final = {
    sessions.SessionNotFound: ErrorCode.share_session_not_found,
    sessions.InvalidSessionEpoch: ErrorCode.invalid_share_session_epoch,
    sessions.SessionLimitReached: ErrorCode.share_session_limit_reached,
    sessions.MemberTaken: ErrorCode.invalid_request,
}


async def handle(request: ShareAcknowledgeRequest, call: Call) -> ShareAcknowledgeResponse:
    """Settle records; returns when the outcome is on stable storage."""
    try:
        session = _session(request, call)
    except (RequestRefusal, SparrowError) as error:
        return _refused(outcome_of(error))
    except sessions.ShareSessionError as error:
        return _refused(session_outcome(error))
    acknowledgements = await begin(request.topics, session, call, is_renewing=request.is_renew_ack)
    outcomes = await acknowledgements.finish()
    if request.share_session_epoch == sessions.FINAL_EPOCH:
        await call.frontend.share_members.close(session)
    return ShareAcknowledgeResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        acquisition_lock_timeout=lock_timeout(session, call),
        responses=_by_topic(outcomes),
        node_endpoints=(),
    )


def _session(request: ShareAcknowledgeRequest, call: Call) -> ShareSession:
    member = member_of(request, call)
    known = call.frontend.share_members.sessions
    epoch = request.share_session_epoch
    if epoch == sessions.FIRST_EPOCH:
        raise sessions.InvalidSessionEpoch("Acknowledgements do not open a share session; fetches do.")
    if epoch == sessions.FINAL_EPOCH:
        return known.find(member, call.principal)
    return known.advance(member, epoch, call.principal)


# ── what fetches ask, too ─────────────────────────────────────────────────────────────────────────


def member_of(request: Any, call: Call) -> sessions.Member:
    """Return the group and member id of a request after checking them and the right to read in the
    group.

    Raises:
        RequestRefusal: GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, INVALID_REQUEST
    """
    group = request.group_id
    if not group:
        raise RequestRefusal(ErrorCode.invalid_group_id, "The name of the share group is missing.")
    try:
        call.broker.groups.share.require_membership(group, principal=call.principal)
        return group, check_member_id(request.member_id)
    except NotAuthorized:
        raise RequestRefusal(ErrorCode.group_authorization_failed, "Authorization failed.") from None
    except InvalidArgument as error:
        raise RequestRefusal(ErrorCode.invalid_request, error.text) from None


def session_outcome(error: sessions.ShareSessionError) -> RequestOutcome:
    """Return the code and the text of a session's error."""
    return RequestOutcome(_CODES.get(type(error), ErrorCode.unknown_server_error), str(error))


def readable(key: TopicIdPartition, call: Call) -> str:
    """Return the topic's name if the partition exists and the principal may read it.

    Raises:
        RequestRefusal: UNKNOWN_TOPIC_ID
        NotAuthorized, UnknownPartition
    """
    topic_id, partition = key
    name = call.broker.topics.name_of(topic_id)
    if name is None:
        raise RequestRefusal(ErrorCode.unknown_topic_id, f"There is no topic with id {topic_id} (any more).")
    call.broker.topics.partition(name, partition, operation=Operation.READ, principal=call.principal)
    return name


def lock_timeout(session: ShareSession, call: Call) -> timedelta:
    """Return the duration for which records are acquired."""
    if session.consumer is not None:
        return timedelta(milliseconds=session.consumer.lease_ms)
    settings = call.broker.groups.share.settings(session.group)
    return timedelta(milliseconds=settings.record_lock_duration_ms)


# ── acknowledging ─────────────────────────────────────────────────────────────────────────────────


class PendingAcknowledgements(Struct):
    """Outcomes of acknowledgements, and those that are effective but not durable yet."""

    outcomes: dict[TopicIdPartition, RequestOutcome] = field(default_factory=dict)
    pending: list[tuple[TopicIdPartition, asyncio.Future[list[SparrowError | None]]]] = field(
        default_factory=list
    )

    async def finish(self) -> dict[TopicIdPartition, RequestOutcome]:
        """Wait until all are durable. Return the outcome of each partition."""
        for key, future in self.pending:
            if self.outcomes[key] is not DONE:
                continue
            try:
                refused = next(filter(None, await future), None)
            except SparrowError as error:
                refused = error
            if refused is not None:
                self.outcomes[key] = outcome_of(refused)
        return self.outcomes


async def begin(
    topics: Iterable[Any], session: ShareSession, call: Call, *, is_renewing: bool
) -> PendingAcknowledgements:
    """Apply the acknowledgement batches of a request. They are effective at once, and durable after
    `finish`.
    """
    acknowledgements = PendingAcknowledgements()
    may_renew = is_renewing and call.version >= _FIRST_WITH_RENEWALS and _renewals_are_enabled(session, call)
    for topic in topics:
        for each in topic.partitions:
            if not each.acknowledgement_batches:
                continue
            key = (topic.topic_id, each.partition_index)
            acknowledgements.outcomes[key] = DONE
            if len(acknowledgements.outcomes) % _AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                name = readable(key, call)
                wanted = settlements(name, key[1], each.acknowledgement_batches, may_renew=may_renew)
                consumer = call.frontend.share_members.consumer(session, call.client_id)
                await _settle(acknowledgements, key, wanted, consumer)
            except (RequestRefusal, SparrowError) as error:
                acknowledgements.outcomes[key] = outcome_of(error)
    return acknowledgements


def _renewals_are_enabled(session: ShareSession, call: Call) -> bool:
    return call.broker.groups.share.settings(session.group).may_renew


async def _settle(
    acknowledgements: PendingAcknowledgements,
    key: TopicIdPartition,
    wanted: list[Settlement],
    consumer: QueueConsumer,
) -> None:
    """Settle all batches of a partition, or none."""
    if len(wanted) > consumer.leased:
        raise RequestRefusal(
            ErrorCode.invalid_record_state,
            f"The acknowledgements name more records than the {consumer.leased} that the member "
            "has acquired.",
        )
    if len(wanted) > 1:
        for first in range(0, len(wanted), _AT_ONCE):
            refusal = consumer.refusal_of(wanted[first : first + _AT_ONCE])
            if refusal is not None:
                raise refusal
            if first:
                await asyncio.sleep(0)
    for first in range(0, len(wanted), _AT_ONCE):
        if first:
            await asyncio.sleep(0)
        future = consumer.settle(wanted[first : first + _AT_ONCE])
        future.add_done_callback(_seen)
        acknowledgements.pending.append((key, future))


def _seen(future: asyncio.Future[list[SparrowError | None]]) -> None:
    """Retrieve the exception: if the client is gone, no other code does."""
    if not future.cancelled():
        future.exception()


# ── the response ──────────────────────────────────────────────────────────────────────────────────


def _by_topic(outcomes: dict[TopicIdPartition, RequestOutcome]) -> tuple[ShareAcknowledgeTopicResponse, ...]:
    by_topic: dict[Any, list[PartitionData]] = {}
    for (topic_id, number), outcome in outcomes.items():
        by_topic.setdefault(topic_id, []).append(
            PartitionData(
                partition_index=number,
                error_code=outcome.code,
                error_message=outcome.text,
                current_leader=_NO_LEADER,
            )
        )
    return tuple(
        ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=tuple(parts))
        for topic_id, parts in by_topic.items()
    )


_NO_LEADER: Final = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
"""Kafka sets a leader only if it is another broker."""


def _refused(outcome: RequestOutcome) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        throttle_time=NO_THROTTLE,
        error_code=outcome.code,
        error_message=outcome.text,
        acquisition_lock_timeout=NO_THROTTLE,
        responses=(),
        node_endpoints=(),
    )
