"""Zigzag numbers: known bytes, limits, and bytes that are no number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import CorruptBatch, InvalidArgument
from sparrow.records.varint import (
    TABLE_SIZE,
    VARINTS,
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (-8192, "ff7f"),
        (8192, "808001"),
        (-8193, "818001"),
        (2147483647, "feffffff0f"),
        (-2147483648, "ffffffff0f"),
    ],
)
def test_varint_has_the_bytes_of_kafkas_byte_utils_test(number: int, encoded: str) -> None:
    assert encode_varint(number).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded), 0) == (number, len(encoded) // 2)


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (2**34 - 1, "feffffff7f"),
        (2**34, "808080808001"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varlong_has_the_bytes_of_kafkas_byte_utils_test(number: int, encoded: str) -> None:
    assert encode_varlong(number).hex() == encoded
    assert decode_varlong(bytes.fromhex(encoded), 0) == (number, len(encoded) // 2)


@given(INT32, st.binary(max_size=3), st.binary(max_size=3))
def test_varint_comes_back_at_any_position(number: int, before: bytes, after: bytes) -> None:
    encoded = encode_varint(number)
    assert decode_varint(before + encoded + after, len(before)) == (number, len(before) + len(encoded))


@given(INT64, st.binary(max_size=3), st.binary(max_size=3))
def test_varlong_comes_back_at_any_position(number: int, before: bytes, after: bytes) -> None:
    encoded = encode_varlong(number)
    assert decode_varlong(before + encoded + after, len(before)) == (number, len(before) + len(encoded))


def test_table_holds_every_number_of_at_most_two_bytes() -> None:
    assert len(VARINTS) == TABLE_SIZE
    assert [decode_varint(each, 0) for each in VARINTS] == [
        (n, 1 if n < 64 else 2) for n in range(TABLE_SIZE)
    ]


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1])
def test_number_over_32_bits_is_refused_as_varint(number: int) -> None:
    with pytest.raises(InvalidArgument, match="32"):
        encode_varint(number)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_number_over_64_bits_is_refused_as_varlong(number: int) -> None:
    with pytest.raises(InvalidArgument, match="64"):
        encode_varlong(number)


@pytest.mark.parametrize("encoded", ["", "80", "8080", "80808080"])
def test_number_that_runs_over_the_end_is_corrupt(encoded: str) -> None:
    with pytest.raises(CorruptBatch, match="end"):
        decode_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["8080808010", "ffffffff7f", "808080808000", "80808080808080"])
def test_number_over_32_bits_is_corrupt_as_varint(encoded: str) -> None:
    with pytest.raises(CorruptBatch):
        decode_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["80808080808080808002", "8080808080808080808000"])
def test_number_over_64_bits_is_corrupt_as_varlong(encoded: str) -> None:
    with pytest.raises(CorruptBatch):
        decode_varlong(bytes.fromhex(encoded), 0)


def test_number_written_longer_than_needed_is_read_as_kafka_reads_it() -> None:
    assert decode_varint(bytes.fromhex("8000"), 0) == (0, 2)
    assert decode_varint(bytes.fromhex("8180808000"), 0) == (-1, 5)
