"""The verifier accepts exactly the causal orders, and detects missing, unknown and surplus
messages.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparrow.client.results import QueueStatistics
from sparrow.demo.crew import Killed, Worked
from sparrow.demo.verification import checks, compare
from sparrow.demo.worker import HandledLine

Graph = list[tuple[str, tuple[str, ...]]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Messages with up to four parents each, parents first."""
    count = draw(st.integers(1, 12))
    return [
        (f"m{n}", tuple(f"m{p}" for p in draw(st.lists(st.integers(0, n - 1), unique=True, max_size=4))))
        if n
        else ("m0", ())
        for n in range(count)
    ]


def lines(ids: list[str]) -> list[HandledLine]:
    return [HandledLine(each, "worker-1", 1) for each in ids]


def is_causal(order: list[str], graph: Graph) -> bool:
    """Return True if a reader with a memory would find every message after its parents."""
    parents = dict(graph)
    seen: set[str] = set()
    for each in order:
        if each not in seen and not seen.issuperset(parents[each]):
            return False
        seen.add(each)
    return True


@given(graphs(), st.data())
def test_an_order_is_accepted_exactly_if_it_is_causal(graph, data):
    ids = [id_ for id_, _ in graph]
    order = data.draw(st.permutations(ids))
    repeats = data.draw(st.lists(st.sampled_from(ids), max_size=5))
    whole = data.draw(st.permutations([*order, *repeats])) if repeats else order
    found = compare(lines(whole), graph)
    assert (len(found.too_early) == 0) == is_causal(whole, graph)
    assert (len(found.missing), len(found.unknown), found.repeats) == (0, 0, len(repeats))


@given(graphs(), st.data())
def test_causal_order_with_a_child_moved_before_its_parent_is_refused(graph, data):
    links = [(child, parent) for child, parents in graph for parent in parents]
    ids = [id_ for id_, _ in graph]
    assert compare(lines(ids), graph).too_early == []
    if not links:
        return
    child, parent = data.draw(st.sampled_from(links))
    ids.remove(child)
    ids.insert(ids.index(parent), child)
    found = compare(lines(ids), graph)
    assert f"{child} before {parent}" in found.too_early


@given(graphs(), st.data())
def test_unhandled_messages_are_named(graph, data):
    ids = [id_ for id_, _ in graph]
    gone = data.draw(st.sampled_from(ids))
    found = compare(lines([each for each in ids if each != gone]), graph)
    assert found.missing == [gone]


@given(graphs())
def test_unpublished_messages_are_named(graph):
    found = compare(lines([*(id_ for id_, _ in graph), "stranger"]), graph)
    assert found.unknown == ["stranger"]


@given(graphs())
def test_longest_chain_is_counted_in_messages(graph):
    parents = dict(graph)

    def depth(id_: str) -> int:
        return 1 + max(map(depth, parents[id_]), default=0)

    assert compare([], graph).longest_chain == max(map(depth, parents))


def told(
    *,
    repeats: int = 1,
    again: tuple[str, ...] = ("a", "b"),
    by: str = "worker-2",
    lost: int = 0,
    **queue: int,
) -> set[str]:
    """Return the names of the checks that did not hold for two messages, and a worker that died
    with both, one of them handled.
    """
    handled = [*lines(["a", "b"]), *(HandledLine(each, by, 2) for each in again)]
    found = compare(handled, [("a", ()), ("b", ("a",))])
    found.repeats = repeats
    worked = Worked(lost=lost, killed=Killed("worker-1", ["a", "b"], 1, 2))
    return {each.name for each in checks(found, worked, QueueStatistics(**queue)) if not each.held}


def test_all_checks_hold_after_a_good_run():
    assert told() == set()


def test_repeats_beyond_those_of_the_killed_worker_and_of_ended_leases_do_not_hold():
    name = "nothing else was handled twice"
    assert told(repeats=0) == {name}
    assert told(repeats=2) == {name}
    assert told(repeats=2, lost=1) == set()


def test_jobs_of_the_dead_that_did_not_come_again_do_not_hold():
    name = "its jobs came again, to others"
    assert told(again=("a",)) == told(by="worker-1") == {name}


def test_queue_that_is_not_empty_does_not_hold():
    name = "the queue is empty, and has no dead letters"
    assert told(unfinished=1) == told(dead=1, dead_lettered=1) == {name}


def test_run_without_a_killed_worker_does_not_hold():
    found = compare(lines(["a"]), [("a", ())])
    held = {each.name: each.held for each in checks(found, Worked(), QueueStatistics())}
    assert not held["a worker was killed (-9) while it held jobs"]
    assert not held["its jobs came again, to others"]
