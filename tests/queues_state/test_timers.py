"""Timers, compared with a list that is sorted when it is asked."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparrow.broker.queues.rules.timers import DUE_AT_ONCE, NEVER, Timers
from tests.queues_state.memory import traced_bytes
from tests.repetitions import repetitions

times = st.integers(0, 50) | st.integers(-(10**6), 10**6) | st.integers(-(2**62), 2**62)
items = st.integers(-(2**63), 2**63 - 1)


class TimersAgainstAList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.timers = Timers()
        self.waiting: list[tuple[int, int]] = []

    def add_to_both(self, time_ms: int, item: int) -> None:
        self.timers.add(time_ms, item)
        self.waiting.append((time_ms, item))

    def expect_due(self, now_ms: int, limit: int) -> None:
        self.waiting.sort(key=lambda timer: timer[0])  # stable
        due = [timer for timer in self.waiting if timer[0] <= now_ms][:limit]
        assert self.timers.pop_due(now_ms, limit) == due
        del self.waiting[: len(due)]

    @rule(time_ms=times, item=items)
    def add(self, time_ms: int, item: int) -> None:
        self.add_to_both(time_ms, item)

    @rule(first_ms=st.integers(-100, 5000), step_ms=st.integers(-3, 3), count=st.integers(1, 900))
    def add_many_in_steps(self, first_ms: int, step_ms: int, count: int) -> None:
        for number in range(count):
            self.add_to_both(first_ms + number * step_ms, number)

    @rule(seed=st.integers(0, 2**32), span_ms=st.sampled_from([3, 2000, 10**9]), count=st.integers(1, 900))
    def add_many_at_random(self, seed: int, span_ms: int, count: int) -> None:
        draw = random.Random(seed)
        for number in range(count):
            self.add_to_both(draw.randrange(span_ms), number)

    @rule(now_ms=times, limit=st.integers(0, 5) | st.integers(0, 2000))
    def look_at_a_clock_that_jumps(self, now_ms: int, limit: int) -> None:
        self.expect_due(now_ms, limit)

    @precondition(lambda self: self.waiting)
    @rule(late_ms=st.integers(0, 1500), limit=st.integers(1, 2000))
    def look_when_told(self, late_ms: int, limit: int) -> None:
        now_ms = self.timers.earliest
        assert self.timers.pop_due(now_ms - 1) == []
        self.expect_due(now_ms + late_ms, limit)

    @invariant()
    def all_that_wait_are_counted(self) -> None:
        assert len(self.timers) == len(self.waiting)
        earliest = min((time_ms for time_ms, _ in self.waiting), default=NEVER)
        assert self.timers.earliest == earliest


@pytest.mark.slow
class TestTimersAgainstAList(TimersAgainstAList.TestCase):
    settings = settings(max_examples=repetitions(50), stateful_step_count=20, deadline=None)


def test_one_call_fires_a_bounded_number_and_the_next_call_goes_on() -> None:
    timers = Timers()
    for item in range(DUE_AT_ONCE + 5):
        timers.add(1000, item)
    assert [item for _, item in timers.pop_due(1000)] == list(range(DUE_AT_ONCE))
    assert timers.earliest == 1000
    assert [item for _, item in timers.pop_due(1000)] == list(range(DUE_AT_ONCE, DUE_AT_ONCE + 5))
    assert timers.earliest == NEVER


def test_a_clock_that_goes_back_fires_nothing_and_loses_nothing() -> None:
    timers = Timers()
    timers.add(1000, 1)
    timers.add(3000, 3)
    assert timers.pop_due(2000) == [(1000, 1)]
    assert timers.pop_due(0) == []
    timers.add(500, 0)
    assert timers.pop_due(499) == []
    assert timers.pop_due(3000) == [(500, 0), (3000, 3)]


def test_an_item_fires_as_often_as_it_was_added() -> None:
    timers = Timers()
    for time_ms in (5, 3, 3):
        timers.add(time_ms, 7)
    assert timers.pop_due(10) == [(3, 7), (3, 7), (5, 7)]


@pytest.mark.slow
@pytest.mark.parametrize("span_ms", [1, 1000, 36_000_000])
def test_a_timer_costs_at_most_twenty_five_bytes_however_they_are_spread(span_ms: int) -> None:
    draw = random.Random(5)
    count = 20_000
    tracemalloc.start()
    timers = Timers()
    before = traced_bytes()
    for item in range(count):
        timers.add(draw.randrange(span_ms), item)
    cost = traced_bytes() - before
    tracemalloc.stop()
    assert cost < 25 * count
