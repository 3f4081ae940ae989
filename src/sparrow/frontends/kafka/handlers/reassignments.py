"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments: one broker leads
everything and has every replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse

from sparrow.base.errors import SparrowError
from sparrow.broker.access.authz import Operation
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import DONE, RequestOutcome, RequestRefusal, outcome_of
from sparrow.frontends.kafka.replicas import check_assignment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest
    from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
    from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest

    from sparrow.frontends.kafka.call import Call

_ELECTION_TYPES: Final = {0: "preferred", 1: "unclean"}


def _check_rights(call: Call, operation: Operation) -> RequestOutcome:
    """Return the outcome of the check that the client may perform the operation on the cluster."""
    try:
        call.broker.access.require_cluster(call.principal, operation)
    except SparrowError as error:
        return outcome_of(error)
    return DONE


def _check_partition(topic: str, partition: int, call: Call) -> None:
    call.broker.topics.check_partition(topic, partition)


# ── elections ─────────────────────────────────────────────────────────────────────────────────────


def elect(request: ElectLeadersRequest, call: Call) -> ElectLeadersResponse:
    """Report that no election is needed. For all partitions the response names none, as Kafka's
    does if all leaders are the preferred ones.
    """
    asked = _check_rights(call, Operation.ALTER)
    if asked == DONE and request.election_type not in _ELECTION_TYPES:
        asked = RequestOutcome(
            ErrorCode.invalid_request,
            f"There is no election of type {request.election_type}: 0 preferred, 1 unclean.",
        )
    results = tuple(
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=tuple(_elected(topic.topic, index, asked, call) for index in topic.partitions),
        )
        for topic in request.topic_partitions or ()
    )
    return ElectLeadersResponse(
        throttle_time=NO_THROTTLE, error_code=asked.code, replica_election_results=results
    )


def _elected(topic: str, partition: int, asked: RequestOutcome, call: Call) -> PartitionResult:
    outcome = asked
    if asked == DONE:
        outcome = RequestOutcome(
            ErrorCode.election_not_needed, "Leader election not needed for topic partition."
        )
        try:
            _check_partition(topic, partition, call)
        except SparrowError as error:
            outcome = outcome_of(error)
    return PartitionResult(partition_id=partition, error_code=outcome.code, error_message=outcome.text)


# ── reassignments ─────────────────────────────────────────────────────────────────────────────────


def alter(request: AlterPartitionReassignmentsRequest, call: Call) -> AlterPartitionReassignmentsResponse:
    """Accept assignments to this broker, where the partitions are; there is nothing to cancel."""
    asked = _check_rights(call, Operation.ALTER)
    responses: tuple[ReassignableTopicResponse, ...] = ()
    if asked == DONE:
        responses = tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(
                    _reassigned(topic.name, each.partition_index, each.replicas, call)
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    return AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=asked.code,
        error_message=asked.text,
        responses=responses,
    )


def _reassigned(
    topic: str, partition: int, replicas: Sequence[int] | None, call: Call
) -> ReassignablePartitionResponse:
    outcome = DONE
    try:
        _check_partition(topic, partition, call)
        if replicas is None:
            outcome = RequestOutcome(
                ErrorCode.no_reassignment_in_progress, "No partition reassignment is in progress."
            )
        else:
            check_assignment(replicas, call.frontend.node_id)
    except (SparrowError, RequestRefusal) as error:
        outcome = outcome_of(error)
    return ReassignablePartitionResponse(
        partition_index=partition, error_code=outcome.code, error_message=outcome.text
    )


def list_ongoing(
    request: ListPartitionReassignmentsRequest,  # noqa: ARG001 - the response is always empty
    call: Call,
) -> ListPartitionReassignmentsResponse:
    """Return an empty list."""
    asked = _check_rights(call, Operation.DESCRIBE)
    return ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE, error_code=asked.code, error_message=asked.text, topics=()
    )
