"""Transactions in the meta store: one entry of kind "transaction" for each transactional id.

The key is the transactional id; the value is the msgpack array of `_TransactionEntry`, format
version 1. New fields are appended, with a default; a change of meaning is a new version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.broker import entries
from sparrow.broker.transactions.state import Transaction, TransactionState
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    from sparrow.meta.store import Entry

KIND: Final = "transaction"
_VERSION: Final = 1


class _TransactionEntry(msgspec.Struct, array_like=True):
    version: int
    producer_id: int
    epoch: int
    timeout_ms: int
    state: str
    last_epoch: int
    previous_producer_id: int
    next_producer_id: int
    partitions: list[tuple[str, int]]
    groups: list[str]
    started_ms: int
    updated_ms: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_TransactionEntry).decode


def put(transaction: Transaction) -> Put:
    """Return the write that stores a transactional id."""
    entry = _TransactionEntry(
        _VERSION,
        transaction.producer_id,
        transaction.epoch,
        transaction.timeout_ms,
        transaction.state.value,
        transaction.last_epoch,
        transaction.previous_producer_id,
        transaction.next_producer_id,
        sorted(transaction.partitions),
        sorted(transaction.groups),
        transaction.started_ms,
        transaction.updated_ms,
    )
    return Put(KIND, transaction.transactional_id, _encode(entry))


def delete(transactional_id: str) -> Delete:
    """Return the write that deletes a transactional id."""
    return Delete(KIND, transactional_id)


def read(entry: Entry) -> Transaction:
    """Return the transactional id of an entry.

    Raises:
        DirectoryUnreadable, NewerFormat: it is no transaction, or one of a later Sparrow.
    """
    stored = entries.read(entry, _decode, _VERSION)
    with entries.readable(entry):
        state = TransactionState(stored.state)
    return Transaction(
        entry.key,
        stored.producer_id,
        stored.epoch,
        stored.timeout_ms,
        state,
        stored.last_epoch,
        stored.previous_producer_id,
        stored.next_producer_id,
        frozenset(stored.partitions),
        frozenset(stored.groups),
        stored.started_ms,
        stored.updated_ms,
    )
