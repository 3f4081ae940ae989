"""The rate over a sliding window, and the time that brings it down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.broker.quotas.rate import MAX_THROTTLE_MS, MIN_WINDOW_SAMPLES, SAMPLE_MS, SAMPLES, WindowedRate

MIN_WINDOW_MS = MIN_WINDOW_SAMPLES * SAMPLE_MS
events = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 100_000)), min_size=1, max_size=60)


def test_a_burst_is_measured_over_ten_seconds() -> None:
    rate = WindowedRate()
    rate.record(50_000, 1_000)
    assert rate.per_second(1_000) == 5_000
    assert rate.throttle_ms(5_000, 1_000) == 0
    assert rate.throttle_ms(4_999, 1_000) == pytest.approx(2, abs=1)


def test_ten_times_the_limit_at_once_waits_for_ninety_seconds_more_than_the_window() -> None:
    rate = WindowedRate()
    rate.record(100_000, 0)
    assert rate.throttle_ms(1_000, 0) == 90_000


def test_no_wait_is_longer_than_a_response_can_express() -> None:
    rate = WindowedRate()
    rate.record(1e15, 0)
    assert rate.throttle_ms(1, 0) == MAX_THROTTLE_MS


def test_steady_flow_is_measured_exactly() -> None:
    rate = WindowedRate()
    for now_ms in range(0, 60_000, 100):
        rate.record(100, now_ms)
    assert rate.per_second(60_000) == pytest.approx(1_000, rel=0.02)


def test_samples_older_than_the_window_do_not_count() -> None:
    rate = WindowedRate()
    rate.record(1_000_000, 0)
    assert not rate.is_idle(SAMPLES * SAMPLE_MS - 1)
    assert rate.is_idle(SAMPLES * SAMPLE_MS)
    assert rate.per_second(SAMPLES * SAMPLE_MS) == 0
    assert WindowedRate().is_idle(0)


def test_withdrawn_bytes_leave_no_trace() -> None:
    rate = WindowedRate()
    rate.record(5_000, 0)
    rate.record(9_000, 500)
    rate.record(-9_000, 500)
    assert rate.per_second(500) == pytest.approx(5_000 / 10.5)


@given(events)
def test_the_rate_is_that_of_a_model_that_keeps_every_event(given_events: list[tuple[int, int]]) -> None:
    """The model has samples as lists of events; the sum of those not obsolete over the window since
    the oldest began.
    """
    rate = WindowedRate()
    samples: list[list[tuple[int, int]]] = []
    now_ms = 0
    for pause_ms, amount in given_events:
        now_ms += pause_ms
        rate.record(amount, now_ms)
        if not samples or now_ms - samples[-1][0][0] >= SAMPLE_MS:
            samples.append([])
        samples[-1].append((now_ms, amount))
        samples = [s for s in samples[-SAMPLES:] if now_ms - s[-1][0] < SAMPLES * SAMPLE_MS]
        elapsed_ms = now_ms - samples[0][0][0]
        window_ms = elapsed_ms + max(0, MIN_WINDOW_SAMPLES - elapsed_ms // SAMPLE_MS) * SAMPLE_MS
        total = sum(each for sample in samples for _, each in sample)
        assert rate.per_second(now_ms) == pytest.approx(total * 1000 / window_ms)


@given(st.lists(st.integers(1, 1_000), min_size=30, max_size=200), st.integers(1_000, 5_000))
def test_a_client_that_obeys_gets_its_limit_in_the_long_run(amounts: list[int], limit: int) -> None:
    """Beyond the burst of the first ten seconds; single amounts are no more than a second's
    worth.
    """
    rate = WindowedRate()
    now_ms = 0.0
    for amount in amounts:
        rate.record(amount, now_ms)
        now_ms += rate.throttle_ms(limit, now_ms)
    burst = limit * MIN_WINDOW_MS / 1000 + max(amounts)
    assert sum(amounts) <= limit * now_ms / 1000 * 1.11 + burst, (now_ms, sum(amounts))


@given(st.integers(10, 1_000), st.integers(2, 30))
def test_a_burst_over_the_limit_waits_in_proportion(limit: int, times: int) -> None:
    rate = WindowedRate()
    rate.record(limit * 10 * times, 0)
    assert rate.throttle_ms(limit, 0) == (times - 1) * MIN_WINDOW_MS
