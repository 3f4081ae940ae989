"""The assignor: complete, balanced, sticky, deterministic."""

from __future__ import annotations

import random
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.broker.groups.native.sticky_assignor import assign
from sparrow.records.topic_partition import TopicPartition
from tests.repetitions import repetitions

TOPICS = ["a", "b", "c", "d"]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))
SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(7)]), st.frozensets(st.sampled_from(TOPICS)), max_size=7
)


def same(members: int, *topics: str) -> dict[str, frozenset[str]]:
    return {f"m{n}": frozenset(topics) for n in range(members)}


def loads(assignment: dict[str, set[TopicPartition]]) -> list[int]:
    return [len(assignment[member]) for member in sorted(assignment)]


def moved(before: dict[str, set[TopicPartition]], after: dict[str, set[TopicPartition]]) -> int:
    """Return the partitions whose member is still there, and which have another one now."""
    return sum(len(before[member] - after[member]) for member in before.keys() & after.keys())


def test_partitions_are_spread_evenly() -> None:
    assert loads(assign(same(3, "a", "b"), {"a": 4, "b": 4}, {})) == [3, 3, 2]


def test_each_topic_is_spread_over_the_members() -> None:
    assignment = assign(same(2, "a", "b"), {"a": 4, "b": 4}, {})
    assert all(sum(p[0] == topic for p in owned) == 2 for owned in assignment.values() for topic in "ab")


def test_a_new_member_takes_its_share_and_nothing_else_moves() -> None:
    before = assign(same(3, "a"), {"a": 12}, {})
    after = assign(same(4, "a"), {"a": 12}, before)
    assert loads(after) == [3, 3, 3, 3]
    assert moved(before, after) == 3


def test_the_partitions_of_a_member_that_left_are_the_only_ones_that_move() -> None:
    before = assign(same(4, "a"), {"a": 10}, {})
    left = {member: topics for member, topics in same(4, "a").items() if member != "m1"}
    after = assign(left, {"a": 10}, before)
    assert moved(before, after) == 0
    assert loads(after) == [4, 3, 3]


def test_members_beyond_the_partitions_get_nothing() -> None:
    assert loads(assign(same(5, "a"), {"a": 2}, {})) == [1, 1, 0, 0, 0]


def test_a_topic_that_only_one_member_wants_goes_to_it_and_the_others_make_up_for_it() -> None:
    subscriptions = {"m0": frozenset("ab"), "m1": frozenset("a"), "m2": frozenset("a")}
    assignment = assign(subscriptions, {"a": 6, "b": 3}, {})
    assert loads(assignment) == [3, 3, 3]
    assert {p for p in assignment["m0"] if p[0] == "b"} == {("b", 0), ("b", 1), ("b", 2)}


def test_partitions_of_unknown_topics_do_not_exist() -> None:
    assert assign(same(1, "a"), {}, {"m0": {("a", 0)}}) == {"m0": set()}


def test_nobody_wants_anything() -> None:
    assert assign({}, {"a": 3}, {}) == {}


def check_rules(
    subscriptions: dict[str, frozenset[str]],
    counts: dict[str, int],
    assignment: dict[str, set[TopicPartition]],
) -> None:
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    given_out = [p for owned in assignment.values() for p in owned]
    assert sorted(given_out) == sorted((t, n) for t in wanted for n in range(counts.get(t, 0)))
    assert all(p[0] in subscriptions[member] for member, owned in assignment.items() for p in owned)
    for one, other in combinations(subscriptions, 2):
        if subscriptions[one] == subscriptions[other]:
            assert abs(len(assignment[one]) - len(assignment[other])) <= 1


@settings(max_examples=repetitions(60), deadline=None)
@given(st.lists(st.tuples(SUBSCRIPTIONS, COUNTS), min_size=1, max_size=4))
def test_any_history_is_complete_balanced_and_at_rest(
    history: list[tuple[dict[str, frozenset[str]], dict[str, int]]],
) -> None:
    assignment: dict[str, set[TopicPartition]] = {}
    for subscriptions, counts in history:
        assignment = assign(subscriptions, counts, assignment)
        check_rules(subscriptions, counts, assignment)
        assert assign(subscriptions, counts, assignment) == assignment


@settings(max_examples=repetitions(30), deadline=None)
@given(SUBSCRIPTIONS, COUNTS, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(
    subscriptions: dict[str, frozenset[str]], counts: dict[str, int], dice: random.Random
) -> None:
    shuffled = dict(dice.sample(list(subscriptions.items()), len(subscriptions)))
    assert assign(shuffled, counts, {}) == assign(subscriptions, counts, {})


@settings(max_examples=repetitions(40), deadline=None)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 40))
def test_no_more_moves_than_balance_needs(before_members: int, after_members: int, count: int) -> None:
    """With one subscription, moved partitions are those that the grown members lack."""
    before = assign(same(before_members, "a"), {"a": count}, {})
    after = assign(same(after_members, "a"), {"a": count}, before)
    grown = after.keys() - before.keys()
    assert moved(before, after) == sum(len(after[member]) for member in grown)
