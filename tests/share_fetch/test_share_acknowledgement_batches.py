"""Acknowledgement batches: their settlements, and which are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.frontends.kafka.errors import RequestRefusal
from sparrow.frontends.kafka.share_acknowledgements import settlements

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
VERBS = {GAP: Verb.ACK, ACCEPT: Verb.ACK, RELEASE: Verb.NACK, REJECT: Verb.REJECT, RENEW: Verb.EXTEND}


@dataclass(frozen=True)
class Batch:
    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]


def meant(*batches: Batch, may_renew: bool = False) -> list[tuple[Verb, int, int]]:
    found = settlements("t", 3, batches, may_renew=may_renew)
    assert {(each.topic, each.partition) for each in found} <= {("t", 3)}
    return [(each.verb, each.first, each.last) for each in found]


@pytest.mark.parametrize("kind", VERBS)
def test_one_type_applies_to_the_whole_batch(kind: int) -> None:
    assert meant(Batch(5, 99, [kind]), may_renew=True) == [(VERBS[kind], 5, 99)]


def test_each_record_may_have_its_own_type() -> None:
    types = [ACCEPT, ACCEPT, RELEASE, REJECT, GAP, RENEW]
    assert meant(Batch(10, 15, types), may_renew=True) == [
        (Verb.ACK, 10, 11),
        (Verb.NACK, 12, 12),
        (Verb.REJECT, 13, 13),
        (Verb.ACK, 14, 14),
        (Verb.EXTEND, 15, 15),
    ]


def test_neighbours_of_one_fate_are_settled_together() -> None:
    assert meant(Batch(0, 1, [ACCEPT]), Batch(2, 3, [GAP, ACCEPT]), Batch(5, 6, [ACCEPT])) == [
        (Verb.ACK, 0, 3),
        (Verb.ACK, 5, 6),
    ]


def test_released_records_wait_as_the_policy_says_and_tell_why() -> None:
    (found,) = settlements("t", 0, [Batch(0, 0, [RELEASE])], may_renew=False)
    assert found == Settlement(Verb.NACK, "t", 0, 0, 0, -1, "released by the consumer")


@pytest.mark.parametrize(
    "batches",
    [
        [Batch(5, 3, [ACCEPT])],
        [Batch(-2, -1, [ACCEPT])],
        [Batch(-1, 4, [ACCEPT])],
        [Batch(0, 2, [])],
        [Batch(0, 2, [ACCEPT, ACCEPT])],
        [Batch(0, 2, [ACCEPT] * 4)],
        [Batch(0, 2, [5])],
        [Batch(0, 2, [-1])],
        [Batch(0, 2, [ACCEPT, 127, ACCEPT])],
        [Batch(0, 2, [RENEW])],
        [Batch(0, 3, [ACCEPT]), Batch(3, 4, [ACCEPT])],
        [Batch(5, 6, [ACCEPT]), Batch(0, 1, [ACCEPT])],
    ],
    ids=str,
)
def test_malformed_batches_are_refused(batches: list[Batch]) -> None:
    with pytest.raises(RequestRefusal) as refused:
        settlements("t", 0, batches, may_renew=False)
    assert refused.value.code is ErrorCode.invalid_request


@st.composite
def batch_lists(draw: st.DrawFn) -> list[Batch]:
    batches, offset = [], 0
    for _ in range(draw(st.integers(0, 5))):
        first = offset + draw(st.integers(0, 3))
        size = draw(st.integers(1, 6))
        kinds = st.integers(GAP, RENEW)
        types = draw(st.lists(kinds, min_size=1, max_size=1) | st.lists(kinds, min_size=size, max_size=size))
        batches.append(Batch(first, first + size - 1, types))
        offset = first + size
    return batches


@given(batch_lists())
def test_settlements_have_the_acknowledgement_of_the_batch_of_each_record(batches: list[Batch]) -> None:
    expected = {
        offset: VERBS[each.acknowledge_types[0 if len(each.acknowledge_types) == 1 else place]]
        for each in batches
        for place, offset in enumerate(range(each.first_offset, each.last_offset + 1))
    }
    found = meant(*batches, may_renew=True)
    assert {o: verb for verb, first, last in found for o in range(first, last + 1)} == expected
    assert all(before[2] < after[1] for before, after in pairwise(found))
