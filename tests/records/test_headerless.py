"""The proof that a batch has no headers is never wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparrow.base.errors import CorruptBatch
from sparrow.records.batch import HEADER_BYTES
from sparrow.records.builder import build_batch, encode_records
from sparrow.records.headerless import is_headerless
from sparrow.records.record import decode
from tests.records.columns import NOW_MS, columns
from tests.records.naive import corrected


def said_of(batch: bytes, count: int, max_single: int = 1 << 30) -> bool:
    return is_headerless(batch, HEADER_BYTES, len(batch), count, max_single)


@pytest.mark.slow
@settings(deadline=None)
@given(columns)
def test_batch_is_headerless_exactly_if_no_record_has_a_header(columns: dict[str, Any]) -> None:
    headers = columns["headers"] or ()
    assert said_of(build_batch(**columns), len(columns["values"])) is not any(headers)


@pytest.mark.parametrize("index", [0, 1, 15, 16, 17, 62, 63, 64, 65, 499, 998, 999])
def test_one_record_with_a_header_is_found_wherever_it_is(index: int) -> None:
    headers: list[list[tuple[str, bytes | None]]] = [[] for _ in range(1000)]
    values: list[bytes | None] = [b"x" * 100] * 1000
    assert said_of(build_batch(values, headers=headers, timestamps=NOW_MS), 1000)
    headers[index] = [("a", None)]
    assert not said_of(build_batch(values, headers=headers, timestamps=NOW_MS), 1000)
    # It is as long as the others, so that the lengths show nothing.
    values[index] = b"x" * 97
    assert not said_of(build_batch(values, headers=headers, timestamps=NOW_MS), 1000)


def test_a_header_whose_value_is_empty_is_found_though_its_record_ends_with_a_zero() -> None:
    headers = [[("a", b"")]] * 100
    assert not said_of(build_batch([b"x" * 50] * 100, headers=headers), 100)


@pytest.mark.parametrize("step_ms", [0, 1, 63, 64, 8192, -1])
@pytest.mark.parametrize("key_bytes", [None, 0, 8, 70])
def test_large_batches_of_records_of_one_size_are_recognised(step_ms: int, key_bytes: int | None) -> None:
    count = 9000
    keys = None if key_bytes is None else [b"k" * key_bytes] * count
    stamps = [NOW_MS * 2 + n * step_ms for n in range(count)]
    assert said_of(build_batch([b"v" * 20] * count, keys, timestamps=stamps), count, max_single=600)


def test_reading_one_by_one_has_its_limit() -> None:
    batch = build_batch([b"v" * (n % 50) for n in range(500)])
    assert said_of(batch, 500, max_single=500)
    assert not said_of(batch, 500, max_single=499)


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 1 << 31))
def test_any_bytes_give_a_result(data: bytes, count: int) -> None:
    assert is_headerless(data, 0, len(data), count, 1000) in {True, False}


@pytest.mark.slow
@settings(deadline=None)
@given(columns, st.data())
@example({"values": [b""], "keys": None, "headers": None, "timestamps": 0}, None)
def test_a_changed_byte_never_hides_a_header(columns: dict[str, Any], data: st.DataObject | None) -> None:
    batch = bytearray(build_batch(**columns))
    if data is not None:
        index = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
        batch[index] = data.draw(st.integers(0, 255))
    changed = corrected(bytes(batch))
    try:
        records = decode(changed)
    except CorruptBatch:
        return
    if any(record.headers for record in records):
        assert not said_of(changed, len(records))


def test_more_or_fewer_records_than_said_are_not_taken() -> None:
    records = encode_records([b"x" * 30] * 100)
    assert is_headerless(records, 0, len(records), 100, 100)
    assert not is_headerless(records, 0, len(records), 99, 100)
    assert not is_headerless(records, 0, len(records), 101, 200)
    assert not is_headerless(records, 0, len(records) - 1, 100, 100)
