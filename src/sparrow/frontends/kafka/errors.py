"""Conversion of Sparrow's errors to Kafka's codes, and the errors that only this protocol has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.errors import ErrorCode

from sparrow.base import errors as sparrow

if TYPE_CHECKING:
    from collections.abc import Mapping


_CODES: Final[Mapping[type[sparrow.SparrowError], ErrorCode]] = {
    sparrow.SparrowError: ErrorCode.unknown_server_error,
    sparrow.BadInput: ErrorCode.invalid_request,
    sparrow.InvalidPartitions: ErrorCode.invalid_partitions,
    sparrow.InvalidTopicName: ErrorCode.invalid_topic_exception,
    sparrow.InvalidConfig: ErrorCode.invalid_config,
    sparrow.RecordTooLarge: ErrorCode.message_too_large,
    sparrow.CorruptBatch: ErrorCode.corrupt_message,
    sparrow.UnsupportedCompression: ErrorCode.unsupported_compression_type,
    sparrow.InvalidTimestamp: ErrorCode.invalid_timestamp,
    sparrow.InvalidRecord: ErrorCode.invalid_record,
    sparrow.OffsetOutOfRange: ErrorCode.offset_out_of_range,
    sparrow.UnknownTopic: ErrorCode.unknown_topic_or_partition,
    sparrow.UnknownPartition: ErrorCode.unknown_topic_or_partition,
    sparrow.InvalidTransactionTimeout: ErrorCode.invalid_transaction_timeout,
    sparrow.UnknownTransaction: ErrorCode.transactional_id_not_found,
    sparrow.ProducerMismatch: ErrorCode.invalid_producer_id_mapping,
    sparrow.InvalidTransactionState: ErrorCode.invalid_txn_state,
    sparrow.ConcurrentTransactions: ErrorCode.concurrent_transactions,
    sparrow.UnacceptableCredential: ErrorCode.unacceptable_credential,
    sparrow.UnsupportedMechanism: ErrorCode.unsupported_sasl_mechanism,
    sparrow.DuplicateResource: ErrorCode.duplicate_resource,
    sparrow.UnknownUser: ErrorCode.resource_not_found,
    sparrow.UnknownGroup: ErrorCode.group_id_not_found,
    sparrow.UnknownQueue: ErrorCode.group_id_not_found,
    sparrow.NotLeased: ErrorCode.invalid_record_state,
    sparrow.TopicExists: ErrorCode.topic_already_exists,
    sparrow.PolicyViolation: ErrorCode.policy_violation,
    sparrow.GroupNotEmpty: ErrorCode.non_empty_group,
    sparrow.InvalidGroupId: ErrorCode.invalid_group_id,
    sparrow.InvalidSessionTimeout: ErrorCode.invalid_session_timeout,
    sparrow.OffsetMetadataTooLarge: ErrorCode.offset_metadata_too_large,
    sparrow.GroupSubscribedToTopic: ErrorCode.group_subscribed_to_topic,
    sparrow.GroupTypeMismatch: ErrorCode.inconsistent_group_protocol,
    sparrow.InconsistentGroupProtocol: ErrorCode.inconsistent_group_protocol,
    sparrow.GroupFull: ErrorCode.group_max_size_reached,
    sparrow.RebalanceInProgress: ErrorCode.rebalance_in_progress,
    sparrow.MemberIdRequired: ErrorCode.member_id_required,
    sparrow.FencedInstance: ErrorCode.fenced_instance_id,
    sparrow.UnstableOffset: ErrorCode.unstable_offset_commit,
    sparrow.OutOfOrderSequence: ErrorCode.out_of_order_sequence_number,
    sparrow.DuplicateSequence: ErrorCode.duplicate_sequence_number,
    sparrow.ProducerFenced: ErrorCode.invalid_producer_epoch,
    # After UNKNOWN_PRODUCER_ID clients raise the epoch of the same id and retry until they time
    # out. After this code Java's producer ends, and those of librdkafka and aiokafka fail their
    # messages.
    sparrow.UnknownProducer: ErrorCode.producer_fenced,
    sparrow.UnknownMember: ErrorCode.unknown_member_id,
    sparrow.StaleMember: ErrorCode.illegal_generation,
    sparrow.StaleMemberEpoch: ErrorCode.stale_member_epoch,
    sparrow.FencedMemberEpoch: ErrorCode.fenced_member_epoch,
    sparrow.UnreleasedInstanceId: ErrorCode.unreleased_instance_id,
    sparrow.UnsupportedAssignor: ErrorCode.unsupported_assignor,
    sparrow.InvalidRegularExpression: ErrorCode.invalid_regular_expression,
    sparrow.NotAuthenticated: ErrorCode.sasl_authentication_failed,
    sparrow.NotAuthorized: ErrorCode.cluster_authorization_failed,
    sparrow.Unavailable: ErrorCode.coordinator_not_available,
    sparrow.DiskFull: ErrorCode.kafka_storage_error,
    sparrow.StorageFailed: ErrorCode.kafka_storage_error,
    sparrow.Draining: ErrorCode.not_leader_or_follower,
    sparrow.Overloaded: ErrorCode.kafka_storage_error,
    sparrow.TimedOut: ErrorCode.request_timed_out,
    sparrow.UnsupportedVersion: ErrorCode.unsupported_version,
}
_DENIED: Final[Mapping[str, ErrorCode]] = {
    "Topic": ErrorCode.topic_authorization_failed,
    "Group": ErrorCode.group_authorization_failed,
    "Cluster": ErrorCode.cluster_authorization_failed,
    "TransactionalId": ErrorCode.transactional_id_authorization_failed,
    "DelegationToken": ErrorCode.delegation_token_authorization_failed,
}


def code_of(error: sparrow.SparrowError) -> ErrorCode:
    """Return the code of an error, or of its nearest base class that has one."""
    if isinstance(error, sparrow.NotAuthorized):
        return _DENIED.get(error.resource_type, ErrorCode.cluster_authorization_failed)
    for kind in type(error).__mro__:
        code = _CODES.get(kind)
        if code is not None:
            return code
    return ErrorCode.unknown_server_error


def group_code(error: sparrow.SparrowError) -> ErrorCode:
    """Return the code of an error for a group member: one after which clients of groups can
    continue. They look for the coordinator again after both of these, and repeat the request.
    """
    if isinstance(error, sparrow.Draining):
        return ErrorCode.not_coordinator
    if isinstance(error, (sparrow.Unavailable, sparrow.DiskFull, sparrow.StorageFailed)):
        return ErrorCode.coordinator_not_available
    return code_of(error)


def state_name(state: str) -> str:
    """Convert a state to Kafka's spelling: "preparing-rebalance" becomes "PreparingRebalance"."""
    return "".join(part.capitalize() for part in state.split("-"))


class RequestRefusal(Exception):
    """Refusal of a part of an administrative request, with Kafka's code and a sentence.

    Most refusals are errors of the broker. This one is for rules that only this protocol has:
    replicas, brokers by number, a topic named twice in one request.
    """

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class RequestOutcome(NamedTuple):
    """The outcome of a part of a request; (none, None) is success."""

    code: ErrorCode
    text: str | None


DONE = RequestOutcome(ErrorCode.none, None)


def outcome_of(error: sparrow.SparrowError | RequestRefusal) -> RequestOutcome:
    """Return the code and the text of an error."""
    if isinstance(error, RequestRefusal):
        return RequestOutcome(error.code, error.text)
    return RequestOutcome(
        code_of(error), "Authorization failed." if isinstance(error, sparrow.NotAuthorized) else error.text
    )
