"""DescribeProducers, DescribeTransactions, ListTransactions (KIP-664, KIP-994, KIP-1152):
inspection of transactions.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kio.schema.describe_transactions.v0 import response as described
from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v2 import response as listed

from sparrow.base.errors import SparrowError
from sparrow.broker.transactions.service import TransactionFilter
from sparrow.broker.transactions.state import TransactionState
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import code_of

if TYPE_CHECKING:
    from kio.schema.describe_producers.v0.request import DescribeProducersRequest
    from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
    from kio.schema.list_transactions.v2.request import ListTransactionsRequest

    from sparrow.broker.transactions.state import Transaction
    from sparrow.frontends.kafka.call import Call

_STATES = {each.value: each for each in TransactionState}
_OTHER_STATES = frozenset({"Dead", "PrepareEpochFence"})
"""States of Kafka that transactions never have here."""


def describe_producers(request: DescribeProducersRequest, call: Call) -> DescribeProducersResponse:
    """Return the producers that wrote to partitions recently."""
    return DescribeProducersResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(_producers(topic.name, each, call) for each in topic.partition_indexes),
            )
            for topic in request.topics
        ),
    )


def _producers(topic: str, partition: int, call: Call) -> PartitionResponse:
    index: Any = partition
    try:
        found = call.broker.transactions.producers(topic, partition, principal=call.principal)
    except SparrowError as error:
        return PartitionResponse(
            partition_index=index, error_code=code_of(error), error_message=error.text, active_producers=()
        )
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.none,
        active_producers=tuple(
            ProducerState(
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.last_seen_ms,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.transaction_start,
            )
            for each in found
        ),
    )


def describe(request: DescribeTransactionsRequest, call: Call) -> described.DescribeTransactionsResponse:
    """Describe transactional ids."""
    return described.DescribeTransactionsResponse(
        throttle_time=NO_THROTTLE,
        transaction_states=tuple(_described(each, call) for each in request.transactional_ids),
    )


def _described(transactional_id: str, call: Call) -> described.TransactionState:
    try:
        found = call.broker.transactions.describe(transactional_id, principal=call.principal)
    except SparrowError as error:
        return _description(transactional_id, code_of(error))
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(found.partitions):
        topics[topic].append(partition)
    return _description(transactional_id, ErrorCode.none, found, topics)


def _description(
    transactional_id: Any,
    code: ErrorCode,
    found: Transaction | None = None,
    topics: dict[str, list[int]] | None = None,
) -> described.TransactionState:
    return described.TransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="" if found is None else found.state.value,
        transaction_timeout=timedelta(milliseconds=0 if found is None else found.timeout_ms),
        transaction_start_time=0 if found is None else found.started_ms,
        producer_id=-1 if found is None else found.producer_id,
        producer_epoch=-1 if found is None else found.epoch,
        topics=tuple(
            described.TopicData(topic=topic, partitions=tuple(partitions))
            for topic, partitions in (topics or {}).items()
        ),
    )


async def list_all(request: ListTransactionsRequest, call: Call) -> listed.ListTransactionsResponse:
    """Return the transactional ids that match the filters."""
    names = set(request.state_filters)
    unknown = tuple(sorted(names - _STATES.keys() - _OTHER_STATES))
    states = [_STATES[each] for each in names if each in _STATES]
    if names and not states:
        return _listing(ErrorCode.none, unknown)
    wanted = TransactionFilter(
        states,
        frozenset(request.producer_id_filters),
        request.duration_filter,
        request.transactional_id_pattern or "",
    )
    try:
        found = await call.broker.transactions.list(wanted, principal=call.principal)
    except SparrowError as error:
        return _listing(code_of(error), unknown)
    return _listing(
        ErrorCode.none,
        unknown,
        tuple(
            listed.TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.value,
            )
            for each in found
        ),
    )


def _listing(
    code: ErrorCode, unknown: tuple[str, ...], states: tuple[listed.TransactionState, ...] = ()
) -> listed.ListTransactionsResponse:
    return listed.ListTransactionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        unknown_state_filters=unknown,
        transaction_states=states,
    )
