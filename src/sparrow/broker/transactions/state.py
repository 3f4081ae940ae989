"""The states of a transactional id. Everything that decides about it is in this file.

    Empty ──add──▶ Ongoing ──end──▶ PrepareCommit ──complete──▶ CompleteCommit ─┐
      ▲               │ ╲                                                       │
      │               │   ╲──end, time-out, fence──▶ PrepareAbort ──▶ CompleteAbort
      └─ initialize ──┴──────────────────── add (back to Ongoing) ◀─────────────┘

Rules (KIP-98, KIP-360, KIP-447, KIP-890; Kafka's TransactionCoordinator):

* A producer is a producer id with an epoch. `initialize` gives its caller the next epoch, which
  fences the producer that had the last one. A producer that continues after an error names itself
  (`expected`), and is refused if another producer came between.
* A decision (a Prepare state) is final; markers in each partition complete it, however often that
  is begun.
* `initialize`, and the clock, abort an open transaction. The abort has its own epoch, which fences
  the producer. A client of KIP-890 gets that epoch when it aborts, too; its late commit is refused
  with INVALID_TXN_STATE, which it answers by an abort.
* A client of KIP-890 (`bumps_epoch`) gets a new epoch at each end, so that nothing of an older
  transaction can be taken for the next.
* Epochs are used up at `LAST_EPOCH`: then the id gets a new producer id, and the last epoch of the
  old one is that of its marker.

Each function takes the state and returns the next one, or raises and changes nothing. Pure: times
(wall ms) are arguments.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from sparrow.base.errors import (
    ConcurrentTransactions,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    NotInTransaction,
    ProducerFenced,
    ProducerMismatch,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.records.topic_partition import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
LAST_EPOCH: Final = 32_766
"""The last epoch that a producer is given; the one above it is that of a last marker."""
NEVER_MS: Final = -1


class TransactionState(Enum):
    """States with Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_S = TransactionState
PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
AT_REST: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
_COMPLETED: Final = {_S.PREPARE_COMMIT: _S.COMPLETE_COMMIT, _S.PREPARE_ABORT: _S.COMPLETE_ABORT}


class Transaction(Struct, frozen=True):
    """A transactional id and its last, or open, transaction."""

    transactional_id: str
    producer_id: int
    epoch: int = NO_EPOCH
    """-1: no producer has the producer id yet."""
    timeout_ms: int = 60_000
    state: TransactionState = TransactionState.EMPTY
    last_epoch: int = NO_EPOCH
    """The producer's epoch before the last step, if the step was its own; a retry of the step is
    recognised by it.
    """
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id to continue with when the transaction that is being completed used up its
    epochs.
    """
    partitions: frozenset[TopicPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    started_ms: int = NEVER_MS
    updated_ms: int = NEVER_MS

    @property
    def is_exhausted(self) -> bool:
        """Return True if the next epoch needs a new producer id."""
        return self.epoch >= LAST_EPOCH

    @property
    def identity(self) -> tuple[int, int]:
        """The producer id and epoch with which its producer continues."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.epoch

    def is_over(self, now_ms: int) -> bool:
        """Return True if it has been open for longer than its time-out."""
        return self.state is TransactionState.ONGOING and self.started_ms + self.timeout_ms < now_ms


def check_timeout(timeout_ms: int, max_timeout_ms: int) -> None:
    """Raise InvalidTransactionTimeout unless the time-out is allowed."""
    if not 0 < timeout_ms <= max_timeout_ms:
        raise InvalidTransactionTimeout(
            f"a transaction timeout of {timeout_ms} ms is not between 1 and {max_timeout_ms} ms;"
            " set transaction.timeout.ms of the producer"
        )


# ── identities ────────────────────────────────────────────────────────────────────────────────────


def initialize(
    found: Transaction, timeout_ms: int, expected: tuple[int, int] | None, fresh_id: int, now_ms: int
) -> Transaction:
    """Give the id to a producer that begins, or (`expected`: producer id and epoch) continues.

    Args:
        fresh_id: an unused producer id; used when `needs_fresh_id` says so.

    Returns:
        The id at rest with the epoch that the producer gets; or, if a transaction was open, its
        abort: complete it, then ask again.

    Raises:
        ProducerFenced: another producer took the id meanwhile.
        ConcurrentTransactions: the last transaction is being completed.
    """
    if expected is not None and not _may_continue(found, expected):
        raise fenced(found, *expected)
    if found.state in PREPARED:
        raise _busy(found)
    if found.state is TransactionState.ONGOING:
        return _fencing_abort(found, now_ms)
    at_rest = replace(
        found,
        state=TransactionState.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        groups=frozenset(),
        started_ms=NEVER_MS,
        updated_ms=now_ms,
    )
    if needs_fresh_id(found, expected):
        last_epoch = NO_EPOCH if expected is None else found.epoch
        return replace(
            at_rest,
            previous_producer_id=found.producer_id,
            producer_id=fresh_id,
            epoch=0,
            last_epoch=last_epoch,
        )
    return _next_epoch(at_rest, None if expected is None else expected[1])


