"""`decode` reads every valid batch as the naive reader does, and refuses every other as corrupt."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from sparrow.base.errors import BadInput, CorruptBatch, RecordTooLarge, UnsupportedCompression
from sparrow.records.batch import HEADER_BYTES
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression, compress
from sparrow.records.control import ControlType, build_marker
from sparrow.records.record import Record, decode
from sparrow.records.runs import maybe_run
from tests.records.columns import NOW_MS, columns, expected, mixed_columns, uniform_columns
from tests.records.malformed import CASES, Case, batch_of, with_crc
from tests.records.naive import Malformed, corrected, fields_of, naive_records, with_fields

CODECS = st.sampled_from(Compression)


@pytest.mark.slow
@given(columns, CODECS, st.integers(0, 2**62))
def test_built_batches_are_decoded(columns: dict[str, Any], codec: Compression, base_offset: int) -> None:
    batch = build_batch(**columns, compression=codec, base_offset=base_offset)
    assert fields_of(decode(batch)) == expected(columns, base_offset)


@pytest.mark.slow
@given(columns)
def test_decode_agrees_with_the_naive_reader(columns: dict[str, Any]) -> None:
    batch = build_batch(**columns)
    assert fields_of(decode(batch)) == naive_records(batch, batch[HEADER_BYTES:])


@pytest.mark.slow
@given(columns, st.booleans())
def test_records_of_a_log_append_time_batch_all_have_its_time(columns: dict[str, Any], as_view: bool) -> None:
    batch = with_fields(build_batch(**columns), attributes=0x08, max_timestamp=NOW_MS + 5)
    records = decode(memoryview(batch) if as_view else batch)
    assert {record.timestamp for record in records} == {NOW_MS + 5}
    assert fields_of(records) == naive_records(batch, batch[HEADER_BYTES:])


edits = st.lists(
    st.tuples(
        st.integers(0, 2**20), st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.slow
@given(st.one_of(mixed_columns(), uniform_columns()), edits, st.integers(-20, 20))
def test_mutated_records_are_read_as_the_naive_reader_reads_them_or_refused_with_it(
    columns: dict[str, Any], edits: list[tuple[int, int]], resize: int
) -> None:
    batch = bytearray(build_batch(**columns))
    for position, byte in edits:
        batch[HEADER_BYTES + position % (len(batch) - HEADER_BYTES)] = byte
    if resize < -15:
        del batch[max(resize, HEADER_BYTES - len(batch)) :]
    elif resize > 15:
        batch += bytes(resize)
    changed = corrected(bytes(batch))
    try:
        wanted = naive_records(changed, changed[HEADER_BYTES:])
    except Malformed as error:
        event(f"malformed: {error}")
        with pytest.raises(CorruptBatch):
            decode(changed)
    else:
        event("still valid")
        assert fields_of(decode(changed)) == wanted


@pytest.mark.slow
@given(
    mixed_columns(),
    CODECS,
    st.lists(st.tuples(st.integers(8, 10_000), st.integers(0, 255)), min_size=1, max_size=5),
)
def test_any_mutation_of_a_batch_is_read_or_refused_with_an_error_of_ours(
    columns: dict[str, Any], codec: Compression, edits: list[tuple[int, int]]
) -> None:
    batch = bytearray(build_batch(**columns, compression=codec))
    for position, byte in edits:
        batch[position % len(batch)] = byte
    changed = corrected(bytes(batch))
    is_packed = bool(changed[22] & 7)
    try:
        records = decode(changed, max_bytes=1 << 20)
    except CorruptBatch:
        event("corrupt")
    except UnsupportedCompression:
        assert changed[22] & 7 > 4
    except RecordTooLarge:
        assert is_packed
    else:
        event("read")
        assert all(isinstance(record, Record) for record in records)


@given(st.binary(max_size=200))
@example(bytes(61))
def test_random_bytes_are_no_batch(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decode(data)


@pytest.mark.parametrize("count", [2, 9, 2**31 - 1])
def test_record_count_that_lies_is_refused(count: int) -> None:
    batch = build_batch([b"x" * 20])
    with pytest.raises(CorruptBatch):
        decode(with_fields(batch, record_count=count, last_offset_delta=2**31 - 1))


def test_fewer_records_counted_than_there_are_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="follow the last of 2 records"):
        decode(with_fields(build_batch([b"a", b"b", b"c"]), record_count=2))


def test_offset_beyond_the_last_of_the_batch_is_refused() -> None:
    batch = build_batch([b"a", b"b"])
    last_offset_byte = len(batch) - 5
    assert batch[last_offset_byte] == 2
    changed = bytearray(batch)
    changed[last_offset_byte] = 4
    with pytest.raises(CorruptBatch, match="last offset delta"):
        decode(corrected(bytes(changed)))


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("negative record length", "01"),
        ("record length beyond the end", "7e000000010100"),
        ("negative key length", "0c000000030100"),
        ("negative value length", "0c000000010300"),
        ("key beyond the end", "0c0000000c0100"),
        ("value beyond the end", "0c000000010c00"),
        ("negative header count", "0c000000010101"),
        ("header count beyond the end", "0c00000001017e"),
        ("header without a name", "1000000001010201 01"),
        ("header name that is not UTF-8", "1200000001010202ff01"),
        ("header name beyond the end", "1200000001010208ff01"),
        ("bytes behind the headers", "0e00000001010000"),
        ("number that never ends", "ffffffffffffffff"),
    ],
)
def test_malformed_record_is_refused(name: str, record: str) -> None:
    body = bytes.fromhex(record)
    batch = corrected(build_batch([b""])[:HEADER_BYTES] + body)
    with pytest.raises(Malformed):
        naive_records(batch, body)
    with pytest.raises(CorruptBatch):
        decode(batch)


def test_wrong_crc_is_refused_unless_it_is_not_to_be_checked() -> None:
    batch = bytearray(build_batch([b"value"]))
    batch[17] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        decode(bytes(batch))
    assert decode(bytes(batch), check_crc=False)[0].value == b"value"


def test_records_before_the_least_offset_are_left_out() -> None:
    batch = build_batch([b"%d" % n for n in range(100)], base_offset=1000)
    assert [record.offset for record in decode(batch, min_offset=1097)] == [1097, 1098, 1099]
    assert decode(batch, min_offset=1100) == []
    assert len(decode(batch, min_offset=1000)) == 100


def test_topic_and_partition_are_those_given() -> None:
    (record,) = decode(build_batch([b"v"], [b"k"], [[("h", None)]], 7), "orders", 3)
    assert record == Record("orders", 3, 0, 7, b"k", b"v", (("h", None),))


def test_control_batch_has_no_records_for_readers() -> None:
    assert decode(build_marker(ControlType.COMMIT, 7, 0, NOW_MS)) == []


def test_batch_that_compaction_emptied_has_no_records() -> None:
    assert decode(with_fields(build_batch([b"x"])[:HEADER_BYTES], record_count=0)) == []


def test_bytes_behind_the_batch_are_not_its_own() -> None:
    batch = build_batch([b"x"])
    assert decode(batch + b"next batch") == decode(batch)


def test_unknown_codec_is_unsupported() -> None:
    with pytest.raises(UnsupportedCompression, match="5"):
        decode(with_fields(build_batch([b"x"]), attributes=5))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_bomb_in_a_batch_is_too_large(codec: int) -> None:
    batch = build_batch([bytes(300_000)], compression=codec)
    with pytest.raises(RecordTooLarge):
        decode(batch, max_bytes=200_000)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_records_under_a_false_codec_are_corrupt(codec: int) -> None:
    with pytest.raises(CorruptBatch):
        decode(with_fields(build_batch([b"plain" * 9]), attributes=codec))


def test_body_of_another_codec_is_read_by_the_attributes_alone() -> None:
    plain = build_batch([b"value"])
    packed = with_fields(plain[:HEADER_BYTES] + compress(4, plain[HEADER_BYTES:]), attributes=4)
    assert decode(packed) == decode(plain)


def test_numbers_longer_than_needed_are_read_as_kafka_reads_them() -> None:
    # Length 13 in two bytes, then each number in two: timestamp 0, offset 0, key null, value null,
    # no headers.
    body = struct.pack("16B", 0x96, 0x00, 0, 0x80, 0, 0x80, 0, 0x81, 0, 0x81, 0, 0x80, 0, 0, 0, 0)[:13]
    batch = corrected(build_batch([b""])[:HEADER_BYTES] + body)
    assert fields_of(decode(batch)) == naive_records(batch, body) == [(0, 0, None, None, ())]


@pytest.mark.parametrize("count", [9, 64, 65, 200, 8300])
@pytest.mark.parametrize("key", [None, b"", b"12345678"])
def test_uniform_records_are_cut_as_runs(count: int, key: bytes | None) -> None:
    """Checks that the fast way was used: the right result alone would hold without `runs`, too."""
    batch = build_batch([b"x" * 100] * count, None if key is None else [key] * count, None, NOW_MS)
    body = batch[HEADER_BYTES:]
    stride = body.index(b"x" * 100, 110) - body.index(b"x" * 100)
    run = maybe_run(body, stride, 1, count - 1, NOW_MS.__add__)
    assert run is not None
    assert run.record_count == min(count - 1, 63)
    assert fields_of(decode(batch)) == [(n, NOW_MS, key, b"x" * 100, ()) for n in range(count)]


@pytest.mark.slow
@given(uniform_columns(), edits)
def test_found_run_agrees_with_the_naive_reader(
    columns: dict[str, Any], edits: list[tuple[int, int]]
) -> None:
    batch = bytearray(build_batch(**columns))
    for position, byte in edits:
        batch[HEADER_BYTES + position % (len(batch) - HEADER_BYTES)] = byte
    body = bytes(batch[HEADER_BYTES:])
    first_end = 1 + body[0] // 2 if body[0] < 0x80 else 2 + ((body[0] & 0x7F) + (body[1] << 7)) // 2
    if first_end >= len(body):
        return
    run = maybe_run(body, first_end, 1, len(columns["values"]) - 1, NOW_MS.__add__)
    if run is None:
        event("no run")
        return
    event("run")
    part = with_fields(
        bytes(batch[:HEADER_BYTES]) + body[first_end : run.end],
        record_count=run.record_count,
        base_timestamp=NOW_MS,
        attributes=0,
    )
    found = zip(run.timestamps, run.keys, run.values, strict=False)
    wanted = naive_records(part, part[HEADER_BYTES:])
    assert [(n + 1, *each, ()) for n, each in zip(range(run.record_count), found, strict=False)] == wanted


def test_every_refusal_is_the_callers_fault() -> None:
    assert issubclass(CorruptBatch, BadInput)
    assert issubclass(UnsupportedCompression, BadInput)
    assert issubclass(RecordTooLarge, BadInput)


READABLE = {
    "attributes",
    "attributes behind a hundred records without",
    "a timestamp over 64 bits",
}
"""Forbidden for publishers, accepted by our reader."""
SEEN_BEFORE = {"fewer records than counted", "a length that is cut"}
"""A count that is too large for the record is found before the first record is read."""
WITH_HOLES = {"an offset delta that begins at one", "offset deltas with a hole", "offset deltas backwards"}
"""Seen behind the record, as compaction leaves holes."""


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_error_names_the_first_offset_that_cannot_be_read(case: Case, codec: Compression) -> None:
    batch = (1000).to_bytes(8, "big") + batch_of(case.records, case.count, codec)[8:]
    if case.name in READABLE:
        assert len(decode(batch)) == case.count
        return
    with pytest.raises(CorruptBatch) as failed:
        decode(batch)
    last = 999 + case.count
    due = 1000 if case.name in SEEN_BEFORE else min(1000 + case.index, last)
    if case.name in WITH_HOLES:
        due = last
    assert failed.value.offset == due
    assert f"offsets 1000 to {last} cannot be read from {due} on" in failed.value.text


def test_records_that_cannot_be_decompressed_are_unreadable_from_the_first_on() -> None:
    batch = bytearray(build_batch([b"x" * 50], compression=Compression.ZSTD, base_offset=7))
    batch[61:65] = b"abcd"
    with pytest.raises(CorruptBatch, match="offsets 7 to 7 cannot be read from 7 on") as failed:
        decode(with_crc(batch))
    assert failed.value.offset == 7
