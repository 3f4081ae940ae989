"""Histograms: each value under the first bound that is not less."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.histogram import LATENCY_BOUNDS_S, Histogram

VALUES = st.lists(st.one_of(st.floats(0, 100), st.sampled_from(LATENCY_BOUNDS_S)))


@given(VALUES)
def test_cumulative_counts_are_those_of_all_values_up_to_each_bound(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    bounds = [*LATENCY_BOUNDS_S, math.inf]
    assert histogram.cumulative() == [sum(value <= bound for value in values) for bound in bounds]
    assert histogram.count == len(values)
    assert math.isclose(histogram.total, sum(values), abs_tol=1e-9)
