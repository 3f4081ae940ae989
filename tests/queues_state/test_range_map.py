"""The map from offsets to values, compared with a plain array."""

from __future__ import annotations

import random
import tracemalloc
from array import array
from itertools import groupby

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparrow.broker.queues.maps.range_map import RangeMap
from tests.repetitions import repetitions

PAGE = RangeMap.PAGE
END = 5 * PAGE
VALUES = (0, 1, 6 | 12 << 7, 2**62)

near_a_bound = st.builds(
    lambda page, distance: max(0, page * PAGE + distance), st.integers(0, 4), st.integers(-3, 3) | st.just(0)
)
offsets = near_a_bound | st.integers(0, 40) | st.integers(0, END - 1)
lengths = st.integers(0, 5) | st.sampled_from([PAGE - 1, PAGE, PAGE + 1, 3 * PAGE]) | st.integers(0, END)
codes = st.integers(0, len(VALUES) - 1)


def runs_of(model: bytearray, first: int, end: int) -> list[tuple[int, int, int]]:
    runs = []
    for code, group in groupby(model[first:end]):
        length = len(list(group))
        runs.append((first, first + length, VALUES[code]))
        first += length
    return runs


class RangeMapAgainstAnArray(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.map = RangeMap()
        self.model = bytearray(END)

    @rule(first=offsets, length=lengths, code=codes)
    def set_a_range(self, first: int, length: int, code: int) -> None:
        end = min(first + length, END)
        self.map.set(first, end, VALUES[code])
        self.model[first:end] = bytes([code]) * max(0, end - first)

    @rule(first=offsets, count=st.integers(1, 300), step=st.integers(1, 3), code=codes)
    def set_single_records(self, first: int, count: int, step: int, code: int) -> None:
        for offset in range(first, min(first + count * step, END), step):
            self.map.set(offset, offset + 1, VALUES[code])
            self.model[offset] = code

    @rule(seed=st.integers(0, 2**32), page=st.integers(0, 4), code=codes)
    def set_the_records_of_a_page_out_of_order(self, seed: int, page: int, code: int) -> None:
        draw = random.Random(seed)
        for offset in draw.sample(range(page * PAGE, page * PAGE + 200), 150):
            self.map.set(offset, offset + 1, VALUES[code])
            self.model[offset] = code

    @rule(
        page=st.integers(0, 4), code=codes, bounds=st.lists(st.integers(1, PAGE - 1), max_size=9, unique=True)
    )
    def replace_a_page(self, page: int, code: int, bounds: set[int]) -> None:
        """Every third run is equal to the one before it."""
        starts = [0, *sorted(bounds)]
        drawn = [(code + n - n // 3) % len(VALUES) for n in range(len(starts))]
        self.map.set_page(page, array("H", starts), array("q", [VALUES[each] for each in drawn]))
        base = page * PAGE
        for first, end, each in zip(starts, [*starts[1:], PAGE], drawn, strict=True):
            self.model[base + first : base + end] = bytes([each]) * (end - first)

    @rule(offset=offsets)
    def forget_before(self, offset: int) -> None:
        self.map.forget_before(offset)
        self.model[:offset] = bytes(offset)

    @rule(offset=offsets)
    def get(self, offset: int) -> None:
        assert self.map.get(offset) == VALUES[self.model[offset]]

    @rule(first=offsets, length=lengths)
    def list_the_runs_of_a_range(self, first: int, length: int) -> None:
        end = min(first + length, END)
        assert list(self.map.runs(first, end)) == runs_of(self.model, first, end)

    @invariant()
    def pages_have_what_is_not_zero(self) -> None:
        held = [page for page in range(5) if any(self.model[page * PAGE : (page + 1) * PAGE])]
        assert self.map.pages() == held
        for page in range(5):
            runs = runs_of(self.model, page * PAGE, (page + 1) * PAGE)
            assert self.map.page_runs(page) == [run for run in runs if run[2]]


@pytest.mark.slow
class TestRangeMapAgainstAnArray(RangeMapAgainstAnArray.TestCase):
    settings = settings(max_examples=repetitions(60), stateful_step_count=25, deadline=None)


def test_an_offset_that_nothing_was_set_for_has_the_value_zero() -> None:
    ranges = RangeMap()
    assert ranges.get(0) == ranges.get(2**48) == 0
    assert list(ranges.runs(7, 2**48)) == [(7, 2**48, 0)]
    assert ranges.pages() == []


def test_runs_over_a_vast_hole_skip_it() -> None:
    ranges = RangeMap()
    ranges.set(5, 6, 1)
    ranges.set(2**47, 2**47 + 10, 2)
    assert list(ranges.runs(0, 2**48)) == [
        (0, 5, 0),
        (5, 6, 1),
        (6, 2**47, 0),
        (2**47, 2**47 + 10, 2),
        (2**47 + 10, 2**48, 0),
    ]


def test_a_vast_range_is_forgotten_at_once() -> None:
    ranges = RangeMap()
    ranges.set(0, 10 * PAGE, 3)
    ranges.set(1, 2**48, 0)
    assert ranges.pages() == [0]
    ranges.forget_before(2**48)
    assert ranges.pages() == []


def test_runs_grow_together_across_pages() -> None:
    ranges = RangeMap()
    for page in (3, 1, 2):
        ranges.set(page * PAGE, (page + 1) * PAGE, 9)
    ranges.set(4 * PAGE, 4 * PAGE + 5, 9)
    assert list(ranges.runs(0, 5 * PAGE)) == [
        (0, PAGE, 0),
        (PAGE, 4 * PAGE + 5, 9),
        (4 * PAGE + 5, 5 * PAGE, 0),
    ]


@pytest.mark.parametrize("ranges", [[(5, 5)], [(9, 3)]])
def test_an_empty_range_changes_nothing(ranges: list[tuple[int, int]]) -> None:
    empty = RangeMap()
    for first, end in ranges:
        empty.set(first, end, 1)
        assert list(empty.runs(first, end)) == []
    assert empty.pages() == []


def traced_bytes(first: int) -> int:
    return tracemalloc.get_traced_memory()[0] - first


@pytest.fixture
def traced():
    tracemalloc.start()
    yield tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()


@pytest.mark.slow
def test_records_that_finish_in_any_order_leave_no_residue(traced: int) -> None:
    ranges = RangeMap()
    ranges.set(0, 8 * PAGE, 1)
    order = list(range(8 * PAGE))
    random.Random(4).shuffle(order)
    whole = traced_bytes(traced)
    for offset in order:
        ranges.set(offset, offset + 1, 6)
    assert list(ranges.runs(0, 8 * PAGE)) == [(0, 8 * PAGE, 6)]
    assert traced_bytes(traced) - whole < 20_000  # an entry for each record would be a megabyte
    ranges.forget_before(8 * PAGE)
    assert ranges.pages() == []


def test_a_million_records_of_one_value_cost_next_to_nothing(traced: int) -> None:
    ranges = RangeMap()
    ranges.set(0, 1_000_000, 1)
    assert traced_bytes(traced) < 50_000


@pytest.mark.slow
def test_a_run_costs_at_most_sixteen_bytes(traced: int) -> None:
    ranges = RangeMap()
    for offset in range(0, 10 * PAGE, 2):
        ranges.set(offset, offset + 1, offset + 1)
    assert traced_bytes(traced) < 16 * 10 * PAGE
