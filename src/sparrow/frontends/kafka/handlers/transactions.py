"""Requests of transactional producers (KIP-98, KIP-360, KIP-447, KIP-890), and WriteTxnMarkers
(KIP-664).

Old clients do not know every error code: `code_for` selects the one that they know.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse
from kio.schema.add_partitions_to_txn.v3.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from sparrow.base.errors import NotInTransaction, ProducerFenced, SparrowError, Unavailable
from sparrow.broker.groups.offsets import Committer, OffsetAndMetadata
from sparrow.broker.producer_ids import ProducerIdentity
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import code_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
    from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest
    from kio.schema.end_txn.v5.request import EndTxnRequest
    from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest
    from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest

    from sparrow.frontends.kafka.call import Call
    from sparrow.records.topic_partition import TopicPartition

_FENCED_SINCE: Final = {22: 4, 24: 2, 25: 2, 26: 2}
"""The first version of each key whose clients know PRODUCER_FENCED (KIP-588). Those of Produce and
TxnOffsetCommit never do.
"""
_TXN_OFFSET_COMMIT: Final = 28
_ABORTABLE_SINCE: Final = 4
"""The first TxnOffsetCommit that knows TRANSACTION_ABORTABLE (KIP-890)."""
_BUMPS_SINCE: Final = 5
"""The first EndTxn and TxnOffsetCommit of clients of KIP-890, for which the broker adds partitions
and groups to the transaction.
"""
_NO_ID: Final = -1


def code_for(error: SparrowError, call: Call) -> ErrorCode:
    """Return the code of an error that the client's version of the request knows."""
    key, version = call.header.api_key, call.version
    if isinstance(error, ProducerFenced):
        is_known = version >= _FENCED_SINCE.get(key, 1 << 15)
        return ErrorCode.producer_fenced if is_known else ErrorCode.invalid_producer_epoch
    if isinstance(error, NotInTransaction) and key == _TXN_OFFSET_COMMIT and version >= _ABORTABLE_SINCE:
        return ErrorCode.transaction_abortable
    if isinstance(error, Unavailable):
        # clients look up the coordinator again, then repeat the request
        return ErrorCode.coordinator_not_available
    return code_of(error)


# ── InitProducerId ────────────────────────────────────────────────────────────────────────────────


async def initialize(request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    """Return an identity for a producer, transactional or only idempotent."""
    try:
        found = await _identity(request, call)
    except SparrowError as error:
        return _initialized(code_for(error, call), ProducerIdentity(_NO_ID, -1))
    if found is None:
        return _initialized(ErrorCode.invalid_request, ProducerIdentity(_NO_ID, -1))
    return _initialized(ErrorCode.none, found)


async def _identity(request: InitProducerIdRequest, call: Call) -> ProducerIdentity | None:
    if (request.producer_id == _NO_ID) != (request.producer_epoch == -1):
        return None
    if request.transactional_id is None:
        return await call.broker.records.open_producer(principal=call.principal)
    expected = None
    if request.producer_id != _NO_ID:
        expected = ProducerIdentity(request.producer_id, request.producer_epoch)
    return await call.broker.transactions.initialize(
        request.transactional_id,
        request.transaction_timeout // timedelta(milliseconds=1),
        expected,
        principal=call.principal,
    )


def _initialized(code: ErrorCode, identity: ProducerIdentity) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
    )


# ── what takes part ───────────────────────────────────────────────────────────────────────────────


async def add_partitions(request: AddPartitionsToTxnRequest, call: Call) -> AddPartitionsToTxnResponse:
    """Add partitions to a transaction: all of them, or none if one cannot be added."""
    wanted: list[TopicPartition] = [
        (topic.name, partition) for topic in request.v3_and_below_topics for partition in topic.partitions
    ]
    codes: dict[TopicPartition, ErrorCode] = {}
    try:
        refused = await call.broker.transactions.add_partitions(
            request.v3_and_below_transactional_id,
            ProducerIdentity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            wanted,
            principal=call.principal,
        )
        if refused:
            codes = dict.fromkeys(wanted, ErrorCode.operation_not_attempted)
            codes |= {key: code_for(error, call) for key, error in refused.items()}
    except SparrowError as error:
        codes = dict.fromkeys(wanted, code_for(error, call))
    return AddPartitionsToTxnResponse(
        throttle_time=NO_THROTTLE,
        results_by_topic_v3_and_below=tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=each,
                        partition_error_code=codes.get((topic.name, each), ErrorCode.none),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.v3_and_below_topics
        ),
    )


