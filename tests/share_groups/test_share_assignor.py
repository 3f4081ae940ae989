"""The assignor of share groups: no idle member, no unread partition, even, and few moves."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.broker.groups.consumer.assignors import Wish
from sparrow.broker.groups.consumer.member import NOTHING, Assignment, TopicIdPartition
from sparrow.broker.groups.consumer.topics import TopicView
from sparrow.broker.groups.share.balanced_assignor import assign
from tests.repetitions import repetitions
from tests.share_groups.machine import topic_views


def all_want(
    members: int, topics: list[TopicView], before: Mapping[str, Assignment] | None = None
) -> dict[str, Assignment]:
    before = before or {}
    names = [f"m{n:04}" for n in range(members)]
    return assign({name: Wish(topics, previous=before.get(name, NOTHING)) for name in names})


def readers(assigned: Mapping[str, Assignment]) -> Counter[TopicIdPartition]:
    return Counter(partition for partitions in assigned.values() for partition in partitions)


def counts(assigned: Mapping[str, Assignment]) -> list[int]:
    return sorted(len(partitions) for partitions in assigned.values())


def moved(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    """Return the partitions that members lost, of those members that are still there."""
    return sum(len(before[member] - after[member]) for member in before if member in after)


def test_fewer_members_than_partitions_share_them_out_once() -> None:
    assigned = all_want(3, topic_views([4, 4]))
    assert set(readers(assigned).values()) == {1}
    assert counts(assigned) == [2, 3, 3]


def test_more_members_than_partitions_read_them_together_and_evenly() -> None:
    assigned = all_want(7, topic_views([3]))
    assert set(readers(assigned).values()) == {3}
    assert counts(assigned) == [1, 1, 1, 1, 1, 2, 2]
    assert counts(all_want(6, topic_views([3]))) == [1] * 6


def test_single_partition_is_read_by_everybody() -> None:
    assert counts(all_want(200, topic_views([1]))) == [1] * 200


def test_no_topics_means_nothing() -> None:
    assert all_want(2, []) == {"m0000": NOTHING, "m0001": NOTHING}
    assert assign({}) == {}


def test_member_that_joins_takes_no_more_than_its_share() -> None:
    topics = topic_views([12])
    before = all_want(3, topics)
    after = all_want(4, topics, before)
    assert counts(after) == [3, 3, 3, 3]
    assert moved(before, after) == 3


def test_leaving_member_does_not_change_the_partitions_of_others() -> None:
    topics = topic_views([12])
    before = all_want(4, topics)
    del before["m0003"]
    after = all_want(3, topics, before)
    assert counts(after) == [4, 4, 4]
    assert moved(before, after) == 0


def test_nothing_moves_when_nothing_changes() -> None:
    for members, partitions in ((3, 7), (7, 3), (5, 5), (1, 9), (200, 3)):
        topics = topic_views([partitions])
        before = all_want(members, topics)
        assert all_want(members, topics, before) == before


def test_members_that_can_give_only_by_a_chain_of_others_do() -> None:
    a, b = topic_views([2, 2])
    first, second = (a.topic_id, 0), (a.topic_id, 1)
    third, fourth = (b.topic_id, 0), (b.topic_id, 1)
    wishes = {
        "w": Wish([a, b], previous=frozenset({first})),
        "x": Wish([a]),
        "y": Wish([a, b], previous=frozenset({second})),
        "z": Wish([b], previous=frozenset({third, fourth})),
    }
    assigned = assign(wishes)
    assert counts(assigned) == [1, 1, 1, 1]
    assert set(readers(assigned)) == {first, second, third, fourth}


def test_many_members_and_partitions_are_assigned_in_reasonable_time() -> None:
    topics = topic_views([2_000])
    before = all_want(199, topics)
    after = all_want(200, topics, before)
    assert counts(after) == [10] * 200
    assert moved(before, after) <= 20


def test_gone_topics_and_partitions_are_forgotten() -> None:
    a, b = topic_views([2, 2])
    before = all_want(1, [a, b])
    assert all_want(1, [b], before) == {"m0000": frozenset({(b.topic_id, 0), (b.topic_id, 1)})}


@settings(max_examples=repetitions(150), deadline=None)
@given(
    partitions=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    first=st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=8),
    second=st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=8),
)
def test_whatever_members_want_all_is_read_and_nobody_is_idle(
    partitions: list[int], first: list[set[int]], second: list[set[int]]
) -> None:
    """Assign twice, the second time from the result of the first."""
    topics = topic_views(partitions)
    before: dict[str, Assignment] = {}
    for round_ in (first, second):
        wanted = {f"m{n}": [topics[t] for t in sorted(s) if t < len(topics)] for n, s in enumerate(round_)}
        before = assign({m: Wish(ts, previous=before.get(m, NOTHING)) for m, ts in wanted.items()})
        _check(wanted, before)


def _check(wanted: Mapping[str, list[TopicView]], assigned: Mapping[str, Assignment]) -> None:
    read = readers(assigned)
    for topic in {topic for topics in wanted.values() for topic in topics}:
        assert all(read[topic.topic_id, number] for number in range(topic.partitions))
    for member, topics in wanted.items():
        ids = {topic.topic_id for topic in topics}
        assert {topic_id for topic_id, _ in assigned[member]} <= ids
        assert bool(assigned[member]) == bool(topics)
    if len({tuple(topics) for topics in wanted.values()}) == 1 and read:
        assert max(read.values()) - min(read.values()) == 0
        assert max(counts(assigned)) - min(counts(assigned)) <= 1