def needs_fresh_id(found: Transaction, expected: tuple[int, int] | None) -> bool:
    """Return True if `initialize` will take a new producer id."""
    is_at_rest = found.state in AT_REST
    return is_at_rest and found.is_exhausted and (expected is None or expected[1] == found.epoch)


def _may_continue(found: Transaction, expected: tuple[int, int]) -> bool:
    """Return True if a producer that names its identity may continue. `_next_epoch` checks the
    epoch of a known producer id; while a transaction is open it is not checked: the transaction is
    aborted.
    """
    producer_id, epoch = expected
    return (
        found.epoch == NO_EPOCH
        or producer_id == found.producer_id
        or (producer_id == found.previous_producer_id and epoch >= LAST_EPOCH)
    )


def _next_epoch(at_rest: Transaction, expected_epoch: int | None) -> Transaction:
    if expected_epoch is None:
        return replace(at_rest, epoch=at_rest.epoch + 1, last_epoch=NO_EPOCH)
    if at_rest.epoch in {expected_epoch, NO_EPOCH}:
        return replace(at_rest, epoch=at_rest.epoch + 1, last_epoch=at_rest.epoch)
    if expected_epoch == at_rest.last_epoch:
        return at_rest  # sent again: the first response was lost
    raise fenced(at_rest, at_rest.producer_id, expected_epoch)


def check_producer(found: Transaction, producer_id: int, epoch: int) -> None:
    """Raise ProducerMismatch or ProducerFenced unless the producer has the id now."""
    if found.producer_id != producer_id:
        raise _mismatch(found, producer_id)
    if found.epoch != epoch:
        raise fenced(found, producer_id, epoch)


# ── partitions and groups ─────────────────────────────────────────────────────────────────────────


def add(
    found: Transaction,
    producer_id: int,
    epoch: int,
    *,
    partitions: Iterable[TopicPartition] = (),
    groups: Iterable[str] = (),
    now_ms: int,
) -> Transaction:
    """Add partitions and groups to the transaction, which begins if none is open. Return the same
    object if nothing changes.

    Raises:
        ProducerMismatch, ProducerFenced: another producer has the id.
        ConcurrentTransactions: the last transaction is being completed.
    """
    check_producer(found, producer_id, epoch)
    if found.state in PREPARED:
        raise _busy(found)
    if found.state is TransactionState.ONGOING:
        grown = found.partitions.union(partitions), found.groups.union(groups)
        if grown == (found.partitions, found.groups):
            return found
        return replace(found, partitions=grown[0], groups=grown[1], updated_ms=now_ms)
    return replace(
        found,
        state=TransactionState.ONGOING,
        partitions=frozenset(partitions),
        groups=frozenset(groups),
        started_ms=now_ms,
        updated_ms=now_ms,
    )


def check_partition(found: Transaction, producer_id: int, epoch: int, key: TopicPartition) -> None:
    """Raise an error unless the producer may append to the partition in its transaction.

    Raises:
        ProducerMismatch, ProducerFenced, ConcurrentTransactions: as `add`. NotInTransaction
    """
    if found.state is TransactionState.ONGOING and key in found.partitions:
        check_producer(found, producer_id, epoch)
        return
    _refuse_stranger(found, producer_id, epoch, f"partition {key[1]} of topic {key[0]!r}")


def check_group(found: Transaction, producer_id: int, epoch: int, group: str) -> None:
    """Raise an error unless the producer may commit offsets of the group in its transaction. Raises
    as `check_partition`.
    """
    if found.state is TransactionState.ONGOING and group in found.groups:
        check_producer(found, producer_id, epoch)
        return
    _refuse_stranger(found, producer_id, epoch, f"group {group!r}")


def _refuse_stranger(found: Transaction, producer_id: int, epoch: int, what: str) -> NoReturn:
    """Raise the error that says why `what` is in no open transaction of the producer."""
    check_producer(found, producer_id, epoch)
    if found.state in PREPARED:
        raise _busy(found)
    raise NotInTransaction(
        f"{what} was not added to a transaction of {found.transactional_id!r}, whose state is "
        f"{found.state.value}"
    )


# ── the end ───────────────────────────────────────────────────────────────────────────────────────


