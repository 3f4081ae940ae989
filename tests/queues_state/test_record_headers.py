"""Delivery options are read as the records have them; records without any cost nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.broker.queues.rules.delivery_info import DeliveryInfo
from sparrow.broker.queues.scan.record_headers import (
    NO_INTEREST,
    PIECE_RECORDS,
    Interest,
    Piece,
    hash_of,
    look,
)
from sparrow.records.batch import check
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from sparrow.records.control import ControlType, build_marker
from sparrow.records.record import Record, decode
from sparrow.records.rewrite import retain, with_log_append_time
from tests.records.columns import NOW_MS, columns
from tests.records.naive import with_fields
from tests.repetitions import repetitions

INTERESTS = st.builds(Interest, st.booleans(), st.booleans(), st.booleans())
ALL = Interest(keys=True, ids=True, ages=True)
CODECS = st.sampled_from(Compression)

# ── the model: what records say, read from decoded records ────────────────────────────────────────


def delivery_info_of(record: Record) -> DeliveryInfo:
    said: dict[str, Any] = {}
    parents = []
    for name, value in record.headers:
        text = value.decode(errors="replace") if value else ""
        is_number = bool(value) and text.isascii() and text.isdecimal()
        if name in {"deliver-at", "expires-at"} and is_number and 0 < int(text) < 1 << 62:
            said[name.replace("-", "_") + "_ms"] = int(text)
        elif name == "priority" and is_number and len(text) == 1:
            said["level"] = int(text)
        elif value and name in {"message-id", "parent-id", "redrive-queue"} and text.encode() == value:
            if name == "parent-id":
                parents.append(hash_of(value))
            else:
                said |= {"message_id": hash_of(value)} if name == "message-id" else {"only_queue": text}
    key = 0 if record.key is None else hash_of(record.key)
    return DeliveryInfo(record.offset, record.timestamp, key, parents=tuple(parents), **said)


def said_something(infos: DeliveryInfo) -> bool:
    return infos[3:] != DeliveryInfo(0, 0)[3:]


def check_pieces(
    pieces: Iterable[Piece], records: list[Record], first: int, end: int, interest: Interest
) -> list[Piece]:
    """Check that the pieces cover the offsets exactly and describe the records correctly. Return
    them.
    """
    pieces = list(pieces)
    expected = {record.offset: delivery_info_of(record) for record in records}
    at = first
    for start, stop, infos in pieces:
        assert start == at < stop
        at = stop
        if infos is None:
            assert not any(interest)
            assert not any(said_something(expected[offset]) for offset in range(start, stop))
        else:
            assert infos == [expected[offset] for offset in range(start, stop) if offset in expected]
            assert all(type(each) is DeliveryInfo for each in infos)
    assert at == max(first, end)
    return pieces


# ── data ──────────────────────────────────────────────────────────────────────────────────────────

values = st.one_of(
    st.none(),
    st.binary(max_size=6),
    st.integers(-2, 12).map(lambda n: b"%d" % n),
    st.sampled_from([b"%d" % NOW_MS, b"9" * 19, b"id-1", "é".encode(), b"x" * 64, b"x" * 9000]),
)
names = st.sampled_from(
    ["message-id", "parent-id", "deliver-at", "expires-at", "priority", "redrive-queue", "x", "x" * 64, ""]
)
header_lists = st.lists(st.tuples(names, values), max_size=4).map(tuple)


@st.composite
def chunks(draw: st.DrawFn) -> tuple[bytes, list[Record], int]:
    """Return batches back to back, their records, and the offset behind."""
    data, records, offset = b"", [], draw(st.sampled_from([0, 3, 1 << 40]))
    for _ in range(draw(st.integers(0, 4))):
        offset += draw(st.sampled_from([0, 0, 0, 2]))  # aborted batches are left out
        batch = draw(batches(offset))
        data += batch
        records += decode(batch)
        offset = check(batch).next_offset
    return data, records, offset + draw(st.sampled_from([0, 0, 5]))


@st.composite
def batches(draw: st.DrawFn, base_offset: int) -> bytes:
    if draw(st.integers(0, 6)) == 0:
        return build_marker(ControlType.COMMIT, 7, 0, NOW_MS, base_offset=base_offset)
    fields = draw(columns)
    count = len(fields["values"])
    if draw(st.booleans()):
        few = st.lists(st.tuples(st.integers(0, count - 1), header_lists), max_size=3)
        headers: list[Any] = [()] * count
        for place, each in draw(few):
            headers[place] = each
        fields |= {"headers": headers}
    batch = build_batch(**fields, compression=draw(CODECS), base_offset=base_offset)
    if draw(st.integers(0, 3)) == 0:
        kept = draw(st.sets(st.integers(base_offset, base_offset + count - 1)))
        batch = retain(batch, lambda record: record.offset in kept, keep_empty=True) or b""
    if draw(st.integers(0, 3)) == 0:
        batch = with_log_append_time(check(batch), batch, NOW_MS + 5)
    return batch


# ── properties ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@settings(max_examples=repetitions(150), deadline=None)
@given(chunks(), INTERESTS, st.data())
def test_pieces_cover_the_offsets_and_tell_what_decoded_records_say(
    chunk: tuple[bytes, list[Record], int], interest: Interest, data: st.DataObject
) -> None:
    raw, records, end = chunk
    lowest = records[0].offset if records else max(0, end - 3)
    first = data.draw(st.one_of(st.just(lowest), st.integers(max(0, lowest - 2), end)), label="first")
    next_offset = data.draw(st.one_of(st.just(end), st.integers(first, end)), label="next_offset")
    given_as = data.draw(st.sampled_from([bytes, memoryview]))
    check_pieces(look(given_as(raw), first, next_offset, interest), records, first, next_offset, interest)


@pytest.mark.slow
@settings(deadline=None)
@given(st.one_of(st.binary(max_size=200), chunks().map(lambda chunk: chunk[0])), INTERESTS, st.data())
def test_whatever_the_bytes_the_offsets_are_covered(
    raw: bytes, interest: Interest, data: st.DataObject
) -> None:
    changed = bytearray(raw)
    for _ in range(data.draw(st.integers(0, 3)) if raw else 0):
        changed[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    at = 0
    for start, stop, infos in look(bytes(changed), 0, 50, interest):
        assert start == at < stop
        at = stop
        assert infos is None or [f.offset for f in infos] == sorted({f.offset for f in infos})
        assert all(start <= each.offset < stop for each in infos or ())
    assert at == 50


# ── examples ──────────────────────────────────────────────────────────────────────────────────────


def plain(count: int, base_offset: int = 0, codec: int = 0, value: bytes = b"value") -> bytes:
    return build_batch([value] * count, timestamps=NOW_MS, compression=codec, base_offset=base_offset)


def pieces_of(data: bytes, end: int, interest: Interest = NO_INTEREST, **options: Any) -> list[Piece]:
    records = [record for batch in split_batches(data) for record in decode(batch)]
    return check_pieces(look(data, 0, end, interest, **options), records, 0, end, interest)


def split_batches(data: bytes) -> Iterable[bytes]:
    while data:
        size = check(data).size_bytes
        yield data[:size]
        data = data[size:]


@pytest.mark.parametrize("codec", list(Compression))
def test_plain_batches_are_one_piece(codec: Compression) -> None:
    data = b"".join(plain(100, base, codec) for base in range(0, 1000, 100))
    assert pieces_of(data, 1000) == [(0, 1000, None)]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize(
    "name", ["message-id", "parent-id", "deliver-at", "expires-at", "priority", "redrive-queue"]
)
def test_a_batch_with_a_well_known_header_is_looked_into_and_no_other(name: str, codec: Compression) -> None:
    marked = build_batch(
        [b"x" * 40] * 80, headers=[[]] * 79 + [[(name, b"5")]], compression=codec, base_offset=100
    )
    pieces = pieces_of(plain(100, 0, codec) + marked + plain(100, 180, codec), 280)
    assert [(start, end) for start, end, _ in pieces] == [(0, 100), (100, 180), (180, 280)]
    assert [infos is None for _, _, infos in pieces] == [True, False, True]


def test_batches_with_something_to_say_are_found_wherever_they_are_in_a_long_chunk() -> None:
    marked = {0: "priority", 7: "deliver-at", 8: "priority", 30: "parent-id", 59: "message-id"}
    data = b""
    for number in range(60):
        values: list[bytes | None] = [b"x" * (n * 7 % 150) for n in range(100)]
        headers: list[Any] = [[("own", b"")]] * 100
        if number in marked:
            headers[number] = [(marked[number], b"5")]
        data += build_batch(values, headers=headers, base_offset=number * 100)
    assert len(data) > 3 * (128 << 10)  # they are searched in several steps
    pieces = pieces_of(data, 6000)
    assert {start // 100 for start, _, infos in pieces if infos is not None} == set(marked)


def test_batches_with_other_headers_are_plain() -> None:
    traced = build_batch([b"x"] * 10, headers=[[("traceparent", b"00-1-2-00")]] * 10)
    assert pieces_of(traced, 10) == [(0, 10, None)]


@pytest.mark.parametrize("size", [5, 100, 1000])
def test_a_name_within_a_payload_changes_nothing(size: int) -> None:
    values: list[bytes | None] = [b"priority: 9, deliver-at" + b"x" * (n % size) for n in range(50)]
    pieces = pieces_of(build_batch(values), 50)
    assert all(not said_something(each) for _, _, infos in pieces for each in infos or ())


def test_a_name_that_spans_two_batches_is_none() -> None:
    data = build_batch([b"x" * 8 + b"prio"]) + build_batch([b"rity" + b"x" * 8], base_offset=1)
    assert pieces_of(data, 2) == [(0, 2, None)]


def test_missing_batches_and_markers_have_no_records() -> None:
    data = plain(2) + build_marker(ControlType.ABORT, 7, 0, NOW_MS, base_offset=5) + plain(2, 6)
    assert pieces_of(data, 9) == [
        (0, 2, None),
        (2, 5, []),
        (5, 6, []),
        (6, 8, None),
        (8, 9, []),
    ]


def test_no_batches_at_all_are_no_records() -> None:
    assert list(look(b"", 4, 9)) == [(4, 9, [])]
    assert list(look(plain(3), 0, 0)) == []


def test_offsets_removed_by_compaction_are_no_records() -> None:
    batch = retain(plain(10), lambda record: record.offset % 3 == 0)
    assert batch is not None
    ((first, end, infos),) = pieces_of(batch, 10)
    assert (first, end) == (0, 10)
    assert [each.offset for each in infos or ()] == [0, 3, 6, 9]


def test_the_last_well_formed_value_counts() -> None:
    headers = [("priority", b"7"), ("deliver-at", b"5"), ("priority", b"2"), ("deliver-at", b"soon")]
    ((_, _, infos),) = pieces_of(build_batch([b"x"], headers=[headers]), 1)
    assert infos == [DeliveryInfo(0, 0, level=2, deliver_at_ms=5)]


def test_empty_key_is_a_key_and_equal_keys_are_equal() -> None:
    ((_, _, infos),) = pieces_of(build_batch([b""] * 4, [b"", None, b"a", b"a"]), 4, ALL)
    assert infos is not None
    empty, none, a, b = (each.key for each in infos)
    assert none == 0
    assert a == b == hash_of(b"a")
    assert len({empty, none, a}) == 3


def test_hashes_are_signed_64_bit_and_never_0() -> None:
    hashes = [hash_of(b"%d" % n) for n in range(1000)] + [hash_of(b"")]
    assert all(-(1 << 63) <= each < 1 << 63 and each for each in hashes)
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize("codec", [0, 4])
def test_long_batches_are_read_in_steps(codec: int) -> None:
    data = build_batch([b"x"] * 3000, headers=[[("priority", b"1")]] * 3000, compression=codec)
    pieces = pieces_of(data, 3000)
    assert len(pieces) > 1
    assert all(len(infos or ()) <= PIECE_RECORDS for _, _, infos in pieces)


def test_records_with_very_many_headers_are_read_in_small_steps() -> None:
    headers: list[tuple[str, bytes | None]] = [("parent-id", b"%d" % n) for n in range(2000)]
    pieces = pieces_of(build_batch([b"x"] * 20, headers=[headers] * 20), 20)
    assert len(pieces) >= 5


def test_very_many_small_batches_are_read_in_steps() -> None:
    pieces = pieces_of(b"".join(plain(1, base) for base in range(3000)), 3000)
    assert len(pieces) > 1
    assert all(infos is None for _, _, infos in pieces)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_a_batch_that_grows_too_large_is_plain(codec: Compression) -> None:
    bomb = build_batch([b"\0" * 300_000] * 4, headers=[[("priority", b"1")]] * 4, compression=codec)
    assert list(look(bomb + plain(3, 4), 0, 7, max_bytes=1_000_000)) == [(0, 7, None)]
    assert list(look(bomb, 0, 4, ALL, max_bytes=1_000_000)) == [(0, 4, None)]
    assert pieces_of(bomb, 4, max_bytes=2_000_000)[0][2] is not None


def test_a_compressed_batch_that_cannot_be_read_is_plain() -> None:
    broken = with_fields(plain(5), attributes=4)
    assert next(look(broken + plain(5, 5), 0, 10, ALL)) == (0, 5, None)


def test_a_batch_with_a_malformed_record_is_plain_from_there_on() -> None:
    batch = bytearray(build_batch([b"x" * 50] * 600, headers=[[("priority", b"9")]] * 600))
    batch[-2] = 0x08  # a length that runs over the end
    pieces = list(look(bytes(batch) + plain(2, 600), 0, 602))
    assert pieces[-1] == (pieces[-2][1], 602, None)
    assert pieces[-2][1] >= PIECE_RECORDS
    assert all(each.level == 9 for _, _, infos in pieces for each in infos or ())


def test_bytes_that_are_no_batch_are_plain_to_the_end() -> None:
    assert list(look(plain(5) + b"no batch" * 20, 0, 9)) == [(0, 9, None)]
    assert list(look(plain(5) + plain(5, 5)[:-1], 0, 10)) == [(0, 10, None)]
    assert list(look(plain(5) + plain(5, 3), 0, 8)) == [(0, 8, None)]  # offsets go back
    assert list(look(with_fields(plain(5), record_count=9), 0, 5)) == [(0, 5, None)]


def test_a_header_that_counts_records_which_are_not_there_is_plain() -> None:
    lying = with_fields(plain(5), record_count=1 << 30, last_offset_delta=(1 << 30) - 1)
    assert list(look(lying, 0, 100, ALL)) == [(0, 100, None)]
