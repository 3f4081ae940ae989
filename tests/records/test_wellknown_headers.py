"""The headers that queues understand: written values are read, and malformed ones count as
absent.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument
from sparrow.records.wellknown import (
    MAX_TIME_MS,
    PRIORITY,
    QUEUE_HEADERS,
    format_priority,
    format_text,
    format_time_ms,
    maybe_parse_priority,
    parse_text,
    parse_time_ms,
    priority_of,
)


@settings(deadline=None)
@given(st.integers(1, MAX_TIME_MS))
@example(1)
@example(MAX_TIME_MS)
def test_times_are_read_as_they_were_written(time_ms: int) -> None:
    assert parse_time_ms(format_time_ms(time_ms)) == time_ms


@pytest.mark.parametrize("priority", range(10))
def test_priorities_are_read_as_they_were_written(priority: int) -> None:
    assert maybe_parse_priority(format_priority(priority)) == priority


@settings(deadline=None)
@given(st.text(min_size=1).filter(lambda text: text.isprintable()))
def test_ids_are_read_as_they_were_written(text: str) -> None:
    assert parse_text(format_text(text)) == text


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"0",
        b"-5",
        b"+5",
        b" 5",
        b"5 ",
        b"1e3",
        b"0x10",
        "٣".encode(),
        b"9" * 19,
        b"1" * 20,
        b"soon",
    ],
)
def test_a_malformed_time_counts_as_absent(value: bytes | None) -> None:
    assert parse_time_ms(value) == 0


@pytest.mark.parametrize("value", [None, b"", b"10", b"-1", b"a", b" 4", "٣".encode(), b"\xb2"])
def test_a_malformed_priority_counts_as_absent(value: bytes | None) -> None:
    assert maybe_parse_priority(value) is None


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"ok\xc3"])
def test_a_malformed_id_counts_as_absent(value: bytes | None) -> None:
    assert not parse_text(value)


@settings(deadline=None)
@given(st.one_of(st.none(), st.binary(max_size=40)))
def test_any_value_is_read_without_an_error(value: bytes | None) -> None:
    assert 0 <= parse_time_ms(value) <= MAX_TIME_MS
    assert maybe_parse_priority(value) in {None, *range(10)}
    assert isinstance(parse_text(value), str)


@pytest.mark.parametrize("time_ms", [0, -1, MAX_TIME_MS + 1])
def test_a_time_that_cannot_be_read_is_not_written(time_ms: int) -> None:
    with pytest.raises(InvalidArgument, match="no time in ms"):
        format_time_ms(time_ms)


@pytest.mark.parametrize("priority", [-1, 10])
def test_a_priority_that_cannot_be_read_is_not_written(priority: int) -> None:
    with pytest.raises(InvalidArgument, match="no priority"):
        format_priority(priority)


@pytest.mark.parametrize("text", ["", "\ud800"])
def test_an_id_that_cannot_be_read_is_not_written(text: str) -> None:
    with pytest.raises(InvalidArgument):
        format_text(text)


def test_the_names_are_those_of_the_documentation() -> None:
    assert QUEUE_HEADERS == (
        b"message-id",
        b"parent-id",
        b"deliver-at",
        b"expires-at",
        b"priority",
        b"redrive-queue",
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], 4), ([b"7"], 7), ([b"7", b"2"], 2), ([b"7", b"x", None], 7), ([b"10", None], 4)],
)
def test_the_last_well_formed_priority_counts(values: list[bytes | None], expected: int) -> None:
    headers = [("other", b"9"), *((PRIORITY, value) for value in values)]
    assert priority_of(headers) == expected
