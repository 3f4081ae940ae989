"""Which transactions of a partition are open and which were aborted, against a naive model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.broker.transaction_index import AbortedTransaction, TransactionIndex

Step = tuple[int, str]
STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["data", "data", "commit", "abort"])), max_size=40
)


class NaiveLog:
    """Every batch takes one offset."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps

    def aborted(self) -> list[tuple[int, int, int]]:
        """Return (first offset, producer id, offset of the marker) of every aborted transaction
        that had data.
        """
        found, first = [], dict[int, int]()
        for offset, (producer_id, kind) in enumerate(self.steps):
            if kind == "data":
                first.setdefault(producer_id, offset)
            elif producer_id in first:
                begun = first.pop(producer_id)
                if kind == "abort":
                    found.append((begun, producer_id, offset))
        return sorted(found)

    def last_stable(self) -> int:
        open_ = dict[int, int]()
        for offset, (producer_id, kind) in enumerate(self.steps):
            if kind == "data":
                open_.setdefault(producer_id, offset)
            else:
                open_.pop(producer_id, None)
        return min(open_.values(), default=len(self.steps))


def indexed(steps: list[Step]) -> TransactionIndex:
    index = TransactionIndex()
    for offset, (producer_id, kind) in enumerate(steps):
        if kind == "data":
            index.begin(producer_id, offset)
        else:
            index.end(producer_id, offset, committed=kind == "commit")
    return index


@given(STEPS)
def test_the_last_stable_offset_is_the_first_of_the_oldest_open_transaction(steps: list[Step]) -> None:
    assert indexed(steps).last_stable(len(steps)) == NaiveLog(steps).last_stable()


@given(STEPS, st.integers(0, 40), st.integers(0, 40))
def test_aborted_transactions_of_a_range_are_all_there_and_sorted(
    steps: list[Step], start: int, end: int
) -> None:
    """Ranges that a reader of committed records can ask for end at the last stable offset."""
    end = min(end, NaiveLog(steps).last_stable())
    expected = [
        AbortedTransaction(producer_id, first)
        for first, producer_id, marker in NaiveLog(steps).aborted()
        if marker >= start and first < end
    ]
    found = indexed(steps).aborted(start, end)
    assert [each for each in found if each in expected] == expected
    assert all(each in expected for each in found if each.first_offset < end)


@given(STEPS, st.integers(0, 40))
def test_only_transactions_ended_before_the_log_start_are_forgotten(steps: list[Step], start: int) -> None:
    index, whole = indexed(steps), indexed(steps)
    index.forget_before(start)
    assert len(index._last_offsets) == sum(marker >= start for _, _, marker in NaiveLog(steps).aborted())
    end = NaiveLog(steps).last_stable()
    assert index.aborted(start, end) == whole.aborted(start, end)


@given(STEPS)
def test_aborted_transactions_survive_their_bytes(steps: list[Step]) -> None:
    index, loaded = indexed(steps), TransactionIndex()
    loaded.load_aborted(index.dump_aborted())
    assert loaded.dump_aborted() == index.dump_aborted()
    assert loaded.aborted(0, len(steps)) == index.aborted(0, len(steps))


def test_cut_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="31 bytes"):
        TransactionIndex().load_aborted(bytes(31))
