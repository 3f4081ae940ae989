"""Any bytes are decoded as by `records.record.decode`, or refused as by it, with the batch's
name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from sparrow.base.errors import BadInput, CorruptBatch, RecordTooLarge, UnsupportedCompression
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from sparrow.records.control import ControlType, build_marker
from sparrow.records.record import decode
from sparrow.spark.kernels import DecodeOptions
from tests.records.columns import NOW_MS, columns
from tests.records.naive import corrected, fields_of, with_fields
from tests.records.test_decode import edits
from tests.repetitions import repetitions
from tests.spark_kernels.both import EVERYTHING, decoded, try_decoding
from tests.spark_kernels.topics import stretches

SKIPPING = DecodeOptions(EVERYTHING, skip_corrupt=True)


@pytest.mark.slow
@given(columns, edits, st.integers(-20, 20), st.sampled_from(Compression))
def test_mutated_records_are_decoded_as_by_the_other_decoder_or_refused_with_it(
    columns: dict[str, Any], edits: list[tuple[int, int]], resize: int, codec: Compression
) -> None:
    batch = bytearray(build_batch(**columns, compression=codec))
    for place, byte in edits:
        batch[61 + place % (len(batch) - 61)] = byte
    if resize < -15:
        del batch[max(resize, 61 - len(batch)) :]
    elif resize > 15:
        batch += bytes(resize)
    changed = corrected(bytes(batch))
    outcome = try_decoding([changed])
    wanted = _tried(changed)
    if not isinstance(wanted, BadInput):
        event("still valid")
        assert outcome.error is None
        assert outcome.rows == wanted
        return
    event("refused")
    assert type(outcome.error) is type(wanted)
    # `decode` does not check records that it could not decompress, so its sentence about offsets is
    # missing.
    assert wanted.text.split(" on: ", 1)[-1] in str(outcome.error)
    skipped = decoded(changed, options=SKIPPING)
    assert skipped.rows == []
    assert skipped.skipped_batches == 1
    assert skipped.last_skipped == str(outcome.error)
    assert skipped.next_offset == len(columns["values"])


@pytest.mark.parametrize("number", [0, 1, 2, 3])
@pytest.mark.parametrize("wrong", [0, 1, 999, 1 << 61])
def test_a_base_offset_that_does_not_fit_is_refused_though_no_crc_covers_it(number: int, wrong: int) -> None:
    batches = [
        (2 * each).to_bytes(8, "big") + build_batch([b"a", b"b"], None, None, NOW_MS)[8:] for each in range(5)
    ]
    if wrong in (2 * number, 2 * number + 2):
        return
    batches[number] = wrong.to_bytes(8, "big") + batches[number][8:]
    assert isinstance(try_decoding([b"".join(batches)]).error, CorruptBatch)
    skipped = decoded(b"".join(batches), options=SKIPPING)
    # If one of two neighbours at an end is wrong, it may be either, so both are skipped.
    doubtful = {0, 1} if number < 2 else {3, 4} if number == 3 else {number}
    there = [row[0] for row in skipped.rows]
    assert {row for each in range(5) if each not in doubtful for row in (2 * each, 2 * each + 1)} <= set(
        there
    )
    assert there == sorted(set(there))
    assert skipped.skipped_batches <= len(doubtful)


def _tried(batch: bytes) -> list[tuple[Any, ...]] | BadInput:
    try:
        return fields_of(decode(batch))
    except BadInput as error:
        return error


@pytest.mark.slow
@settings(max_examples=repetitions(40))
@given(stretches(), st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=4))
def test_any_mutation_of_a_stretch_is_an_error_or_skipped(
    stretch: tuple[list[bytes], list[Any]], edits: list[tuple[int, int]]
) -> None:
    chunk = bytearray(b"".join(stretch[0]))
    for place, byte in edits:
        chunk[place % len(chunk)] = byte
    for check_crc in (True, False):
        for skip_corrupt in (True, False):
            options = DecodeOptions(
                EVERYTHING, check_crc=check_crc, skip_corrupt=skip_corrupt, max_batch_bytes=1 << 20
            )
            outcome = try_decoding([bytes(chunk)], options)
            event(f"crc {check_crc}, skip {skip_corrupt}: {type(outcome.error).__name__}")


@pytest.mark.slow
@given(st.binary(max_size=300))
def test_random_bytes_are_corrupt(data: bytes) -> None:
    outcome = try_decoding([data], SKIPPING)
    assert outcome.rows == []
    assert (outcome.error is None) == (not data)


def test_corrupt_batch_is_named_with_topic_partition_and_offset() -> None:
    batch = bytearray(build_batch([b"value"], base_offset=42))
    batch[-1] ^= 1
    outcome = try_decoding([build_batch([b"x"] * 42), bytes(batch)])
    assert isinstance(outcome.error, CorruptBatch)
    assert "topic orders, partition 3, batch at offset 42: record batch's CRC is" in str(outcome.error)


def test_corrupt_batches_are_skipped_and_counted() -> None:
    batches = [build_batch([b"%d" % n] * 2, base_offset=2 * n, compression=n % 5) for n in range(10)]
    for number in (3, 4, 9):
        changed = bytearray(batches[number])
        changed[-1] ^= 1
        batches[number] = bytes(changed)
    outcome = decoded(b"".join(batches), options=SKIPPING)
    assert [row[0] for row in outcome.rows] == [n for n in range(18) if n // 2 not in {3, 4}]
    assert outcome.skipped_batches == 3
    assert "batch at offset 18" in outcome.last_skipped
    assert outcome.next_offset == 20


def test_last_offset_that_a_corrupt_header_claims_hides_no_batch_behind_it() -> None:
    batches = [build_batch([b"x"] * 2, base_offset=2 * n) for n in range(3)]
    changed = bytearray(batches[1])
    changed[23:27] = (10**6).to_bytes(4, "big")
    outcome = decoded(batches[0] + bytes(changed) + batches[2], options=SKIPPING)
    assert [row[0] for row in outcome.rows] == [0, 1, 4, 5]


@pytest.mark.parametrize("place", [0, 3])
def test_offset_that_a_corrupt_header_claims_ends_no_range(place: int) -> None:
    """The CRC does not cover it, so it may be anything; here the records are garbled, too."""
    batches = [build_batch([b"x"] * 2, base_offset=2 * n) for n in range(3)]
    changed = bytearray(batches[1])
    changed[place] = 0x10
    changed[-1] ^= 1
    chunk = batches[0] + bytes(changed) + batches[2]
    assert isinstance(try_decoding([chunk], high=6).error, CorruptBatch)
    assert [row[0] for row in decoded(chunk, high=6, options=SKIPPING).rows] == [0, 1, 4, 5]


def test_corrupt_batch_behind_the_range_does_not_matter() -> None:
    changed = bytearray(build_batch([b"x"], base_offset=2))
    changed[-1] ^= 1
    assert len(decoded(build_batch([b"x"] * 2) + bytes(changed), high=2).rows) == 2


@pytest.mark.parametrize("options", [SKIPPING, DecodeOptions()])
def test_length_that_cannot_be_right_is_an_error_even_when_skipping(options: DecodeOptions) -> None:
    first = build_batch([b"x"] * 3)
    second = bytearray(build_batch([b"y"], base_offset=3))
    second[8:12] = (5).to_bytes(4, "big")
    outcome = try_decoding([first + bytes(second)], options)
    assert isinstance(outcome.error, CorruptBatch)
    assert "nobody knows where" in str(outcome.error)


@pytest.mark.parametrize("size", [1, 60, 61, 70])
def test_fetch_without_one_whole_batch_is_corrupt(size: int) -> None:
    outcome = try_decoding([build_batch([b"x" * 100], base_offset=5)[:size]], low=5)
    assert isinstance(outcome.error, CorruptBatch)
    assert "batch at offset 5" in str(outcome.error)


def test_other_errors_keep_their_kind() -> None:
    unknown = with_fields(build_batch([b"x"]), attributes=5)
    assert isinstance(try_decoding([unknown]).error, UnsupportedCompression)
    bomb = build_batch([bytes(300_000)], compression=4)
    too_large = try_decoding([bomb], DecodeOptions(max_batch_bytes=200_000))
    assert isinstance(too_large.error, RecordTooLarge)
    assert "topic orders" in str(too_large.error)
    skipped = decoded(bomb, options=DecodeOptions(skip_corrupt=True, max_batch_bytes=200_000))
    assert skipped.skipped_batches == 1


def test_marker_that_is_corrupt_still_ends_its_transaction() -> None:
    """Otherwise skipping it would hide later records of the producer."""
    marker = bytearray(build_marker(ControlType.ABORT, 7, 0, NOW_MS, base_offset=1))
    marker[-1] ^= 1
    chunk = b"".join((
        build_batch([b"aborted"], producer_id=7, transactional=True),
        bytes(marker),
        build_batch([b"committed"], base_offset=2, producer_id=7, transactional=True),
    ))  # fmt: skip
    assert isinstance(try_decoding([chunk], aborted=[(7, 0)]).error, CorruptBatch)
    outcome = decoded(chunk, options=SKIPPING, aborted=[(7, 0)])
    assert [row[3] for row in outcome.rows] == [b"committed"]
    assert outcome.skipped_batches == 1


def test_headers_that_are_not_asked_for_are_not_checked() -> None:
    batch = build_batch([b"value"], headers=[[("name", b"")]])
    changed = corrected(batch.replace(b"name", b"\xff\xff\xff\xff"))
    assert isinstance(try_decoding([changed]).error, CorruptBatch)
    assert decoded(changed, options=DecodeOptions(("value",))).table.to_pylist() == [{"value": b"value"}]


@pytest.mark.parametrize("columns", [EVERYTHING, ("offset",)])
@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("negative record length", "01"),
        ("record length beyond the end", "7e000000010100"),
        ("record shorter than any", "0a0000000101"),
        ("negative key length", "0c000000030100"),
        ("negative value length", "0c000000010300"),
        ("key beyond the end", "0c0000000c0100"),
        ("value beyond the end", "0c000000010c00"),
        ("no room for the number of headers", "0c000000010200"),
        ("length that never ends", "ffffffffffffffff"),
        ("timestamp that does not fit", "2000ffffffffffffffffff0200010100"),
        ("offset that does not fit", "140000ffffffff1f010100"),
        ("negative offset", "0c000001010100"),
        ("bytes behind the record", "0c00000001010000"),
    ],
)
def test_malformed_record_is_refused_whatever_is_asked_for(
    name: str, record: str, columns: tuple[str, ...]
) -> None:
    batch = corrected(build_batch([b""])[:61] + bytes.fromhex(record))
    with pytest.raises(CorruptBatch):
        decode(batch)
    assert isinstance(try_decoding([batch], DecodeOptions(columns)).error, CorruptBatch)


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("negative number of headers", "0c000000010101"),
        ("more headers than there is room for", "140000000101feffffff0f"),
        ("header without a name", "100000000101020101"),
        ("header name beyond the end", "1200000001010208ff01"),
        ("header value beyond the end", "12000000010102026108"),
        ("bytes behind the headers", "0e00000001010000"),
    ],
)
def test_malformed_headers_are_refused_and_take_no_memory(name: str, record: str) -> None:
    batch = corrected(build_batch([b""])[:61] + bytes.fromhex(record))
    with pytest.raises(CorruptBatch):
        decode(batch)
    assert isinstance(try_decoding([batch]).error, CorruptBatch)
    assert pa.default_memory_pool().max_memory() < 1 << 30


@pytest.mark.parametrize(
    "name",
    [
        b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80", b"\xf8\x88\x80\x80",
        b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xc3a", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80", b"\xc3\xa9",
        b"\xef\xbf\xbf", b"\xf4\x8f\xbf\xbf",
    ],
)  # fmt: skip
def test_header_names_are_utf8_by_the_same_rules(name: bytes) -> None:
    """Also two names that are well-formed only together."""
    batch = build_batch([b""], headers=[[("n" * len(name), b""), ("x", None)]])
    changed = corrected(batch.replace(b"n" * len(name), name))
    try:
        name.decode()
    except UnicodeDecodeError:
        assert isinstance(try_decoding([changed]).error, CorruptBatch)
    else:
        assert decoded(changed).rows[0][4][0][0] == name.decode()


@pytest.mark.slow
def test_loops_that_are_compiled_stay_in_bounds_when_each_access_is_checked() -> None:
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "tests.spark_kernels.checked_loops"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 200
