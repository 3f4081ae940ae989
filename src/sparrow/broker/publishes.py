"""Types of a publish: the levels of acknowledgement, its result, and the checks of its producer."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from sparrow.base.errors import NotInTransaction, UnknownProducer

if TYPE_CHECKING:
    from sparrow.records.batch import BatchHeader
    from sparrow.storage.store import LogId

ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0
ACKS = (ACKS_ALL, ACKS_LEADER, ACKS_NONE)

Admit = Callable[["BatchHeader", "LogId"], None]
"""Raises unless the transaction of the batch includes the partition."""


class Owns(Protocol):
    """Check of the owner of a producer id."""

    def __call__(self, producer_id: int, remembered: Container[int]) -> None:
        """Raise UnknownProducer unless the id is the publisher's; see `ProducerIds.check`."""
        ...


def refuse_producers(producer_id: int, remembered: Container[int]) -> None:  # noqa: ARG001 - as any `Owns`
    """Refuse all producer ids: for publishers that have none outside of transactions.

    Raises:
        UnknownProducer: always.
    """
    raise UnknownProducer(f"producer {producer_id} publishes in a transaction alone")


def refuse_transactional(header: BatchHeader, log_id: LogId) -> None:
    """Refuse all transactional batches: for publishers that have no transactions.

    Raises:
        NotInTransaction: always.
    """
    raise NotInTransaction(
        f"producer {header.producer_id} sent a transactional batch for {log_id} outside of a transaction"
    )


class Published(Struct, frozen=True):
    """Result of a publish: the offsets of its batch, and the append time if the topic stamps it
    (else -1).
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int = -1
