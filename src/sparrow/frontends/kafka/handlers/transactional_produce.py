"""Produce of transactional batches: checking the right to write and the transaction.

Clients of KIP-890 (Produce 12) do not announce the partitions of a transaction: the first batch for
a partition adds it to the transaction, durably, before it is appended. While that is written the
connection begins no other request, so batches keep their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from sparrow.base.errors import ConcurrentTransactions, NotAuthorized, NotInTransaction, SparrowError
from sparrow.broker.producer_ids import ProducerIdentity
from sparrow.frontends.kafka.errors import code_of
from sparrow.records.batch import HEADER_BYTES, parse_header

if TYPE_CHECKING:
    from sparrow.broker.publishes import Admit
    from sparrow.frontends.kafka.call import Call
    from sparrow.frontends.kafka.codec.responses import Piece
    from sparrow.records.batch import BatchHeader
    from sparrow.records.topic_partition import TopicPartition
    from sparrow.storage.store import LogId

ADDS_SINCE = 12
_ABORTABLE_SINCE = 11
_ATTRIBUTES_AT = 22
_TRANSACTIONAL = 0x10

Response = list["Piece"] | asyncio.Future[list["Piece"]] | None
Append = Callable[["Admit"], Response]
"""Function that appends all batches of the request."""


def is_transactional(records: bytes | None) -> bool:
    """Return True if the first batch is marked as transactional."""
    return (
        records is not None
        and len(records) > _ATTRIBUTES_AT
        and bool(records[_ATTRIBUTES_AT] & _TRANSACTIONAL)
    )


def code_for(error: SparrowError, version: int) -> ErrorCode:
    """Return the code of an error that the version of Produce knows."""
    if isinstance(error, NotInTransaction) and version >= _ABORTABLE_SINCE:
        return ErrorCode.transaction_abortable
    if isinstance(error, ConcurrentTransactions) and version < ADDS_SINCE:
        return ErrorCode.not_enough_replicas  # old clients retry after no other code
    return code_of(error)


def begin(
    request: Any, call: Call, batches: list[tuple[TopicPartition, bytes | None]], append: Append
) -> Any:
    """Append the batches of partitions in the transaction; first add the missing ones if the client
    leaves that to the broker.

    Args:
        batches: the batches of the request, by topic name and partition.
    """
    try:
        admit = _admission(request, call)
    except NotAuthorized as error:
        return append(partial(_refuse, error))
    if call.version < ADDS_SINCE:
        return append(admit)
    headers = {key: parse_header(data) for key, data in batches if data and len(data) >= HEADER_BYTES}
    missing = [key for key, header in headers.items() if _is_missing(request, call, key, header)]
    if not missing:
        return append(admit)
    header = headers[missing[0]]
    producer = ProducerIdentity(header.producer_id, header.producer_epoch)

    async def add_then_append() -> list[Piece] | None:
        response = append(await _add(request.transactional_id, producer, missing, call, admit))
        return await response if isinstance(response, asyncio.Future) else response

    return add_then_append()


def _admission(request: Any, call: Call) -> Admit:
    return call.broker.transactions.admission(request.transactional_id, principal=call.principal)


def _refuse(error: SparrowError, header: BatchHeader, log_id: LogId) -> None:  # noqa: ARG001 - as any `Admit`
    raise error


def _is_missing(request: Any, call: Call, key: TopicPartition, header: BatchHeader) -> bool:
    producer = ProducerIdentity(header.producer_id, header.producer_epoch)
    try:
        call.broker.transactions.check_partition(request.transactional_id, producer, key)
    except NotInTransaction:
        return True
    except SparrowError:
        return False  # the append reports it
    return False


async def _add(
    transactional_id: str, producer: ProducerIdentity, missing: list[TopicPartition], call: Call, admit: Admit
) -> Admit:
    """Add partitions to the transaction. Return the function that admits each batch then."""
    service = call.broker.transactions
    try:
        refused = await service.add_partitions(transactional_id, producer, missing, principal=call.principal)
        left = [key for key in missing if key not in refused]
        if refused and left:  # the other partitions must not fail because of these
            await service.add_partitions(transactional_id, producer, left, principal=call.principal)
    except SparrowError as error:
        return _refusing(error, frozenset(missing), admit)
    return admit


def _refusing(error: SparrowError, keys: frozenset[TopicPartition], admit: Admit) -> Admit:
    """Return a function that raises the error for these partitions and asks `admit` about the
    others.
    """

    def refuse(header: BatchHeader, log_id: LogId) -> None:
        if (log_id.topic, log_id.partition) in keys:
            raise error
        admit(header, log_id)

    return refuse
