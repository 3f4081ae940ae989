"""The life of a transactional id: the results and refusals of each step."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparrow.base.errors import (
    ConcurrentTransactions,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    NotInTransaction,
    ProducerFenced,
    ProducerMismatch,
    SparrowError,
)
from sparrow.broker.transactions import state
from sparrow.broker.transactions.state import LAST_EPOCH, Transaction, TransactionState

S = TransactionState
NEW_ID = 99
A = ("a", 0)


def begun(found: Transaction | None = None, expected: tuple[int, int] | None = None) -> Transaction:
    return state.initialize(found or Transaction("t", 7), 1000, expected, NEW_ID, 0)


def ongoing(found: Transaction | None = None) -> Transaction:
    found = found or begun()
    return state.add(found, found.producer_id, found.epoch, partitions=[A], now_ms=10)


def ended(
    found: Transaction, *, commit: bool, bumps_epoch: bool = False, epoch: int | None = None
) -> Transaction:
    return state.end(
        found,
        found.producer_id,
        found.epoch if epoch is None else epoch,
        commit=commit,
        bumps_epoch=bumps_epoch,
        fresh_id=NEW_ID,
        now_ms=20,
    )


def completed(found: Transaction) -> Transaction:
    return state.complete(found, 30)


# ── who the producer is ──


def test_a_new_producer_begins_with_epoch_zero_and_each_next_one_fences_the_last() -> None:
    first = begun()
    assert (first.producer_id, first.epoch, first.state) == (7, 0, S.EMPTY)
    second = begun(first)
    assert (second.producer_id, second.epoch) == (7, 1)
    with pytest.raises(ProducerFenced):
        state.add(second, 7, 0, partitions=[A], now_ms=0)


def test_a_producer_that_goes_on_after_an_error_gets_the_next_epoch() -> None:
    again = begun(begun(), (7, 0))
    assert (again.epoch, again.last_epoch) == (1, 0)


def test_a_producer_whose_answer_was_lost_gets_the_same_epoch_again() -> None:
    again = begun(begun(), (7, 0))
    assert begun(again, (7, 0)).epoch == again.epoch


def test_a_producer_that_somebody_came_after_cannot_go_on() -> None:
    taken = begun(begun())
    for expected in ((7, 0), (6, 1), (8, 0)):
        with pytest.raises(ProducerFenced):
            begun(taken, expected)


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    exhausted = replace(begun(), epoch=LAST_EPOCH)
    fresh = begun(exhausted)
    assert (fresh.producer_id, fresh.epoch, fresh.previous_producer_id) == (NEW_ID, 0, 7)
    continued = begun(exhausted, (7, LAST_EPOCH))
    assert (continued.producer_id, continued.epoch, continued.last_epoch) == (NEW_ID, 0, LAST_EPOCH)
    assert begun(continued, (7, LAST_EPOCH)).epoch == 0  # its answer was lost


def test_an_open_transaction_is_aborted_with_an_epoch_of_its_own() -> None:
    fencing = begun(ongoing())
    assert (fencing.state, fencing.epoch, fencing.partitions) == (S.PREPARE_ABORT, 1, frozenset({A}))
    assert begun(completed(fencing)).epoch == 2


def test_nobody_begins_while_a_decision_is_carried_out() -> None:
    for commit in (True, False):
        with pytest.raises(ConcurrentTransactions):
            begun(ended(ongoing(), commit=commit))


@pytest.mark.parametrize("timeout_ms", [0, -1, 901_000])
def test_a_timeout_must_be_positive_and_not_above_the_maximum(timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeout, match="900000"):
        state.check_timeout(timeout_ms, 900_000)


# ── what belongs to it ──


def test_adding_begins_a_transaction_and_adding_again_changes_nothing() -> None:
    found = ongoing()
    assert (found.state, found.started_ms) == (S.ONGOING, 10)
    assert state.add(found, 7, 0, partitions=[A], now_ms=99) is found
    grown = state.add(found, 7, 0, partitions=[("b", 1)], groups=["g"], now_ms=99)
    assert (grown.partitions, grown.groups, grown.started_ms) == ({A, ("b", 1)}, {"g"}, 10)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "error"),
    [(8, 0, ProducerMismatch), (7, 1, ProducerFenced), (7, -1, ProducerFenced)],
)
def test_another_producer_is_refused_everywhere(
    producer_id: int, epoch: int, error: type[SparrowError]
) -> None:
    found = ongoing()
    with pytest.raises(error):
        state.add(found, producer_id, epoch, partitions=[A], now_ms=0)
    with pytest.raises(error):
        state.check_partition(found, producer_id, epoch, A)
    with pytest.raises(error):
        state.check_group(found, producer_id, epoch, "g")
    with pytest.raises(error):
        state.end(found, producer_id, epoch, commit=True, bumps_epoch=False, fresh_id=-1, now_ms=0)


def test_only_partitions_added_to_an_open_transaction_take_part() -> None:
    found = state.add(ongoing(), 7, 0, groups=["g"], now_ms=0)
    state.check_partition(found, 7, 0, A)
    state.check_group(found, 7, 0, "g")
    for refused in (begun(), completed(ended(found, commit=True))):
        with pytest.raises(NotInTransaction):
            state.check_partition(refused, 7, 0, A)
    with pytest.raises(NotInTransaction):
        state.check_partition(found, 7, 0, ("b", 0))
    with pytest.raises(NotInTransaction):
        state.check_group(found, 7, 0, "h")
    with pytest.raises(ConcurrentTransactions):
        state.check_partition(ended(found, commit=True), 7, 0, A)


def test_nothing_is_added_while_a_decision_is_carried_out() -> None:
    with pytest.raises(ConcurrentTransactions):
        ongoing(ended(ongoing(), commit=True))


# ── the end ──


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_is_asked_for_again_is_answered_and_the_other_end_refused(*, commit: bool) -> None:
    prepared = ended(ongoing(), commit=commit)
    with pytest.raises(ConcurrentTransactions):
        ended(prepared, commit=commit)
    with pytest.raises(InvalidTransactionState):
        ended(prepared, commit=not commit)
    done = completed(prepared)
    assert (done.partitions, done.epoch) == (frozenset(), 0)
    assert ended(done, commit=commit) is done
    with pytest.raises(InvalidTransactionState):
        ended(done, commit=not commit)


def test_old_clients_cannot_end_a_transaction_that_never_began() -> None:
    for commit in (True, False):
        with pytest.raises(InvalidTransactionState):
            ended(begun(), commit=commit)


@pytest.mark.parametrize("commit", [True, False])
def test_a_client_of_kip_890_gets_a_new_epoch_at_each_end(*, commit: bool) -> None:
    prepared = ended(ongoing(), commit=commit, bumps_epoch=True)
    assert (prepared.identity, prepared.epoch) == ((7, 1), 1)
    done = completed(prepared)
    assert ended(done, commit=commit, bumps_epoch=True, epoch=0) is done
    with pytest.raises(InvalidTransactionState):
        ended(done, commit=not commit, bumps_epoch=True, epoch=0)
    with pytest.raises(ConcurrentTransactions):
        ended(prepared, commit=commit, bumps_epoch=True, epoch=0)


def test_client_of_kip_890_may_abort_but_not_commit_a_transaction_that_never_began() -> None:
    for found in (
        begun(),
        completed(ended(ongoing(), commit=True)),
        completed(ended(ongoing(), commit=False)),
    ):
        aborted = ended(found, commit=False, bumps_epoch=True)
        assert (aborted.state, aborted.epoch, aborted.partitions) == (S.PREPARE_ABORT, 1, frozenset())
        with pytest.raises(InvalidTransactionState):
            ended(found, commit=True, bumps_epoch=True)


def test_a_retried_end_of_the_transaction_before_last_is_fenced() -> None:
    done = completed(ended(ongoing(), commit=True, bumps_epoch=True))
    for later in (ongoing(done), begun(done), completed(ended(ongoing(done), commit=True, bumps_epoch=True))):
        with pytest.raises((ProducerFenced, InvalidTransactionState)):
            ended(later, commit=True, bumps_epoch=True, epoch=0)


def test_epochs_that_are_used_up_by_ends_bring_a_new_producer_id() -> None:
    prepared = ended(ongoing(replace(begun(), epoch=LAST_EPOCH)), commit=True, bumps_epoch=True)
    assert (prepared.producer_id, prepared.epoch, prepared.identity) == (7, LAST_EPOCH + 1, (NEW_ID, 0))
    done = completed(prepared)
    assert (done.producer_id, done.epoch, done.previous_producer_id) == (NEW_ID, 0, 7)
    again = state.end(done, 7, LAST_EPOCH, commit=True, bumps_epoch=True, fresh_id=-1, now_ms=0)
    assert again is done


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_an_older_client_fenced() -> None:
    found = ongoing()
    assert not found.is_over(1010)
    assert found.is_over(1011)
    aborted = completed(state.time_out(found, 1011))
    assert aborted.state is S.COMPLETE_ABORT
    for commit in (True, False):
        with pytest.raises(ProducerFenced):
            ended(aborted, commit=commit, bumps_epoch=False, epoch=0)
    with pytest.raises(ProducerFenced):
        begun(aborted, (7, 0))


def test_a_client_of_kip_890_aborts_after_its_time_out_and_goes_on_with_the_next_epoch() -> None:
    timed_out = state.time_out(ongoing(), 1011)
    with pytest.raises(ConcurrentTransactions):
        ended(timed_out, commit=False, bumps_epoch=True, epoch=0)
    with pytest.raises(InvalidTransactionState):
        ended(timed_out, commit=True, bumps_epoch=True, epoch=0)
    aborted = completed(timed_out)
    with pytest.raises(InvalidTransactionState):
        ended(aborted, commit=True, bumps_epoch=True, epoch=0)
    assert ended(aborted, commit=False, bumps_epoch=True, epoch=0) is aborted
    assert aborted.identity == (7, 1)
    assert ongoing(aborted).epoch == 1


def test_a_client_of_kip_890_whose_id_another_producer_took_is_fenced() -> None:
    taken = begun(completed(begun(ongoing())))
    for commit in (True, False):
        with pytest.raises(ProducerFenced):
            ended(taken, commit=commit, bumps_epoch=True, epoch=0)
