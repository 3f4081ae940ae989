"""Start positions, limits and plans: decisions without a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument
from sparrow.spark.options.source import read_source_options
from sparrow.spark.source.limits import limited, shares
from sparrow.spark.source.offsets import StreamOffset
from sparrow.spark.source.plan import OffsetRange, Sizes, plan
from sparrow.spark.source.snapshot import Extent, TopicPartition, TopicState
from sparrow.spark.source.starts import ending, starting

SNAPSHOT = {
    "a": TopicState("id-a", {0: Extent(5, 20), 1: Extent(0, 0)}),
    "b": TopicState("id-b", {0: Extent(0, 7)}),
}
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def lookup(topic: str, timestamp_ms: int) -> Mapping[int, int]:
    """Look up an offset by time: partition 0 of a has a record for each ms from 100 on."""
    if topic == "a" and timestamp_ms < 115:
        return {0: max(5, timestamp_ms - 95), 1: -1}
    return {0: -1, 1: -1}


def begin(default: str = "latest", **options: str) -> dict[TopicPartition, int]:
    return starting(read_source_options({"subscribe": "a,b", **options}), SNAPSHOT, lookup, default)


# ── places ────────────────────────────────────────────────────────────────────────────────────────


def test_earliest_and_latest_are_the_ends_of_the_log() -> None:
    assert begin() == {A0: 20, A1: 0, B0: 7}
    assert begin("earliest") == {A0: 5, A1: 0, B0: 0}
    assert begin(startingOffsets="earliest") == {A0: 5, A1: 0, B0: 0}


def test_offsets_by_partition_may_be_words_in_numbers() -> None:
    offsets = '{"a": {"0": -2, "1": -1}, "b": {"0": 3}}'
    assert begin(startingOffsets=offsets) == {A0: 5, A1: 0, B0: 3}


def test_a_partition_that_is_not_named_or_not_read_is_refused() -> None:
    with pytest.raises(InvalidArgument) as raised:
        begin(startingOffsets='{"a": {"0": 1, "7": 1}}')
    assert "a-1, b-0 are missing" in raised.value.text
    assert "a-7 is not among what is read" in raised.value.text


def test_a_time_is_its_first_record_and_the_end_where_there_is_none_if_that_is_wanted() -> None:
    with pytest.raises(InvalidArgument, match="topic a, partition 1 has no record of 110 ms or later"):
        begin(startingTimestamp="110")
    options = {"startingOffsetsByTimestampStrategy": "latest"}
    assert begin(startingTimestamp="110", **options) == {A0: 15, A1: 0, B0: 7}
    times = '{"a": {"0": 112, "1": 1}, "b": {"0": 1}}'
    assert begin(startingOffsetsByTimestamp=times, **options) == {A0: 17, A1: 0, B0: 7}


def test_a_time_for_all_comes_before_times_by_partition_and_these_before_offsets() -> None:
    options = {
        "startingOffsetsByTimestampStrategy": "latest",
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"a": {"0": 112, "1": 1}, "b": {"0": 1}}',
    }
    assert begin(**options)[A0] == 17
    assert begin(**options, startingTimestamp="110")[A0] == 15


def test_an_end_by_time_is_the_end_where_no_record_is_that_late() -> None:
    values = read_source_options({"subscribe": "a,b", "endingTimestamp": "110"})
    assert ending(values, SNAPSHOT, lookup) == {A0: 15, A1: 0, B0: 7}


# ── offsets of streams ────────────────────────────────────────────────────────────────────────────

names = st.text("abc.-_", min_size=1, max_size=4)
offsets = st.dictionaries(
    st.builds(TopicPartition, names, st.integers(0, 20)), st.integers(0, 2**63 - 1), max_size=6
)


@given(offsets, st.dictionaries(names, st.uuids().map(str), max_size=4))
def test_checkpointed_offsets_are_read_back(known: dict[TopicPartition, int], ids: dict[str, str]) -> None:
    offset = StreamOffset(known, ids)
    again = StreamOffset.of(offset.to_json())
    assert again.next == known
    assert again.ids == {topic: id_ for topic, id_ in ids.items() if any(p.topic == topic for p in known)}
    assert list(again.to_json()) == list(offset.to_json())


def test_a_checkpoint_of_the_kafka_source_is_understood() -> None:
    assert StreamOffset.of({"a": {"1": 4, "0": 3}}) == StreamOffset({A1: 4, A0: 3})
    assert StreamOffset({A1: 4, A0: 3}).to_json() == {"a": {"0": 3, "1": 4}}


def test_the_end_of_a_first_batch_says_where_it_began() -> None:
    end = StreamOffset({A0: 4}, {"a": "x"}, {A0: 3})
    assert end.to_json() == {"a": {"0": 4}, "$ids": {"a": "x"}, "$start": {"a": {"0": 3}}}
    assert StreamOffset.of(end.to_json()) == end


@pytest.mark.parametrize("given", [{"logOffset": 5}, {"a": {"x": 1}}, {"a": [1]}, {"a": {"0": None}}])
def test_an_offset_of_another_source_is_named(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="another source before"):
        StreamOffset.of(given)


# ── limits ────────────────────────────────────────────────────────────────────────────────────────


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 10_000)), st.integers(1, 5000))
def test_a_limit_is_kept_and_starves_nobody(waiting: dict[int, int], limit: int) -> None:
    taken = shares(waiting, limit)
    assert all(0 <= taken[key] <= size for key, size in waiting.items())
    assert all(taken[key] > 0 for key, size in waiting.items() if size)
    busy = sum(1 for size in waiting.values() if size)
    assert sum(taken.values()) <= max(limit, busy) + busy
    if sum(waiting.values()) <= limit:
        assert taken == waiting


def test_limit_is_spread_in_proportion_to_waiting_records() -> None:
    starts, ends = {A0: 100, B0: 0}, {A0: 1000, B0: 100, A1: 3}
    assert limited(starts, ends, 100) == {A0: 190, B0: 10, A1: 3}


# ── plans ─────────────────────────────────────────────────────────────────────────────────────────

RECORD_BYTES = 100


def estimate(ranges: Sequence[OffsetRange]) -> list[int]:
    """Estimate a size: records of partition 1 are ten times as large behind offset 1000."""
    return [
        RECORD_BYTES * each.offsets
        + (9 * RECORD_BYTES * max(0, each.high - max(each.low, 1000)) if each.partition == 1 else 0)
        for each in ranges
    ]


ranges = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 3000)), max_size=4).map(
    lambda bounds: [OffsetRange("t", "id", n, low, low + size) for n, (low, size) in enumerate(bounds)]
)
wanted = st.builds(
    Sizes,
    max_bytes=st.sampled_from([20_000, 200_000, 1 << 30]),
    pack_bytes=st.sampled_from([0, 5000, 1 << 30]),
    min_tasks=st.sampled_from([1, 3, 17]),
    max_offsets=st.sampled_from([300, 2**63 - 1]),
)


@given(ranges, wanted)
def test_a_plan_covers_every_offset_once_and_in_order(given_ranges: list[OffsetRange], sizes: Sizes) -> None:
    tasks = plan(given_ranges, estimate, sizes)
    pieces = [piece for task in tasks for piece in task]
    assert all(piece.offsets > 0 for piece in pieces)
    for each in given_ranges:
        own = [piece for piece in pieces if piece.partition == each.partition]
        bounds = [(piece.low, piece.high) for piece in own]
        assert [low for low, _ in bounds][1:] == [high for _, high in bounds][:-1]
        if each.offsets:
            assert (bounds[0][0], bounds[-1][1]) == (each.low, each.high)
        else:
            assert not own
    assert len(tasks) >= min(sizes.min_tasks, sum(each.offsets for each in given_ranges))
    assert all(sum(piece.offsets for piece in task) <= sizes.max_offsets for task in tasks)


def test_a_large_partition_is_split_evenly_by_bytes() -> None:
    tasks = plan([OffsetRange("t", "id", 1, 0, 2000)], estimate, Sizes(max_bytes=110_000, pack_bytes=0))
    sizes = [estimate(task)[0] for task in tasks]
    assert len(tasks) == 10
    assert max(sizes) < 1.5 * 110_000
    assert min(sizes) > 0.5 * 110_000


def test_one_partition_is_spread_over_the_cores() -> None:
    def heavy(given_ranges: Sequence[OffsetRange]) -> list[int]:
        return [each.offsets * 100_000 for each in given_ranges]

    one = [OffsetRange("t", "id", 0, 0, 1000)]
    assert len(plan(one, heavy, Sizes())) == 1
    assert len(plan(one, heavy, Sizes(cores=4))) == 4
    assert len(plan(one, heavy, Sizes(cores=64))) == 6, "tasks of 16 MiB at least"


def test_small_partitions_share_tasks() -> None:
    small = [OffsetRange("t", "id", partition, 0, 10) for partition in range(2, 102)]
    tasks = plan(small, estimate, Sizes(pack_bytes=20_000))
    assert [len(task) for task in tasks] == [20] * 5


def test_packing_gives_way_to_the_least_number_of_tasks() -> None:
    small = [OffsetRange("t", "id", partition, 0, 10) for partition in range(2, 6)]
    assert len(plan(small, estimate, Sizes(min_tasks=4))) == 4
    assert len(plan(small, estimate, Sizes(min_tasks=7))) == 7
    assert len(plan(small, estimate, Sizes())) == 1
