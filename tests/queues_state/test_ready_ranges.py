"""Ready ranges, compared with sets of offsets."""

from __future__ import annotations

import random
import tracemalloc
from collections import OrderedDict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparrow.broker.queues.rules.ready import ReadyRanges
from tests.queues_state.memory import traced_bytes
from tests.repetitions import repetitions

ALL = 1 << 62
END = 4000

levels = st.integers(0, 9)
names = st.integers(0, 3)


class ReadyAgainstSets(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ready = ReadyRanges()
        self.levels: list[OrderedDict[int, set[int]]] = [OrderedDict() for _ in range(10)]

    def holds(self, source: int, offset: int) -> bool:
        return any(offset in sources.get(source, ()) for sources in self.levels)

    def push_to_both(self, level: int, source: int, first: int, end: int) -> None:
        self.ready.push(level, source, first, end)
        self.levels[level].setdefault(source, set()).update(range(first, end))

    @rule(level=levels, source=names, first=st.integers(0, END), length=st.integers(1, 200))
    def push_a_range(self, level: int, source: int, first: int, length: int) -> None:
        end = first
        while end < first + length and not self.holds(source, end):
            end += 1
        if end > first:
            self.push_to_both(level, source, first, end)

    @rule(level=levels, source=names, seed=st.integers(0, 2**32), step=st.integers(1, 3))
    def push_single_records_in_any_order(self, level: int, source: int, seed: int, step: int) -> None:
        offsets = list(range(0, END, step))
        random.Random(seed).shuffle(offsets)
        for offset in offsets[:1500]:
            if not self.holds(source, offset):
                self.push_to_both(level, source, offset, offset + 1)

    def pop_one(self, limit: int, among: set[int] | None) -> bool:
        popped = self.ready.pop(limit, among)
        for level in range(9, -1, -1):
            for source, offsets in self.levels[level].items():
                if among is None or source in among:
                    assert popped is not None
                    _, _, first, end = popped
                    assert popped[:3] == (level, source, min(offsets))
                    assert 1 <= end - first <= limit
                    assert offsets.issuperset(range(first, end))
                    offsets.difference_update(range(first, end))
                    self.levels[level].move_to_end(source)
                    if not offsets:
                        del self.levels[level][source]
                    return True
        assert popped is None
        return False

    @rule(limit=st.integers(1, 300), times=st.integers(1, 20))
    def pop(self, limit: int, times: int) -> None:
        for _ in range(times):
            self.pop_one(limit, None)

    @rule(limit=st.integers(1, 5), among=st.sets(names), times=st.integers(1, 20))
    def pop_of_some_sources(self, limit: int, among: set[int], times: int) -> None:
        for _ in range(times):
            self.pop_one(limit, among)

    @rule(source=names)
    def clear_a_source(self, source: int) -> None:
        self.ready.clear(source)
        for sources in self.levels:
            sources.pop(source, None)

    @rule()
    def clear(self) -> None:
        self.ready.clear()
        for sources in self.levels:
            sources.clear()

    @precondition(lambda self: any(self.levels))
    @rule()
    def drain(self) -> None:
        listed = list(self.ready.ranges())
        popped = []
        while (one := self.ready.pop(ALL)) is not None:
            popped.append(one)
        assert popped == listed
        for level, source, first, end in reversed(popped):
            self.ready.push(level, source, first, end)
        # The rotation follows the order of pushing now.
        rotation = dict.fromkeys((level, source) for level, source, _, _ in reversed(popped))
        before = self.levels
        self.levels = [OrderedDict() for _ in range(10)]
        for level, source in rotation:
            self.levels[level][source] = before[level][source]

    @invariant()
    def everything_is_listed_once(self) -> None:
        known = (offsets for sources in self.levels for offsets in sources.values())
        assert self.ready.records == sum(map(len, known))
        listed: dict[tuple[int, int], list[int]] = {}
        for level, source, first, end in self.ready.ranges():
            listed.setdefault((level, source), []).extend(range(first, end))
        expected = {
            (level, source): sorted(offsets)
            for level in range(9, -1, -1)
            for source, offsets in self.levels[level].items()
        }
        assert list(listed.items()) == list(expected.items())
        lowest = [(level, source, offsets[0]) for (level, source), offsets in expected.items()]
        assert list(self.ready.peek()) == lowest


@pytest.mark.slow
class TestReadyAgainstSets(ReadyAgainstSets.TestCase):
    settings = settings(max_examples=repetitions(40), stateful_step_count=15, deadline=None)


def test_the_highest_priority_goes_first() -> None:
    ready = ReadyRanges()
    ready.push(0, 0, 0, 2)
    ready.push(4, 0, 2, 4)
    ready.push(9, 0, 4, 6)
    assert [ready.pop(10) for _ in range(4)] == [(9, 0, 4, 6), (4, 0, 2, 4), (0, 0, 0, 2), None]


def test_sources_rotate() -> None:
    ready = ReadyRanges()
    for source in (7, 3, 5):
        ready.push(4, source, 0, 20)
    assert [ready.pop(10) for _ in range(6)] == [
        (4, source, first, first + 10) for first in (0, 10) for source in (7, 3, 5)
    ]
    assert ready.records == 0


def test_range_is_taken_in_parts_and_returned_records_go_first() -> None:
    ready = ReadyRanges()
    ready.push(4, 0, 100, 1_000_000)
    assert ready.pop(50) == (4, 0, 100, 150)
    ready.push(4, 0, 120, 121)
    assert ready.pop(50) == (4, 0, 120, 121)
    assert ready.pop(50) == (4, 0, 150, 200)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)])
def test_ranges_that_touch_become_one(order: tuple[int, ...]) -> None:
    ready = ReadyRanges()
    for part in order:
        ready.push(4, 0, 10 * part, 10 * part + 10)
    assert list(ready.ranges()) == [(4, 0, 0, 30)]


def test_only_the_given_sources_are_leased_from_even_if_others_are_more_urgent() -> None:
    ready = ReadyRanges()
    ready.push(9, 1, 0, 5)
    ready.push(2, 2, 0, 5)
    assert ready.pop(10, {2}) == (2, 2, 0, 5)
    assert ready.pop(10, {2}) is None
    assert ready.records == 5


@pytest.mark.parametrize("end", [5, 3])
def test_an_empty_range_is_not_ready(end: int) -> None:
    ready = ReadyRanges()
    ready.push(4, 0, 5, end)
    assert ready.records == 0
    assert ready.pop(1) is None


@pytest.mark.slow
@pytest.mark.parametrize("ascending", [True, False])
def test_a_range_costs_at_most_twenty_bytes(ascending: bool) -> None:
    count = 20_000
    offsets = list(range(0, 2 * count, 2))
    if not ascending:
        random.Random(6).shuffle(offsets)
    tracemalloc.start()
    ready = ReadyRanges()
    before = traced_bytes()
    for offset in offsets:
        ready.push(4, 0, offset, offset + 1)
    cost = traced_bytes() - before
    tracemalloc.stop()
    assert cost < 20 * count
