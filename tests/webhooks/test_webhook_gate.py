"""The limits of deliveries to an endpoint, with a manual clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.clock import ManualClock
from sparrow.broker.token_bucket import TokenBucket
from sparrow.broker.webhooks.endpoint import EndpointSettings
from sparrow.frontends.webhook.breaker import LONGEST_WAIT_S, Breaker
from sparrow.frontends.webhook.gate import DeliveryGate

URL = "https://example.org"


@given(
    rate=st.floats(0.1, 5000),
    steps=st.lists(st.floats(0, 3), min_size=1, max_size=50),
)
def test_no_more_begin_than_the_rate_allows_and_all_that_it_allows(rate: float, steps: list[float]) -> None:
    clock = ManualClock()
    pace = TokenBucket(rate, clock.monotonic())
    began = 0
    for step in steps:
        clock.advance(step)
        now_s = clock.monotonic()
        for _ in range(pace.allowance(now_s, 1_000_000)):
            pace.take(now_s)
            began += 1
        assert began <= clock.monotonic() * rate + max(1.0, rate * 0.1) + 1e-6
        assert pace.wait_s(now_s) > 0
    clock.advance(pace.wait_s(clock.monotonic()) + 1e-9)
    assert pace.allowance(clock.monotonic(), 10) >= 1


def test_a_rate_is_kept_over_a_minute() -> None:
    clock = ManualClock()
    pace = TokenBucket(7, clock.monotonic())
    began = 0
    while clock.monotonic() < 60:
        while pace.allowance(clock.monotonic(), 100):
            pace.take(clock.monotonic())
            began += 1
        clock.advance(max(pace.wait_s(clock.monotonic()), 0.001))
    assert began == pytest.approx(7 * 60, abs=2)


def test_without_a_rate_nothing_is_delayed() -> None:
    pace = TokenBucket(0, 0)
    pace.take(0)
    assert pace.allowance(0, 77) == 77
    assert pace.wait_s(0) == 0


def test_failures_in_a_row_open_the_breaker_and_one_success_closes_it() -> None:
    clock = ManualClock()
    breaker = Breaker(open_after=3)
    assert not breaker.failed(0, is_probe=False)
    assert not breaker.succeeded()
    assert [breaker.failed(0, is_probe=False) for _ in range(3)] == [False, False, True]
    assert breaker.probe_at_s == 1
    waits = []
    for _ in range(9):
        clock.advance((breaker.probe_at_s or 0) - clock.monotonic())
        breaker.failed(clock.monotonic(), is_probe=True)
        waits.append((breaker.probe_at_s or 0) - clock.monotonic())
    assert waits == [2, 4, 8, 16, 32, LONGEST_WAIT_S, LONGEST_WAIT_S, LONGEST_WAIT_S, LONGEST_WAIT_S]
    assert breaker.succeeded()
    assert breaker.probe_at_s is None
    assert breaker.failures == 0
    for _ in range(3):
        breaker.failed(100, is_probe=False)
    assert breaker.probe_at_s == 101


def test_deliveries_running_at_the_opening_do_not_lengthen_the_wait() -> None:
    breaker = Breaker(open_after=1)
    breaker.failed(0, is_probe=False)
    for _ in range(7):
        assert not breaker.failed(0.5, is_probe=False)
    assert breaker.probe_at_s == 1
    assert breaker.failures == 8


def test_a_failing_endpoint_gets_one_probe_at_a_time() -> None:
    gate = DeliveryGate(EndpointSettings(URL, pause_after=1), 0)
    assert gate.room(0, 0) == 8
    gate.breaker.failed(0, is_probe=False)
    assert gate.room(0.5, 0) == 0
    assert gate.wait_s(0.5) == pytest.approx(0.5)
    assert gate.room(1, 0) == 1
    assert gate.room(1, 1) == 0
    gate.breaker.failed(1, is_probe=True)
    assert gate.room(2.9, 0) == 0
    assert gate.room(3, 0) == 1
    assert gate.succeeded()
    assert gate.room(3, 0) == 8


def test_an_endpoint_that_asks_for_time_gets_it_and_less_at_a_time_afterwards() -> None:
    gate = DeliveryGate(EndpointSettings(URL, concurrency=8), 0)
    gate.pause(0, 30)
    gate.pause(0, 5)
    assert gate.is_paused(29.9)
    assert gate.room(29.9, 0) == 0
    assert gate.shut_s(29.9) == pytest.approx(0.1)
    assert gate.room(30, 0) == 2
    for _ in range(9):
        gate.pause(30, 0)
    assert gate.room(30, 0) == 1
    accepted = 0
    while gate.room(31, 0) < 8:
        gate.succeeded()
        accepted += 1
    assert 20 < accepted < 60


def test_concurrency_and_rate_both_hold() -> None:
    gate = DeliveryGate(EndpointSettings(URL, concurrency=3, rate=10), 0)
    assert gate.room(0, 0) == 1
    gate.started(0)
    assert gate.room(0, 1) == 0
    assert gate.wait_s(0) == pytest.approx(0.1)
    assert gate.room(0.11, 1) == 1
    assert gate.room(0.11, 3) == 0
