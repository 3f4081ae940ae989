"""Building: wrong columns are refused, and built batches read back."""

from __future__ import annotations

from typing import Any

import pytest

from sparrow.base.errors import InvalidArgument, InvalidRecord, InvalidTimestamp, UnsupportedCompression
from sparrow.records.batch import check
from sparrow.records.builder import build_batch
from sparrow.records.record import decode
from tests.records.columns import NOW_MS
from tests.records.naive import fields_of


@pytest.mark.parametrize("value", ["text", 5])
def test_only_bytes_are_taken_as_value_or_key(value: Any) -> None:
    with pytest.raises(InvalidRecord, match=type(value).__name__):
        build_batch([value])
    with pytest.raises(InvalidRecord, match=type(value).__name__):
        build_batch([b""], [value])


def test_text_in_a_column_is_refused_by_name() -> None:
    with pytest.raises(InvalidRecord, match="not str"):
        build_batch([b"fine", "text"])  # type: ignore[list-item]
    with pytest.raises(InvalidRecord, match="not str"):
        build_batch([b"fine"], ["text"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "headers",
    [[("lone surrogate \ud800", b"")], [(b"bytes", b"")], [("name",)], [("name", "text")], ["name"], 5],
)
def test_malformed_headers_are_refused(headers: Any) -> None:
    with pytest.raises(InvalidRecord, match="headers are pairs"):
        build_batch([b""], headers=[headers])


@pytest.mark.parametrize("timestamp", [-1, 2**62])
def test_timestamp_out_of_range_is_refused(timestamp: int) -> None:
    with pytest.raises(InvalidTimestamp):
        build_batch([b""], timestamps=timestamp)


def test_batch_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least one record"):
        build_batch([])


@pytest.mark.parametrize("column", [{"keys": [b"k"]}, {"headers": [()]}, {"timestamps": [1]}])
def test_columns_of_unlike_lengths_are_refused(column: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="a batch of 2 values has a column of 1"):
        build_batch([b"a", b"b"], **column)


def test_unknown_codec_is_refused() -> None:
    with pytest.raises(UnsupportedCompression):
        build_batch([b"a"], compression=5)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8192, 8193])
def test_every_width_of_offset_comes_back(count: int) -> None:
    batch = build_batch([b"%d" % n for n in range(count)], timestamps=NOW_MS)
    assert fields_of(decode(batch)) == [(n, NOW_MS, None, b"%d" % n, ()) for n in range(count)]


def test_base_timestamp_is_the_first_and_the_maximum_the_greatest() -> None:
    header = check(build_batch([b"a", b"b", b"c"], timestamps=[50, 90, 10]))
    assert (header.base_timestamp, header.max_timestamp) == (50, 90)
