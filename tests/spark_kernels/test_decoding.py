"""Decoding to Arrow equals `records.record.decode`, by both implementations."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument
from sparrow.records.builder import build_batch
from sparrow.records.control import ControlType, build_marker
from sparrow.records.record import decode
from sparrow.spark.kernels import DecodeOptions, Decoder
from tests.records.columns import NOW_MS
from tests.records.naive import fields_of, with_fields
from tests.repetitions import repetitions
from tests.spark_kernels.both import EVERYTHING, decoded, try_decoding
from tests.spark_kernels.topics import History, histories, stretches

FEWER = settings(max_examples=repetitions(40))
Stretch = tuple[list[bytes], list[tuple[Any, ...]]]


@pytest.mark.slow
@given(stretches())
def test_built_batches_are_decoded(stretch: Stretch) -> None:
    batches, rows = stretch
    assert decoded(b"".join(batches)).rows == rows
    assert [row for batch in batches for row in fields_of(decode(batch))] == rows


@pytest.mark.slow
@FEWER
@given(stretches(), st.integers(1, 20), st.integers(1, 300))
def test_blocks_and_chunks_change_nothing(stretch: Stretch, min_rows: int, max_block_bytes: int) -> None:
    batches, rows = stretch
    options = DecodeOptions(EVERYTHING, min_rows=min_rows, max_block_bytes=max_block_bytes)
    assert decoded(*batches, options=options).rows == rows
    assert decoded(b"".join(batches), options=options).rows == rows


@pytest.mark.slow
@FEWER
@given(stretches(), st.data())
def test_offsets_outside_the_range_are_left_out(stretch: Stretch, data: st.DataObject) -> None:
    batches, rows = stretch
    first, last = rows[0][0], rows[-1][0]
    low = data.draw(st.integers(max(first - 2, 0), last + 2))
    high = data.draw(st.integers(low, last + 2))
    outcome = decoded(b"".join(batches), low=low, high=high)
    assert outcome.rows == [row for row in rows if low <= row[0] < high]
    if high > last + 2:
        assert outcome.next_offset > last


@pytest.mark.slow
@FEWER
@given(stretches(), st.lists(st.sampled_from(EVERYTHING), unique=True, max_size=6))
def test_columns_are_those_asked_for(stretch: Stretch, columns: list[str]) -> None:
    batches, _ = stretch
    chunk = b"".join(batches)
    found = decoded(chunk, options=DecodeOptions(columns)).table
    assert found.column_names == columns
    assert found.num_rows == decoded(chunk).table.num_rows
    assert found == decoded(chunk).table.select(columns) or not columns


@pytest.mark.slow
@FEWER
@given(histories(), st.booleans())
def test_records_of_aborted_transactions_are_dropped(history: History, is_joined: bool) -> None:
    chunk = b"".join(history.batches)
    outcome = decoded(chunk, aborted=history.aborted)
    assert [row[0] for row in outcome.rows] == history.committed
    everything = decoded(chunk)
    assert len(everything.rows) >= len(history.committed)
    assert (
        everything.next_offset
        == outcome.next_offset
        == len(everything.rows) + sum(not decode(batch) for batch in history.batches)
    )


def test_transaction_that_began_before_the_fetch_is_dropped_to_its_end() -> None:
    batches = [
        build_batch([b"aborted"], base_offset=10, producer_id=7, transactional=True),
        build_batch([b"other"], base_offset=11, producer_id=8, transactional=True),
        build_batch([b"plain"], base_offset=12, producer_id=7),
        build_marker(ControlType.ABORT, 7, 0, NOW_MS, base_offset=13),
        build_batch([b"next"], base_offset=14, producer_id=7, transactional=True),
    ]
    outcome = decoded(b"".join(batches), aborted=[(7, 2)], low=10)
    assert [row[3] for row in outcome.rows] == [b"other", b"plain", b"next"]
    assert outcome.next_offset == 15


def test_block_leaves_when_it_has_its_rows() -> None:
    batches = [build_batch([b"x"] * 100, base_offset=100 * n) for n in range(10)]
    outcome = decoded(*batches, options=DecodeOptions(min_rows=250))
    assert [block.num_rows for block in outcome.blocks] == [300, 300, 300, 100]


def test_block_leaves_before_it_has_too_many_bytes() -> None:
    batches = [build_batch([bytes(1000)] * 10, base_offset=10 * n) for n in range(10)]
    outcome = decoded(b"".join(batches), options=DecodeOptions(("value",), max_block_bytes=35_000))
    assert [block.num_rows for block in outcome.blocks] == [30, 30, 30, 10]
    assert all(block.nbytes < 35_000 for block in outcome.blocks)


def test_compressed_batches_are_no_larger_blocks_than_plain_ones() -> None:
    batches = [build_batch([bytes(1000)] * 10, base_offset=10 * n, compression=4) for n in range(10)]
    outcome = decoded(b"".join(batches), options=DecodeOptions(("value",), max_block_bytes=35_000))
    assert [block.num_rows for block in outcome.blocks] == [30, 30, 30, 10]


@pytest.mark.slow
def test_many_headers_make_room_for_themselves() -> None:
    headers = [("name", b"value"), ("null", None)] * 1000
    batches = [build_batch([b"x"] * 2, headers=[headers, ()], base_offset=2 * n) for n in range(4)]
    rows = decoded(b"".join(batches)).rows
    assert [len(row[4]) for row in rows] == [2000, 0] * 4
    assert rows[4][4] == tuple(headers)


def test_record_without_headers_has_null_there_as_in_sparks_kafka_source() -> None:
    table = decoded(build_batch([b"x", b"y"], headers=[(), [("h", b"")]])).table
    assert table["headers"].to_pylist() == [None, [{"key": "h", "value": b""}]]


def test_timestamp_type_tells_who_set_the_time() -> None:
    batch = build_batch([b"x"], timestamps=5)
    stamped = with_fields(build_batch([b"x"], base_offset=1), attributes=0x08, max_timestamp=9)
    table = decoded(batch + stamped).table
    assert table["timestamp"].to_pylist() == [5, 9]
    assert table["timestampType"].to_pylist() == [0, 1]


@pytest.mark.slow
def test_cut_batch_at_the_end_is_fetched_again() -> None:
    batches = [build_batch([b"x" * 50] * 3, base_offset=3 * n) for n in range(3)]
    whole = b"".join(batches)
    for size in range(len(batches[0]), len(whole), 7):
        outcome = decoded(whole[:size])
        count = size // len(batches[0])
        assert outcome.next_offset == 3 * count
        assert len(outcome.rows) == 3 * count
        assert outcome.skipped_batches == 0


def test_repeated_batch_is_decoded_once() -> None:
    batches = [build_batch([b"x"] * 3, base_offset=3 * n) for n in range(3)]
    outcome = decoded(batches[0] + batches[1], batches[1] + batches[2], batches[2])
    assert [row[0] for row in outcome.rows] == list(range(9))


def test_batch_that_compaction_emptied_moves_the_offset_on() -> None:
    empty = with_fields(build_batch([b"x"] * 5)[:61], record_count=0, last_offset_delta=4)
    outcome = decoded(empty)
    assert outcome.rows == []
    assert outcome.next_offset == 5


def test_nothing_fetched_is_nothing_decoded() -> None:
    outcome = decoded(b"", low=17)
    assert outcome.blocks == []
    assert outcome.next_offset == 17


def test_decoder_is_done_when_it_has_passed_the_last_offset() -> None:
    decoder = Decoder("orders", 3, high=3)
    assert not decoder.is_done
    assert list(decoder.feed(build_batch([b"x"] * 5))) == []
    assert decoder.is_done
    (block,) = decoder.finish()
    assert block.column("offset").to_pylist() == [0, 1, 2]
    assert list(decoder.finish()) == []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_are_taken(kind: Any) -> None:
    decoder = Decoder("orders", 3)
    blocks = [*decoder.feed(kind(build_batch([b"x"]))), *decoder.finish()]
    assert [block.column("value").to_pylist() for block in blocks] == [[b"x"]]


@pytest.mark.parametrize("options", [{"min_rows": 0}, {"max_block_bytes": 2**31}, {"max_batch_bytes": 0}])
def test_limits_that_cannot_be_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match=r"at least one row|max_b.*must be between"):
        DecodeOptions(**options)  # type: ignore[arg-type]


def test_columns_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"timestampType.*not key, colour"):
        DecodeOptions(("key", "colour"))
    with pytest.raises(InvalidArgument, match="different"):
        DecodeOptions(("key", "key"))


def test_arrow_types_are_those_that_spark_needs() -> None:
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    assert Decoder("orders", 3, DecodeOptions(EVERYTHING)).schema.types == [
        pa.binary(), pa.binary(), pa.int64(), pa.int64(), pa.int32(), pa.list_(pa.field("element", pair))
    ]  # fmt: skip


def test_record_counts_that_lie_take_no_memory() -> None:
    batch = with_fields(build_batch([b"x"]), record_count=2**31 - 1, last_offset_delta=2**31 - 1)
    before = pa.total_allocated_bytes()
    outcome = try_decoding([batch])
    assert outcome.error is not None
    assert pa.total_allocated_bytes() - before < 1_000_000
