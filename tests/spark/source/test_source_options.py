"""Options of reading: accepted values, and the errors for wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from sparrow.base.errors import InvalidArgument
from sparrow.spark.options.source import (
    SOURCE,
    check_batch,
    check_stream,
    fails_on_corrupt,
    read_source_options,
)


def read(**given: str) -> Any:
    return read_source_options(
        {"subscribe": "t", **{name.replace("__", "."): v for name, v in given.items()}}
    )


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("subscribe", "a, b,a", ("a", "b")),
        ("startingOffsets", "Earliest", "earliest"),
        ("startingOffsets", '{"t": {"0": 23, "1": -2}}', {"t": {0: 23, 1: -2}}),
        ("startingOffsets", '{"t": {"0": 23}, "$ids": {"t": "x"}}', {"t": {0: 23}}),
        ("startingTimestamp", "1700000000000", 1_700_000_000_000),
        ("startingOffsetsByTimestamp", '{"t": {"0": 5}}', {"t": {0: 5}}),
        ("startingOffsetsByTimestampStrategy", "latest", "latest"),
        ("endingOffsets", '{"t": {"0": -1}}', {"t": {0: -1}}),
        ("endingTimestamp", "7", 7),
        ("endingOffsetsByTimestamp", '{"t": {"0": 5}}', {"t": {0: 5}}),
        ("maxOffsetsPerTrigger", "1000", 1000),
        ("maxBytesPerTrigger", "64m", 64 << 20),
        ("minPartitions", "8", 8),
        ("maxRecordsPerPartition", "10", 10),
        ("maxBytesPerPartition", "1 MiB", 1 << 20),
        ("packBytes", "0", 0),
        ("failOnDataLoss", "false", False),
        ("failOnCorrupt", "false", False),
        ("onCorrupt", "skip", "skip"),
        ("includeHeaders", "TRUE", True),
        ("columns", "value, TIMESTAMPTYPE", ("value", "timestampType")),
        ("isolation.level", "read_uncommitted", "read_uncommitted"),
        ("pushdown", "true", "true"),
        ("fetchBytes", "1m", 1 << 20),
        ("pollTimeout", "0", 0),
        ("lag", "false", False),
        ("groupIdPrefix", "nightly", "nightly"),
        ("kafka.group.id", "g", "g"),
    ],
)
def test_each_option_is_read(name: str, text: str, value: object) -> None:
    assert read_source_options({"subscribe": "t", name: text})[name] == value


@pytest.mark.parametrize(
    ("alias", "name", "text"),
    [
        ("kafka.isolation.level", "isolation.level", "read_uncommitted"),
        ("maxRowsPerBatch", "maxOffsetsPerTrigger", "5"),
        ("maxBytesPerBatch", "maxBytesPerTrigger", "5"),
        ("kafka.bootstrap.servers", "kafka.bootstrap.servers", "a:9092"),
    ],
)
def test_other_names_of_an_option_are_taken(alias: str, name: str, text: str) -> None:
    assert read_source_options({"subscribe": "t", alias: text})[name] is not None


@pytest.mark.parametrize(
    ("given", "fails"),
    [
        ({}, True),
        ({"onCorrupt": "fail"}, True),
        ({"on_corrupt": "skip"}, False),
        ({"failOnCorrupt": "false"}, False),
        ({"failOnCorrupt": "false", "onCorrupt": "skip"}, False),
    ],
)
def test_handling_of_corrupt_batches_has_two_options(given: dict[str, str], fails: bool) -> None:
    assert fails_on_corrupt(read_source_options({"subscribe": "t", **given})) is fails


def test_contradicting_options_for_corrupt_batches_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="contradict"):
        read_source_options({"subscribe": "t", "failOnCorrupt": "true", "onCorrupt": "skip"})


def test_every_option_has_a_test_or_is_of_the_connection() -> None:
    mark = next(each for each in test_each_option_is_read.pytestmark if each.name == "parametrize")
    tested = {case[0] for case in mark.args[1]} | {"subscribePattern", "assign"}
    declared = [name for name, *_ in SOURCE.table()]
    assert set(declared[: declared.index("url")]) == tested


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("subscribe", " , ", "names of topics"),
        ("subscribePattern", "a(", "regular expression"),
        ("assign", '{"t": []}', "at least one partition"),
        ("assign", "[1]", "JSON such as"),
        ("startingOffsets", "begin", "earliest, latest or JSON"),
        ("startingOffsets", '{"t": {"0": -3}}', "-3"),
        ("startingOffsets", '{"t": {"x": 3}}', "'x'"),
        ("startingOffsets", "{}", "JSON such as"),
        ("startingOffsetsByTimestamp", '{"t": {"0": -1}}', "-1"),
        ("startingOffsetsByTimestampStrategy", "first", "error, latest"),
        ("maxOffsetsPerTrigger", "0", "whole number"),
        ("minPartitions", "many", "whole number"),
        ("failOnDataLoss", "maybe", "true or false"),
        ("columns", "value,offsets", "did you mean 'offset'"),
        ("columns", "value,value", "each once"),
        ("isolation.level", "serializable", "read_committed, read_uncommitted"),
    ],
)
def test_wrong_value_is_named_with_the_allowed_ones(name: str, text: str, what: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        read_source_options({"subscribe": "t", name: text} if name != "assign" else {name: text})
    assert name in raised.value.text
    assert what in raised.value.text


def test_all_faults_are_named_at_once() -> None:
    given = {"subscribe": "t", "startingofset": "x", "minpartitions": "u", "minoffsetspertrigger": "5"}
    with pytest.raises(InvalidArgument) as raised:
        read_source_options(given)
    text = raised.value.text.lower()
    assert "3 options" in text
    assert "did you mean 'startingoffsets'" in text
    assert "minpartitions cannot be 'u'" in text
    assert "minoffsetspertrigger is not offered" in text


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "give subscribe, subscribePattern or assign"),
        ({"subscribe": "t", "assign": '{"t": [0]}'}, "subscribe and assign are given together"),
        (
            {"subscribe": "t", "includeHeaders": "true", "columns": "value"},
            "includeHeaders and columns without headers",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(given: dict[str, str], what: str) -> None:
    with pytest.raises(InvalidArgument, match=what):
        read_source_options(given)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "startingOffsets cannot be latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets cannot be earliest"),
    ],
)
def test_a_batch_refuses_places_that_leave_no_rows(given: dict[str, str], what: str) -> None:
    values = read(**given)
    with pytest.raises(InvalidArgument, match=what):
        check_batch(values)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_refuses_an_end(name: str) -> None:
    text = '{"t": {"0": 5}}' if "Offsets" in name else "5"
    with pytest.raises(InvalidArgument, match=f"{name}: a stream has no end"):
        check_stream(read(**{name: text}))


def test_options_that_fit_a_batch_or_a_stream_are_accepted() -> None:
    check_batch(read(startingOffsets="earliest", endingOffsets="latest"))
    check_stream(read(startingOffsets="latest"))
