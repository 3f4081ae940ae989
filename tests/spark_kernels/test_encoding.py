"""Encoding from Arrow gives the bytes of `records.builder.build_batch`, by both implementations."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument, InvalidRecord, InvalidTimestamp
from sparrow.records.batch import check, parse_header
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from sparrow.records.partitioner import partition_for_key
from sparrow.records.record import decode
from sparrow.spark.kernels import EncodeOptions, Encoder
from tests.records.columns import columns, contents, expected
from tests.records.naive import fields_of
from tests.repetitions import repetitions
from tests.spark_kernels.both import IMPLEMENTATIONS, arrow, encoded

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NAMED_OTHERWISE = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


@pytest.mark.slow
@given(columns, st.sampled_from(Compression))
def test_one_batch_equals_that_of_the_builder(columns: dict[str, Any], codec: Compression) -> None:
    (batch,) = encoded(
        arrow(columns) | {"partition": pa.array([0] * len(columns["values"]))}, compression=codec
    )
    assert batch.data == build_batch(**columns, compression=codec)
    assert batch.record_count == len(columns["values"])
    assert fields_of(decode(batch.data)) == expected(columns)


@pytest.mark.slow
@given(columns, st.integers(70, 700))
def test_batches_are_as_full_as_their_limit_allows(columns: dict[str, Any], max_batch_bytes: int) -> None:
    batches = encoded(
        arrow(columns) | {"partition": pa.array([0] * len(columns["values"]))},
        max_batch_bytes=max_batch_bytes,
    )
    rows = [row[1:] for batch in batches for row in fields_of(decode(batch.data))]
    assert rows == [row[1:] for row in expected(columns)]
    first = 0
    for batch in batches:
        last = first + batch.record_count
        assert len(batch.data) <= max_batch_bytes or batch.record_count == 1
        assert batch.data == build_batch(**_cut(columns, first, last))
        if last < len(columns["values"]):
            assert len(build_batch(**_cut(columns, first, last + 1))) > max_batch_bytes
        first = last


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=20), min_size=1, max_size=5),
    st.integers(70, 200),
    st.sampled_from(Compression),
)
def test_sequences_count_the_records_of_each_partition_from_0(
    calls: list[list[int]], max_batch_bytes: int, codec: Compression
) -> None:
    for implementation in IMPLEMENTATIONS:
        options = EncodeOptions(
            4,
            codec,
            max_batch_bytes,
            transactional=True,
            producer_id=5,
            producer_epoch=3,
            has_sequences=True,
            implementation=implementation,
        )
        encoder, counted = Encoder(options), [0] * 4
        for partitions in calls:
            records = pa.record_batch(
                {"value": pa.array([b"x" * 20] * len(partitions)), "partition": pa.array(partitions)}
            )
            for batch in encoder.encode(records, timestamp_ms=1):
                header = check(batch.data)
                assert header.base_sequence == counted[batch.partition]
                assert (header.producer_id, header.producer_epoch, header.is_transactional) == (5, 3, True)
                counted[batch.partition] += batch.record_count
        assert sum(counted) == sum(map(len, calls))


def test_sequences_begin_again_behind_the_last_one() -> None:
    encoder = Encoder(EncodeOptions(1, has_sequences=True))
    encoder._sequences[0] = 0x7FFFFFFE
    records = pa.record_batch({"value": pa.array([b"a", b"b", b"c"])})
    first, second = (next(encoder.encode(records, timestamp_ms=1)) for _ in range(2))
    assert [parse_header(each.data).base_sequence for each in (first, second)] == [0x7FFFFFFE, 1]


def _cut(columns: dict[str, Any], first: int, last: int) -> dict[str, Any]:
    return {name: column and column[first:last] for name, column in columns.items()}


@pytest.mark.slow
@given(st.lists(contents, min_size=1, max_size=60), st.integers(1, 400), st.integers(0, 400))
def test_keys_are_partitioned_as_kafkas_clients_do(
    keys: list[bytes | None], partitions: int, first_unkeyed: int
) -> None:
    batches = encoded(
        {"key": pa.array(keys, pa.binary()), "value": pa.array([b"%d" % n for n in range(len(keys))])},
        partitions,
        first_unkeyed=first_unkeyed,
    )
    wanted: dict[int, list[bytes]] = {}
    for number, key in enumerate(keys):
        partition = first_unkeyed % partitions if key is None else partition_for_key(key, partitions)
        wanted.setdefault(partition, []).append(b"%d" % number)
    found = {batch.partition: [record.value for record in decode(batch.data)] for batch in batches}
    assert found == wanted
    assert [batch.partition for batch in batches] == sorted(wanted)


@pytest.mark.slow
@settings(max_examples=repetitions(25))
@given(st.lists(st.binary(max_size=300), min_size=70, max_size=100))
def test_hashes_are_equal_for_keys_of_any_length(keys: list[bytes]) -> None:
    keys += [key[:7] + b"1234567"[len(key[:7]) :] for key in keys]  # Many keys of one length.
    batches = encoded({"key": pa.array(keys, pa.binary())}, 70_000)
    for batch in batches:
        for record in decode(batch.data):
            assert partition_for_key(record.key or b"", 70_000) == batch.partition


def test_records_without_a_key_move_on_to_the_next_partition_with_each_call() -> None:
    encoder = Encoder(EncodeOptions(3), first_unkeyed=1)
    records = pa.record_batch({"value": pa.array([b"a", b"b"])})
    keyed = pa.record_batch({"key": pa.array([b"k"])})
    found = []
    for each in (records, keyed, records, records, records):
        found += [batch.partition for batch in encoder.encode(each, timestamp_ms=0)]
    assert found == [1, partition_for_key(b"k", 3), 2, 0, 1]


def test_partition_that_is_given_comes_first_and_null_leaves_it_to_the_key() -> None:
    batches = encoded(
        {
            "partition": pa.array([2, None, 0, None], pa.int32()),
            "key": pa.array([b"a", b"a", b"a", None]),
            "value": pa.array([b"0", b"1", b"2", b"3"]),
        },
        5,
        first_unkeyed=4,
    )
    found = {batch.partition: [record.value for record in decode(batch.data)] for batch in batches}
    wanted: dict[int, list[bytes]] = {0: [b"2"], 2: [b"0"], 4: [b"3"]}
    wanted.setdefault(partition_for_key(b"a", 5), []).append(b"1")
    assert {key: sorted(values) for key, values in found.items()} == {
        key: sorted(values) for key, values in wanted.items()
    }


@pytest.mark.parametrize("partition", [-1, 4, 2**40])
def test_partition_that_the_topic_does_not_have_is_refused(partition: int) -> None:
    with pytest.raises(InvalidRecord, match=rf"partition {partition}; the topic has 0 to 3"):
        encoded({"value": pa.array([b"x"]), "partition": pa.array([partition])}, 4)


def test_text_wide_and_sliced_columns_are_taken() -> None:
    values = ["skipped", "a", None, "cc", "skipped"]
    kinds = [
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.string_view(),
        pa.binary_view(),
    ]
    kinds += [pa.dictionary(pa.int32(), pa.string())]
    for kind in kinds:
        column = pa.array(values, pa.string()).cast(kind).slice(1, 3)
        (batch,) = encoded({"value": column}, timestamp_ms=9)
        assert batch.data == build_batch([b"a", None, b"cc"], timestamps=9)


def test_sliced_headers_and_null_lists_are_taken() -> None:
    headers = pa.array([[("x", b"")], [("a", b"1"), ("b", None)], None, [], [("c", b"")]], HEADERS)
    (batch,) = encoded({"value": pa.array([b"v"] * 3), "headers": headers.slice(1, 3)})
    assert [record.headers for record in decode(batch.data)] == [(("a", b"1"), ("b", None)), (), ()]


def test_columns_of_nulls_without_a_type_are_as_good_as_none() -> None:
    nothing = pa.nulls(2)
    columns = dict.fromkeys(("key", "headers", "timestamp", "partition"), nothing)
    (batch,) = encoded({"value": pa.array([b"a", b"b"]), **columns}, timestamp_ms=4)
    assert batch.data == build_batch([b"a", b"b"], timestamps=4)


def test_timestamps_are_milliseconds_whatever_their_unit() -> None:
    for unit, factor in (("s", 0.001), ("ms", 1), ("us", 1000), ("ns", 10**6)):
        stamps = pa.array([int(5000 * factor), None], pa.timestamp(unit, "UTC"))
        (batch,) = encoded({"value": pa.array([b"a", b"b"]), "timestamp": stamps}, timestamp_ms=7)
        assert [record.timestamp for record in decode(batch.data)] == [5000, 7]


def test_record_larger_than_the_limit_is_a_batch_by_itself() -> None:
    values = [b"a", bytes(5000), b"b"]
    batches = encoded({"value": pa.array(values, pa.binary())}, max_batch_bytes=100)
    assert [batch.data for batch in batches] == [build_batch([value]) for value in values]


def test_no_rows_are_no_batches() -> None:
    assert encoded({"value": pa.array([], pa.binary())}) == []


def test_transactional_batches_say_so() -> None:
    (batch,) = encoded({"value": pa.array([b"x"])}, transactional=True, producer_id=7, producer_epoch=2)
    assert batch.data == build_batch([b"x"], producer_id=7, producer_epoch=2, transactional=True)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"value": pa.array([5])}, "column value must be binary or string, not int64"),
        ({"key": pa.array([1.5])}, "column key must be binary or string, not double"),
        ({"headers": pa.array([b"x"])}, "column headers must be an array"),
        ({"headers": pa.array([[("a", b"")]], NAMED_OTHERWISE)}, "column headers must be an array"),
        ({"headers": pa.array([[(None, b"")]], HEADERS)}, "no name"),
        ({"headers": pa.array([[None]], HEADERS)}, "null"),
        ({"timestamp": pa.array(["now"])}, "column timestamp must be"),
        ({"partition": pa.array([0.5])}, "column partition must be"),
    ],
)
def test_columns_of_other_types_are_refused_by_name(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRecord, match=words):
        encoded(columns)


@pytest.mark.parametrize("stamp", [-1, 2**62])
def test_timestamps_that_no_batch_can_have_are_refused(stamp: int) -> None:
    with pytest.raises(InvalidTimestamp, match="milliseconds"):
        encoded({"value": pa.array([b"x"]), "timestamp": pa.array([stamp])})


@pytest.mark.parametrize("options", [{"partitions": 0}, {"partitions": 1, "max_batch_bytes": 61}])
def test_options_that_cannot_be_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        EncodeOptions(**options)
