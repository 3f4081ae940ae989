"""A change of a batch by the log changes nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import CorruptBatch, UnsupportedCompression
from sparrow.records.batch import HEADER_BYTES, BatchHeader, check, parse_header
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from sparrow.records.control import ControlType, build_marker, maybe_parse_marker
from sparrow.records.record import decode
from sparrow.records.rewrite import (
    iterate_raw,
    keyless_records,
    retain,
    with_compression,
    with_log_append_time,
)
from tests.records.columns import NOW_MS, columns, expected, mixed_columns
from tests.records.naive import corrected, fields_of, with_fields

CODECS = st.sampled_from(Compression)
SENT_MS = NOW_MS - 5000
LATER_MS = NOW_MS + 86_400_000


def sent(codec: int = 0, **fields: int) -> bytes:
    """Return ten records a millisecond apart; odd ones have no value, every third no key."""
    return build_batch(
        [None if n % 2 else b"value %d" % n for n in range(10)],
        [None if n % 3 == 0 else b"key %d" % n for n in range(10)],
        [[("n", b"%d" % n)] for n in range(10)],
        [SENT_MS + n for n in range(10)],
        codec,
        base_offset=100,
        **{"producer_id": 7, "producer_epoch": 2, "base_sequence": 40} | fields,
    )


def unchanged(header: BatchHeader) -> tuple[int, ...]:
    """Return the fields that no rewriting may change."""
    return (
        header.base_offset,
        header.leader_epoch,
        header.last_offset_delta,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.attributes & 0x30,
    )


def test_log_append_time_is_every_records_time_and_touches_no_record() -> None:
    batch = sent(codec=4)
    rewritten = with_log_append_time(check(batch), memoryview(batch), NOW_MS)
    header = check(rewritten)
    assert header.is_log_append_time
    assert (header.base_timestamp, header.max_timestamp) == (SENT_MS, NOW_MS)
    assert unchanged(header) == unchanged(check(batch))
    assert rewritten[HEADER_BYTES:] == batch[HEADER_BYTES:]
    assert {record.timestamp for record in decode(rewritten)} == {NOW_MS}
    assert {record.timestamp for record in AiokafkaBatch(rewritten)} == {NOW_MS}


def test_log_append_time_leaves_away_bytes_behind_the_batch() -> None:
    batch = sent()
    assert with_log_append_time(check(batch), batch + b"next", NOW_MS) == with_log_append_time(
        check(batch), batch, NOW_MS
    )


@pytest.mark.slow
@given(mixed_columns(), CODECS, CODECS)
def test_recompressed_batch_has_the_same_records(
    columns: dict[str, Any], before: Compression, after: Compression
) -> None:
    batch = build_batch(**columns, compression=before, base_offset=9, producer_id=4, transactional=True)
    rewritten = with_compression(check(batch), batch, after.name.lower())
    header = check(rewritten)
    assert header.compression == after
    assert unchanged(header) == unchanged(check(batch))
    assert fields_of(decode(rewritten)) == expected(columns, 9)


def test_batch_of_the_wanted_compression_is_not_copied() -> None:
    view = memoryview(sent(codec=3))
    assert with_compression(check(view), view, "lz4") is view
    assert with_compression(check(view), view, 3) is view


def test_recompression_to_an_unknown_codec_is_refused() -> None:
    with pytest.raises(UnsupportedCompression):
        with_compression(check(sent()), sent(), "brotli")


@pytest.mark.slow
@given(columns, CODECS, st.data())
def test_retained_records_are_those_wanted_and_nothing_else_changes(
    columns: dict[str, Any], codec: Compression, data: st.DataObject
) -> None:
    batch = build_batch(**columns, compression=codec, base_offset=30, producer_id=4, base_sequence=2)
    count = len(columns["values"])
    wanted = data.draw(st.sets(st.integers(30, 30 + count - 1)))
    horizon = data.draw(st.sampled_from([None, NOW_MS, LATER_MS]))
    rewritten = retain(batch, lambda record: record.offset in wanted, delete_horizon_ms=horizon)
    if not wanted:
        assert rewritten is None
        return
    assert rewritten is not None
    header = check(rewritten)
    assert unchanged(header) == unchanged(check(batch))
    assert header.compression == codec
    rows = [row for row in expected(columns, 30) if row[0] in wanted]
    assert fields_of(decode(rewritten)) == rows
    assert header.max_timestamp == max(row[1] for row in rows)
    assert header.has_delete_horizon is (horizon is not None)
    if horizon is not None:
        assert header.base_timestamp == horizon


def test_batch_kept_whole_is_the_same_bytes() -> None:
    assert retain(memoryview(sent(codec=4)), lambda _: True) == sent(codec=4)


def test_batch_kept_in_part_is_read_by_others_too() -> None:
    rewritten = retain(sent(codec=2), lambda record: bool(record.offset % 2), delete_horizon_ms=LATER_MS)
    assert rewritten is not None
    read = AiokafkaBatch(rewritten)
    assert read.validate_crc()
    assert [(each.offset, each.timestamp, each.key, each.value) for each in read] == [
        (each.offset, each.timestamp, each.key, each.value) for each in decode(sent()) if each.offset % 2
    ]


def test_delete_horizon_that_is_set_stays() -> None:
    first = retain(sent(), lambda _: True, delete_horizon_ms=LATER_MS)
    assert first is not None
    assert retain(first, lambda _: True, delete_horizon_ms=LATER_MS + 999) == first
    second = retain(first, lambda record: record.offset > 105, delete_horizon_ms=LATER_MS + 999)
    assert second is not None
    header = check(second)
    assert (header.has_delete_horizon, header.base_timestamp) == (True, LATER_MS)
    assert fields_of(decode(second)) == fields_of(decode(sent()))[6:]


def test_batch_may_be_thinned_again_and_again() -> None:
    batch: bytes | None = sent(codec=1)
    for least in range(101, 110):
        assert batch is not None
        batch = retain(batch, lambda record, least=least: record.offset >= least)
    assert batch is not None
    assert [record.offset for record in decode(batch)] == [109]
    assert check(batch).next_offset == 110


def test_log_append_time_survives_thinning() -> None:
    batch = with_log_append_time(check(sent()), sent(), NOW_MS)
    rewritten = retain(batch, lambda record: record.offset == 100)
    assert rewritten is not None
    assert check(rewritten).max_timestamp == NOW_MS
    assert [record.timestamp for record in decode(rewritten)] == [NOW_MS]


@pytest.mark.parametrize("codec", list(Compression))
def test_empty_batch_keeps_the_producers_sequence_and_the_offsets(codec: Compression) -> None:
    batch = sent(codec=codec, base_sequence=40)
    assert retain(batch, lambda _: False) is None
    empty = retain(batch, lambda _: False, keep_empty=True)
    assert empty is not None
    header = check(empty)
    assert len(empty) == HEADER_BYTES
    assert header.record_count == header.compression == 0
    assert (header.last_offset, header.last_sequence) == (109, 49)
    assert unchanged(header) == unchanged(check(batch))
    assert decode(empty) == []
    assert list(AiokafkaBatch(empty)) == []
    assert retain(empty, lambda _: True, keep_empty=True) == empty
    assert retain(empty, lambda _: True) is None


@pytest.mark.parametrize("base_timestamp", [2**63 - 1, -(2**63)])
@pytest.mark.parametrize("horizon", [None, NOW_MS])
def test_times_beyond_all_reason_do_not_stop_compaction(base_timestamp: int, horizon: int | None) -> None:
    batch = with_fields(sent(), base_timestamp=base_timestamp)
    rewritten = retain(batch, lambda record: record.offset > 104, delete_horizon_ms=horizon)
    assert rewritten is not None
    assert [(each.offset, each.key, each.value) for each in decode(rewritten)] == [
        (each.offset, each.key, each.value) for each in decode(sent()) if each.offset > 104
    ]


def test_marker_can_be_given_a_delete_horizon_and_stays_a_marker() -> None:
    marker = build_marker(ControlType.COMMIT, 7, 2, NOW_MS, 5, base_offset=90)
    rewritten = retain(marker, lambda _: True, delete_horizon_ms=LATER_MS)
    assert rewritten is not None
    assert check(rewritten).has_delete_horizon
    assert maybe_parse_marker(rewritten) == maybe_parse_marker(marker)


@pytest.mark.slow
@given(columns, CODECS)
def test_raw_records_are_the_bytes_between_them(columns: dict[str, Any], codec: Compression) -> None:
    batch = build_batch(**columns, compression=codec, base_offset=30)
    raws = list(iterate_raw(batch))
    assert b"".join(raw.raw for raw in raws) == build_batch(**columns)[HEADER_BYTES:]
    assert [(raw.offset, raw.timestamp, raw.key, raw.value_is_null) for raw in raws] == [
        (offset, timestamp, key, value is None) for offset, timestamp, key, value, _ in expected(columns, 30)
    ]


@pytest.mark.slow
@given(
    mixed_columns(), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=3)
)
def test_damaged_records_are_walked_or_corrupt(columns: dict[str, Any], edits: list[tuple[int, int]]) -> None:
    batch = bytearray(build_batch(**columns))
    for position, byte in edits:
        batch[HEADER_BYTES + position % (len(batch) - HEADER_BYTES)] = byte
    changed = corrected(bytes(batch))
    try:
        raws = list(iterate_raw(changed))
    except CorruptBatch:
        with pytest.raises(CorruptBatch):
            decode(changed)
    else:
        assert b"".join(raw.raw for raw in raws) == changed[HEADER_BYTES:]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_raw_walk_refuses_a_count_that_lies(count: int) -> None:
    with pytest.raises(CorruptBatch):
        list(iterate_raw(with_fields(build_batch([b"a", b"b"]), record_count=count)))


@pytest.mark.slow
@given(columns, CODECS)
def test_keyless_record_is_found(columns: dict[str, Any], codec: Compression) -> None:
    keys = columns["keys"]
    batch = build_batch(**columns, compression=codec)
    expected = (
        range(parse_header(batch).record_count)
        if keys is None
        else [i for i, key in enumerate(keys) if key is None]
    )
    assert keyless_records(batch) == list(expected)
