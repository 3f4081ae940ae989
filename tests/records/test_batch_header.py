"""The 61 bytes: `check` accepts or refuses them, `split` walks over them and `stamp` changes
them.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from sparrow.base.errors import CorruptBatch
from sparrow.records.batch import HEADER_BYTES, check, parse_header, split, stamp
from sparrow.records.builder import build_batch
from tests.records.columns import NOW_MS
from tests.records.naive import with_fields

BATCH = build_batch(
    [b"one", b"two"],
    timestamps=[NOW_MS, NOW_MS + 3],
    compression=4,
    producer_id=7,
    producer_epoch=2,
    base_sequence=2**31 - 1,
    transactional=True,
    base_offset=40,
)


def test_header_says_what_the_batch_was_built_with() -> None:
    header = check(BATCH)
    assert header.size_bytes == len(BATCH)
    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 41, 42)
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS + 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 2**31 - 1)
    assert (header.compression, header.record_count, header.magic) == (4, 2, 2)
    flags = (header.is_log_append_time, header.is_transactional, header.is_control, header.has_delete_horizon)
    assert flags == (False, True, False, False)


def test_sequence_wraps_as_kafkas_does() -> None:
    assert check(BATCH).last_sequence == 0


@given(st.integers(0, len(BATCH) * 8 - 1))
def test_any_flipped_bit_behind_the_crc_is_found(bit: int) -> None:
    damaged = bytearray(BATCH)
    damaged[bit // 8] ^= 1 << bit % 8
    # The log stamps these two; no CRC covers them.
    if 0 <= bit // 8 < 8 or 12 <= bit // 8 < 16:
        assert check(bytes(damaged)).crc == parse_header(BATCH).crc
        return
    with pytest.raises(CorruptBatch):
        check(bytes(damaged))


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1, HEADER_BYTES, len(BATCH) - 1])
def test_cut_batch_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch):
        check(BATCH[:size])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"magic": 1}, "magic 1"),
        ({"last_offset_delta": -1}, "last offset delta -1"),
        ({"record_count": -1}, "-1 records"),
    ],
)
def test_header_that_cannot_be_is_corrupt_and_says_why(fields: dict[str, int], text: str) -> None:
    with pytest.raises(CorruptBatch, match=text):
        check(with_fields(BATCH, **fields))


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1])
def test_length_that_lies_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptBatch, match="bytes long"):
        check(BATCH[:8] + length.to_bytes(4, "big", signed=True) + BATCH[12:])


def test_batches_back_to_back_are_split_without_a_copy() -> None:
    data = BATCH + build_batch([b"x"]) + BATCH
    parts = split(data)
    assert [bytes(part) for _, part in parts] == [BATCH, build_batch([b"x"]), BATCH]
    assert {part.obj is data for _, part in parts} == {True}


def test_rest_that_is_no_batch_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="bytes long, 70 are there"):
        split(BATCH + BATCH[:70])


def test_batch_is_checked_at_any_position() -> None:
    assert check(b"front" + BATCH + b"back", 5) == check(BATCH)


def test_stamp_changes_offset_and_epoch_and_keeps_the_crc_right() -> None:
    stamped = stamp(check(BATCH), 1000, 9) + BATCH[16:]
    header = check(stamped)
    assert (header.base_offset, header.leader_epoch) == (1000, 9)
    assert astuple(header)[4:] == astuple(check(BATCH))[4:]
