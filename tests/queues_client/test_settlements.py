"""Settlements by themselves: merged into ranges, split where they fail, repeated over lost
connections.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import LeaseExpired, NotLeased, SparrowError, TimedOut
from sparrow.client.settlements import (
    ACK,
    EXTEND,
    MAX_RANGES,
    NACK,
    QUIET,
    REJECT,
    RELEASE,
    CountdownFuture,
    Part,
    Settlements,
    build_requests,
)
from sparrow.protocol.native.messages import Settled, SettleFailure


@dataclass
class Waiter:
    """A stand-in for a future."""

    outcome: object = "waiting"

    def done(self) -> bool:
        return self.outcome != "waiting"

    def set_result(self, result: None) -> None:
        assert self.outcome == "waiting"
        self.outcome = result

    def set_exception(self, error: SparrowError) -> None:
        assert self.outcome == "waiting"
        self.outcome = error


@dataclass
class Reports:
    parts: list[tuple[Part, SparrowError]] = field(default_factory=list)

    def __call__(self, part: Part, error: SparrowError) -> None:
        self.parts.append((part, error))


def part(
    offset: int, outcome: object = None, *, verb: int = ACK, last: int | None = None, text: str = ""
) -> Part:
    return (verb, "t", 0, -1, text, 0), offset, offset if last is None else last, outcome


KEYS = st.tuples(
    st.sampled_from([ACK, NACK, REJECT, EXTEND, RELEASE]),
    st.sampled_from(["a", "b"]),
    st.integers(0, 1),
    st.sampled_from([-1, 0, 500]),
    st.sampled_from(["", "oops"]),
    st.integers(0, 2),
)


@given(st.lists(st.tuples(KEYS, st.integers(0, 60)), max_size=80, unique=True))
def test_ranges_say_what_was_said_of_each_offset_and_no_more(
    said: list[tuple[tuple[int, str, int, int, str, int], int]],
) -> None:
    requests = build_requests([(key, offset, offset, None) for key, offset in said], 1, 0.0)
    found = [
        ((s.verb, s.topic, s.partition, s.delay_ms, s.text, s.delivery), offset)
        for request in requests
        for s in request.settlements
        for first, last in s.ranges
        for offset in range(first, last + 1)
    ]
    assert sorted(found) == sorted(said)
    for request in requests:
        for settlement, members in zip(request.settlements, request.members, strict=True):
            assert len(members) == sum(last - first + 1 for first, last in settlement.ranges)
            assert all(
                b[0] > a[1] + 1 for a, b in zip(settlement.ranges, settlement.ranges[1:], strict=False)
            )


def test_extensions_are_said_first() -> None:
    (request,) = build_requests([part(1), part(2, verb=EXTEND), part(2)], 1, 0.0)
    assert [s.verb for s in request.settlements] == [EXTEND, ACK]


def test_a_statement_has_a_bounded_number_of_ranges() -> None:
    parts = [part(offset) for offset in range(0, 3 * MAX_RANGES, 2)] + [part(1, verb=NACK)]
    requests = build_requests(parts, 1, 0.0)
    assert all(sum(len(s.ranges) for s in request.settlements) <= MAX_RANGES for request in requests)
    assert sum(len(s.ranges) for request in requests for s in request.settlements) == len(parts)
    assert [p for request in requests for p in request.parts()] == parts


def test_a_response_completes_the_waiters() -> None:
    reports = Reports()
    settlements = Settlements(reports)
    waiters = [Waiter() for _ in range(4)]
    for offset, waiter in enumerate(waiters):
        settlements.add(part(offset, waiter))
    settlements.add(part(9))
    settlements.add(part(10, QUIET))
    settlements.build(5.0)
    (settle,) = settlements.take(0.0)
    assert [s.ranges for s in settle.settlements] == [[(0, 3), (9, 10)]]
    assert settlements.handle_reply(Settled(settle.ref), 0.0)
    assert [waiter.outcome for waiter in waiters] == [None] * 4
    assert settlements.is_empty
    assert not settlements.handle_reply(Settled(settle.ref), 0.0)
    assert reports.parts == []


def test_a_failed_range_of_several_parts_is_said_again_part_by_part() -> None:
    reports = Reports()
    settlements = Settlements(reports)
    waiters = [Waiter() for _ in range(3)]
    for offset, waiter in enumerate(waiters):
        settlements.add(part(offset, waiter))
    settlements.build(5.0)
    (settle,) = settlements.take(0.0)
    settlements.handle_reply(Settled(settle.ref, [SettleFailure(0, 0, "LEASE_EXPIRED", "late")]), 0.0)
    (again,) = settlements.take(0.0)
    assert again.settlements[0].ranges == [(0, 0), (1, 1), (2, 2)]
    settlements.handle_reply(Settled(again.ref, [SettleFailure(0, 1, "LEASE_EXPIRED", "late")]), 0.0)
    assert [waiter.outcome for waiter in (waiters[0], waiters[2])] == [None, None]
    assert isinstance(waiters[1].outcome, LeaseExpired)


def test_a_failed_range_of_one_part_fails_whole() -> None:
    settlements = Settlements(Reports())
    waiter = Waiter()
    settlements.add(part(0, waiter, last=99))
    settlements.build(5.0)
    (settle,) = settlements.take(0.0)
    settlements.handle_reply(Settled(settle.ref, [SettleFailure(0, 0, "NOT_LEASED", "no")]), 0.0)
    assert isinstance(waiter.outcome, NotLeased)
    assert settlements.is_empty


def test_retriable_failure_is_retried_after_a_pause() -> None:
    settlements = Settlements(Reports())
    waiter = Waiter()
    settlements.add(part(0, waiter))
    settlements.build(50.0)
    (settle,) = settlements.take(0.0)
    settlements.handle_reply(
        Settled(settle.ref, [SettleFailure(0, 0, "OVERLOADED", "later", retriable=True)]), 3.0
    )
    assert settlements.take(2.0) == []
    assert settlements.next_retry_at() == 3.0
    (again,) = settlements.take(3.0)
    settlements.handle_reply(Settled(again.ref), 0.0)
    assert waiter.outcome is None


@pytest.mark.parametrize("code", ["NOT_LEASED", "LEASE_EXPIRED", "LEASED_BY_ANOTHER"])
@pytest.mark.parametrize("verb", [ACK, NACK, REJECT, EXTEND, RELEASE])
def test_failure_of_a_repeated_settlement_after_a_lost_connection_may_mean_done(verb: int, code: str) -> None:
    settlements = Settlements(Reports())
    waiter = Waiter()
    settlements.add(part(0, waiter, verb=verb))
    settlements.build(5.0)
    settlements.take(0.0)
    settlements.connection_lost()
    (again,) = settlements.take(0.0)
    settlements.handle_reply(Settled(again.ref, [SettleFailure(0, 0, code, "so")]), 0.0)
    is_done = verb in {NACK, RELEASE} or (verb in {ACK, REJECT} and code == "NOT_LEASED")
    assert (waiter.outcome is None) == is_done


def test_settlement_unsent_before_a_lost_connection_is_no_repetition() -> None:
    settlements = Settlements(Reports())
    waiter = Waiter()
    settlements.add(part(0, waiter))
    settlements.build(5.0)
    settlements.connection_lost()
    (settle,) = settlements.take(0.0)
    settlements.handle_reply(Settled(settle.ref, [SettleFailure(0, 0, "NOT_LEASED", "so")]), 0.0)
    assert isinstance(waiter.outcome, NotLeased)


def test_repetitions_go_first_and_in_order() -> None:
    settlements = Settlements(Reports())
    for offset in (5, 1):
        settlements.add(part(offset))
        settlements.build(5.0)
        settlements.take(0.0)
    settlements.add(part(3))
    settlements.build(5.0)
    settlements.connection_lost()
    assert [settle.settlements[0].ranges for settle in settlements.take(0.0)] == [
        [(5, 5)],
        [(1, 1)],
        [(3, 3)],
    ]


def test_overdue_settlements_are_given_up_sent_or_not() -> None:
    reports = Reports()
    settlements = Settlements(reports)
    sent, unsent, young = Waiter(), Waiter(), Waiter()
    settlements.add(part(0, sent))
    settlements.build(5.0)
    settlements.take(0.0)
    settlements.add(part(1, unsent))
    settlements.build(5.0)
    settlements.add(part(2, young))
    settlements.build(6.0)
    assert settlements.next_deadline() == 5.0
    assert settlements.expire(4.0, lambda _: TimedOut("late")) == 0
    assert settlements.expire(5.0, lambda _: TimedOut("late")) == 1
    assert isinstance(sent.outcome, TimedOut)
    assert isinstance(unsent.outcome, TimedOut)
    assert not young.done()
    assert not settlements.is_done(3)
    assert settlements.is_done(2)


def test_end_fails_all_settlements_and_reports_unawaited_ones() -> None:
    reports = Reports()
    settlements = Settlements(reports)
    waiters = [Waiter() for _ in range(3)]
    settlements.add(part(0, waiters[0]))
    settlements.build(5.0)
    settlements.take(0.0)
    settlements.add(part(1, waiters[1]))
    settlements.build(5.0)
    settlements.add(part(2, waiters[2]))
    settlements.add(part(3))
    settlements.add(part(4, QUIET))
    settlements.fail(NotLeased("closed"))
    assert all(isinstance(waiter.outcome, NotLeased) for waiter in waiters)
    assert [(part[0][1], type(part[1])) for part in reports.parts] == [(3, NotLeased)]
    assert settlements.is_empty


def test_a_tally_is_done_when_all_its_parts_are_with_the_first_error() -> None:
    waiter = Waiter()
    tally = CountdownFuture(3, waiter)
    tally.set_result(None)
    tally.set_exception(LeaseExpired("first"))
    assert not tally.done()
    tally.set_exception(NotLeased("second"))
    assert isinstance(waiter.outcome, LeaseExpired)
    assert tally.done()


@given(
    st.lists(st.integers(0, 30), unique=True, max_size=20),
    st.sets(st.integers(0, 30)),
    st.booleans(),
)
def test_each_part_gets_its_own_result(offsets: list[int], refused: set[int], link_is_lost: bool) -> None:
    """The broker refuses ranges with a refused offset whole, as the real one does; a lost
    connection in between changes nothing.
    """
    settlements = Settlements(Reports())
    waiters = {offset: Waiter() for offset in offsets}
    for offset, waiter in waiters.items():
        settlements.add(part(offset, waiter))
    settlements.build(5.0)
    while not settlements.is_empty:
        for settle in settlements.take(0.0):
            if link_is_lost:
                settlements.connection_lost()
                link_is_lost = False
                break
            failures = [
                SettleFailure(s, r, "LEASE_EXPIRED", "late")
                for s, settlement in enumerate(settle.settlements)
                for r, (first, last) in enumerate(settlement.ranges)
                if refused.intersection(range(first, last + 1))
            ]
            settlements.handle_reply(Settled(settle.ref, failures), 0.0)
    assert {offset for offset, waiter in waiters.items() if waiter.outcome is None} == set(offsets) - refused


def test_settlements_that_another_connection_must_make_are_those_without_a_confirmation() -> None:
    settlements = Settlements(Reports())
    for offset in (1, 2):
        settlements.add(part(offset, QUIET))
    settlements.build(deadline=10)
    (sent,) = settlements.take(0)
    settlements.add(part(3, QUIET, verb=NACK))
    settlements.build(deadline=10)
    settlements.add(part(4, QUIET, verb=EXTEND))
    settlements.add(part(5, QUIET, verb=RELEASE))
    found = settlements.unconfirmed()
    assert [(key[0], first) for key, first, _, _ in found] == [(ACK, 1), (ACK, 2), (NACK, 3), (RELEASE, 5)]
    settlements.handle_reply(Settled(sent.ref, []), 0)
    assert [first for _, first, _, _ in settlements.unconfirmed()] == [3, 5]
