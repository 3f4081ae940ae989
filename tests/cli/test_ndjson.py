"""Messages as lines of JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidRecord
from sparrow.cli.ndjson import MessageToPublish, format_line, parse_line
from sparrow.records.record import Record


def test_all_fields_are_read():
    line = (
        b'{"value": "v", "key": {"base64": "AP8="}, "headers": {"a": "x", "b": null},'
        b' "partition": 3, "timestamp": "2026-05-01T12:00:00Z"}'
    )
    assert parse_line(line) == MessageToPublish(
        b"v", b"\x00\xff", (("a", b"x"), ("b", None)), 3, 1_777_636_800_000
    )


def test_only_the_value_is_needed_and_null_is_a_tombstone():
    assert parse_line(b'{"value": null}') == MessageToPublish(None, None, (), None, None)


def test_repeated_header_names_are_a_list_of_pairs():
    assert parse_line(b'{"value": "", "headers": [["a", "1"], ["a", "2"]]}').headers == (
        ("a", b"1"),
        ("a", b"2"),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "Input data was truncated"),
        (b"hello", "malformed"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field `value`"),
        (b'{"vaule": "x"}', "unknown field `vaule`"),
        (b'{"value": 5}', "value"),
        (b'{"value": {"base64": "%%"}}', "base64 that is none"),
        (b'{"value": "x", "timestamp": "yesterday"}', "'yesterday' is no time"),
        (b'{"value": "x", "headers": {"a": 1}}', "headers"),
    ],
)
def test_malformed_line_is_refused_with_the_reason(line, message):
    with pytest.raises(InvalidRecord, match=message):
        parse_line(line)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_an_invalid_record(line):
    try:
        found = parse_line(line)
    except InvalidRecord:
        return
    assert isinstance(found, MessageToPublish)


parts = st.none() | st.binary(max_size=20)
headers = st.lists(st.tuples(st.text(max_size=5), parts), max_size=4).map(tuple)


@given(parts, parts, headers, st.integers(0, 1 << 40), st.integers(0, 1 << 50))
def test_written_lines_are_read_back(value, key, headers, timestamp, offset):
    line = format_line(Record("t", 2, offset, timestamp, key, value, headers))
    assert b"\n" not in line
    assert parse_line(line) == MessageToPublish(value, key, headers, 2, timestamp)
