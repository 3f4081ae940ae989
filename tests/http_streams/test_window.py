"""Credit of a subscription, against a model."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparrow.base.errors import InvalidArgument
from sparrow.frontends.http.sockets.window import MAX_CREDIT, Window
from tests.repetitions import repetitions

KEYS = st.sampled_from([("a", 0), ("a", 1), ("b", 0)])


class Windows(RuleBasedStateMachine):
    """Records that were read and not taken are in `waiting`, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.window = Window(0)
        self.given = self.taken = self.number = 0
        self.waiting: list[tuple[tuple[str, int], bytes]] = []

    @rule(records=st.integers(0, 5))
    def give(self, records: int) -> None:
        self.window.give(records)
        self.given += records

    @rule(key=KEYS, count=st.integers(0, 4), size=st.integers(1, 9))
    def hold(self, key: tuple[str, int], count: int, size: int) -> None:
        pieces = [b"%d" % (self.number + index) * size for index in range(count)]
        self.number += count
        self.window.hold(key, pieces)
        self.waiting += [(key, piece) for piece in pieces]

    @rule(max_bytes=st.integers(1, 20))
    def take(self, max_bytes: int) -> None:
        could = min(self.window.credit, len(self.waiting))
        found = self.window.take(max_bytes)
        assert found == [piece for _, piece in self.waiting[: len(found)]]
        assert bool(found) == bool(could)
        assert len(found) == 1 or sum(map(len, found)) <= max_bytes
        if len(found) < could:
            assert sum(map(len, found)) + len(self.waiting[len(found)][1]) > max_bytes
        self.waiting = self.waiting[len(found) :]
        self.taken += len(found)

    @rule(keys=st.sets(KEYS))
    def drop(self, keys: set[tuple[str, int]]) -> None:
        self.window.drop(keys)
        self.waiting = [each for each in self.waiting if each[0] not in keys]

    @invariant()
    def never_more_is_taken_than_was_given(self) -> None:
        assert self.window.credit == self.given - self.taken >= 0

    @invariant()
    def nothing_is_read_while_something_waits(self) -> None:
        assert len(self.window) == len(self.waiting)
        assert self.window.may_send == bool(self.window.credit and self.waiting)


Windows.TestCase.settings = settings(max_examples=repetitions(50), stateful_step_count=30, deadline=None)
TestWindows = Windows.TestCase


def test_credit_is_not_taken_back() -> None:
    with pytest.raises(InvalidArgument):
        Window(5).give(-1)


def test_credit_stays_a_number_that_every_json_library_keeps() -> None:
    window = Window(MAX_CREDIT)
    window.give(MAX_CREDIT)
    assert window.credit == MAX_CREDIT
