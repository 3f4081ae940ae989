"""States of a page that were kept, as columns: compared with a list of the states."""

from __future__ import annotations

from array import array
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.queue_policy import QueuePolicy
from sparrow.broker.queues.maps.range_map import RangeMap
from sparrow.broker.queues.rules.kept_page import KeptPage
from sparrow.broker.queues.rules.leases import Lease
from sparrow.broker.queues.rules.state import QueueState

PAGE = RangeMap.PAGE
NUMBER = 3
BASE = NUMBER * PAGE
VALUES = (0, 6, 0x122, 0x123)
LEASES = (None, None, Lease("ann", 1, 2), Lease("bob", 1, 2))


@st.composite
def kept_pages(draw: st.DrawFn) -> KeptPage:
    """A page of few long runs, of many short ones, or of both."""
    few = draw(st.lists(st.integers(1, PAGE - 1), max_size=6))
    first, step = draw(st.integers(1, PAGE - 1)), draw(st.integers(1, 100))
    many = range(first, min(first + draw(st.integers(0, 60)) * step, PAGE), step)
    starts = array("H", sorted({0, *few, *many}))
    kinds = array("H", (draw(st.integers(0, len(VALUES) - 1)) for _ in starts))
    return KeptPage(NUMBER, starts, kinds, VALUES, LEASES)


def kinds_of(page: KeptPage) -> list[int]:
    return [kind for kind, first, end in page.spans() for _ in range(first, end)]


@given(kept_pages())
def test_runs_are_those_that_were_kept(page: KeptPage) -> None:
    found = [0] * PAGE
    for first, end, value, lease in page.runs():
        kind = VALUES.index(value)
        assert kind
        assert LEASES[kind] is lease
        found[first - BASE : end - BASE] = [kind] * (end - first)
    assert found == kinds_of(page)


@given(kept_pages())
def test_extents_have_all_records_of_a_kind_with_short_holes(page: KeptPage) -> None:
    kinds = kinds_of(page)
    for kind, (records, pieces) in enumerate(page.extents()):
        offsets = [BASE + n for n, each in enumerate(kinds) if each == kind]
        assert records == len(offsets)
        assert all(any(first <= offset < end for first, end in pieces) for offset in offsets)
        ends = [end for _, end in pieces]
        for (first, end), before in zip(pieces, [None, *ends], strict=False):
            ours = [offset for offset in offsets if first <= offset < end]
            assert (ours[0], ours[-1] + 1) == (first, end)
            assert all(later - offset <= 65 for offset, later in pairwise(ours))
            assert before is None or first - before > 64


@given(kept_pages(), st.integers(-5, PAGE + 5))
def test_states_behind_the_end_of_a_log_are_cut_off(page: KeptPage, rest: int) -> None:
    kinds, end = kinds_of(page), BASE + rest
    kept = max(0, min(rest, PAGE))
    cut = page.before(end)
    assert kinds_of(cut) == kinds[:kept] + [0] * (PAGE - kept)
    assert page.reaches_beyond(end) == any(kinds[kept:])
    assert not cut.reaches_beyond(end)


@given(kept_pages(), st.lists(st.integers(0, PAGE + 200), min_size=1, max_size=6), st.booleans())
def test_restored_records_are_known_until_the_scanner_has_met_them(
    page: KeptPage, steps: list[int], is_parented: bool
) -> None:
    policy = QueuePolicy().changed({"order": "parented"} if is_parented else {})
    state = QueueState("q", policy, has_dead_letters=True, jitter=lambda: 0.0)
    state.add_source(BASE - 100, dict.fromkeys(state.subscribers, BASE - 100))
    (subscriber,) = state.subscribers.values()
    subscriber.restore(0, [page])
    known = [BASE + n for n, kind in enumerate(kinds_of(page)) if kind]
    at = state.scanned[0]
    assert subscriber.kept_from(0, at) == len(known)
    for step in steps:
        end = min(at + step, BASE + PAGE + 100)
        state.found(0, at, end, None, now_ms=1, wall_ms=1)
        at = max(end, state.scanned[0])
        assert subscriber.kept_from(0, at) == sum(offset >= at for offset in known)