def end(
    found: Transaction,
    producer_id: int,
    epoch: int,
    *,
    commit: bool,
    bumps_epoch: bool,
    fresh_id: int,
    now_ms: int,
) -> Transaction:
    """Commit or abort for the producer. Return the same object for a request that was sent again:
    nothing is to be done.

    Args:
        bumps_epoch: the client is one of KIP-890 (EndTxn 5): it gets a new epoch, and may abort
            what never began.
        fresh_id: an unused producer id; used when the epochs are used up and `bumps_epoch`.

    Raises:
        ProducerMismatch, ProducerFenced: another producer has the id.
        ConcurrentTransactions: the last transaction is being completed.
        InvalidTransactionState: nothing is open, or the last one was ended the other way.
    """
    is_retry = bumps_epoch and _is_retry(found, producer_id, epoch)
    if not is_retry:
        check_producer(found, producer_id, epoch)
    state = found.state
    if state is TransactionState.ONGOING and not is_retry:
        return _decided(found, commit=commit, bumps_epoch=bumps_epoch, fresh_id=fresh_id, now_ms=now_ms)
    if state is _prepared(commit=commit):
        raise _busy(found)
    if state is _COMPLETED[_prepared(commit=commit)] and (is_retry or not bumps_epoch):
        return found
    if bumps_epoch and not commit and not is_retry and state in AT_REST:
        begun = replace(found, partitions=frozenset(), groups=frozenset(), started_ms=now_ms)
        return _decided(begun, commit=False, bumps_epoch=True, fresh_id=fresh_id, now_ms=now_ms)
    raise InvalidTransactionState(
        f"the transaction of {found.transactional_id!r} cannot be {'committed' if commit else 'aborted'}:"
        f" its state is {state.value}"
    )


def _is_retry(found: Transaction, producer_id: int, epoch: int) -> bool:
    """Return True if the producer names the epoch before the last end, regardless of who asked for
    that end.

    The end may be the producer's own, repeated because its response was lost, or an abort by the
    broker: a producer whose transaction timed out learns the identity to continue with by its own
    abort, as in Kafka 4 (KIP-890).
    """
    if found.state not in PREPARED | AT_REST or found.state is TransactionState.EMPTY:
        return False
    if producer_id == found.producer_id:
        return found.epoch == epoch + 1 and found.epoch <= LAST_EPOCH + (found.state in PREPARED)
    return producer_id == found.previous_producer_id and epoch == LAST_EPOCH and found.epoch == 0


def _prepared(*, commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT


def _decided(
    found: Transaction, *, commit: bool, bumps_epoch: bool, fresh_id: int, now_ms: int
) -> Transaction:
    decided = replace(found, state=_prepared(commit=commit), updated_ms=now_ms)
    if not bumps_epoch:
        return decided
    next_id = fresh_id if found.is_exhausted else NO_PRODUCER_ID
    return replace(decided, epoch=found.epoch + 1, last_epoch=found.epoch, next_producer_id=next_id)


def time_out(found: Transaction, now_ms: int) -> Transaction:
    """Abort a transaction that was open for too long.

    Its producer is fenced until it aborts as a client of KIP-890 does; then `end` returns the next
    epoch.
    """
    return _fencing_abort(found, now_ms)


def _fencing_abort(found: Transaction, now_ms: int) -> Transaction:
    return replace(
        found,
        state=TransactionState.PREPARE_ABORT,
        epoch=found.epoch + 1,
        last_epoch=NO_EPOCH,
        updated_ms=now_ms,
    )


def complete(found: Transaction, now_ms: int) -> Transaction:
    """Complete the transaction: every partition has its marker."""
    completed = replace(
        found,
        state=_COMPLETED[found.state],
        partitions=frozenset(),
        groups=frozenset(),
        updated_ms=now_ms,
    )
    if found.next_producer_id == NO_PRODUCER_ID:
        return completed
    return replace(
        completed,
        previous_producer_id=found.producer_id,
        producer_id=found.next_producer_id,
        next_producer_id=NO_PRODUCER_ID,
        epoch=0,
    )


def _mismatch(found: Transaction, producer_id: int) -> ProducerMismatch:
    return ProducerMismatch(
        f"transactional id {found.transactional_id!r} has producer id {found.producer_id}, not {producer_id}"
    )


def fenced(found: Transaction, producer_id: int, epoch: int) -> ProducerFenced:
    return ProducerFenced(
        f"producer {producer_id} epoch {epoch} is not the producer of transactional id "
        f"{found.transactional_id!r} any more:"
        f" {found.producer_id} epoch {found.epoch} is"
    )


def _busy(found: Transaction) -> ConcurrentTransactions:
    return ConcurrentTransactions(
        f"the last transaction of {found.transactional_id!r} is being completed "
        f"({found.state.value}); try again in a moment"
    )