async def add_offsets(request: AddOffsetsToTxnRequest, call: Call) -> AddOffsetsToTxnResponse:
    """Add a group whose offsets the transaction will commit."""
    code = ErrorCode.none
    try:
        await call.broker.transactions.add_group(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            request.group_id,
            principal=call.principal,
        )
    except SparrowError as error:
        code = code_for(error, call)
    return AddOffsetsToTxnResponse(throttle_time=NO_THROTTLE, error_code=code)


async def commit_offsets(request: TxnOffsetCommitRequest, call: Call) -> TxnOffsetCommitResponse:
    """Store offsets that are committed with the transaction."""
    offsets = {
        (topic.name, each.partition_index): OffsetAndMetadata(
            each.committed_offset, each.committed_metadata or "", each.committed_leader_epoch
        )
        for topic in request.topics
        for each in topic.partitions
    }
    committer = Committer(
        request.member_id,
        request.generation_id,
        request.group_instance_id,
        is_transactional=True,
        knows_member_epochs=False,
    )
    try:
        refused = await call.broker.transactions.commit_offsets(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            request.group_id,
            offsets,
            committer=committer,
            adds_group=call.version >= _BUMPS_SINCE,
            principal=call.principal,
        )
        codes = {key: code_for(error, call) for key, error in refused.items()}
    except SparrowError as error:
        codes = dict.fromkeys(offsets, code_for(error, call))
    return _offsets_committed(request, codes)


def _offsets_committed(
    request: TxnOffsetCommitRequest, codes: Mapping[TopicPartition, ErrorCode]
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes.get((topic.name, each.partition_index), ErrorCode.none),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


# ── WriteTxnMarkers ──────────────────────────────────────────────────────────────────────────────


async def abort_producers(request: WriteTxnMarkersRequest, call: Call) -> WriteTxnMarkersResponse:
    """Abort transactions of producers, as `kafka-transactions abort` asks (KIP-664).

    There are no other brokers whose coordinators would write markers, so a commit is
    INVALID_REQUEST.
    """
    return WriteTxnMarkersResponse(
        markers=tuple([await _abort_producer(marker, call) for marker in request.markers])
    )


async def _abort_producer(marker: WritableTxnMarker, call: Call) -> WritableTxnMarkerResult:
    wanted: list[TopicPartition] = [
        (topic.name, each) for topic in marker.topics for each in topic.partition_indexes
    ]
    if marker.transaction_result:
        codes = dict.fromkeys(wanted, ErrorCode.invalid_request)
    else:
        producer = ProducerIdentity(marker.producer_id, marker.producer_epoch)
        try:
            refused = await call.broker.transactions.abort_producer(
                producer, wanted, principal=call.principal
            )
            codes = {key: _abort_code(error, call) for key, error in refused.items()}
        except SparrowError as error:
            codes = dict.fromkeys(wanted, code_for(error, call))
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=tuple(
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=tuple(
                    WritableTxnMarkerPartitionResult(
                        partition_index=each, error_code=codes.get((topic.name, each), ErrorCode.none)
                    )
                    for each in topic.partition_indexes
                ),
            )
            for topic in marker.topics
        ),
    )


def _abort_code(error: SparrowError, call: Call) -> ErrorCode:
    return ErrorCode.invalid_producer_epoch if isinstance(error, ProducerFenced) else code_for(error, call)


# ── EndTxn ────────────────────────────────────────────────────────────────────────────────────────


async def end(request: EndTxnRequest, call: Call) -> EndTxnResponse:
    """Commit or abort; clients of KIP-890 get their next producer identity."""
    try:
        found = await call.broker.transactions.end(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            commit=request.committed,
            bumps_epoch=call.version >= _BUMPS_SINCE,
            principal=call.principal,
        )
    except SparrowError as error:
        return EndTxnResponse(throttle_time=NO_THROTTLE, error_code=code_for(error, call))
    return EndTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
    )
