"""DescribeCluster and DescribeQuorum: the cluster as a whole, which is one broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kio.schema.errors import ErrorCode

from sparrow.base.errors import SparrowError
from sparrow.broker.access.authz import Operation
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import outcome_of
from sparrow.frontends.kafka.wire_codes import cluster_operations

if TYPE_CHECKING:
    from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
    from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest

    from sparrow.frontends.kafka.call import Call

NOT_REQUESTED: Final = -(1 << 31)
_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_ENDPOINT_NAMES: Final = {_BROKERS: "BROKER", _CONTROLLERS: "CONTROLLER"}
QUORUM_LISTENER: Final = "CONTROLLER"
"""Upper case, as Java's client accepts nothing else."""
METADATA_TOPIC: Final = "__cluster_metadata"


# ── brokers ───────────────────────────────────────────────────────────────────────────────────────


def describe(request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    """Handle DescribeCluster: return this broker, which is never fenced."""
    if request.endpoint_type != _BROKERS:
        return _wrong_endpoint(request.endpoint_type, call)
    host, port = call.frontend.advertised(call.connection)
    node = DescribeClusterBroker(broker_id=call.frontend.node_id, host=host, port=port, is_fenced=False)
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        cluster_id=call.broker.cluster_id,
        controller_id=call.frontend.leader_id,
        brokers=(node,),
        cluster_authorized_operations=cluster_operations(call) if asked else NOT_REQUESTED,
    )


def _wrong_endpoint(wanted: int, call: Call) -> DescribeClusterResponse:
    if wanted in _ENDPOINT_NAMES:
        code = ErrorCode.mismatched_endpoint_type
        text = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            f"{_ENDPOINT_NAMES[wanted]}"
        )
    else:
        code, text = ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {wanted}"
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        error_message=text,
        endpoint_type=_BROKERS,
        cluster_id=call.broker.cluster_id,
        brokers=(),
    )


# ── quorum ────────────────────────────────────────────────────────────────────────────────────────


def describe_quorum(request: DescribeQuorumRequest, call: Call) -> DescribeQuorumResponse:
    """Handle DescribeQuorum: return one voter, the leader. The meta store is not a log, so the
    offsets are 0.
    """
    try:
        call.broker.access.require_cluster(call.principal, Operation.DESCRIBE)
    except SparrowError as error:
        outcome = outcome_of(error)
        return DescribeQuorumResponse(
            error_code=outcome.code, error_message=outcome.text, topics=(), nodes=()
        )
    topics = tuple(
        TopicData(
            topic_name=topic.topic_name,
            partitions=tuple(
                _quorum(topic.topic_name, each.partition_index, call) for each in topic.partitions
            ),
        )
        for topic in request.topics
    )
    host, port = call.frontend.advertised(call.connection)
    listener = Listener(name=QUORUM_LISTENER, host=host, port=port)
    node = Node(node_id=call.frontend.node_id, listeners=(listener,))
    return DescribeQuorumResponse(error_code=ErrorCode.none, error_message=None, topics=topics, nodes=(node,))


def _quorum(topic: str, partition: int, call: Call) -> PartitionData:
    is_known = topic == METADATA_TOPIC and partition == 0
    if not is_known:
        return PartitionData(
            partition_index=partition,
            error_code=ErrorCode.unknown_topic_or_partition,
            error_message=f"The quorum is that of {METADATA_TOPIC}, partition 0.",
            leader_id=-1,
            leader_epoch=-1,
            high_watermark=-1,
            current_voters=(),
            observers=(),
        )
    now_ms = call.broker.clock.wall_ms()
    voter = ReplicaState(
        replica_id=call.frontend.node_id,
        replica_directory_id=None,
        log_end_offset=0,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return PartitionData(
        partition_index=partition,
        error_code=ErrorCode.none,
        error_message=None,
        leader_id=call.frontend.node_id,
        leader_epoch=1,
        high_watermark=0,
        current_voters=(voter,),
        observers=(),
    )
