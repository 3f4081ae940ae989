"""Runs of equal heads, compared with a loop over single frames."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparrow.protocol.seeds.equal_frames import count_equal


def counted_one_by_one(data: bytes, start: int, size: int, positions: list[int]) -> int:
    first = data[start : start + size]
    count = 0
    while start + size <= len(data):
        frame = data[start : start + size]
        if len(first) < size or any(frame[position] != first[position] for position in positions):
            break
        count += 1
        start += size
    return count


@given(
    data=st.lists(st.sampled_from(b"ab"), max_size=60).map(bytes),
    start=st.integers(0, 10),
    size=st.integers(1, 8),
    chosen=st.sets(st.integers(0, 7)),
)
def test_a_run_is_as_long_as_a_loop_says(data: bytes, start: int, size: int, chosen: set[int]) -> None:
    positions = sorted(position for position in chosen if position < size)
    start = min(start, len(data))
    assert count_equal(data, start, size, positions) == counted_one_by_one(data, start, size, positions)


def test_complete_frames_of_a_long_run_are_counted_and_a_cut_one_is_not() -> None:
    frame = b"head" + b"?" * 9
    assert count_equal(frame * 1000 + frame[:-1], 0, len(frame), range(4)) == 1000
    assert count_equal(frame * 5 + b"head" + b"!" * 9 + b"Head" + b"?" * 9, 0, len(frame), range(4)) == 6
