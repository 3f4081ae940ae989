"""The requests of transactional producers (KIP-98, KIP-360, KIP-447, KIP-890), and those that look at them (KIP-664, KIP-994).

Old clients do not know every code: what they are told instead is in `code_for`.
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

from sparrow.base.errors import NotInTransaction, ProducerFenced, SparrowError, Unavailable
from sparrow.broker.groups.family import Committer
from sparrow.broker.groups.offsets import OffsetAndMetadata
from sparrow.broker.producer_ids import ProducerIdentity
from sparrow.frontends.kafka.dispatch import NO_THROTTLE
from sparrow.frontends.kafka.errors import code_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
    from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest
    from kio.schema.end_txn.v5.request import EndTxnRequest
    from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest

    from sparrow.broker.transactions.state import Key
    from sparrow.frontends.kafka.dispatch import Call

_FENCED_SINCE: Final = {22: 4, 24: 2, 25: 2, 26: 2}
"""From which version of a key on clients know PRODUCER_FENCED (KIP-588). Produce and TxnOffsetCommit never do."""
_TXN_OFFSET_COMMIT: Final = 28
_ABORTABLE_SINCE: Final = 4
"""TxnOffsetCommit that knows TRANSACTION_ABORTABLE (KIP-890)."""
_BUMPS_SINCE: Final = 5
"""EndTxn and TxnOffsetCommit of clients of KIP-890, which the broker itself adds what takes part for."""
_NO_ID: Final = -1


def code_for(error: SparrowError, call: Call) -> ErrorCode:
    """The code of an error, as the client's version of the request knows it."""
    key, version = call.header.api_key, call.version
    if isinstance(error, ProducerFenced):
        is_known = version >= _FENCED_SINCE.get(key, 1 << 15)
        return ErrorCode.producer_fenced if is_known else ErrorCode.invalid_producer_epoch
    if isinstance(error, NotInTransaction) and key == _TXN_OFFSET_COMMIT and version >= _ABORTABLE_SINCE:
        return ErrorCode.transaction_abortable
    if isinstance(error, Unavailable):
        return ErrorCode.coordinator_not_available  # clients look for it again, then repeat the request
    return code_of(error)


# ── InitProducerId ────────────────────────────────────────────────────────────────────────────────


async def initialize(request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    """An identity for a producer, transactional or only idempotent."""
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
        return await call.broker.open_producer(principal=call.principal)
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
    """All partitions, or, if one of them cannot take part, none."""
    wanted: list[Key] = [
        (topic.name, partition) for topic in request.v3_and_below_topics for partition in topic.partitions
    ]
    codes: dict[Key, ErrorCode] = {}
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
    """A group whose offsets the transaction will commit."""
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
    """Offsets that are committed when the transaction is."""
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
    request: TxnOffsetCommitRequest, codes: Mapping[Key, ErrorCode]
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


# ── EndTxn ────────────────────────────────────────────────────────────────────────────────────────


async def end(request: EndTxnRequest, call: Call) -> EndTxnResponse:
    """Commit or abort; clients of KIP-890 learn what they go on with."""
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
