"""Sending at a fixed rate, and lateness."""

from __future__ import annotations

import time

from bench.pace import due_times, late_s, quantiles, settled, stamped


def test_quantiles_are_of_the_sorted_times_in_milliseconds() -> None:
    found = quantiles([n / 1000 for n in range(1000, -1, -1)])
    assert (found.p50, found.p99, found.p999, found.highest) == (500, 990, 999, 1000)


def test_the_first_fifth_of_the_messages_is_not_counted() -> None:
    assert settled([9.0, 8.0, 1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0]) == [
        1.0,
        2.0,
        3.0,
        1.0,
        2.0,
        3.0,
        1.0,
        2.0,
    ]


def test_messages_are_due_at_the_rate_however_late_the_sender_is() -> None:
    began = time.monotonic() - 1
    assert list(due_times(began, 1000, 3)) == [began, began + 0.001, began + 0.002]


def test_a_message_says_how_long_ago_it_was_due() -> None:
    message = stamped(time.monotonic() - 5, 100)
    assert len(message) == 100
    assert 5 <= late_s(message) < 60
