"""The latest batches of a segment are found exactly, all others by the entry before them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparrow.storage.index import MAX_RECENT, SegmentIndex

BASE = 1_000
SIZES = st.lists(st.tuples(st.integers(1, 5), st.integers(61, 6_000)), min_size=1, max_size=3 * MAX_RECENT)
"""Records and bytes of each batch."""


def filled(batches: list[tuple[int, int]]) -> tuple[SegmentIndex, list[tuple[int, int, int]]]:
    """Return the index, and (first offset, last offset, position) of each batch."""
    index, placed = SegmentIndex(BASE), []
    offset, position = BASE, 0
    for records, size in batches:
        index.add(offset + records - 1, position, size, -1)
        placed.append((offset, offset + records - 1, position))
        offset, position = offset + records, position + size
    return index, placed


@given(SIZES)
def test_recent_batch_is_found_exactly_and_no_position_is_too_late(batches: list[tuple[int, int]]) -> None:
    index, placed = filled(batches)
    exact = placed[-(MAX_RECENT // 2) + 1 :]
    for first, last, position in placed:
        for offset in {first, last}:
            found, found_last = index.batch_for(offset)
            assert found <= position
            assert found_last < 0 or (found, found_last) in {(p, e) for _, e, p in placed}
            if (first, last, position) in exact[1:]:
                assert (found, found_last) == (position, last)


@given(SIZES, st.data())
def test_batches_behind_a_restored_state_are_forgotten(
    batches: list[tuple[int, int]], data: st.DataObject
) -> None:
    kept = data.draw(st.integers(0, len(batches) - 1))
    state = filled(batches[:kept])[0].state
    index, placed = filled(batches)
    first, _, position = placed[kept]
    index.restore(state)
    found, last = index.batch_for(first)
    assert found <= position
    assert last < first
