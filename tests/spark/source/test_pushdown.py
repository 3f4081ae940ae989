"""Filters that Spark hands over: no row that passes them is lost, and accepted ones let no other
row through.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from sparrow.spark.source.plan import OffsetRange
from sparrow.spark.source.pushdown import Pushed, is_offered

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
"""The timestamp in ms of each offset, in each of three partitions."""
ROWS = [("t", partition, offset, time) for partition in range(3) for offset, time in enumerate(TIMES)]
RANGES = [OffsetRange("t", "", partition, 0, len(TIMES)) for partition in range(3)]


def lookup(_: str, timestamp_ms: int) -> Mapping[int, int]:
    first = next((offset for offset, time in enumerate(TIMES) if time >= timestamp_ms), -1)
    return dict.fromkeys(range(3), first)


COMPARISONS: dict[type, Any] = {
    EqualTo: lambda a, b: a == b,
    EqualNullSafe: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    In: lambda a, b: a in b,
}
NUMBERS = {"partition": st.integers(-1, 4), "offset": st.integers(-2, 14)}
COLUMNS = ("topic", "partition", "offset", "timestamp")


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(COLUMNS))
    kind = draw(st.sampled_from(list(COMPARISONS)))
    if column == "topic":
        value: Any = st.sampled_from(["t", "u"])
    elif column == "timestamp":
        value = st.integers(0, 10_000).map(lambda us: EPOCH + timedelta(microseconds=us))
    else:
        value = NUMBERS[column]
    drawn = draw(st.lists(value, max_size=3).map(tuple)) if kind is In else draw(value)
    return kind((column,), drawn)


def passes(each: Filter, row: tuple[Any, ...]) -> bool:
    found = dict(zip(COLUMNS, row, strict=True))
    found["timestamp"] = EPOCH + timedelta(milliseconds=found["timestamp"])
    return bool(COMPARISONS[type(each)](found[each.attribute[0]], each.value))


@given(st.lists(filters(), max_size=4))
def test_filters_leave_the_rows_that_spark_would_leave(given_filters: list[Filter]) -> None:
    pushed = Pushed()
    left = [each for each in given_filters if not pushed.take(each)]
    read = [row for each in pushed.limit(RANGES, lookup) for row in ROWS if within(each, row)]
    assert sorted(row for row in read if all(passes(each, row) for each in left)) == sorted(
        row for row in ROWS if all(passes(each, row) for each in given_filters)
    )


def within(each: OffsetRange, row: tuple[Any, ...]) -> bool:
    return row[1] == each.partition and each.low <= row[2] < each.high


def test_columns_that_are_never_null_are_taken_for_it() -> None:
    assert all(Pushed().take(IsNotNull((column,))) for column in COLUMNS)
    assert not Pushed().take(IsNotNull(("key",)))


@pytest.mark.parametrize(
    "unknown",
    [
        IsNull(("offset",)),
        Not(EqualTo(("partition",), 1)),
        StringStartsWith(("topic",), "t"),
        EqualTo(("value",), b"x"),
        EqualTo(("offset",), None),
        EqualTo(("headers", "key"), "x"),
    ],
)
def test_unsupported_filters_are_left_to_spark(unknown: Filter) -> None:
    pushed = Pushed()
    assert not pushed.take(unknown)
    assert pushed.limit(RANGES, lookup) == RANGES


def test_filters_are_offered_as_the_option_says() -> None:
    assert is_offered("true")
    assert not is_offered("false")
    assert not is_offered("auto")


def test_filters_are_offered_in_the_process_that_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["daemon.py", "pyspark.sql.worker.data_source_pushdown_filters"])
    assert is_offered("auto")
