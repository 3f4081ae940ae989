"""Idempotent producers: the next sequence, duplicates, refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparrow.base.errors import DuplicateSequence, OutOfOrderSequence, ProducerFenced
from sparrow.broker.producers import REMEMBERED_BATCHES, ProducerStates
from sparrow.records.batch import BatchHeader
from sparrow.storage.store import Appended


def header(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return BatchHeader(0, 100, 0, 2, 0, 0, count - 1, 0, 0, producer_id, epoch, sequence, count)


def accept(states: ProducerStates, batch: BatchHeader, offset: int) -> None:
    assert states.check(batch) is None
    states.accept(batch, Appended(offset, offset + batch.last_offset_delta), 0)


def test_a_batch_sent_again_gets_the_first_result() -> None:
    states = ProducerStates()
    accept(states, header(0, 3), 100)
    accept(states, header(3, 2), 103)
    known = states.check(header(0, 3))
    assert known is not None
    assert known.appended == Appended(100, 102)


def test_gap_is_refused_with_the_expected_sequence() -> None:
    states = ProducerStates()
    accept(states, header(0, 3), 0)
    with pytest.raises(OutOfOrderSequence, match="3 is next"):
        states.check(header(4))


def test_an_older_epoch_is_fenced() -> None:
    states = ProducerStates()
    accept(states, header(0, epoch=1), 0)
    with pytest.raises(ProducerFenced, match="epoch 0 is over"):
        states.check(header(1, epoch=0))


def test_a_new_epoch_begins_at_sequence_zero() -> None:
    states = ProducerStates()
    accept(states, header(0, 5), 0)
    with pytest.raises(OutOfOrderSequence):
        states.check(header(5, epoch=1))
    assert states.check(header(0, epoch=1)) is None


def test_a_batch_whose_result_is_forgotten_is_a_duplicate_without_offset() -> None:
    states = ProducerStates()
    for sequence in range(REMEMBERED_BATCHES + 1):
        accept(states, header(sequence), sequence)
    with pytest.raises(DuplicateSequence):
        states.check(header(0))
    assert states.check(header(1)) is not None


def test_sequences_wrap_after_the_largest_int32() -> None:
    states = ProducerStates()
    accept(states, header(0x7FFFFFFE, 2), 0)
    accept(states, header(0, 1), 2)
    known = states.check(header(0x7FFFFFFE, 2))
    assert known is not None
    assert known.appended == Appended(0, 1)


def test_silent_producers_are_forgotten() -> None:
    states = ProducerStates()
    states.accept(header(0, producer_id=1), Appended(0, 0), 1_000)
    states.accept(header(0, producer_id=2), Appended(1, 1), 2_000)
    states.forget_silent(1_500)
    assert len(states) == 1


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), max_size=80), st.integers(0, 79))
def test_saved_state_plus_the_headers_behind_it_equals_the_state(
    sent: list[tuple[int, int]], saved_after: int
) -> None:
    direct, offset = ProducerStates(), 0
    snapshot, behind = direct.dump(), []
    next_sequence: dict[int, int] = {}
    for index, (producer_id, count) in enumerate(sent):
        sequence = next_sequence.get(producer_id, 0)
        batch = replace(header(sequence, count, producer_id=producer_id), base_offset=offset)
        direct.fold(batch, index)
        behind.append((batch, index))
        next_sequence[producer_id] = sequence + count
        offset += count
        if index == saved_after:
            snapshot, behind = direct.dump(), []
    restored = ProducerStates.load(snapshot)
    for batch, seen_ms in behind:
        restored.fold(batch, seen_ms)
    assert restored.dump() == direct.dump()
