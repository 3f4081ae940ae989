"""Building: what is refused, what the size estimate promises, and the two ways in giving the same bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument, InvalidRecord, InvalidTimestamp, UnsupportedCompression
from sparrow.records.batch import check
from sparrow.records.builder import BatchBuilder, build_batch
from sparrow.records.compression import Compression
from sparrow.records.record import decode
from tests.records.columns import NOW_MS, columns, expected
from tests.records.naive import fields_of


def filled(columns: dict[str, Any]) -> BatchBuilder:
    builder = BatchBuilder()
    for _, timestamp, key, value, headers in expected(columns):
        builder.append(value, key, headers, timestamp)
    return builder


@pytest.mark.slow
@given(columns, st.sampled_from(Compression))
def test_builder_gives_the_bytes_of_build_batch(columns: dict[str, Any], codec: Compression) -> None:
    fields: dict[str, Any] = {
        "producer_id": 3,
        "producer_epoch": 1,
        "base_sequence": 9,
        "transactional": True,
    }
    built = filled(columns).build(codec, **fields, base_offset=4)
    assert built == build_batch(**columns, compression=codec, **fields, base_offset=4)


@pytest.mark.slow
@given(columns)
def test_size_estimate_is_never_too_small(columns: dict[str, Any]) -> None:
    builder = filled(columns)
    assert len(builder.build()) <= builder.size_bytes


def test_size_estimate_is_close_enough_to_fill_batches() -> None:
    builder = BatchBuilder()
    for _ in range(150):
        builder.append(b"x" * 100, timestamp_ms=NOW_MS)
    assert builder.size_bytes < len(builder.build()) * 1.15


def test_size_estimate_counts_timestamps_decades_apart() -> None:
    builder = BatchBuilder()
    for _ in range(20):
        builder.append(b"", timestamp_ms=2**62 - 1)
        builder.append(b"", timestamp_ms=0)
    assert len(builder.build()) <= builder.size_bytes


def test_builder_may_build_again_under_another_sequence() -> None:
    builder = BatchBuilder()
    builder.append(b"a", timestamp_ms=NOW_MS)
    first, second = builder.build(base_sequence=1), builder.build(base_sequence=2)
    assert (check(first).base_sequence, check(second).base_sequence) == (1, 2)
    assert decode(first) == decode(second)
    assert len(builder) == 1


def test_header_that_is_refused_leaves_the_builder_as_it_was() -> None:
    builder = BatchBuilder()
    builder.append(b"a", timestamp_ms=0)
    size = builder.size_bytes
    with pytest.raises(InvalidRecord, match="headers"):
        builder.append(b"b", b"k", [("name", 5)], 2**60)  # type: ignore[list-item]
    assert (len(builder), builder.size_bytes) == (1, size)
    builder.append(b"c", timestamp_ms=2**60)
    assert len(builder.build()) <= builder.size_bytes
    assert [record.value for record in decode(builder.build())] == [b"a", b"c"]


@pytest.mark.parametrize("value", ["text", 5, bytearray(b"x"), memoryview(b"x")])
def test_only_bytes_are_taken_as_value_or_key(value: Any) -> None:
    builder = BatchBuilder()
    with pytest.raises(InvalidRecord, match=type(value).__name__):
        builder.append(value)
    with pytest.raises(InvalidRecord, match=type(value).__name__):
        builder.append(b"", value)
    assert len(builder) == 0


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
    builder = BatchBuilder()
    with pytest.raises(InvalidTimestamp):
        builder.append(b"", timestamp_ms=timestamp)


def test_batch_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least one record"):
        build_batch([])
    with pytest.raises(InvalidArgument, match="at least one record"):
        BatchBuilder().build()


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
