"""Positions of a stream as the id of an event."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument
from sparrow.frontends.http.positions import format_others, format_positions, parse_positions

POSITIONS = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), min_size=1, max_size=8)


@given(POSITIONS)
def test_written_positions_are_read_back_except_partitions_at_0(positions: dict[int, int]) -> None:
    read = parse_positions(format_positions(positions))
    assert {p: o for p, o in read.items() if o} == {p: o for p, o in positions.items() if o}


@given(POSITIONS, st.data())
def test_the_id_of_an_event_names_its_own_partition_first(
    positions: dict[int, int], data: st.DataObject
) -> None:
    own = data.draw(st.sampled_from(sorted(positions)))
    text = f"{own}:{positions[own]}" + format_others(positions, own)
    assert {p: o for p, o in parse_positions(text).items() if o} == {p: o for p, o in positions.items() if o}


@given(st.text(max_size=30))
def test_any_text_is_positions_or_refused(text: str) -> None:
    try:
        positions = parse_positions(text)
    except InvalidArgument:
        return
    assert positions


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0:",
        ":1",
        "0:1,",
        "0:1,0:2",
        "0:1 ,1:1",
        "-1:1",
        "0:9223372036854775808",
        "2147483648:1",
        "\u0663:\u0661",
    ],
)
def test_positions_that_no_stream_sends_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_positions(text)


def test_ids_beyond_the_limit_are_refused_before_they_are_read() -> None:
    with pytest.raises(InvalidArgument):
        parse_positions(",".join(f"{index}:1" for index in range(20_000)))
