"""Sizes and durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.units import format_size, parse_duration_ms, parse_size_bytes, plain_topic_config


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("1048576", 1 << 20),
        ("64 MiB", 64 << 20),
        ("64MB", 64_000_000),
        ("1.5 GiB", 3 << 29),
        ("10k", 10 << 10),
        ("2 TB", 2 * 10**12),
        (" 7 b ", 7),
    ],
)
def test_size_is_read(text, size_bytes):
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("30000", 30_000),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("7d", 604_800_000),
        ("1.5s", 1500),
        ("2 h", 7_200_000),
    ],
)
def test_duration_is_read(text, ms):
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "x", "-1", "1 MiBs", "MiB", "1 2 MB", "1e3"])
def test_invalid_size_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="a size such as"):
        parse_size_bytes(text)


@pytest.mark.parametrize("text", ["", "s", "5y", "-1s", "1s,2m", "7d!", "1.5"])
def test_invalid_duration_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="a duration such as"):
        parse_duration_ms(text)


@given(st.integers(0, 1 << 60))
def test_a_plain_number_is_bytes_and_milliseconds(number):
    assert parse_size_bytes(str(number)) == number
    assert parse_duration_ms(str(number)) == number


def test_size_is_written_for_people():
    assert [format_size(size) for size in (5, 2048, 3 << 20, 5 << 40)] == [
        "5 B",
        "2.0 KiB",
        "3.0 MiB",
        "5.0 TiB",
    ]


def test_topic_configuration_may_use_units_and_keeps_plain_values():
    given_config = {
        "retention.ms": "7d",
        "segment.bytes": "1 GiB",
        "cleanup.policy": "compact",
        "retention.bytes": "-1",
    }
    assert plain_topic_config(given_config) == {
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "cleanup.policy": "compact",
        "retention.bytes": "-1",
    }


@pytest.mark.parametrize(
    ("name", "value"), [("retention.ms", "7dd"), ("segment.bytes", "16x"), ("flush.ms", "")]
)
def test_topic_configuration_with_a_unit_that_is_none_is_refused(name, value):
    with pytest.raises(ValueError, match=f"for {name}, not '{value}'"):
        plain_topic_config({name: value})
